"""The Loss page: every preset, every recipe, extremes, hostile groups, snippets, the walk of a token."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from app import link, presets, snippets_loss, state, token_table, walk
from app.alternatives import ALTERNATIVES
from app.explain import loss as explain
from app.explain import settings
from app.explain.loss import Pair
from app.lens import Lens, look
from app.link import value_of
from app.params import PARAMS
from app.teaching import teaching_groups
from app.token_table import Heat
from app.words import CONTENT, catalogue, sections, t
from grpo_core import RECIPES, Group, Objective
from tests.app.driving import ROOT, link_of, number, printed, sound

NAMES = tuple(presets.names("loss"))
VIEWS = PARAMS["loss_view"].choices
FEW = ("one-of-four", "cut-and-empty", "one-unscored", "all-right", "start-2-6")
HOSTILE = Group(
    prompt="<script>alert(1)</script>",
    tokens=(
        ("<b>x</b>", "$x^2$", "&lt;", "\n", "\u202e", "x" * 500, "**b**", "[l](javascript:1)"),
        ("<img src=x>", ""),
    ),
    rewards=(1.0, 0.0),
    logp=((-0.5,) * 8, (-0.5, -40.0)),
    old_logp=((-0.9,) * 8, (-0.5, -0.1)),
    ref_logp=((-0.7,) * 8, (-0.2, -900.0)),
)
NO_REFERENCE = Group(prompt="p", tokens=(("a", "b"), ("c",)), rewards=(1.0, 0.0), logp=((-1.0, -2.0), (-1.5,)))
EMPTY = Group(prompt="p", tokens=((), ()), rewards=(1.0, 0.0), logp=((), ()), finish=("length", "eos"))
SINGLE = Group(prompt="p", tokens=(("a",),), rewards=(None,), logp=((-1.0,),))
GROUPS = {**teaching_groups(), "hostile": HOSTILE, "no-reference": NO_REFERENCE, "empty": EMPTY, "single": SINGLE}


def lens_of(group: str, **chosen) -> Lens:
    return look(GROUPS[group], {name: value_of(chosen, name) for name in PARAMS})


def packed(group: Group) -> str:
    return link.pack({"whole": True, **group.to_json()})


def metrics(at) -> dict[str, str]:
    """Return the read-outs by their labels."""
    return {m.label: m.value for m in at.metric}


def text(at) -> str:
    """Everything the page writes, one string."""
    return "\n".join(e.value for e in (*at.markdown, *at.caption, *at.info, *at.warning))


# --- presets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name):
    at = open_page("loss", link_of("loss", name))
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.session_state["preset-loss"] == name


def shown(open_page, name: str) -> dict[str, float]:
    return {key: number(value) for key, value in metrics(open_page("loss", link_of("loss", name))).items()}


def test_the_loss_is_zero_and_yet_it_learns(open_page):
    numbers = shown(open_page, "zero")
    assert numbers[t("readout.loss")] == 0
    assert numbers[t("readout.all_pull")] == 1


def test_a_loss_below_zero(open_page):
    assert shown(open_page, "negative")[t("readout.loss")] < 0


def test_a_group_without_spread_still_pulls_when_beta_is_positive(open_page):
    numbers = shown(open_page, "kl-only")
    assert numbers[t("readout.policy_loss")] == 0
    assert numbers[t("readout.kl_term")] > 0
    assert numbers[t("readout.all_pull")] > 0


def test_bug_report_17_the_loss_depends_on_the_reduction(open_page):
    """Advantages 1 and -1, lengths 2 and 6, ratio 1: 0, 0.5 and 0.25, and 0.0004 from a mean KL of 0.01."""
    numbers = shown(open_page, "loss-type")
    assert (numbers[t("readout.loss_first")], numbers[t("readout.loss_second")]) == (0, 0.5)
    dr = lens_of("start-2-6", recipe="trl_dr_grpo", ddof=0, eps=0.0, constant=8)
    assert float(dr.terms.loss) == pytest.approx(0.25)
    with_kl = lens_of("start-2-6", recipe="trl_grpo", ddof=0, eps=0.0, beta=0.04)
    assert float(with_kl.terms.loss) == pytest.approx(0.0004, abs=1e-12)
    for lens in (dr, with_kl):
        assert np.abs(walk.pulls(lens)).sum() > 0


def test_a_token_of_the_short_answer_pulls_four_times_as_hard(open_page):
    pull = walk.pulls(lens_of("lengths-2-8"))
    assert pull[0, 0] == pytest.approx(-4 * pull[1, 0])
    assert "4 times" in open_page("loss", link_of("loss", "short-wrong")).info[0].value


def test_gspo_pulls_all_tokens_of_a_completion_alike():
    lens = lens_of("off-policy", recipe="gspo_paper", eps_low=1.0, eps_high=10.0)
    pull = walk.pulls(lens)
    for row, ratio, a in zip(pull, lens.terms.ratio, lens.advantages, strict=True):
        np.testing.assert_allclose(row, ratio[0] * a / (4 * 5), rtol=1e-12)  # s A / (G |o|): 1/|o| stays


def test_trl_dapo_against_the_papers_is_one_click_and_lists_what_differs(open_page):
    at = open_page("loss", link_of("loss", "trl-dapo"))
    labels = [box.label for box in at.checkbox]
    assert labels == [
        t("loss.switch", name=t(f"choice.{name}"), first=first, second=second)
        for name, first, second in (("ddof", "1", "0"), ("eps", "0.0001", "0"), ("epsilon_high", "0.2", "0.28"))
    ]
    assert all(box.value for box in at.checkbox)
    idle = "\n".join(c.value for c in at.caption)
    assert t("choice.kl_ratio_weighted") in idle
    assert t("choice.dynamic") in idle


def test_each_of_dapos_parts_can_be_switched_alone(open_page):
    at = open_page("loss", link_of("loss", "dapo-clip"))
    assert [box.value for box in at.checkbox] == [True, False, False]
    assert metrics(at)[t("readout.changed")].startswith("1 ")
    at.checkbox[0].uncheck().run()
    sound(at)
    assert metrics(at)[t("readout.changed")].startswith("0 ")
    assert at.info[0].value == sections("loss")["same"]
    at.checkbox[2].check().run()
    assert metrics(at)[t("readout.changed")].startswith("22 ")


# --- every recipe -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_opens(open_page, recipe):
    at = open_page("loss", {"recipe": recipe, "g": "cut-and-empty"})
    sound(at)
    assert not at.warning
    assert at.latex[0].value


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_on_every_group(recipe):
    for name in GROUPS:
        lens = lens_of(name, recipe=recipe)
        pull = walk.pulls(lens)
        assert np.all(np.isfinite(pull)), name
        assert explain.notice(lens, pull)[0] in sections("loss")
        compared = explain.comparison(lens_of(name, recipe="trl_dapo", other=recipe))
        assert explain.pair_notice(compared.pair)[0] in sections("loss")
        for d in compared.differences:
            assert explain.choice_name(d.name)
            assert explain.choice_text(d.name, d.first)
            assert explain.choice_text(d.name, d.second)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_tokens_walk_ends_at_its_pull(recipe):
    for beta in (RECIPES[recipe].objective.beta, 0.3):
        lens = lens_of("one-of-four", recipe=recipe, beta=beta)
        pull, total = walk.pulls(lens), 0.0
        for i, row in enumerate(lens.group.tokens):
            for k in range(len(row)):
                at = walk.chain(lens, i, k)
                expected = at.weight * (at.drive - lens.objective.beta * at.kl_drive)
                assert at.pull == pytest.approx(float(pull[i, k]), rel=1e-12, abs=1e-15)
                assert expected == pytest.approx(at.pull, rel=1e-9, abs=1e-13)
                assert at.contribution == pytest.approx(
                    at.weight * (-at.objective + lens.objective.beta * at.kl), abs=1e-13
                )
                total += at.contribution
                lines = walk.lines(lens, at)
                assert all("nan" not in line for line in lines)
                assert lines[-1].rstrip("}").endswith(walk._fine(at.pull, sign=True).rstrip("}"))
        assert total == pytest.approx(float(lens.terms.loss), abs=1e-12)


@pytest.mark.parametrize("recipe", RECIPES)
def test_advantages_in_the_walk_are_those_of_the_core(recipe):
    """The line ends with the advantage, and its numbers give it where it is one difference or one quotient."""
    for name in FEW:
        lens = lens_of(name, recipe=recipe)
        for i in range(lens.group.size):
            line = walk.advantage_line(lens, i)
            if lens.group.rewards[i] is None:
                assert "not scored" in line
            else:
                assert line.endswith(walk.latex(float(lens.scores.advantages[i]), sign=True)), line


def test_what_a_recipe_needs_is_said(open_page):
    needs = {
        "remax_paper": "loss.needs_greedy",
        "gdpo_paper": "loss.needs_parts",
        "openrlhf_reinforce": "loss.needs_batch",
    }
    for recipe, key in needs.items():
        assert t(key) in text(open_page("loss", {"recipe": recipe}))
    at = open_page("loss", {"g": "one-of-four", "gx": packed(NO_REFERENCE)})
    sound(at)
    assert [w.value for w in at.warning] == [t("loss.no_reference")]


def test_the_greedy_reward_is_a_setting():
    low, high = (lens_of("one-of-four", recipe="remax_paper", greedy=g) for g in (0.0, 1.0))
    assert low.advantages.tolist() == [1, 0, 0, 0]
    assert high.advantages.tolist() == [0, -1, -1, -1]


def test_another_draw_drops_another_token():
    draws = [
        walk.pulls(lens_of("one-of-four", recipe="verl_clip_cov", surrogate="clip_cov", draw=k)).tobytes()
        for k in range(8)
    ]
    again = walk.pulls(lens_of("one-of-four", recipe="verl_clip_cov", surrogate="clip_cov", draw=3)).tobytes()
    assert draws[3] == again


# --- extremes and bad input -------------------------------------------------------------------------------------------

EXTREMES = (
    {"eps_low": "0", "eps_high": "0", "beta": "1", "kl": "k1"},
    {"eps_low": "1", "eps_high": "10", "delta": "1", "level": "trajectory", "reduce": "token_sum"},
    {"surrogate": "vespo", "level": "sequence", "klw": "weighted", "beta": "1", "kl": "k2", "g": "off-policy"},
    {"surrogate": "gmpo", "reduce": "constant", "constant": "1", "g": "cut-and-empty", "cut": "drop"},
    {"recipe": "verl_grpo_passk", "eps": "0", "g": "all-right"},
    {"recipe": "remax_paper", "greedy": "-100", "tok": "1,1"},
    {"recipe": "verl_clip_cov", "draw": "99", "g": "think-tags", "tok": "8,2"},
    {"other": "verl_dro", "kept": "surrogate,beta,aggregation", "unit": "share", "heat": "second"},
    {"other": "openrlhf_reinforce_baseline", "recipe": "trl_cispo", "heat": "first"},
    {"alt": "surrogate:vespo", "g": "one-unscored", "unit": "share"},
    {"alt": "beta:0.4", "g": "all-wrong"},
    {"g": "lengths-10-100", "tok": "2,100"},
)


@pytest.mark.parametrize("view", VIEWS)
def test_every_extreme_link_opens_in_every_picture(open_page, view):
    for extreme in EXTREMES:
        at = open_page("loss", {**extreme, "loss_view": view})
        sound(at)
        assert not at.error


@pytest.mark.parametrize("name", ["hostile", "empty", "single"])
@pytest.mark.parametrize("view", VIEWS)
def test_strange_groups_open(open_page, view, name):
    at = open_page("loss", {"gx": packed(GROUPS[name]), "loss_view": view, "beta": "0.04"})
    sound(at)


def test_hostile_tokens_stay_text(open_page):
    for k, token in enumerate(HOSTILE.tokens[0]):
        at = open_page("loss", {"gx": packed(HOSTILE), "tok": f"1,{k + 1}"})
        sound(at)
        heading = next(m.value for m in at.markdown if m.value.startswith("**Completion 1"))
        shown = heading.split("&nbsp; ")[1]
        assert not re.search(r"(?<!\\)[<>$*\[`]", shown), heading
        assert all(token[:6] not in line.value for line in at.latex) or len(token.strip()) < 2
    data = token_table.table_data(lens_of("hostile"), Heat(walk.pulls(lens_of("hostile"))), (0, 0), hint="")
    texts = data["rows"][0]["texts"]
    assert texts[:2] == ["<b>x</b>", "$x^2$"]
    assert texts[3:5] == ["⏎", "▯"]
    assert len(texts[5]) == token_table.LONGEST_TEXT
    json.dumps(data, allow_nan=False)


def test_a_token_that_the_group_does_not_have_falls_back_with_a_note(open_page):
    at = open_page("loss", {"g": "one-of-four", "tok": "3,9"})
    sound(at)
    assert t("tokens.missing", completion=3, position=9) in text(at)
    at = open_page("loss", {"g": "one-of-four", "tok": "0,x"})
    assert at.warning[0].value  # the link says what is wrong with it
    sound(at)


def test_thousands_of_tokens_are_shown_in_parts():
    rng = np.random.default_rng(0)
    rows = tuple(tuple((-rng.uniform(0.1, 2, n)).tolist()) for n in (5000, 3, 2500))
    tokens = tuple(tuple(f"t{k}" for k in range(len(row))) for row in rows)
    large = Group(prompt="p", tokens=tokens, logp=rows, rewards=(1.0, 0.0, 0.0))
    lens = look(large, {name: value_of({}, name) for name in PARAMS})
    heat = Heat(walk.pulls(lens))
    data = token_table.table_data(lens, heat, (0, 4321), hint="")
    assert sum(len(row["texts"]) for row in data["rows"]) <= token_table.MOST_CELLS
    first = data["rows"][0]
    assert first["from"] <= 4321 < first["from"] + len(first["texts"])
    assert first["texts"][4321 - first["from"]] == "t4321"
    assert (first["total"], data["rows"][1]["total"], data["show"]) == (5000, 3, False)
    assert "open(" in snippets_loss.pull(lens, None)
    assert len(explain.table(lens).rows) == 7503


def test_a_token_can_be_edited_and_a_wrong_edit_is_refused(open_page):
    group = teaching_groups()["one-of-four"]
    edited = state.editing.with_token(group, 0, 6, "logp", -0.2)
    assert edited.logp[0][6] == -0.2
    assert edited.replace(logp=group.logp) == group
    for index, position, row in ((0, 99, "logp"), (9, 0, "logp"), (0, 0, "rewards"), (0, 0, "tokens"), (-1, 0, "logp")):
        with pytest.raises(ValueError, match=t("edit.no_token")):
            state.editing.with_token(group, index, position, row, -1.0)


def test_a_masked_token_has_no_weight_and_the_switch_masks_it(open_page):
    at = open_page("loss", {"g": "one-of-four", "tok": "3,2"})
    before = metrics(at)[t("readout.all_pull")]
    at.toggle[0].set_value(False).run()
    sound(at)
    assert metrics(at)[t("readout.all_pull")] != before
    assert r"w &= 0" in at.latex[0].value
    assert "gx=" in at.session_state["grpo_lab"].written[-1]


# --- the ranking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surrogate", ["clip", "unclipped", "clip_cov"])
@pytest.mark.parametrize("level", PARAMS["level"].choices)
def test_the_slope_of_a_walk_is_the_product_that_it_writes(level, surrogate):
    """Where all tokens of a completion share a ratio, one token's log-probability moves all of their J."""
    lens = lens_of("off-policy", level=level, surrogate=surrogate, eps_low=1.0, eps_high=10.0, share=0.5)
    seen = 0
    for completion, row in enumerate(lens.group.tokens):
        for position in range(len(row)):
            at = walk.chain(lens, completion, position)
            line = next(line for line in walk.lines(lens, at) if line.startswith("D &="))
            factors = re.fullmatch(r".*A\\,r = (?:(\\tfrac\{(\d+)\}\{(\d+)\}|\d+) \\cdot )?.*", line)
            if factors is None:
                assert "flat" in line
                continue
            whole, top, under = factors.groups()
            factor = float(top) / float(under) if top else float(whole or 1)
            assert factor * at.advantage * at.ratio == pytest.approx(at.drive, abs=1e-12), line
            seen += 1
    assert seen


