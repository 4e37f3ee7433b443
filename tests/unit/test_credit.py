import numpy as np
import pytest

from grpo_core import gae
from grpo_core.credit import (
    RolloutBill,
    continuation_advantages,
    continuation_bill,
    continuation_values,
    n_step_advantages,
    n_step_weights,
    returns_to_go,
    td_errors,
)
from tests.support import to_numpy

REWARDS, VALUES = [0.0, 0.0, 1.0], [0.2, 0.4, 0.7, 0.0]  # case gae-nstep


class TestTemporalDifferences:
    def test_td_errors(self, backend):
        backend.check(td_errors(backend.array(REWARDS), backend.array(VALUES)), [0.2, 0.3, 0.3])
        # 0 + 0.5 * 0.4 - 0.2, 0.5 * 0.7 - 0.4, 1 - 0.7
        backend.check(td_errors(backend.array(REWARDS), backend.array(VALUES), gamma=0.5), [0.0, -0.05, 0.3])

    def test_a_truncated_trajectory_bootstraps(self):
        terminal, cut = td_errors([0.0], [0.5, 0.0]), td_errors([0.0], [0.5, 0.6])
        np.testing.assert_allclose([terminal[0], cut[0]], [-0.5, 0.1], rtol=1e-14)

    def test_n_step_estimates_move_from_critic_to_measured_reward(self, backend):
        backend.check(n_step_advantages(backend.array(REWARDS), backend.array(VALUES)), [0.2, 0.5, 0.8])
        backend.check(n_step_advantages(backend.array(REWARDS), backend.array(VALUES), t=1), [0.3, 0.6])
        backend.check(n_step_advantages(backend.array(REWARDS), backend.array(VALUES), t=2), [0.3])

    def test_n_step_by_definition_with_discount(self):
        # rewards and one value, not a sum of TD errors: r0 + g r1 + g^2 V2 - V0
        got = n_step_advantages([1.0, 2.0, 3.0], [0.5, 0.25, 4.0, 2.0], gamma=0.5)
        expected = [1 + 0.5 * 0.25 - 0.5, 1 + 0.5 * 2 + 0.25 * 4 - 0.5, 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 2 - 0.5]
        np.testing.assert_allclose(got, expected, rtol=1e-14)

    def test_weights_have_a_tail_and_sum_to_one(self):
        np.testing.assert_allclose(n_step_weights(3, lam=0.9), [0.1, 0.09, 0.81], rtol=1e-12)
        np.testing.assert_array_equal(n_step_weights(3, lam=0.0), [1, 0, 0])
        np.testing.assert_array_equal(n_step_weights(3, lam=1.0), [0, 0, 1])
        np.testing.assert_array_equal(n_step_weights(1, lam=0.3), [1])

    @pytest.mark.parametrize("lam", [0.0, 0.35, 0.9, 1.0])
    @pytest.mark.parametrize("t", [0, 1, 4])
    def test_the_weighted_estimates_are_gae(self, lam, t):
        rng = np.random.default_rng(7)
        rewards, values = rng.normal(size=5), rng.normal(size=6)
        estimates = n_step_advantages(rewards, values, t=t, gamma=0.8)
        combined = n_step_weights(5 - t, lam=lam) @ estimates
        assert combined == pytest.approx(gae(rewards, values, gamma=0.8, lam=lam)[t], rel=1e-12)

    def test_returns_to_go(self, backend):
        backend.check(returns_to_go(backend.array([[1, 2, 4], [0, 0, 8]]), gamma=0.5), [[3, 4, 4], [2, 4, 8]])
        assert to_numpy(returns_to_go(backend.array([]))).size == 0

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: td_errors([1.0], [1.0]), r"values must have one entry more than rewards.*\(1,\) and \(1,\)"),
            (lambda: td_errors([1.0], [1.0, 0.0], gamma=1.5), "gamma must be between 0 and 1, got 1.5"),
            (lambda: n_step_advantages(REWARDS, VALUES, t=3), "t must be between 0 and 2 for 3 tokens, got 3"),
            (lambda: n_step_advantages(REWARDS, VALUES, t=-1), "t must be a whole number of at least 0, got -1"),
            (lambda: n_step_weights(0, lam=0.5), "steps must be a whole number of at least 1, got 0"),
            (lambda: n_step_weights(2, lam=-0.1), "lam must be between 0 and 1"),
            (lambda: returns_to_go(3.0), r"rewards must have shape \(..., T\)"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


class TestContinuations:
    def test_values_leave_out_what_could_not_be_scored(self):
        np.testing.assert_allclose(continuation_values([[0, 1, 0, 1], [1, None, 0, 0]]), [0.5, 1 / 3], rtol=1e-14)

    def test_advantage_is_the_change_of_the_success_rate(self):
        # V = 0.5, 1, 0; the completion fails: the second step lost it, the last one had nothing left to lose
        np.testing.assert_array_equal(continuation_advantages([[0, 1], [1, 1], [0, 0]], 0.0), [0.5, -1.0, 0.0])

    def test_advantages_add_up_to_reward_minus_the_first_value(self):
        rows = np.random.default_rng(3).random((6, 4)).tolist()
        assert continuation_advantages(rows, 0.7).sum() == pytest.approx(0.7 - np.mean(rows[0]), rel=1e-12)

    def test_the_bill_grows_with_the_square_of_the_length(self):
        short, long = continuation_bill([10], continuations=2), continuation_bill([20], continuations=2)
        assert short == RolloutBill(continuations=20, tokens=110, group_tokens=10)
        assert long == RolloutBill(continuations=40, tokens=420, group_tokens=20)
        assert (short.ratio, long.ratio) == (12.0, 22.0)

    def test_the_bill_for_steps(self):
        # starts 0 and 6 of 10 tokens: 10 + 4 tokens, three times; the second completion starts once, 5 tokens
        bill = continuation_bill([10, 5], continuations=3, starts=[[0, 6], [0]])
        assert bill == RolloutBill(continuations=9, tokens=57, group_tokens=15)
        assert continuation_bill([0], continuations=1).ratio == 1.0

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: continuation_values([]), "continuation_rewards must hold a list of rewards for each prefix"),
            (lambda: continuation_values("ab"), "continuation_rewards must hold a list"),
            (lambda: continuation_values([[1], [None]]), r"continuation_rewards\[1\] must hold at least one scored"),
            (lambda: continuation_values([[1, float("nan")]]), r"rewards\[1\] must be a finite number"),
            (lambda: continuation_advantages([[1]], float("inf")), "reward must be a finite number"),
            (lambda: continuation_bill([-1], continuations=1), "lengths must be a whole number of at least 0"),
            (lambda: continuation_bill([1], continuations=0), "continuations must be a whole number of at least 1"),
            (lambda: continuation_bill([3], continuations=1, starts=[[3]]), r"starts\[0\] must lie in 0..2, got \[3\]"),
            (lambda: continuation_bill([3], continuations=1, starts=[]), "one list for each of the 1 completions"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()
