"""The objectives beside PPO's clip, each against values worked out by hand."""

import math

import numpy as np
import pytest

from grpo_core.surrogates import (
    cispo_capped,
    cispo_surrogate,
    clip_cov_dropped,
    divergence_exceeded,
    divergence_masked_surrogate,
    dro_surrogate,
    geometric_mean_saturated,
    geometric_mean_surrogate,
    kl_cov_surrogate,
    largest,
    sapo_surrogate,
    token_covariance,
    vespo_weight,
)
from tests.support import to_numpy, torch_gradient

E = math.e


class TestCispo:
    def test_the_weight_is_bounded_and_the_log_probability_carries_the_gradient(self, backend):
        logp = backend.array([[-1.0, -2.0, -3.0]])
        ratio, advantages = backend.array([[0.1, 1.0, 9.0]]), backend.array([[2.0]])
        result = cispo_surrogate(logp, ratio, advantages, weight_low=0.8, weight_high=1.2)
        backend.check(result, [[-1.6, -4.0, -7.2]])

    def test_a_capped_token_still_pulls(self):
        import torch

        one = torch.tensor([[2.0]], dtype=torch.float64)
        slope = torch_gradient(lambda x: cispo_surrogate(x, torch.exp(x + 5), one, weight_high=1.2).sum(), [[-1.0]])
        np.testing.assert_allclose(slope, [[2.4]])

    def test_which_tokens_are_capped(self, backend):
        low, high = cispo_capped(
            backend.array([[0.1, 9.0]] * 2), backend.array([[1.0], [-1.0]]), weight_low=0.5, weight_high=2.0
        )
        assert to_numpy(high).tolist() == [[False, True], [False, False]]
        assert to_numpy(low).tolist() == [[False, False], [True, False]]

    @pytest.mark.parametrize("bounds", [{"weight_low": -1}, {"weight_low": 2.0, "weight_high": 1.0}])
    def test_bad_bounds(self, bounds):
        with pytest.raises(ValueError, match="weight_"):
            cispo_surrogate(np.zeros(1), np.ones(1), np.ones(1), **bounds)


class TestSapo:
    def test_at_ratio_one(self, backend):
        # (4 / tau) * 1/2 * A
        result = sapo_surrogate(
            backend.array([1.0, 1.0, 1.0]), backend.array([3.0, -3.0, 0.0]), tau_positive=2.0, tau_negative=4.0
        )
        backend.check(result, [3.0, -1.5, 0.0])

    @pytest.mark.parametrize("tau", [0.3, 1.0, 1.05, 5.0])
    @pytest.mark.parametrize("advantage", [-2.0, 3.0])
    def test_slope_one_at_ratio_one(self, tau, advantage):
        import torch

        a = torch.tensor([advantage], dtype=torch.float64)
        slope = torch_gradient(lambda r: sapo_surrogate(r, a, tau_positive=tau, tau_negative=tau).sum(), [1.0])
        np.testing.assert_allclose(slope, [advantage], rtol=1e-12)

    @pytest.mark.parametrize("ratio", [1e30, 5e34])
    def test_huge_ratios(self, backend, ratio):
        backend.check(sapo_surrogate(backend.array([ratio]), backend.array([1.0])), [4.0])

    def test_bad_temperature(self):
        with pytest.raises(ValueError, match="tau_negative must be finite and above 0, got 0"):
            sapo_surrogate(np.ones(1), np.ones(1), tau_negative=0)


class TestVespo:
    def test_one_at_ratio_one(self, backend):
        weights = vespo_weight(
            backend.array([[0.0, 0.0]] * 2), backend.mask([[True, True]] * 2), backend.array([[1.0], [-1.0]])
        )
        backend.check(weights, [[1.0], [1.0]])

    def test_by_hand(self, backend):
        # W = e: exp(lambda + k - lambda e)
        log_ratio, mask = backend.array([[0.75, 0.25, 50.0]] * 2), backend.mask([[True, True, False]] * 2)
        weights = vespo_weight(log_ratio, mask, backend.array([[1.0], [-1.0]]))
        backend.check(weights, [[math.exp(3 + 2 - 3 * E)], [math.exp(2 + 3 - 2 * E)]])

    def test_a_zero_advantage_counts_as_positive(self, backend):
        log_ratio, mask = backend.array([[0.5]] * 2), backend.mask([[True]] * 2)
        zero, positive = to_numpy(vespo_weight(log_ratio, mask, backend.array([[0.0], [1.0]])))
        assert zero == positive

    @pytest.mark.parametrize("gap", [-1e4, 1e4])
    def test_far_away_it_vanishes(self, backend, gap):
        weights = vespo_weight(backend.array([[gap]]), backend.mask([[True]]), backend.array([[1.0]]))
        assert 0.0 <= float(weights[0, 0]) < 1e-12

    def test_carries_no_gradient(self):
        import torch

        logp = torch.zeros((1, 1), requires_grad=True)
        mask = torch.ones((1, 1), dtype=torch.bool)
        assert not vespo_weight(logp, mask, torch.ones((1, 1))).requires_grad


class TestGeometricMean:
    LOG = ((1.0, -1.0, 0.1),)

    @pytest.mark.parametrize(
        ("advantage", "total"),
        [(2.0, 0.4 - 1.0 + 0.1), (-2.0, 1.0 - 0.4 + 0.1)],  # up: the high end is clipped; down: the low end
    )
    def test_by_hand(self, backend, advantage, total):
        mask = backend.mask([[True, True, True]])
        result = geometric_mean_surrogate(backend.array(self.LOG), backend.array([[advantage]]), mask)
        backend.check(result, [[advantage * math.exp(total / 3)]])

    def test_saturated_tokens(self, backend):
        for advantage, expected in ((2.0, [[True, False, False]]), (-2.0, [[False, True, False]])):
            result = geometric_mean_saturated(backend.array(self.LOG), backend.array([[advantage]]))
            assert to_numpy(result).tolist() == expected

    def test_masked_tokens_do_not_count(self, backend):
        mask = backend.mask([[False, True, False]])
        result = geometric_mean_surrogate(backend.array([[0.0, 0.2, 0.0]]), backend.array([[1.0]]), mask)
        backend.check(result, [[math.exp(0.2)]])


