import math

import numpy as np
import pytest

from grpo_core import categorical_kl
from grpo_core.preference import (
    dpo_loss,
    dpo_margin,
    dpo_weight,
    implicit_reward,
    kl_optimal_policy,
    label_loss,
    log_partition,
    log_sigmoid,
    preference_probability,
    regularised_value,
)
from tests.support import difference_gradient, to_numpy, torch_gradient

PAIR = [[-10.0, -2.0], [-12.0, -2.5], [-15.0, -1.0], [-11.0, -3.0]]  # logp_w, ref_logp_w, logp_l, ref_logp_l
REFERENCE, REWARDS = [0.5, 0.3, 0.2], [1.0, 0.0, 2.0]


def sigma(x):
    return 1.0 / (1.0 + math.exp(-x))


class TestBradleyTerry:
    def test_case_bt_pair(self, backend):
        for shift in (0.0, -7.5):
            result = preference_probability(backend.array([2.0 + shift]), backend.array([1.0 + shift]))
            backend.check(result, [0.7310585786300049])

    def test_far_apart(self, backend):
        result = preference_probability(backend.array([1e4, -1e4, 0.0]), backend.array([0.0, 0.0, 0.0]))
        backend.check(result, [1.0, 0.0, 0.5])
        backend.check(log_sigmoid(backend.array([1e4, -1e4])), [0.0, -1e4])

    def test_log_sigmoid_gradient(self):
        at = np.array([-800.0, -2.0, 0.0, 3.0, 800.0])
        expected = [1.0, sigma(2.0), 0.5, sigma(-3.0), 0.0]
        np.testing.assert_allclose(torch_gradient(lambda x: log_sigmoid(x).sum(), at), expected, rtol=1e-12, atol=1e-15)


class TestLabelLoss:
    def test_by_hand(self, backend):
        scores, labels = backend.array([0.0, 2.0, 2.0, -1.0]), backend.array([1.0, 1.0, 0.0, 0.25])
        mixed = -0.25 * math.log(sigma(-1.0)) - 0.75 * math.log(sigma(1.0))
        backend.check(label_loss(scores, labels), [math.log(2), -math.log(sigma(2.0)), -math.log(sigma(-2.0)), mixed])

    def test_the_slope_is_probability_minus_label(self):
        import torch

        at, labels = np.array([-900.0, -1.0, 0.5, 900.0]), np.array([1.0, 0.0, 0.3, 0.0])
        expected = [-1.0, sigma(-1.0), sigma(0.5) - 0.3, 1.0]
        found = torch_gradient(lambda x: label_loss(x, torch.from_numpy(labels)).sum(), at)
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    def test_a_pair_is_the_difference_of_scores(self):
        # A label of 1 against a score of 0 is Bradley-Terry's loss of that pair.
        won = preference_probability([1.7], [0.0])
        np.testing.assert_allclose(label_loss([1.7], [1.0]), -np.log(won), rtol=1e-14)

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match=r"labels must lie in \[0, 1\]"):
            label_loss([0.0], [1.5])
        with pytest.raises(ValueError, match=r"labels must lie in \[0, 1\]"):
            label_loss([0.0], [math.nan])
        with pytest.raises(ValueError, match="labels must have the shape of scores"):
            label_loss([0.0, 1.0], [1.0])


class TestDpo:
    def test_case_dpo_pair(self, backend):
        pair = [backend.array(x) for x in PAIR]
        # z = 0.1 [(−10 + 12) − (−15 + 11)] = 0.6 and 0.1 [0.5 − 2] = −0.15
        backend.check(dpo_margin(*pair, beta=0.1), [0.6, -0.15])
        backend.check(dpo_loss(*pair, beta=0.1), [0.4374879504858856, -math.log(sigma(-0.15))])
        backend.check(dpo_weight(*pair, beta=0.1), [0.035434369377420456, 0.1 * sigma(0.15)])

    def test_the_reference_policy_has_loss_log_2(self):
        pair = [PAIR[0], PAIR[0], PAIR[2], PAIR[2]]
        np.testing.assert_allclose(dpo_loss(*pair, beta=0.5), math.log(2), rtol=1e-14)

    @pytest.mark.parametrize(("which", "sign"), [(0, -1.0), (2, 1.0)])
    def test_the_weight_is_the_gradient(self, which, sign):
        import torch

        def loss(x, as_array):
            arrays = [x if i == which else as_array(row) for i, row in enumerate(PAIR)]
            return dpo_loss(*arrays, beta=0.3).sum()

        weight = sign * dpo_weight(*PAIR, beta=0.3)
        exact = torch_gradient(lambda x: loss(x, lambda row: torch.tensor(row, dtype=torch.float64)), PAIR[which])
        np.testing.assert_allclose(exact, weight, rtol=1e-12)
        np.testing.assert_allclose(difference_gradient(lambda x: loss(x, np.asarray), PAIR[which]), weight, rtol=1e-7)

    @pytest.mark.parametrize("which", [1, 3])
    def test_the_reference_carries_no_gradient(self, which):
        import torch

        def loss(x):
            rows = [x if i == which else torch.tensor(row, dtype=torch.float64) for i, row in enumerate(PAIR)]
            return dpo_loss(*rows, beta=0.3).sum() + 0.0 * x.sum()

        np.testing.assert_array_equal(torch_gradient(loss, PAIR[which]), 0.0)

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match="beta must be finite and above 0, got 0"):
            dpo_loss(*PAIR, beta=0)
        with pytest.raises(ValueError, match=r"ref_logp must have the shape of logp, \(2,\), got \(1,\)"):
            dpo_margin(PAIR[0], [1.0], PAIR[2], PAIR[3], beta=1.0)
        with pytest.raises(ValueError, match=r"logp_l must have the shape of logp_w, \(2,\), got \(1,\)"):
            dpo_margin(PAIR[0], PAIR[1], [1.0], [1.0], beta=1.0)
        with pytest.raises(ValueError, match="reward_l must have the shape of reward_w"):
            preference_probability([1.0], [1.0, 2.0])