@pytest.mark.parametrize("group", FEW)
def test_every_alternative_is_a_choice_that_differs_and_is_ranked(group):
    lens = lens_of(group)
    ranked = explain.alternatives(lens)
    moved = [round(each.pair.moved, 9) for each in ranked]
    assert moved == sorted(moved, reverse=True)
    for each in ranked:
        assert any(lens.values[name] != value for name, value in ALTERNATIVES[each.name].items())
        assert 0 <= each.pair.moved <= 1 + 1e-12
        assert not each.title.startswith("alt.")


def test_the_share_that_moves():
    """Two tokens, pulls (1, -1) against (3, -1): shares (1/2, -1/2) and (3/4, -1/4), so that a quarter moves."""
    first = lens_of("lengths-1-3", reduce="token_mean")
    pair = Pair(first, first)
    pair.__dict__["pulls"] = (np.array([[1.0, -1.0]]), np.array([[3.0, -1.0]]))
    assert pair.moved == pytest.approx(0.25)
    assert pair.factor is None
    pair = Pair(first, first)
    pair.__dict__["pulls"] = (np.array([[1.0, -1.0]]), np.array([[2.0, -2.0]]))
    assert (pair.moved, pair.factor, pair.changed) == (0, 2, 2)
    pair = Pair(first, first)
    pair.__dict__["pulls"] = (np.array([[1.0, -1.0]]), np.array([[-1.0, 1.0]]))
    assert pair.moved == pytest.approx(1.0)