class TestDivergenceMask:
    # probabilities: current 0.5, old 0.1 (moved up by 0.4) and current 0.1, old 0.5 (moved down)
    LOGP = ((math.log(0.5), math.log(0.1)),)
    OLD = ((math.log(0.1), math.log(0.5)),)

    @pytest.mark.parametrize("divergence", ["tv", "kl"])
    def test_dropped_on_the_side_it_is_pushed_to(self, backend, divergence):
        for advantage, expected in ((1.0, [[True, False]]), (-1.0, [[False, True]]), (0.0, [[False, True]])):
            result = divergence_exceeded(
                backend.array(self.LOGP), backend.array(self.OLD), backend.array([[advantage]]), divergence=divergence
            )
            assert to_numpy(result).tolist() == expected

    def test_within_the_threshold_nothing_is_dropped(self, backend):
        result = divergence_exceeded(
            backend.array(self.LOGP), backend.array(self.OLD), backend.array([[1.0]]), threshold_high=0.5
        )
        assert not to_numpy(result).any()

    def test_value(self, backend):
        logp, old = backend.array(self.LOGP), backend.array(self.OLD)
        ratio = backend.array([[5.0, 0.2]])
        open_ = divergence_masked_surrogate(logp, old, ratio, backend.array([[-1.0]]), weight_cap=3.0)
        backend.check(open_, [[-3 * math.log(0.5), 0.0]])

    def test_binary_kl_by_hand(self):
        # q = 0.5, p = 0.8: 0.5 ln(5/8) + 0.5 ln(5/2) = 0.2231
        edge = 0.5 * math.log(5 / 8) + 0.5 * math.log(5 / 2)
        arguments = (np.log([[0.8]]), np.log([[0.5]]), np.array([[1.0]]))
        for threshold, dropped in ((edge - 1e-4, True), (edge + 1e-4, False)):
            result = divergence_exceeded(*arguments, divergence="kl", threshold_high=threshold)
            assert result.tolist() == [[dropped]]

    def test_unknown_divergence(self):
        with pytest.raises(ValueError, match="divergence must be one of 'tv', 'kl'; got 'js'"):
            divergence_exceeded(np.zeros(1), np.zeros(1), np.ones(1), divergence="js")


class TestDro:
    def test_by_hand(self, backend):
        result = dro_surrogate(backend.array([[-2.0]]), backend.array([[3.0]]), backend.array([[5.0]]), dro_beta=0.5)
        backend.check(result, [[-10.0 - 0.25 * 9]])


class TestCovariance:
    def test_by_hand(self, backend):
        # tokens (A, logp): (1, -1), (1, -3), (-1, -2), masked; means 1/3 and -2
        result = token_covariance(
            backend.array([[-1.0, -3.0], [-2.0, 9.0]]),
            backend.array([[1.0], [-1.0]]),
            backend.mask([[True, True], [True, False]]),
        )
        backend.check(result, [[2 / 3, -2 / 3], [0.0, 0.0]])

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
    def test_largest(self, backend, count):
        values = backend.array([[1.0, 5.0, 99.0], [4.0, 2.0, 99.0]])
        mask = backend.mask([[True, True, False], [True, True, False]])
        chosen = to_numpy(largest(values, mask, count=count))
        assert chosen.sum() == min(count, 4)
        expected = sorted((1.0, 5.0, 4.0, 2.0), reverse=True)[:count]
        assert sorted(to_numpy(values)[chosen], reverse=True) == expected

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_among_equals_no_more_than_asked_for(self, backend, count):
        chosen = to_numpy(largest(backend.array([[1.0] * 5]), backend.mask([[True] * 4 + [False]]), count=count))
        assert chosen.sum() == count
        assert not chosen[0, 4]

    def test_kl_cov_penalises_the_largest(self, backend):
        log_ratio, ratio = backend.array([[1.0, -2.0, 0.5]]), backend.array([[E, E**-2, E**0.5]])
        covariance, mask = backend.array([[0.1, 0.9, 0.5]]), backend.mask([[True] * 3])
        result = kl_cov_surrogate(
            log_ratio, ratio, backend.array([[1.0]]), covariance, mask, share=0.4, coefficient=0.1
        )
        backend.check(result, [[E, E**-2 - 0.2, E**0.5]])  # 0.4 * 3 tokens: one

    def test_clip_cov_drops_candidates_with_the_smallest_draw(self, backend):
        covariance = backend.array([[0.5, 2.0, 3.0, 4.0, 9.0, 2.0]])
        ratio = backend.array([[1.0, 1.0, 1.0, 1.0, 1.0, 5.0]])  # the last one is clipped already
        uniform = backend.array([[0.0, 0.3, 0.1, 0.2, 0.0, 0.0]])
        arguments = (covariance, ratio, backend.array([[1.0]]), backend.mask([[True] * 6]), uniform)
        one, two = (to_numpy(clip_cov_dropped(*arguments, share=share)) for share in (0.01, 0.4))
        assert one.tolist() == [[False, False, True, False, False, False]]
        assert two.tolist() == [[False, False, True, True, False, False]]
