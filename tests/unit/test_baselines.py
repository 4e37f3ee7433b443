import dataclasses
import math

import numpy as np
import pytest

from grpo_core import AdvantageSpec, Whitening, compute_advantages, multi_reward_advantages, sum_rewards
from grpo_core.advantages import ESTIMATORS
from grpo_core.baselines import (
    best_of_group_advantages,
    length_weighted_advantages,
    nonzero_scaled_advantages,
    whiten,
    whitening_moments,
)
from tests.support import to_numpy

NAN = math.nan


class TestLengthWeightedAdvantages:
    def test_by_hand(self, backend):
        # baseline (1*4 + 3*0) / 4 = 1
        backend.check(length_weighted_advantages(backend.array([4, 0]), backend.array([1, 3])), [3, -1])

    def test_equal_lengths_give_the_plain_mean(self, backend):
        backend.check(length_weighted_advantages(backend.array([4, 0]), backend.array([5, 5])), [2, -2])

    def test_unscored_and_equal(self, backend):
        result = length_weighted_advantages(backend.array([[4, NAN, 0], [0.1] * 3]), backend.array([[1, 100, 3]] * 2))
        backend.check(result, [[3, 0, -1], [0, 0, 0]])

    def test_empty_completions_only(self, backend):
        backend.check(length_weighted_advantages(backend.array([4, 0]), backend.array([0, 0])), [2, -2])


class TestNonzeroScaledAdvantages:
    def test_by_hand(self, backend):
        # four completions, one with a reward: alpha 4
        backend.check(nonzero_scaled_advantages(backend.array([[1, 0], [0, 0]])), [[2, -2], [0, 0]])

    def test_no_reward_at_all(self, backend):
        backend.check(nonzero_scaled_advantages(backend.array([[0, 0]])), [[0, 0]])


class TestBestOfGroupAdvantages:
    def test_only_the_winner_moves(self, backend):
        # lead 2 over the second; sample std of 5, 3, 1 is 2
        backend.check(best_of_group_advantages(backend.array([5, 3, 1]), eps=0.0), [1, 0, 0])
        backend.check(best_of_group_advantages(backend.array([5, 3, 1]), scale="none"), [2, 0, 0])

    @pytest.mark.parametrize("rewards", [[3, 3, 1], [3.0], [NAN, 3], [NAN, NAN]])
    def test_a_tie_or_no_rival_gives_nothing(self, backend, rewards):
        for eps in (1e-6, 0.0):  # without eps an equal group has nothing to divide by
            assert to_numpy(best_of_group_advantages(backend.array(rewards), eps=eps)).tolist() == [0.0] * len(rewards)


class TestWhiten:
    def test_a_long_completion_counts_more(self, backend):
        # tokens: 4 once, 0 three times; mean 1, squares 9 + 3, variance 12/4 = 3 or 12/3 = 4
        a, lengths, scored = backend.array([4, 0]), backend.array([1, 3]), backend.mask([True, True])
        backend.check(whiten(a, lengths, scored, whitening=Whitening(ddof=1, eps=0.0)), [1.5, -0.5])
        root = math.sqrt(3)
        backend.check(whiten(a, lengths, scored, whitening=Whitening(ddof=0, eps=0.0)), [root, -1 / root])

    def test_eps_is_added_or_a_floor(self, backend):
        a, lengths, scored = backend.array([4, 0]), backend.array([1, 3]), backend.mask([True, True])
        backend.check(whiten(a, lengths, scored, whitening=Whitening(ddof=1, eps=5.0)), [1.0, -1 / 3])
        backend.check(whiten(a, lengths, scored, whitening=Whitening(ddof=1, eps=9.0, floor=True)), [1.0, -1 / 3])

    def test_unscored_takes_no_part(self, backend):
        a, lengths = backend.array([4, 99, 0]), backend.array([1, 50, 3])
        result = whiten(a, lengths, backend.mask([True, False, True]), whitening=Whitening(ddof=1, eps=0.0))
        backend.check(result, [1.5, 0, -0.5])

    def test_no_spread_is_zero_and_not_nan(self, backend):
        a, lengths, scored = backend.array([2, 2]), backend.array([1, 3]), backend.mask([True, True])
        for whitening in (Whitening(), Whitening(eps=0.0), Whitening(ddof=0, floor=True)):
            backend.check(whiten(a, lengths, scored, whitening=whitening), [0, 0])

    @pytest.mark.parametrize("changes", [{"ddof": 2}, {"eps": -1}])
    def test_bad_choices(self, changes):
        with pytest.raises(ValueError, match=next(iter(changes))):
            Whitening(**changes)


