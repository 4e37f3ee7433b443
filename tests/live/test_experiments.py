"""Experiments: which runs they make, what differs, and what stands in the table, against numbers by hand."""

import math

import pytest

from grpo_core.live.config import RunConfig
from grpo_core.live.experiments import (
    align,
    cautions,
    changes_of,
    difference,
    equal_cost,
    results,
    things,
    track,
    variants,
    variants_of,
)

BASE = RunConfig(seed=3)


def step(number: int, tokens: int, reward: float, **more) -> dict:
    groups = {"groups/mixed": 3.0, "groups/all-right": 1.0, "groups/all-wrong": 0.0, "groups/unscored": 0.0}
    return {
        "event": "step", "step": number, "train_seconds": number / 4, "completion_tokens": tokens, "reward": reward,
        "advantages/abs_mean": reward / 2, "completions/mean_length": 4.0, **groups, **more,
    }  # fmt: skip


def evaluation(number: int, accuracy: float, sampled: float) -> dict:
    return {
        "event": "eval", "step": number, "accuracy": accuracy, "accuracy_low": accuracy - 0.1,
        "accuracy_high": accuracy + 0.1, "sampled_accuracy": sampled, "sampled_accuracy_low": sampled - 0.05,
        "sampled_accuracy_high": sampled + 0.05,
    }  # fmt: skip


CHEAP = track([evaluation(0, 0.2, 0.2), *(step(i, 100, i / 10) for i in range(1, 5)), evaluation(4, 0.6, 0.6)])
DEAR = track([evaluation(0, 0.2, 0.2), *(step(i, 200, i / 10) for i in range(1, 5)), evaluation(4, 1.0, 0.8)])


def test_a_sweep_changes_one_thing_and_nothing_else():
    found = variants(BASE, "learning_rate", [1e-4, "3e-4", 1e-3])
    assert [config.learning_rate for config in found] == [1e-4, 3e-4, 1e-3]
    assert {config.changed(learning_rate=1.0) for config in found} == {BASE.changed(learning_rate=1.0)}
    assert things(found) == ("learning_rate",)
    assert changes_of(found) == [{"learning_rate": rate} for rate in (1e-4, 3e-4, 1e-3)]
    assert cautions(found) == {}


def test_recipes_come_with_what_is_theirs_and_count_as_one_thing():
    found = variants(BASE, "recipe", ["dr_grpo_paper", "dapo_paper"])
    assert found[1] == RunConfig.for_recipe("dapo_paper", seed=3)
    assert set(difference(found)) == {"recipe", "epsilon_high"}
    assert things(found) == ("recipe",)
    assert changes_of(found) == [{"recipe": "dr_grpo_paper"}, {"recipe": "dapo_paper"}]
    other = [found[0], found[1].changed(epsilon_high=0.5)]
    assert things(other) == ("recipe", "epsilon_high")
    assert cautions(other) == {"several": ("recipe", "epsilon_high")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{"beta": 0.1}], "compares 2 to 4 runs, got 1"),
        ([{"beta": b / 10} for b in range(5)], "got 5"),
        ([{"beta": 0.1}, {"beta": "0.1"}], "beta='0.1' makes a run that is there already"),
        ([{"beta": 0.1}, {"beta": -1}], "beta=-1"),
        ([{"bete": 0.1}, {"bete": 0.2}], "did you mean beta"),
    ],
)
def test_what_makes_no_experiment_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        variants_of(BASE, changes)


def test_what_makes_a_comparison_unfair_is_named():
    assert cautions([BASE, BASE.changed(note="x", pace=2.0, steps=9)]) == {"same": ()}
    assert cautions([BASE, BASE.changed(seed=4)]) == {"seed": ("3", "4")}
    several = [BASE, BASE.changed(beta=0.1, group_size=4, seed=9)]
    assert cautions(several, ["temperature"]) == {
        "several": ("group_size", "beta"), "seed": ("3", "9"), "later": ("temperature",),
    }  # fmt: skip
    assert cautions([BASE]) == {}
    assert changes_of(several)[1] == {"group_size": 4, "beta": 0.1, "seed": 9}