def test_make_this_change_takes_the_alternative_over(open_page):
    at = open_page("loss", {"loss_view": "whatif", "alt": "reduce:token_mean"})
    at.button(key="loss-apply").click().run()
    sound(at)
    assert at.session_state["grpo_lab"].view.chosen["reduce"] == "token_mean"
    assert metrics(at)[t("readout.changed")].startswith("0 ")
    at.button(key="loss-to-recipe").click().run()
    assert "reduce" not in at.session_state["grpo_lab"].view.chosen


# --- settings, check, take away ---------------------------------------------------------------------------------------


def test_settings_come_from_the_recipes_and_name_their_source():
    rows = {row["source"]: row for row in settings.rows()}
    deepseek = next(row for source, row in rows.items() if "2402.03300" in source)  # DeepSeekMath
    wanted = {"learning_rate": "1e-6", "beta": "0.04", "group_size": "64", "max_completion_length": "1024"}
    assert wanted.items() <= deepseek.items()
    assert (deepseek["batch_size"], deepseek["inner_epochs"]) == ("1024", "1")
    assert sum("TRL" in source for source in rows) == 6
    assert all(row[name] for row in rows.values() for name in settings.COLUMNS)


def test_trl_116_defaults_are_those_of_its_recipe():
    entry = json.loads((CONTENT / "trl_defaults.json").read_text())[-1]
    recipe = RECIPES["trl_dapo"]
    assert entry["version"] == "1.16.0"
    assert (entry["beta"], entry["loss"]) == (recipe.objective.beta, recipe.objective.aggregation)
    assert (entry["scale"], entry["group_size"]) == (recipe.advantage.scale, recipe.sampling.group_size)
    assert float(entry["clip"]) == recipe.objective.epsilon_low == recipe.objective.epsilon_high


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_snippet_prints_the_loss_and_the_pull(recipe):
    for name in ("one-of-four", "one-unscored"):
        lens = lens_of(name, recipe=recipe, beta=0.05)
        at = walk.chain(lens, 0, 1)
        assert printed(snippets_loss.pull(lens, at)) == pytest.approx([float(lens.terms.loss), at.pull], abs=1e-12)