class TestKlOptimalPolicy:
    def test_case(self, backend):
        result = kl_optimal_policy(backend.array(REFERENCE), backend.array(REWARDS), beta=0.5)
        backend.check(result, [0.247719518297292, 0.02011511470320076, 0.7321653669995073])

    def test_log_partition(self, backend):
        result = log_partition(backend.array([REFERENCE]), backend.array([REWARDS]), beta=0.5)
        backend.check(result, [math.log(0.5 * math.exp(2) + 0.3 + 0.2 * math.exp(4))])

    def test_a_small_beta_does_not_overflow(self, backend):
        result = kl_optimal_policy(backend.array(REFERENCE), backend.array([1e4, 1e4, 0.0]), beta=1e-3)
        backend.check(result, [0.625, 0.375, 0.0])

    def test_what_the_reference_never_does_stays_impossible(self, backend):
        result = kl_optimal_policy(backend.array([0.5, 0.5, 0.0]), backend.array([0.0, 0.0, 99.0]), beta=1.0)
        backend.check(result, [0.5, 0.5, 0.0])

    def test_the_partition_function_cancels_between_two_completions(self):
        optimum = kl_optimal_policy(REFERENCE, REWARDS, beta=0.5)
        recovered = implicit_reward(np.log(optimum), np.log(REFERENCE), beta=0.5)
        level = 0.5 * float(log_partition(REFERENCE, REWARDS, beta=0.5))
        np.testing.assert_allclose(recovered + level, REWARDS, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(recovered[2] - recovered[0], 1.0, rtol=1e-12)

    def test_it_is_the_optimum_and_every_other_policy_loses_beta_kl(self):
        optimum = kl_optimal_policy(REFERENCE, REWARDS, beta=0.5)
        best = 0.5 * float(log_partition(REFERENCE, REWARDS, beta=0.5))
        assert float(regularised_value(optimum, REFERENCE, REWARDS, beta=0.5)) == pytest.approx(best, rel=1e-12)
        for policy in np.random.default_rng(0).dirichlet(np.ones(3), size=5):
            value = float(regularised_value(policy, REFERENCE, REWARDS, beta=0.5))
            assert value == pytest.approx(best - 0.5 * float(categorical_kl(policy, optimum)), rel=1e-11)
            assert value < best

    def test_gradients(self):
        import torch

        reference = torch.tensor(REFERENCE, dtype=torch.float64)
        # d log Z / d r_k = p_k / beta
        slope = torch_gradient(lambda r: log_partition(reference, r, beta=0.5), REWARDS)
        np.testing.assert_allclose(slope, to_numpy(kl_optimal_policy(REFERENCE, REWARDS, beta=0.5)) / 0.5, rtol=1e-12)
        exact = torch_gradient(lambda r: kl_optimal_policy(reference, r, beta=0.5)[0], REWARDS)
        numeric = difference_gradient(lambda r: kl_optimal_policy(REFERENCE, r, beta=0.5)[0], REWARDS)
        np.testing.assert_allclose(exact, numeric, atol=1e-9)
        zero = torch.tensor([1.0, 0.0], dtype=torch.float64)
        np.testing.assert_array_equal(torch_gradient(lambda r: log_partition(zero, r, beta=1.0), [1.0, 2.0]), [1, 0])

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: kl_optimal_policy([0.5, 0.4], [0, 0], beta=1), "reference must be non-negative probabilities"),
            (lambda: kl_optimal_policy([1.0], [0.0, 1.0], beta=1), "rewards must have the shape of reference"),
            (lambda: kl_optimal_policy([1.0], [math.inf], beta=1), "rewards must be finite"),
            (lambda: log_partition([1.0], [1.0], beta=0), "beta must be finite and above 0"),
            (lambda: regularised_value([1.0], [1.0], [1.0, 2.0], beta=1), "rewards must have the shape of policy"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()