def test_the_axes_count_steps_seconds_and_generated_tokens():
    assert list(CHEAP.cost("tokens")) == [100, 200, 300, 400]
    assert list(CHEAP.cost("seconds")) == [0.25, 0.5, 0.75, 1.0]
    assert DEAR.evaluated("tokens") == [0.0, 800.0]
    assert DEAR.evaluated("step") == [0.0, 4.0]
    assert DEAR.end("tokens") == 800.0
    assert equal_cost([CHEAP, DEAR], "tokens") == 400.0
    assert equal_cost([CHEAP, DEAR], "step") == 4.0
    assert equal_cost([CHEAP, track([])], "tokens") == 0.0


def test_the_table_at_equal_tokens_by_hand():
    cheap, dear = results([CHEAP, DEAR])
    assert (cheap["tokens"], dear["tokens"]) == (400.0, 400.0)
    assert (cheap["step"], dear["step"]) == (4.0, 2.0)
    assert (cheap["seconds"], dear["seconds"]) == (1.0, 0.5)
    assert (cheap["accuracy"], dear["accuracy"]) == pytest.approx((0.6, 0.6))  # the dear run is half way to 1.0
    assert (dear["accuracy_low"], dear["accuracy_high"]) == pytest.approx((0.5, 0.7))
    assert (cheap["sampled_accuracy"], dear["sampled_accuracy"]) == pytest.approx((0.6, 0.5))
    assert (cheap["reward"], dear["reward"]) == pytest.approx((0.4, 0.2))  # tokens 360 to 400: steps 4 and 2
    assert (cheap["advantage"], dear["advantage"]) == pytest.approx((0.2, 0.1))
    assert (cheap["mixed"], cheap["all-right"], cheap["all-wrong"], cheap["unscored"]) == (0.75, 0.25, 0.0, 0.0)
    assert cheap["length"] == 4.0
    assert cheap["to_half"] == pytest.approx(300.0)
    assert dear["to_half"] == pytest.approx(400.0)
    earlier = results([CHEAP, DEAR], cost=200.0)
    assert [row["accuracy"] for row in earlier] == pytest.approx([0.4, 0.4])
    assert [row["to_half"] for row in earlier] == [math.inf, math.inf]


def test_the_table_at_equal_steps_and_for_runs_that_have_not_begun():
    cheap, dear = results([CHEAP, DEAR], by="step")
    assert (cheap["tokens"], dear["tokens"]) == (400.0, 800.0)
    assert (cheap["accuracy"], dear["accuracy"]) == pytest.approx((0.6, 1.0))
    empty = results([CHEAP, track([evaluation(0, 0.2, 0.2)])])
    assert empty[1]["accuracy"] == pytest.approx(0.2)
    assert math.isnan(empty[1]["reward"])
    assert math.isnan(results([track([])])[0]["accuracy"])


def test_a_metric_that_is_missing_now_and_then_is_left_out():
    gaps = track([step(1, 100, 0.1), {**step(2, 100, 0.0), "reward": None}, step(3, 100, 0.3)])
    found = align([gaps], "tokens", ["reward"], points=5)
    assert found.x == [0.0, 75.0, 150.0, 225.0, 300.0]
    assert found.runs[0]["reward"] == pytest.approx([None, None, 0.15, 0.225, 0.3])


def test_curves_are_aligned_where_all_runs_are():
    found = align([CHEAP, DEAR], "tokens", ["reward", "accuracy", "no such"], points=5)
    assert found.x == [0.0, 100.0, 200.0, 300.0, 400.0]
    assert found.runs[0]["reward"] == pytest.approx([None, 0.1, 0.2, 0.3, 0.4])
    assert found.runs[1]["reward"] == pytest.approx([None, None, 0.1, 0.15, 0.2])
    assert found.runs[0]["accuracy"] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.runs[1]["accuracy"] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.runs[0]["no such"] == [None] * 5