@pytest.mark.parametrize(
    ("recipe", "other"),
    [
        *(("trl_dapo", name) for k, name in enumerate(RECIPES) if k % 4 == 0),
        *(pair for name in ("verl_clip_cov", "verl_gdpo") for pair in ((name, "trl_dapo"), ("trl_dapo", name))),
    ],
)
def test_the_snippet_of_a_comparison_prints_both_losses(recipe, other):
    pair = explain.comparison(lens_of("one-of-eight", recipe=recipe, other=other)).pair
    first, second = pair.pulls
    expected = [float(pair.first.terms.loss), float(pair.second.terms.loss), float(np.abs(second - first).sum())]
    assert printed(snippets_loss.compare(pair.first, pair.second)) == pytest.approx(expected, abs=1e-12)


def test_the_snippet_of_the_settings_runs():
    assert 0.000001 in printed(settings.snippet())


@pytest.mark.parametrize(
    ("preset", "key"), [("walk", "loss"), ("trl-dapo", "loss-compare"), ("sources", "loss-settings")]
)
def test_checks_are_answered(open_page, preset, key):
    at = open_page("loss", link_of("loss", preset))
    at.session_state[f"check-{key}"] = True
    at.run()
    at.number_input(key=f"answer-{key}").set_value(-12345.678).run()
    sound(at)
    assert at.warning[-1].value.startswith(t("check.wrong"))


