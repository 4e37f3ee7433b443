"""The Gradients page: every preset, every estimator, the worked examples, extremes, snippets."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from app import presets, snippets_gradients
from app.explain import gradients as explain
from app.explain.gradients import Bandit, Chain
from app.figures import gradients as figures
from app.figures.base import LIGHT
from app.figures.gradients import Facet
from app.lens import look
from app.link import value_of
from app.params import PARAMS
from app.teaching import teaching_groups
from app.views.gradients import actions, baseline, lengths, togo
from app.words import catalogue, sections, t
from grpo_core.policies import expected_reward, return_reports, true_gradient
from tests.app.driving import ROOT, link_of, number, pictures, printed, sound

NAMES = tuple(presets.names("gradients"))
VIEWS = PARAMS["grad_view"].choices
CASES = {case["id"]: case for case in json.loads((ROOT / "tests" / "cases" / "seed_examples.json").read_text())}
THIRD = (1 / 3, 1 / 3, 1 / 3)
CHECKS = {"actions": "gradients", **{view: f"gradients-{view}" for view in VIEWS if view != "actions"}}


def metrics(at) -> dict[str, str]:
    """Return the read-outs by their labels."""
    return {m.label: m.value for m in at.metric}


def lens_of(**chosen):
    return look(teaching_groups()["one-of-four"], {name: value_of(chosen, name) for name in PARAMS})


# --- the worked examples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["softmax3-1", "softmax3-9"])
def test_the_three_action_counterexample(case):
    inputs, expected = CASES[case]["inputs"], CASES[case]["expected"]
    problem = Bandit(tuple(inputs["probs"]), tuple(map(float, inputs["rewards"])), inputs["G"])
    std, mean = explain.report("std", problem), explain.report("mean", problem)
    np.testing.assert_allclose(std.true, expected["true_gradient"], rtol=1e-12)
    np.testing.assert_allclose(std.expected, expected["std_normalised"], atol=1e-15)
    np.testing.assert_allclose(mean.expected, expected["centred_only"], rtol=1e-12)
    assert explain.turned(std)
    assert not explain.turned(mean)


def test_both_counterexamples_are_presets_and_look_alike_to_the_std(open_page):
    ticks = []
    for name in ("three-1", "three-9"):
        at = open_page("gradients", link_of("gradients", name))
        sound(at)
        layout = pictures(at)[0]["layout"]
        ticks.append(layout["xaxis4"]["ticktext"])
    assert ticks[0] == ticks[1] == ["A<br><b>−0.222</b>", "B<br><b>0.000</b>", "C<br><b>+0.222</b>"]


@pytest.mark.parametrize(("size", "factor"), [(2, 0.5), (8, 0.875)])
def test_self_inclusion(size, factor):
    for problem in (Bandit(THIRD, (0.0, 1.0, 10.0), size), Bandit((0.05, 0.95), (1.0, 0.0), size)):
        rows = {row.name: row for row in explain.sizes(problem)}
        assert rows["mean"].scale[size - 1] == pytest.approx(factor, rel=1e-12)
        assert rows["loo"].scale[size - 1] == pytest.approx(1.0, rel=1e-12)


def test_the_two_action_bandit():
    case = CASES["bandit-2"]
    problem = Bandit(tuple(case["inputs"]["probs"]), tuple(map(float, case["inputs"]["returns"])), 2)
    found = explain.report("reinforce", problem)
    assert found.true[0] == pytest.approx(case["expected"]["d_logit"])
    assert expected_reward(problem.outcomes, problem.rewards) == pytest.approx(case["expected"]["value"])
    assert found.bias == pytest.approx([0, 0], abs=1e-15)


def test_the_best_baseline_varies_least():
    for pi, rw in (((0.3, 0.7), (5.0, 1.0)), ((0.9, 0.08, 0.02), (1.0, 0.0, 10.0))):
        own = explain.baselines(lens_of(pi=pi, rw=rw))
        assert own.variances["best"] <= own.variance.min() + 1e-12
        assert own.variances["best"] < own.variances["mean"] < own.variances["none"]


def test_equal_rewards_divided_by_the_own_length_push_although_nothing_is_to_be_learned():
    for sign in (1.0, -1.0):
        reports = explain.reduced("reinforce", Chain((0.5, 0.5, 0.5), (sign,) * 4, 2))
        assert np.abs(reports["sequence_sum"].true).max() < 1e-15
        assert np.abs(reports["sequence_sum"].expected).max() < 1e-15
        assert sign * explain.ending(reports["sequence_mean"].expected)[0] > 0.1
        assert np.abs(reports["constant"].expected).max() < 1e-15


def test_the_own_length_turns_the_gradient():
    reports = explain.reduced("reinforce", Chain((0.1, 0.1, 0.1), (1.0, 0.0, 1.0, 1.0), 4))
    assert reports["sequence_sum"].cosine == pytest.approx(1.0)
    assert reports["constant"].cosine == pytest.approx(1.0)
    assert reports["sequence_mean"].cosine < 0.5


def test_a_chains_rewards_reach_the_outcomes_they_belong_to():
    problem = Chain((0.5, 0.5), (10.0, 20.0, 30.0), 2)
    by_outcome = dict(zip(problem.outcomes.tokens, problem.core_rewards, strict=True))
    assert by_outcome == {("EOS",): 10.0, ("a", "EOS"): 20.0, ("a", "a"): 30.0}
    assert expected_reward(problem.outcomes, problem.core_rewards) == pytest.approx(0.5 * 10 + 0.25 * 20 + 0.25 * 30)


def test_reward_to_go_varies_less_and_a_dropped_discount_is_biased(open_page):
    numbers = {k: number(v) for k, v in metrics(open_page("gradients", link_of("gradients", "go"))).items()}
    assert numbers[t("readout.grad_var_togo")] < numbers[t("readout.grad_var_total")]
    assert numbers[t("readout.grad_bias_dropped")] == 0
    numbers = {k: number(v) for k, v in metrics(open_page("gradients", link_of("gradients", "go-discount"))).items()}
    assert numbers[t("readout.grad_bias_dropped")] > 0.1


# --- what is said, where a usual sentence would be wrong --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem", "section"),
    [
        ("reinforce", Bandit((0.3, 0.7), (5.0, 1.0), 2), "unbiased-plain"),
        ("loo", Bandit((0.3, 0.7), (5.0, 1.0), 2), "unbiased"),
        ("best", Bandit((0.3, 0.7), (5.0, 1.0), 2), "rescaled"),
        ("std", Bandit(THIRD, (0.0, 1.0, 1.0), 8), "not-turned"),  # mixed groups are scaled in several ways
        ("std", Bandit(THIRD, (0.0, 1.0, 10.0), 2), "turned-three"),
        ("mean", Bandit(THIRD, (0.0, 1.0, 10.0), 1), "single"),
    ],
)
def test_an_estimator_is_described_by_what_it_does(name, problem, section):
    assert actions.notice(problem, name)[0] == section


@pytest.mark.parametrize(
    ("name", "size", "rewards", "section"),
    [
        ("mean", 4, (0.0, 0.0, 1.0, 1.0), "lengths-turned"),
        ("std", 2, (0.0, 0.3, 1.0, 0.1), "lengths-both-turned"),
        ("mean", 1, (0.0, 0.3, 1.0, 0.1), "single"),
        ("reinforce", 2, (1.0, 1.0, 1.0, 1.0), "lengths-equal"),
    ],
)
def test_a_direction_is_called_right_only_where_it_is(name, size, rewards, section):
    problem = Chain((0.3, 0.4, 0.5), rewards, size)
    assert lengths.notice(problem, name)[0] == section


@pytest.mark.parametrize(
    ("onward", "gamma", "section"),
    [("0.2,0.2,0", 1.0, "togo"), ("0,0,0", 1.0, "togo-end"), ("0.2,0.2,0", 0.5, "togo-discount")],
)
def test_reward_to_go_is_said_to_scatter_less_only_where_it_does(onward, gamma, section):
    paya = tuple(float(x) for x in onward.split(","))
    problem, paid = explain.paid(lens_of(paya=paya, gamma=gamma))
    reports = return_reports(problem.outcomes, paid, gamma=gamma)
    assert togo.notice(reports, gamma)[0] == section
    assert (r"\neq" in togo.lines(problem, reports, gamma)[2]) == (gamma < 1)


def test_a_baseline_that_leaves_no_scatter_is_not_divided_by():
    own = explain.baselines(lens_of(pi=(0.3, 0.7), rw=(5.0, 1.0)))
    assert own.variances["best"] < 1e-12
    assert baseline.notice(own)[0] == "baseline-none-left"


def test_a_gradient_of_zero_has_an_axis_that_says_so():
    rows = [Facet("one", "", np.zeros(3)), Facet("two", "", np.array([0.0, 1e-17, 0.0]))]
    layout = figures.facets(LIGHT, np.zeros(3), rows, ["A", "B", "C"], scaled=False)["layout"]
    assert layout["yaxis"]["range"] == [-1.0, 1.0]


def test_marks_at_one_baseline_share_a_name_and_others_stand_inside_the_bowl():
    def names(marks):
        return figures.baseline(LIGHT, np.linspace(-1, 5, 7), np.ones(7), marks=marks, at=(0.0, 1.0))["layout"][
            "annotations"
        ]

    (first, both) = names([("none", 0.0, 9.0), ("mean", 2.0, 1.0), ("best", 2.0, 1.0)])
    assert (first["ax"] > 0, both["ax"]) == (True, 0)
    assert "mean, best" in both["text"]
    assert [note["ax"] > 0 for note in names([("none", 4.0, 9.0), ("mean", 2.0, 1.0)])] == [False, False]


# --- the simplex ------------------------------------------------------------------------------------------------------


def test_steps_on_the_simplex_have_their_length_and_their_direction():
    probs = np.array([0.5, 0.3, 0.2])
    gradient = true_gradient(Bandit(tuple(probs), (0.0, 1.0, 10.0), 1).outcomes, [0.0, 1.0, 10.0])
    after = explain.moved(probs, gradient, length=0.05)
    assert after.sum() == pytest.approx(1.0)
    (x0, y0), (x1, y1) = explain.corner(probs), explain.corner(after)
    assert math.hypot(x1 - x0, y1 - y0) == pytest.approx(0.05, rel=0.03)
    assert after @ [0, 1, 10] > probs @ np.array([0, 1, 10])
    assert np.array_equal(explain.moved(probs, np.zeros(3), length=0.05), probs)


def test_paths_climb_and_the_std_takes_another_one():
    problem = Bandit(THIRD, (0.0, 9.0, 10.0), 2)
    true, own = explain.paths("std", problem)
    for path in (true, own):
        assert np.allclose(path.sum(axis=1), 1)
        assert np.all(np.diff(path @ problem.rewards) > -1e-9)
    assert np.abs(true[10] - own[10]).max() > 0.05
    same = explain.paths("loo", problem)
    np.testing.assert_allclose(same[0], same[1], atol=1e-9)


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name):
    at = open_page("gradients", link_of("gradients", name))
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.latex[0].value
    view = presets.presets("gradients")[name]["set"]["grad_view"]
    assert at.session_state[f"preset-gradients-{view}"] == name


@pytest.mark.parametrize("gest", PARAMS["gest"].choices)
@pytest.mark.parametrize("view", VIEWS)
def test_every_estimator_in_every_picture(open_page, view, gest):
    at = open_page("gradients", {"grad_view": view, "gest": gest, "gg": "3"})
    sound(at)
    assert not at.warning


EXTREMES = (
    {"pi": "1,0.000001", "rw": "100,-100", "gg": "1"},
    {"pi": "1,1,1,1,1,1,1,1", "rw": "0,0,0,0,0,0,0,1", "gg": "4", "gest": "trl"},
    {"pi": "0.000001,0.000001,1", "rw": "-100,0,100", "gg": "8", "gunit": "direction"},
    {"pi": "1,1,1", "rw": "0,0,0", "gest": "best", "gg": "2"},
    {"pi": "1,1", "rw": "1,2,3,4", "gbase": "-100"},
    {"stop": "0.02,0.98", "srw": "-100,100", "rcut": "100", "gest": "critic"},
    {"stop": "0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5", "srw": "0,1", "gg": "3", "paya": "1,0", "pays": "0,1", "gamma": "0"},
)


@pytest.mark.parametrize("view", VIEWS)
def test_every_extreme_link_opens_in_every_picture(open_page, view):
    for extreme in EXTREMES:
        sound(open_page("gradients", {**extreme, "grad_view": view}))


@pytest.mark.parametrize("view", ["actions", "simplex", "lengths"])
def test_too_many_groups_are_named_and_not_listed(open_page, view):
    many = {"actions": {"pi": "1,1,1,1,1,1,1,1", "rw": "0,0,0,0,0,0,0,1"}, "lengths": {"stop": ",".join(["0.5"] * 8)}}
    at = open_page("gradients", {"grad_view": view, "gg": "64", **many.get(view, {})})
    sound(at)
    if view == "simplex":  # three actions: 2145 groups of 64 can still be listed
        assert not at.warning
        return
    assert str(explain.MOST_GROUPS) in at.warning[0].value
    assert not pictures(at)
    assert at.get("bidi_component")  # the controls stay: the way back


def test_the_largest_size_is_the_largest_that_can_be_listed():
    for outcomes in range(2, 9):
        size = explain.largest_size(outcomes)
        assert explain.group_count(outcomes, size) <= explain.MOST_GROUPS
        assert size == 64 or explain.group_count(outcomes, size + 1) > explain.MOST_GROUPS


def test_the_simplex_asks_for_three_actions_and_makes_them(open_page):
    at = open_page("gradients", {"grad_view": "simplex", "pi": "1,1", "rw": "0,1"})
    sound(at)
    assert t("grad.three_only", count=2) in at.info[0].value
    at.button(key="grad-to-three").click().run()
    sound(at)
    assert pictures(at)


def test_the_groups_behind_an_expectation(open_page):
    problem = Bandit(THIRD, (0.0, 1.0, 10.0), 2)
    for name in explain.ESTIMATORS:
        rows = explain.listed(name, problem)
        assert len(rows) == 6
        assert sum(row.chance for row in rows) == pytest.approx(1.0)
        mean = sum(row.chance * np.array(row.estimate) for row in rows)
        np.testing.assert_allclose(mean, explain.report(name, problem).expected, atol=1e-14)
    at = open_page("gradients", {"rw": "0,1,10"})
    at.session_state["grad-list"] = True
    at.run()
    sound(at)
    assert len(at.dataframe) == 2


@pytest.mark.parametrize("view", VIEWS)
def test_checks_are_answered(open_page, view):
    at = open_page("gradients", {"grad_view": view})
    at.session_state[f"check-{CHECKS[view]}"] = True
    at.run()
    at.number_input(key=f"answer-{CHECKS[view]}").set_value(-12345.678).run()
    sound(at)
    assert at.warning[-1].value.startswith(t("check.wrong"))


# --- snippets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", explain.ESTIMATORS)
def test_the_snippet_prints_the_gradients(name):
    problem = Bandit((0.2, 0.5, 0.3), (0.0, 1.0, 4.0), 3)
    found = explain.report(name, problem)
    numbers = printed(snippets_gradients.report(name, problem))
    assert numbers[:3] == pytest.approx(found.true, abs=1e-6)
    assert numbers[3:6] == pytest.approx(found.expected, abs=1e-6)
    assert numbers[6:] == pytest.approx([found.cosine, found.variance])


@pytest.mark.parametrize("name", ["reinforce", "critic", "std", "greedy"])
def test_the_snippet_of_the_lengths_prints_every_reduction(name):
    problem = Chain((0.3, 0.6), (0.0, 1.0, 0.5), 3)
    numbers = printed(snippets_gradients.lengths(name, problem))
    expected = [v for found in explain.reduced(name, problem).values() for v in explain.ending(found.expected)]
    assert numbers == pytest.approx(expected, abs=1e-6)


def test_the_other_snippets_print_their_numbers():
    problem = Bandit((0.3, 0.7), (5.0, 1.0), 2)
    own = explain.baselines(lens_of(pi=(0.3, 0.7), rw=(5.0, 1.0), gbase=2.0))
    assert printed(snippets_gradients.baseline(problem, 2.0)) == pytest.approx([own.variances["own"], own.best])
    sizes = printed(snippets_gradients.sizes(problem, 4))
    assert sizes == pytest.approx([1, 0.0, 2, 0.5, 3, 2 / 3, 4, 0.75])
    chain, paid = explain.paid(lens_of(gamma=0.5))
    numbers = printed(snippets_gradients.togo(chain, paid, 0.5))
    assert len(numbers) == 3 * (3 + 1)


# --- words ------------------------------------------------------------------------------------------------------------


def test_every_word_is_there_and_every_section_is_used():
    paths = [ROOT / "pages" / "gradients.py", *(ROOT / "app" / "views" / "gradients").glob("*.py")]
    paths += [ROOT / "app" / "explain" / "gradients.py", ROOT / "app" / "figures" / "gradients.py"]
    code = "\n".join(path.read_text() for path in paths)
    keys = set(re.findall(r"\bt\(\s*\"([a-z_.0-9-]+)\"", code))
    keys |= {f"readout.{name}" for name in re.findall(r"Readout\(\s*\"([a-z_0-9]+)\"", code)}
    keys |= {f"preset.gradients.{name}" for name in NAMES}
    keys |= {f"grad.reduce.{mode}" for mode in explain.REDUCTIONS}
    assert sorted(keys - set(catalogue())) == []
    for name, body in sections("gradients").items():
        assert f'"{name}"' in code or name == "question", name
        assert "$" not in body, name
