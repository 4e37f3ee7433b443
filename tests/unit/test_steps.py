"""Step rewards: normalised over all steps or by step number, summed over later steps."""

import math

import numpy as np
import pytest

from grpo_core import normalised_steps, process_advantages
from grpo_core.steps import STEP_BASELINES


def test_over_all_steps_and_by_their_number():
    # all: 1, 0, 0, 1 -> mean 1/2, std 1/2. By number: the first steps are 1, 0, the second 0, 1.
    rewards = [[1.0, 0.0], [0.0, 1.0]]
    for baseline in STEP_BASELINES:
        assert [row.tolist() for row in normalised_steps(rewards, baseline=baseline)] == [[1, -1], [-1, 1]]
    # all: 3, 1, 1, 1 -> mean 1.5, std sqrt(3)/2. By number: 3, 1 -> +-1; the second steps are equal.
    rewards = [[3.0, 1.0], [1.0, 1.0]]
    root = math.sqrt(3.0)
    np.testing.assert_allclose(normalised_steps(rewards), [[root, -1 / root], [-1 / root, -1 / root]], rtol=1e-14)
    assert [row.tolist() for row in normalised_steps(rewards, baseline="position")] == [[1, 0], [-1, 0]]


def test_a_step_without_a_counterpart_gets_nothing():
    found = normalised_steps([[1.0, 0.0, 7.0], [0.0, 1.0]], baseline="position", ddof=1)
    assert found[0][2] == 0.0
    np.testing.assert_allclose(found[0][:2], [math.sqrt(0.5), -math.sqrt(0.5)], rtol=1e-14)


def test_the_baseline_reaches_the_tokens():
    rewards, ends = [[1.0, 0.0], [0.0]], [[0, 2], [1]]
    (first, second) = process_advantages(rewards, ends, [3, 2], baseline="position")
    assert first.tolist() == [1.0, 0.0, 0.0]
    assert second.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("baseline", STEP_BASELINES)
def test_adding_a_number_to_every_reward_changes_nothing(baseline):
    rng = np.random.default_rng(3)
    rewards = [rng.normal(size=n).tolist() for n in (3, 1, 4)]
    moved = [[r + 2.5 for r in row] for row in rewards]
    for one, other in zip(
        normalised_steps(rewards, baseline=baseline), normalised_steps(moved, baseline=baseline), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_every_pool_has_mean_zero_and_std_one():
    rng = np.random.default_rng(5)
    rewards = [rng.normal(size=3).tolist() for _ in range(4)]
    by_number = np.array(normalised_steps(rewards, baseline="position"))
    np.testing.assert_allclose(by_number.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(by_number.std(axis=0), 1, rtol=1e-13)
    together = np.array(normalised_steps(rewards))
    assert together.mean() == pytest.approx(0, abs=1e-14)
    assert together.std() == pytest.approx(1)


def test_an_unknown_baseline_is_named():
    with pytest.raises(ValueError, match=r"baseline must be .*all.*position.* got 'step'"):
        normalised_steps([[1.0]], baseline="step")


def test_without_the_std_steps_are_only_centred():
    # 1, 0, 0 -> mean 1/3
    found = process_advantages([[1.0, 0.0], [0.0]], [[0, 1], [2]], [2, 3], scale="none", eps=1e-4)
    np.testing.assert_allclose(found[0], [1 / 3, -1 / 3], atol=1e-15)
    np.testing.assert_allclose(found[1], [-1 / 3] * 3, atol=1e-15)
    with pytest.raises(ValueError, match=r"scale must be .*group.*none.* got 'batch'"):
        normalised_steps([[1.0]], scale="batch")