def test_the_answer_of_the_start_is_the_loss_at_ratio_one():
    question = explain.question(lens_of("start-2-6", reduce="token_mean", ddof=0, eps=0.0))
    assert question.answer == pytest.approx(0.5)


def test_the_table_to_take_away_adds_up():
    lens = lens_of("think-tags", recipe="trl_dapo", beta=0.1)
    table = explain.table(lens)
    added = sum(row[table.header.index("adds to the loss")] for row in table.rows)
    assert added == pytest.approx(float(lens.terms.loss))
    assert "'=" in explain.table(lens_of("one-of-four")).csv()  # a spreadsheet must not run a token


def test_added_and_pulled_add_up():
    for recipe in ("grpo_paper", "gspo_paper", "trl_cispo"):
        lens = lens_of("off-policy", recipe=recipe, beta=0.2)
        policy, kl = explain.added(lens)
        assert policy.sum() == pytest.approx(float(lens.terms.policy_loss))
        assert kl.sum() == pytest.approx(explain.kl_part(lens))
        up, down = explain.both_ways(walk.pulls(lens))
        assert up.sum() - down.sum() == pytest.approx(np.abs(walk.pulls(lens)).sum())


# --- words ------------------------------------------------------------------------------------------------------------


def test_every_word_is_there_and_every_section_is_used():
    paths = [ROOT / "pages" / "loss.py", *(ROOT / "app" / "views" / "loss").glob("*.py")]
    names = ("explain/loss.py", "explain/settings.py", "figures/loss.py", "token_table.py", "walk.py")
    code = "\n".join(path.read_text() for path in [*paths, *(ROOT / "app" / name for name in names)])
    keys = set(re.findall(r"\bt\(\s*\"([a-z_.0-9-]+)\"", code))
    keys |= {f"readout.{name}" for name in re.findall(r"Readout\(\s*\"([a-z_0-9]+)\"", code)}
    keys |= {f"preset.loss.{name}" for name in NAMES}
    keys |= {f"choice.{name}" for name in (*PARAMS["kept"].choices, "group_size", "inner_epochs", "dynamic")}
    assert sorted(keys - set(catalogue())) == []
    for name in ALTERNATIVES:
        assert explain.alternative_title(name)
    for name, body in sections("loss").items():
        assert f'"{name}"' in code or name == "question", name
        assert "$" not in body, name


def test_an_objective_as_code_is_only_what_differs():
    assert snippets_loss.code(Objective(), Objective()) == "Objective()"
    assert snippets_loss.code(Objective(beta=0.1), Objective()) == "Objective(beta=0.1)"
