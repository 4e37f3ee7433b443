"""Where two recipes differ, read from their data."""

import itertools

import numpy as np
import pytest

from grpo_core import RECIPES, AdvantageSpec, GroupBatch, Objective, loss_terms
from grpo_core.differences import (
    advantage_differences,
    choice_names,
    objective_differences,
    sampling_differences,
    take,
    take_advantage,
)

PAIRS = list(itertools.combinations(RECIPES, 2))[::17]


def test_equal_recipes_do_not_differ():
    for recipe in RECIPES.values():
        assert objective_differences(recipe.objective, recipe.objective) == []
        assert advantage_differences(recipe.advantage, recipe.advantage) == []
        assert sampling_differences(recipe.sampling, recipe.sampling) == []


def test_dapo_of_the_paper_and_of_trl():
    paper, trl = RECIPES["dapo_paper"], RECIPES["trl_dapo"]
    found = {d.name: (d.first, d.second, d.idle) for d in objective_differences(trl.objective, paper.objective)}
    assert found == {
        "epsilon_high": (0.2, 0.28, ""),
        "kl_ratio_weighted": (True, False, "beta"),
    }
    found = {d.name: (d.first, d.second, d.idle) for d in advantage_differences(trl.advantage, paper.advantage)}
    assert found == {"ddof": (1, 0, ""), "eps": (1e-4, 0.0, "")}
    names = {d.name: d.idle for d in sampling_differences(trl.sampling, paper.sampling)}
    assert names == {"group_size": "sampling", "inner_epochs": "sampling", "dynamic": "sampling"}


def test_options_of_a_surrogate_are_choices_of_their_own():
    paper, trl = RECIPES["cispo_paper"].objective, RECIPES["trl_cispo"].objective
    found = {d.name: (d.first, d.second) for d in objective_differences(paper, trl)}
    assert found["weight_high"] == (1.28, 0.2)


def test_an_option_that_one_side_does_not_have_is_none_there():
    found = {d.name: (d.first, d.second) for d in objective_differences(Objective(), Objective(surrogate="sapo"))}
    assert found == {"surrogate": ("clip", "sapo"), "tau_positive": (None, 1.0), "tau_negative": (None, 1.05)}


@pytest.mark.parametrize(
    ("first", "second", "name", "idle"),
    [
        (Objective(), Objective(kl_estimator="k1"), "kl_estimator", "beta"),
        (Objective(), Objective(kl_estimator="k1", beta=0.1), "kl_estimator", ""),
        (Objective(surrogate="sapo"), Objective(surrogate="sapo", delta=2.0), "delta", "surrogate"),
        (Objective(surrogate="sapo"), Objective(delta=2.0), "delta", ""),
        (Objective(), Objective(constant=4.0), "constant", "aggregation"),
        (Objective(), Objective(scope="global"), "scope", "accounting"),
        (Objective(), Objective(log_ratio_cap=20.0), "log_ratio_cap", "extreme"),
    ],
)
def test_why_a_choice_changes_nothing(first, second, name, idle):
    assert {d.name: d.idle for d in objective_differences(first, second)}[name] == idle


def test_why_a_choice_of_the_advantage_changes_nothing():
    def idle(first, second):
        return {d.name: d.idle for d in advantage_differences(first, second)}

    none, loo = AdvantageSpec(scale="none"), AdvantageSpec(estimator="leave_one_out")
    assert idle(none, AdvantageSpec(scale="none", ddof=0)) == {"ddof": "scale"}
    assert idle(loo, AdvantageSpec(estimator="leave_one_out", eps=0.0)) == {"eps": "estimator"}
    assert idle(AdvantageSpec(), none) == {"scale": ""}
    assert idle(loo, AdvantageSpec(estimator="reward", scale="none")) == {"estimator": "", "scale": "estimator"}


def test_an_idle_choice_of_the_loss_changes_no_token():
    rng = np.random.default_rng(0)
    old = -rng.uniform(0.5, 2, (3, 4))
    batch = GroupBatch(
        logp=old + rng.normal(0, 0.3, (3, 4)), old_logp=old, ref_logp=old, mask=np.ones((3, 4), dtype=bool),
        advantages=np.array([1.0, -0.5, -0.5]), uniform=rng.random((3, 4)),
    )  # fmt: skip
    for a, b in PAIRS:
        first, second = RECIPES[a].with_constant(4), RECIPES[b].with_constant(4)
        idle = [d.name for d in objective_differences(first, second) if d.idle]
        mixed = take(first, second, idle)
        expected = loss_terms(batch, first).contribution
        np.testing.assert_array_equal(loss_terms(batch, mixed).contribution, expected, err_msg=f"{a} {b} {idle}")


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_taking_every_difference_gives_the_other_recipe(a, b):
    first, second = RECIPES[a], RECIPES[b]
    names = [d.name for d in objective_differences(first.objective, second.objective)]
    taken = take(first.objective, second.objective, names)
    assert objective_differences(taken, second.objective) == []
    names = [d.name for d in advantage_differences(first.advantage, second.advantage)]
    assert take_advantage(first.advantage, second.advantage, names) == second.advantage
    assert take(first.objective, second.objective, []) == first.objective


def test_one_difference_alone():
    first = Objective(surrogate="cispo", options={"weight_high": 5.0})
    second = Objective(surrogate="cispo", options={"weight_high": 0.2, "weight_low": 0.1}, beta=0.1)
    assert take(first, second, ["weight_low"]).surrogate_parameters() == {"weight_low": 0.1, "weight_high": 5.0}
    assert take(first, Objective(), ["surrogate"]) == Objective()


def test_every_difference_has_a_known_name():
    known = set(choice_names())
    for a, b in PAIRS:
        found = objective_differences(RECIPES[a].objective, RECIPES[b].objective)
        found += advantage_differences(RECIPES[a].advantage, RECIPES[b].advantage)
        assert {d.name for d in found} <= known
