"""The Advantages page: every preset, extremes, the worked examples, formulas of every baseline, snippets, bad input."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from app import formulas, presets
from app.explain import advantages as explain
from app.lens import look
from app.link import pack, value_of
from app.params import PARAMS, SHOWN_RECIPES, read_steps
from app.teaching import teaching_groups
from app.views.advantages import prompts, several, steps
from app.words import t
from grpo_core import AdvantageSpec, group_advantages, reward_statistics
from grpo_core.advantages import ESTIMATORS
from tests.app.driving import ROOT, link_of, metrics, missing, number, printed, sound, typed_wrong

NAMES = tuple(presets.names("advantages"))
VIEWS = PARAMS["adv_view"].choices
CASES = {case["id"]: case for case in json.loads((ROOT / "tests" / "cases" / "seed_examples.json").read_text())}
LANGUAGES = ({}, {"lang": "zh"})


def lens_of(group="one-of-four", **chosen):
    return look(teaching_groups()[group], {name: value_of(chosen, name) for name in PARAMS})


def preset_lens(name):
    preset = presets.presets("advantages")[name]
    return lens_of(preset.get("group", "one-of-four"), **preset["set"])


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES, ids=["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name, language):
    at = open_page("advantages", {**link_of("advantages", name), **language})
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.latex[0].value
    view = presets.presets("advantages")[name]["set"]["adv_view"]
    assert at.session_state[f"preset-advantages-{view}"] == name


EXTREMES = (
    {"p": "0", "mix_g": "1", "miss": "1", "levels": "0,0,0,0,0,0,0,0", "mc": "0,0", "mf": "0,0", "mw": "0,0,0"},
    {"p": "1", "mix_g": "64", "miss": "0.5", "levels": "1,1,1,1,1,0,0,0", "mc": "-100,100,100,100,100,100,100,100"},
    {"mw": "-100,100", "mf": "100,-100", "ml": "1,2,3", "ddof": "1", "eps": "1", "steps": "100~1", "sc": "8"},
    {"steps": "_".join(",".join(f"{(-1) ** k * 100}~{25 * k + 25}" for k in range(8)) for _ in range(8)), "sc": "8"},
    {"steps": "1~1_1~200", "step_base": "position", "ddof": "1", "recipe": "openrlhf_reinforce", "pool": "whitened"},
    {"recipe": "verl_gdpo", "pool": "group_whitened", "levels": "0.001,0.999", "mix_g": "1"},
)


@pytest.mark.parametrize("language", LANGUAGES, ids=["en", "zh"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_extreme_link_opens_in_every_picture(open_page, view, language):
    for extreme in EXTREMES:
        at = open_page("advantages", {**extreme, **language, "adv_view": view})
        sound(at)
        assert not at.warning, [w.value for w in at.warning]


@pytest.mark.parametrize("pool", PARAMS["pool"].choices)
def test_every_batch_definition_opens(open_page, pool):
    for levels in ("0.875,0.125", "1,0", "0.5,0.5,0.5"):
        sound(open_page("advantages", {"adv_view": "prompts", "pool": pool, "levels": levels}))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_baseline_can_be_chosen(open_page, estimator):
    at = open_page("advantages", {"g": "one-unscored"})
    at.selectbox(key="choice-estimator").set_value(estimator).run()
    sound(at)
    assert at.session_state["grpo_lab"].view.chosen.get("estimator", "group") == estimator


@pytest.mark.parametrize("key", ["advantages", "estimators", "rates", "mixed", "prompts", "several", "steps"])
def test_a_wrong_answer_is_told_with_the_way_to_the_right_one(open_page, key):
    view = "bars" if key == "advantages" else key
    assert typed_wrong(open_page("advantages", {"adv_view": view}), "advantages", key)


# --- the four kinds of groups -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mixed", "all-right", "all-wrong", "unscored"])
def test_each_kind_of_group_has_a_preset_that_shows_it_and_one_that_makes_it_likely(open_page, kind):
    group = {"mixed": "half-and-half", "unscored": "none-scored"}.get(kind, kind)
    at = open_page("advantages", link_of("advantages", group))
    assert metrics(at)["kind"] == t(f"kind.{kind}")
    likely = {"mixed": "mostly-mixed", "all-right": "solved", "all-wrong": "too-hard", "unscored": "blind"}[kind]
    chances = explain.kinds(preset_lens(likely))
    assert max(chances, key=chances.__getitem__) == kind
    assert sum(chances.values()) == pytest.approx(1)
    shown = {m.label: m.value for m in open_page("advantages", link_of("advantages", likely)).metric}
    own = {"mixed": "mixed", "all-right": "all_right", "all-wrong": "all_wrong", "unscored": "none_scored"}[kind]
    assert number(shown[t(f"readout.{own}")]) == pytest.approx(chances[kind], abs=6e-4)


def test_a_batch_counts_its_kinds():
    one = prompts.batch(lens_of(levels=(1.0, 0.0, 0.5), mix_g=4))
    assert prompts.kinds(one) == t("advantage.kinds", mixed=1, all_right=1, all_wrong=1, unscored=0)


# --- steps ------------------------------------------------------------------------------------------------------------


def test_the_articles_example_of_process_supervision():
    case = CASES["process-supervision"]
    own = steps.supervised(preset_lens("steps-paper"))
    assert own.rewards == [[1, 0], [1, 1]]
    assert own.ends == [[end for end, _ in row] for row in case["inputs"]["step_rewards"]]
    assert own.lengths == case["inputs"]["lengths"]
    for found, expected in zip(own.tokens, case["expected"]["advantages"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    for found, expected in zip(own.normalised, case["expected"]["normalised"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert own.outcome.advantages.tolist() == [-1, 1]


def test_a_right_answer_with_a_wrong_step_gets_less():
    own = steps.supervised(preset_lens("steps-wrong"))
    assert own.outcome.advantages[0] == own.outcome.advantages[1] == 1
    assert own.first[0] < own.first[1]
    section, numbers = steps.notice(own)
    assert section == "steps-wrong"
    assert (numbers["low"], numbers["high"]) == ("1", "2")


def test_more_right_steps_earn_more():
    own = steps.supervised(preset_lens("steps-many"))
    assert own.outcome.advantages[0] == own.outcome.advantages[1]
    # nine steps, two of them wrong: mean 7/9, std sqrt(14)/9, so a right step is worth 2 / sqrt(14)
    assert own.first[:2] == pytest.approx([4 / math.sqrt(14), 10 / math.sqrt(14)])
    assert steps.notice(own)[0] == "steps-many"


def test_steps_of_one_number_have_their_own_baseline():
    own = steps.supervised(preset_lens("steps-position"))
    assert own.normalised[2][3] == 0.0  # nobody else has a fourth step
    third = [own.normalised[0][2], own.normalised[2][2]]
    assert third == [1.0, -1.0]
    assert steps.notice(own) == ("steps-position", {"step": "2", "low": "4", "high": "8", "alone": "1"})


def test_equal_steps_teach_nothing():
    own = steps.supervised(preset_lens("steps-flat"))
    assert not any(np.any(row) for row in own.tokens)
    assert steps.notice(own)[0] == "steps-flat"


@pytest.mark.parametrize("typed", ["", "1", "1@0", "1 @ 3, 0 @ 3", "1@201", "x@1", "<b>1</b>@2", "1e9@3", "1@3\n" * 9])
def test_a_wrong_line_of_steps_keeps_the_last_good_ones(open_page, typed):
    at = open_page("advantages", {"adv_view": "steps"})
    before = at.session_state["grpo_lab"].view
    at.text_area(key="lines-steps").set_value(typed).run()
    sound(at)
    assert len(at.error) == 1
    assert at.session_state["grpo_lab"].view == before
    at.text_area(key="lines-steps").set_value("1 @ 2, 0.5 @ 4\n−1@3").run()
    sound(at)
    assert not at.error
    assert at.session_state["grpo_lab"].view.chosen["steps"] == (((1.0, 2), (0.5, 4)), ((-1.0, 3),))


def test_steps_are_read_as_they_are_written():
    param = PARAMS["steps"]
    for text in ("1~3,0~6_1~4,1~5", "-0.25~1", "1 @ 2 ;0@7, 3@9"):
        value = param.parse(text)
        assert param.parse(param.write(value)) == value
        assert read_steps(steps.written(value)) == value


# --- several reward functions -----------------------------------------------------------------------------------------


def test_the_same_sum_is_told_apart_only_when_functions_are_normalised_first():
    own = several.several(preset_lens("several-same"))
    assert own.totals.tolist() == [1, 1, 1, 2]
    np.testing.assert_allclose(own.summed.advantages, [-1 / math.sqrt(3)] * 3 + [math.sqrt(3)], rtol=1e-12)
    # correct: +-1; format: mean 3/4, std sqrt(3)/4, so 1/sqrt(3) and -sqrt(3); the sums have mean 0
    root = math.sqrt(3)
    z = np.array([1 - root, -1 + 1 / root, -1 + 1 / root, 1 + 1 / root])
    np.testing.assert_allclose(own.apart.advantages, z / z.std(), rtol=1e-12)
    assert several.notice(own)[0] == "several-same"


def test_a_constant_function_changes_nothing():
    own = several.several(preset_lens("several-constant"))
    alone = group_advantages(own.parts[:, 0], ddof=0, eps=0.0).advantages
    np.testing.assert_allclose(own.summed.advantages, alone, rtol=1e-12)
    np.testing.assert_allclose(own.apart.advantages, alone, rtol=1e-12)
    assert several.notice(own)[0] == "several-constant"


def test_a_loud_function_decides_the_sum_alone():
    own = several.several(preset_lens("several-loud"))
    length = group_advantages(own.parts[:, 2], ddof=0, eps=0.0).advantages
    assert np.corrcoef(own.summed.advantages, length)[0, 1] > 0.999
    assert np.corrcoef(own.apart.advantages, length)[0, 1] < 0.5
    assert several.notice(own)[0] == "several-loud"


def test_functions_that_cancel_have_spread_and_no_advantage():
    own = several.several(preset_lens("several-cancel"))
    assert [float(own.each[f].std) for f in own.used] == [0.5, 0.5]
    assert not np.any(own.summed.advantages)
    assert not np.any(own.apart.advantages)
    assert several.notice(own)[0] == "several-cancel"


OWN = {"accuracy": (1.0, 0.0, None, 0.0), "*bold* $x$ <b>": (0.5, 0.5, None, -0.5)}


def with_parts(parts, **chosen):
    group = teaching_groups()["one-of-four"].replace(reward_parts=parts)
    return look(group, {name: value_of(chosen, name) for name in PARAMS})


def test_a_group_that_recorded_several_functions_brings_its_own_numbers():
    own = several.several(with_parts(OWN))
    assert own.names == tuple(OWN)
    np.testing.assert_array_equal(own.parts[:, 0], [1, 0, np.nan, 0])
    assert own.weights == (1.0, 1.0)
    np.testing.assert_array_equal(own.totals, [1.5, 0.5, np.nan, -0.5])
    for found in (own.summed, own.apart):
        assert found.advantages[2] == 0
        assert found.advantages[0] > found.advantages[1] > found.advantages[3]
    assert several.several(with_parts(OWN, mgw=(2.0, 0.0))).totals.tolist()[0] == 2.0


@pytest.mark.parametrize(
    "parts", [{}, {"only": (1.0, 0.0, 0.0, 0.0)}, {f"f{k}": (1.0, 0.0, 0.0, 0.0) for k in range(9)}]
)
def test_without_several_functions_of_its_own_the_example_is_shown(parts):
    own = several.several(with_parts(parts))
    assert own.names == tuple(t(f"param.mfun.{name}") for name in several.FUNCTIONS)


def test_the_example_can_be_asked_for_beside_a_groups_own_functions():
    own = several.several(with_parts(OWN, msrc="example"))
    assert own.names == tuple(t(f"param.mfun.{name}") for name in several.FUNCTIONS)


def test_a_groups_own_functions_are_explained_and_their_names_are_no_markup():
    own = several.several(with_parts(OWN))
    section, numbers = several.notice(with_loud(own))
    assert section == "several-loud"
    assert numbers["loud"] == r"\*bold\* \$x\$ \<b\>"
    assert "nan" not in "".join(several.formula(own))
    assert several.table(own).header[1:3] == tuple(OWN)
    assert printed(several.snippet(own))[-4:] == pytest.approx(own.apart.advantages, abs=1e-6)


def with_loud(own):
    return several.Several(own.parts * [1, 100], own.weights, own.spec, own.names, own=True)


def test_a_groups_own_functions_open_as_a_page(open_page):
    group = teaching_groups()["one-of-four"].replace(reward_parts=OWN)
    at = open_page("advantages", {"adv_view": "several", "gx": pack({"whole": True, **group.to_json()})})
    sound(at)
    assert not at.warning
    at.segmented_control(key="choice-msrc").set_value("example").run()
    sound(at)


# --- several prompts --------------------------------------------------------------------------------------------------


def test_in_one_group_difficulty_becomes_advantage():
    one = prompts.batch(preset_lens("prompts-mixed"))
    np.testing.assert_allclose(one.separate.advantages.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(np.unique(one.advantages), [-1, 1])
    np.testing.assert_allclose(one.advantages.mean(axis=1), [0.75, -0.75])
    assert one.difficulty == pytest.approx(0.75**2)


def test_reward_std_is_positive_while_every_advantage_is_zero(open_page):
    one = prompts.batch(preset_lens("prompts-flat"))
    assert not np.any(one.separate.advantages)
    assert not np.any(one.advantages)
    logged = reward_statistics(one.rewards)
    assert logged["reward_std"] == pytest.approx(np.std(one.rewards, ddof=1))
    assert logged["reward_std_within"] == 0
    at = open_page("advantages", link_of("advantages", "prompts-flat"))
    assert number(metrics(at)["reward_std"]) > 0.5
    assert prompts.notice(one)[0] == "prompts-flat"


def test_reinforce_plus_plus_is_one_group_and_its_baseline_form_is_not():
    whitened = prompts.batch(preset_lens("prompts-batch"))
    sample = (whitened.rewards - whitened.rewards.mean()) / whitened.rewards.std(ddof=1)
    np.testing.assert_allclose(whitened.advantages, sample, rtol=1e-6)  # verl adds 1e-8 to the variance
    based = prompts.batch(preset_lens("prompts-baseline"))
    np.testing.assert_allclose(based.advantages.mean(axis=1), 0, atol=1e-14)
    assert based.advantages.std(ddof=1) == pytest.approx(1, rel=1e-6)
    assert based.difficulty == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("pool", PARAMS["pool"].choices)
def test_the_formula_of_a_batch_ends_with_the_number_of_the_picture(pool):
    for levels in ((0.875, 0.125), (0.75, 0.5, 0.25)):
        one = prompts.batch(lens_of(levels=levels, pool=pool, mix_g=8))
        last = prompts.formula(one)[-1]
        assert result(last) == pytest.approx(float(one.advantages[prompts.focus(one)]), abs=6e-4)


# --- formulas of every baseline ---------------------------------------------------------------------------------------


def result(line: str) -> float:
    """The number that a line of a formula ends with."""
    return float(line.split("=")[-1].split(r"\quad")[0].replace("+", "").strip())


@pytest.mark.parametrize("group", ["one-of-four", "half-and-half", "one-unscored", "cut-and-empty"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_formula_of_every_baseline_ends_with_the_advantage(estimator, group):
    for scale, greedy in itertools.product(("group", "none"), (0.0, 0.3)):
        lens = lens_of(group, estimator=estimator, scale=scale, greedy=greedy)
        index = explain.focus(lens)
        lines = formulas.advantage(lens, index)
        own = next(line for line in reversed(lines) if line.startswith("A_"))
        if "only best" in own:
            assert lens.advantages[index] == 0
        else:
            assert result(own) == pytest.approx(lens.advantages[index], abs=6e-4), lines


@pytest.mark.parametrize("recipe", SHOWN_RECIPES)
def test_the_formula_of_every_recipe_ends_with_the_advantage(recipe):
    for name in ("one-of-four", "half-and-half", "one-unscored"):
        preset = {"recipe": recipe}
        lens = look(teaching_groups()[name], {key: value_of(preset, key) for key in PARAMS})
        index = explain.focus(lens)
        lines = [line for line in formulas.advantage(lens, index) if line.startswith("A_")]
        if lines and "only best" not in lines[-1]:
            assert result(lines[-1]) == pytest.approx(lens.advantages[index], abs=6e-4), (recipe, lines)


def test_functions_normalised_first_show_every_function():
    group = teaching_groups()["half-and-half"]
    parts = {"a": (0.0, 1.0, 1.0, 1.0), "b": (0.0, 0.0, 2.0, 0.0)}
    both = group.replace(rewards=(0.0, 1.0, 3.0, 1.0), reward_parts=parts)
    for recipe in ("gdpo_paper", "verl_gdpo"):
        lens = look(both, {key: value_of({"recipe": recipe}, key) for key in PARAMS})
        lines = formulas.advantage(lens, explain.focus(lens))
        assert sum(line.startswith("z_") for line in lines) == 2
        assert result(lines[-1]) == pytest.approx(lens.advantages[explain.focus(lens)], abs=6e-4)


def test_a_group_of_equal_rewards_has_no_formula_that_divides():
    lens = lens_of("all-right")
    assert formulas.advantage(lens, 0)[0].endswith(r"A_i = 0 \text{ exactly}")


# --- snippets ---------------------------------------------------------------------------------------------------------

SNIPPETS = {"prompts": (prompts.batch, prompts.snippet), "several": (several.several, several.snippet),
            "steps": (steps.supervised, steps.snippet)}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in NAMES if presets.presets("advantages")[n]["set"]["adv_view"] in SNIPPETS])
def test_the_python_of_a_preset_prints_the_numbers_that_are_shown(open_page, name):
    read, write = SNIPPETS[presets.presets("advantages")[name]["set"]["adv_view"]]
    found = printed(write(read(preset_lens(name))))
    shown = metrics(open_page("advantages", link_of("advantages", name)))
    counts = ("step_total", "distinct_sum", "distinct_each")
    assert missing([value for key, value in shown.items() if key not in counts], found) == []


@pytest.mark.parametrize("pool", PARAMS["pool"].choices)
def test_the_python_of_every_batch_definition_runs(pool):
    one = prompts.batch(lens_of(levels=(0.75, 0.5, 0.25), pool=pool, mix_g=4))
    found = printed(prompts.snippet(one))
    assert found[-5:-2] == pytest.approx(one.advantages.mean(axis=1), abs=1e-6)
    assert found[-2] == pytest.approx(100 * one.difficulty, abs=1e-6)


def test_the_python_of_the_kinds_prints_them():
    from app import snippets

    found = printed(snippets.mixed(0.5, 4, 0.9))
    assert found == pytest.approx(list(explain.kinds(preset_lens("blind")).values()))


def test_the_definitions_are_those_of_the_recipes():
    names, table = explain.compared(lens_of())
    assert len(names) == len(set(names)) == 9
    own = teaching_groups()["one-of-four"].advantages(AdvantageSpec(ddof=0, eps=0.0)).advantages
    np.testing.assert_allclose(table[0], own)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables_hold_every_row():
    own = steps.supervised(preset_lens("steps-wrong"))
    rows = steps.table(own).rows
    assert len(rows) == sum(own.lengths)
    assert [row[4] for row in rows[:9]] == pytest.approx(own.tokens[0].tolist())
    assert [row[2] for row in rows[:9]] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len(several.table(several.several(lens_of())).rows) == 4
    assert len(prompts.table(prompts.batch(lens_of())).rows) == 16