class TestEstimatorsByName:
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            (AdvantageSpec(estimator="reward"), [[4, 0], [2, 2]]),
            (AdvantageSpec(estimator="batch_mean"), [[2, -2], [0, 0]]),
            (AdvantageSpec(estimator="length_weighted"), [[3, -1], [0, 0]]),
            (AdvantageSpec(estimator="greedy_baseline"), [[3, -1], [-3, -3]]),
            (AdvantageSpec(estimator="nonzero_scaled"), [[2 * 4 / 3, -2 * 4 / 3], [0, 0]]),
            (AdvantageSpec(estimator="best_of_group", scale="none"), [[4, 0], [0, 0]]),
        ],
    )
    def test_by_hand(self, backend, spec, expected):
        rewards, lengths = backend.array([[4, 0], [2, 2]]), backend.array([[1, 3], [1, 1]])
        result = compute_advantages(rewards, spec, lengths=lengths, greedy_rewards=backend.array([1, 5]))
        backend.check(result.advantages, expected)
        backend.check(result.mean, [2, 2])

    @pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
    def test_unscored_gets_zero_and_nothing_is_nan(self, backend, estimator):
        rewards, lengths = backend.array([[1, NAN, 0], [NAN, NAN, NAN]]), backend.array([[1, 2, 3]] * 2)
        spec = AdvantageSpec(estimator=estimator)
        result = compute_advantages(rewards, spec, lengths=lengths, greedy_rewards=backend.array([0.5, 0.5]))
        advantages = to_numpy(result.advantages)
        assert np.isfinite(advantages).all()
        assert advantages[0, 1] == 0
        assert (advantages[1] == 0).all()

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            (AdvantageSpec(estimator="length_weighted"), "lengths"),
            (AdvantageSpec(estimator="greedy_baseline"), "greedy_rewards"),
            (AdvantageSpec(whitening=Whitening()), "lengths"),
        ],
    )
    def test_what_is_needed_is_asked_for(self, spec, says):
        with pytest.raises(ValueError, match=says):
            compute_advantages(np.array([[1.0, 0.0]]), spec)


class TestSumRewards:
    def test_a_silent_function_drops_out_of_that_sum(self, backend):
        parts = backend.array([[1, 2], [1, NAN], [NAN, 2], [NAN, NAN]])
        backend.check(sum_rewards(parts), [3, 1, 2, NAN])
        backend.check(sum_rewards(parts, weights=[1, 0.5]), [2, 1, 1, NAN])

    @pytest.mark.parametrize(
        ("parts", "weights", "says"),
        [
            (np.zeros((2, 2)), [1.0], "weights must have one number for each of the 2 reward functions"),
            (np.zeros((2, 2)), [1.0, NAN], "weights must be"),
            (np.zeros(2), None, "parts must be finite rewards of shape"),
            (np.array([[math.inf, 0.0]]), None, "parts must be finite"),
        ],
    )
    def test_bad_input(self, parts, weights, says):
        with pytest.raises(ValueError, match=says):
            sum_rewards(parts, weights=weights)


class TestMultiRewardAdvantages:
    # two functions over a group of two: the first differs by 2, the second by 1 in the other group only
    PARTS = (((2.0, 1.0), (0.0, 1.0)), ((2.0, 1.0), (0.0, 0.0)))

    def test_sum_then_normalise(self, backend):
        result = multi_reward_advantages(backend.array(self.PARTS), AdvantageSpec(ddof=0, eps=0.0))
        backend.check(result.advantages, [[1, -1], [1, -1]])
        backend.check(result.mean, [2, 1.5])

    def test_normalise_then_sum(self, backend):
        # per function +-1; sums 1, -1 and 2, -2: batch mean 0, population std sqrt(10/4)
        spec = AdvantageSpec(ddof=0, eps=0.0, reward_aggregation="normalize_then_sum")
        scale = math.sqrt(2.5)
        backend.check(
            multi_reward_advantages(backend.array(self.PARTS), spec).advantages,
            [[1 / scale, -1 / scale], [2 / scale, -2 / scale]],
        )

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_normalise_then_sum_has_a_baseline_of_its_own(self, backend, estimator):
        spec = AdvantageSpec(ddof=0, eps=0.0, reward_aggregation="normalize_then_sum")
        other = dataclasses.replace(spec, estimator=estimator)
        expected = multi_reward_advantages(backend.array(self.PARTS), spec)
        found = multi_reward_advantages(backend.array(self.PARTS), other)
        backend.check(found.advantages, expected.advantages)
        backend.check(found.std, expected.std)

    def test_unknown_aggregation(self):
        with pytest.raises(ValueError, match="reward_aggregation must be one of"):
            AdvantageSpec(reward_aggregation="sum")


@pytest.mark.parametrize("floor", [False, True])
def test_whitening_moments_are_those_of_the_tokens(floor):
    advantages, lengths = np.array([[1.0, -2.0], [0.5, 4.0]]), np.array([[2.0, 1.0], [3.0, 4.0]])
    scored = np.array([[True, True], [True, False]])
    tokens = np.array([1.0, 1.0, -2.0, 0.5, 0.5, 0.5])
    mean, divisor = whitening_moments(advantages, lengths, scored, whitening=Whitening(ddof=1, eps=0.5, floor=floor))
    variance = tokens.var(ddof=1)
    assert mean == pytest.approx(tokens.mean())
    assert divisor == pytest.approx(np.sqrt(max(variance, 0.5) if floor else variance + 0.5))
