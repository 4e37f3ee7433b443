"""The Ratio and clip page: presets, worked examples, every surrogate, extremes, snippets, words, in both languages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from app import editing, link, presets, snippets_clip
from app.explain import clip as curve
from app.explain import clip_epochs, clip_levels, clip_regions, clip_surrogates
from app.figures import clip_epochs as epoch_figures
from app.figures.base import DARK, LIGHT
from app.figures.clip_regions import quadrants as quadrants_figure
from app.figures.clip_surrogates import surrogates as surrogates_figure
from app.lens import look
from app.link import value_of
from app.params import OPTIONS, PARAMS, SHOWN_RECIPES, distinct_surrogates
from app.teaching import teaching_groups
from app.views.clip import surrogates as surrogates_view
from app.words import catalogue, sections, t
from grpo_core import SURROGATES, Group, get_recipe
from tests.app.driving import ROOT, link_of, metrics, number, pictures, printed, sound, typed_wrong

NAMES = tuple(presets.names("clip"))
VIEWS = PARAMS["clip_view"].choices
CASES = {case["id"]: case for case in json.loads((ROOT / "tests" / "cases" / "seed_examples.json").read_text())}
CHECKS = {"curve": "clip", "levels": "levels", **{v: v for v in VIEWS if v not in ("curve", "levels")}}


def lens_of(group="off-policy", **chosen):
    return look(teaching_groups()[group], {name: value_of(chosen, name) for name in PARAMS})


def numbers_of(at) -> dict[str, float]:
    return {name: number(text) for name, text in metrics(at).items()}


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name, lang):
    at = open_page("clip", {**link_of("clip", name), **({} if lang == "en" else {"lang": lang})})
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.latex[0].value
    view = presets.presets("clip")[name]["set"]["clip_view"]
    assert at.session_state[f"preset-clip-{view}"] == name


@pytest.mark.parametrize("name", SURROGATES)
def test_every_surrogate_with_every_hyperparameter_at_its_ends(open_page, name):
    for end in ("low", "high"):
        own = {n: PARAMS[n].write(getattr(PARAMS[n], end)) for n in (*OPTIONS, "oldp")}
        for sign in ("up", "down"):
            query = {"clip_view": "surrogates", "surrogate": name, "sign": sign, "r": "0" if end == "low" else "1000"}
            at = open_page("clip", {**query, **own, "g": "off-policy"})
            sound(at)
            assert not at.warning


EXTREMES = (
    {"r": "0", "eps_low": "0", "eps_high": "0"}, {"r": "1000", "eps_low": "1", "eps_high": "10", "delta": "1"},
    {"mu": "64", "lr": "100", "rest": "0"}, {"mu": "1", "lr": "0.0001", "rest": "0.9999"},
    {"delta": "1", "sign": "down"},
    {"levels_view": "weights", "drift": "2", "pull_n": "256"},
    {"levels_view": "weights", "drift": "0.5", "pull_n": "1"},
    {"levels_view": "identity", "was": "0.01,0.01", "now": "0,1"},
    {"levels_view": "identity", "was": "1,1,1", "now": "1,1"},
    {"level": "trajectory", "recipe": "trl_rloo"}, {"level": "sequence", "recipe": "gspo_paper"},
)  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_extreme_link_opens_in_every_picture(open_page, view):
    for extreme in EXTREMES:
        at = open_page("clip", {**extreme, "clip_view": view})
        sound(at)
        assert not at.warning


def test_a_first_token_that_does_not_train_and_a_ratio_beyond_all_numbers_are_drawn(open_page):
    group = editing.with_token(teaching_groups()["off-policy"], 0, 0, "mask", False)
    group = editing.with_token(group, 1, 0, "logp", -9000.0)
    for view in ({"clip_view": "levels", "levels_view": "weights"}, {"clip_view": "epochs", "mu": "16", "lr": "100"}):
        sound(open_page("clip", {**link.to_query(link.View({}, "off-policy", group)), **view, "rest": "0.99"}))


@pytest.mark.parametrize("group", ["all-right", "none-scored", "one-failure-in-eight", "cut-and-empty", "lengths-1-3"])
def test_other_groups_open_in_every_picture(open_page, group):
    for view in (*VIEWS, "levels&levels_view=weights"):
        name, _, inner = view.partition("&levels_view=")
        sound(open_page("clip", {"clip_view": name, "g": group, **({"levels_view": inner} if inner else {})}))


@pytest.mark.parametrize("view", VIEWS)
def test_checks_are_answered(open_page, view):
    assert t("check.wrong") in typed_wrong(open_page("clip", {"clip_view": view}), "clip", CHECKS[view])


@pytest.mark.parametrize(("inner", "key"), [("weights", "pulls"), ("identity", "identity")])
def test_checks_of_the_levels_are_answered(open_page, inner, key):
    typed_wrong(open_page("clip", {"clip_view": "levels", "levels_view": inner}), "clip", key)


def test_the_timeline_is_one_click_away_and_the_group_comes_along(open_page):
    at = open_page("clip", {"clip_view": "epochs", "g": "off-policy"})
    at.button(key="timeline-epochs").click().run()
    sound(at)
    own = at.session_state["grpo_lab"]
    assert own.page == "ppo"
    assert own.view.base == "off-policy"
    assert own.view.chosen["ppo_view"] == "rounds"


# --- C1, C5: quadrants and worked examples ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", [name for name in CASES if re.fullmatch(r"clip-[\d.]+--?\d-[\d.]+", name)])
def test_the_articles_examples(case):
    inputs, expected = CASES[case]["inputs"], CASES[case]["expected"]
    if inputs["advantage"] == 0:
        return
    values = {name: value_of({}, name) for name in PARAMS}
    values.update(eps_low=inputs["epsilon_low"], eps_high=inputs["epsilon_high"], r=inputs["ratio"])
    objective, slope = curve.lenses.at_ratio(inputs["ratio"], inputs["advantage"], values)
    assert objective == pytest.approx(expected["objective"])
    assert slope == pytest.approx(expected["d_objective_d_ratio"])


def test_the_asymmetric_preset_is_the_articles_example(open_page):
    expected = CASES["clip-1.25-1-0.28"]["expected"]
    shown = numbers_of(open_page("clip", link_of("clip", "asymmetric")))
    assert shown["objective"] == expected["objective"]
    assert shown["slope"] == expected["d_objective_d_ratio"]


def test_two_quadrants_are_flat_and_two_are_open(open_page):
    at = open_page("clip", link_of("clip", "four"))
    shown = metrics(at)
    assert [shown[f"quadrant_{key}"] for key in ("up_below", "up_above", "down_below", "down_above")] == [
        "0 of 2 flat", "2 of 2 flat", "2 of 2 flat", "0 of 2 flat",
    ]  # fmt: skip
    texts = json.dumps(pictures(at)[0]["layout"]["annotations"], ensure_ascii=False)
    for key in ("up_open", "up_flat", "down_flat", "down_open"):
        assert t(f"chart.region_{key}") in texts


def test_the_boundary_is_a_kink(open_page):
    at = open_page("clip", link_of("clip", "kink"))
    assert "corner" in at.info[0].value
    assert numbers_of(at)["slope"] > 0
    beyond = numbers_of(open_page("clip", {**link_of("clip", "kink"), "r": "1.201"}))
    assert beyond["slope"] == 0


def test_a_negative_advantage_far_out_has_no_floor_and_delta_is_one(open_page):
    at = open_page("clip", link_of("clip", "huge"))
    assert numbers_of(at)["objective"] == -10
    assert numbers_of(at)["slope"] == -1
    assert max(x for trace in pictures(at)[0]["data"] for x in trace["x"]) > 10
    bounded = numbers_of(open_page("clip", {**link_of("clip", "huge"), "delta": "2"}))
    assert (bounded["objective"], bounded["slope"]) == (-2, 0)


# --- C3: min and max --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("max-no-cap", (1.2, 0, 1.8, 1)), ("max-no-way-back", (0.5, 1, 0.8, 0)),
        ("max-no-floor", (-0.8, 0, -0.5, -1)), ("max-no-correction", (-1.8, -1, -1.2, 0)),
    ],
)  # fmt: skip
def test_max_loses_the_conservative_side(open_page, name, expected):
    shown = numbers_of(open_page("clip", link_of("clip", name)))
    assert tuple(shown[k] for k in ("min_value", "min_slope", "max_value", "max_slope")) == expected


# --- surrogates -------------------------------------------------------------------------------------------------------


def test_the_cap_of_cispo_is_one_fifth_in_trl_and_one_in_verl(open_page):
    shown = numbers_of(open_page("clip", link_of("clip", "cispo-cap")))
    assert shown["surrogate_gradient"] == pytest.approx(0.2 * shown["second_gradient"], abs=6e-4)


@pytest.mark.parametrize("recipe", distinct_surrogates())
def test_the_groups_tokens_lie_on_the_curves_gradient(recipe):
    lens = lens_of(recipe=recipe)
    if lens.objective.surrogate in ("dppo_tv", "dppo_kl", "gmpo", "clip_cov", "kl_cov"):
        return  # these look at more than the ratio: the token's probability, its completion, the batch
    points = clip_surrogates.points(lens, 10.0)
    assert points.ratio.size
    old = np.full_like(points.ratio, -1.0)
    on_curve = clip_surrogates.surrogate_curve(points.ratio, points.advantage, old, lens.objective)
    np.testing.assert_allclose(points.slope, on_curve.gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("level", ["sequence", "trajectory"])
def test_a_shared_ratio_has_its_points_on_the_curve_too(level):
    lens = lens_of(level=level, eps_low=1.0, eps_high=10.0)
    points = clip_surrogates.points(lens, 10.0)
    np.testing.assert_allclose(points.slope, points.ratio * points.advantage, rtol=1e-9)


@pytest.mark.parametrize("recipe", SHOWN_RECIPES)
def test_the_formula_ends_in_the_numbers_shown(recipe):
    lens = lens_of(recipe=recipe, r=1.4)
    one = clip_surrogates.first(lens, 3.0)
    lines = clip_surrogates.lines(lens, one)
    assert clip_surrogates.latex(one.at.gradient, sign=True) in lines[-1]
    assert any(clip_surrogates.latex(one.at.objective, sign=True) in line for line in lines[:-1])


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_the_dotted_slope_is_drawn_where_a_gradient_is_stopped(colors):
    for name in SURROGATES:
        lens = lens_of(surrogate=name)
        first = clip_surrogates.first(lens, 3.0)
        assert first.parted == (name in clip_surrogates.STOPPED), name
        assert (first.branch is not None) == (name in ("kl_cov", "clip_cov"))
        others = clip_surrogates.others(lens, 3.0)
        points = clip_surrogates.points(lens, 3.0)
        figure = surrogates_figure(colors, first, None, others, points, reads="token", high=3.0)
        dotted = [trace for trace in figure["data"] if trace.get("line", {}).get("dash") == "dot"]
        assert bool(dotted) == first.parted


def test_a_hyperparameter_reaches_every_page(open_page):
    at = open_page("clip", {"clip_view": "surrogates", "recipe": "trl_cispo", "weight_high": "5"})
    assert at.session_state["grpo_lab"].view.chosen["weight_high"] == 5
    at.selectbox(key="choice-recipe").set_value("verl_cispo").run()
    assert "weight_high" not in at.session_state["grpo_lab"].view.chosen
    lens = lens_of(recipe="trl_cispo", weight_high=5.0)
    assert lens.objective.options == {"weight_low": 0.0, "weight_high": 5.0}
    assert lens_of(recipe="trl_cispo").objective.options == get_recipe("trl_cispo").objective.options
    assert lens_of(recipe="verl_cispo", weight_low=1.9).objective.options["weight_high"] == 1.9


def test_a_hostile_token_is_escaped_in_every_picture():
    bad = Group(
        prompt="<script>", tokens=(("<b>x</b>", "<img src=x>"), ("&lt;",)), rewards=(1.0, 0.0),
        logp=((-0.5, -0.4), (-0.3,)), old_logp=((-0.9, -0.4), (-0.6,)),
    )  # fmt: skip
    lens = look(bad, {name: value_of({}, name) for name in PARAMS})
    first, found = clip_surrogates.first(lens, 3.0), clip_regions.regions(lens)
    drawn = [
        surrogates_figure(
            LIGHT,
            first,
            None,
            clip_surrogates.others(lens, 3.0),
            clip_surrogates.points(lens, 3.0),
            reads="token",
            high=3.0,
        ),
        quadrants_figure(
            LIGHT, clip_regions.rows(lens, found, 3.0), clip=curve.lenses.clip_range(lens.values), ratio=1.0, high=3.0
        ),
    ]
    texts = json.dumps(drawn)
    assert "&lt;img" in texts
    assert not re.search(r"<(b>x|img|script)", texts)


# --- C2, C4: inner epochs ---------------------------------------------------------------------------------------------


def test_one_update_clips_nothing_whatever_the_range(open_page):
    for eps in ("0", "0.2"):
        at = open_page("clip", {**link_of("clip", "mu-one"), "eps_low": eps, "eps_high": eps, "lr": "5"})
        assert metrics(at)["epoch_clip_ratio"] == "0 %"
        assert abs(np.log(numbers_of(at)["epoch_farthest"])) > 0.4


def test_the_three_statements_hold_on_the_run_that_is_shown(open_page):
    at = open_page("clip", link_of("clip", "leaves"))
    both = clip_epochs.run(lens_of("one-of-four", mu=8, lr=0.3))
    assert both.outside.all()
    assert both.carried.max() > 0.1
    assert 0 < both.clipped.kl[-1] < both.free.kl[-1]
    texts = [m.value for m in at.markdown if m.value.startswith("**(")]
    assert [text[:5] for text in texts] == ["**(a)", "**(b)", "**(c)"]
    assert f"{both.clipped.ratios[-1].max():.2f}" in texts[0]
    assert f"{100 * np.expm1(both.carried.max()):.1f} %" in texts[1]
    assert f"{both.free.kl[-1]:.3f}" in texts[2]


def test_equal_advantages_share_a_line_and_names_keep_their_distance():
    both = clip_epochs.run(lens_of("one-failure-in-eight"))
    lines = clip_epochs.distinct(both)
    assert [count for _, count in lines] == [7, 1]
    for i, _ in lines:
        same = np.isclose(both.advantages, both.advantages[i])
        assert np.ptp(both.clipped.ratios[:, same], axis=1).max() < 1e-12
    heights = epoch_figures._apart([0.0, 0.01, 0.02], 0.1)
    assert min(-np.diff(sorted(heights, reverse=True))) >= 0.1 - 1e-12


# --- C6, G1: levels ---------------------------------------------------------------------------------------------------


def test_gspo_keeps_one_over_the_length():
    own = clip_levels.pulls(lens_of("lengths-10-100", drift=1.0, pull_n=100))
    np.testing.assert_allclose(own.curves["gspo"], 1.0 / own.lengths)
    np.testing.assert_allclose(own.curves["grpo"], 1.0 / own.lengths)
    np.testing.assert_allclose(own.curves["dr_grpo"], 1.0 / own.constant)
    assert sorted(own.own) == [(10, pytest.approx(0.1)), (100, pytest.approx(0.01))]
    drifted = clip_levels.pulls(lens_of(drift=1.05, pull_n=7))
    assert drifted.at["gspo"] == pytest.approx(1.05 / 7)


def test_the_product_is_exact_and_the_others_are_not():
    one = clip_levels.identity(lens_of(was=(0.5, 0.6, 0.9), now=(0.8, 0.6, 0.95)))
    assert one.values["old"] == pytest.approx(0.27)
    assert one.values["new"] == pytest.approx(0.456)
    assert one.values["trajectory"] == pytest.approx(0.456)
    assert one.values["token"] == pytest.approx(0.27 * (1.6 + 1.0 + 0.95 / 0.9) / 3)
    assert one.values["sequence"] == pytest.approx(0.27 * (1.6 * 0.95 / 0.9) ** (1 / 3))


# --- snippets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SURROGATES)
def test_the_snippet_prints_value_gradient_and_slope(name):
    one = clip_surrogates.first(lens_of(surrogate=name, r=1.3, sign="down", weight_high=1.1, tau_negative=2.0), 3.0)
    assert printed(snippets_clip.surrogate(one)) == pytest.approx(
        [one.at.objective, one.at.gradient, one.at.value_slope], abs=1e-9
    )


def test_the_other_snippets_print_their_numbers():
    lens = lens_of(r=1.8, mu=5, lr=0.7)
    found = clip_regions.regions(lens)
    counted = printed(snippets_clip.regions(lens))
    assert counted == [x for key, n in found.counts.items() for x in (n, found.saturated[key])]
    side = clip_regions.sides(lens, 3.0)[0]
    assert printed(snippets_clip.minmax(lens, side)) == pytest.approx([*side.at_right, *side.at_wrong])
    both = clip_epochs.run(lens)
    shown = [clip_epochs.clip_ratio(both), *both.clipped.ratios[-1], both.clipped.kl[-1]]
    assert printed(snippets_clip.epochs(lens, both)) == pytest.approx(shown, abs=1e-7)
    own = clip_levels.pulls(lens)
    assert printed(snippets_clip.pulls(own)) == pytest.approx([own.at["gspo"], own.at["dr_grpo"]])
    one = clip_levels.identity(lens)
    assert printed(snippets_clip.identity(one)) == pytest.approx(list(one.values.values()))


# --- words ------------------------------------------------------------------------------------------------------------


def test_every_word_is_there_and_every_section_is_used():
    paths = [ROOT / "pages" / "clip.py", *(ROOT / "app" / "views" / "clip").glob("*.py")]
    paths += [*(ROOT / "app" / "explain").glob("clip*.py"), *(ROOT / "app" / "figures").glob("clip*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    keys = set(re.findall(r"\bt\(\s*\"([a-z_.0-9-]+)\"", code))
    keys |= {f"readout.{name}" for name in re.findall(r"Readout\(\s*\"([a-z_0-9]+)\"", code)}
    keys |= {f"preset.clip.{name}" for name in NAMES}
    keys |= {f"param.{name}.{part}" for name in OPTIONS for part in ("label", "help")}
    keys |= {f"axis.reads_{reads}" for reads in ("token", "sequence", "trajectory", "gmpo", "vespo")}
    assert sorted(keys - set(catalogue())) == []
    for name, body in sections("clip").items():
        assert f'"{name}"' in code or name == "question", name
        assert "$" not in body, name
    assert set(surrogates_view.SECTIONS) == set(SURROGATES)
