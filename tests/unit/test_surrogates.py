import math

import numpy as np
import pytest

from grpo_core import clip_saturated, clipped_slope, clipped_surrogate
from tests.support import to_numpy, torch_gradient

RATIOS = [0.0, 0.5, 0.79, 0.9, 1.0, 1.1, 1.21, 1.4, 3.0, 10.0]


class TestClippedSurrogate:
    @pytest.mark.parametrize(
        ("ratio", "advantage", "options", "expected"),
        [
            (0.5, 2, {}, 1.0),  # below the range, pushed up: open
            (1.5, 2, {}, 2.4),  # above, pushed up: capped
            (0.5, -2, {}, -1.6),  # below, pushed down: capped
            (1.5, -2, {}, -3.0),  # above, pushed down: open, without bound
            (1.25, 1, {"epsilon_high": 0.28}, 1.25),
            (1.3, 1, {"epsilon_high": 0.28}, 1.28),
            (0.75, -1, {"epsilon_low": 0.3}, -0.75),
            (5, -1, {"delta": 3}, -3),
            (2, -1, {"delta": 3}, -2),
            (5, 1, {"delta": 3}, 1.2),
            (1.15, 1, {"delta": 1.1}, 1.1),  # a delta inside the range caps the other side as well
            (5, -1, {"delta": 1.1}, -1.2),  # and then 1 + epsilon_high is what bounds a negative advantage
            (0.0, -1, {"epsilon_low": 1.0}, 0.0),
            (7, 0, {}, 0),
            (1.3, 1, {"epsilon_low": 0, "epsilon_high": 0}, 1.0),
        ],
    )
    def test_by_hand(self, backend, ratio, advantage, options, expected):
        backend.check(clipped_surrogate(backend.array([ratio]), backend.array([advantage]), **options), [expected])

    def test_advantages_broadcast_over_tokens(self, backend):
        result = clipped_surrogate(backend.array([[0.5, 1.5], [0.5, 1.5]]), backend.array([[1], [-1]]))
        backend.check(result, [[0.5, 1.2], [-0.8, -1.5]])

    def test_plain_numbers(self):
        assert float(clipped_surrogate(1.5, 1.0)) == 1.2

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"epsilon_low": -0.1}, "epsilon_low must be between 0 and 1, got -0.1"),
            ({"epsilon_low": 1.1}, "epsilon_low must be between 0 and 1, got 1.1"),
            ({"epsilon_high": -1}, "epsilon_high must be finite and at least 0, got -1"),
            ({"epsilon_high": math.inf}, "epsilon_high .* got inf"),
            ({"delta": 0}, "delta must be finite and above 0, got 0"),
            ({"delta": "x"}, "delta must be a number, got 'x'"),
        ],
    )
    @pytest.mark.parametrize("function", [clipped_surrogate, clip_saturated, clipped_slope])
    def test_bad_input_is_named(self, function, options, says):
        with pytest.raises(ValueError, match=says):
            function(np.array([1.0]), np.array([1.0]), **options)

    def test_complex_or_text_ratios_are_refused(self):
        with pytest.raises(ValueError, match="ratio must be"):
            clipped_surrogate(np.array([1j]), 1.0)
        with pytest.raises(ValueError, match="ratio must be numbers"):
            clipped_surrogate("one", 1.0)


OPTIONS = [
    {},
    {"epsilon_low": 0.2, "epsilon_high": 0.28},
    {"epsilon_low": 0.0, "epsilon_high": 0.0},
    {"epsilon_low": 1.0, "epsilon_high": 5.0},
    {"delta": 2.0},
    {"delta": 1.1},
    {"delta": 0.85},
]


class TestClipSaturated:
    @pytest.mark.parametrize("options", OPTIONS)
    @pytest.mark.parametrize("advantage", [-2.0, -0.5, 0.5, 3.0])
    def test_is_where_autograd_says_zero(self, options, advantage):
        ratio = np.array(RATIOS) + 1e-3  # away from every kink
        slope = torch_gradient(lambda r: clipped_surrogate(r, r.detach() * 0 + advantage, **options).sum(), ratio)
        np.testing.assert_array_equal(clip_saturated(ratio, np.full_like(ratio, advantage), **options), slope == 0)

    def test_the_boundary_counts_as_open(self, backend):
        result = clip_saturated(
            backend.array([1.25, 0.75]), backend.array([1, -1]), epsilon_low=0.25, epsilon_high=0.25
        )
        assert to_numpy(result).tolist() == [False, False]

    def test_zero_advantage_has_nothing_to_clip(self, backend):
        assert not to_numpy(clip_saturated(backend.array(RATIOS), backend.array([0.0] * len(RATIOS)))).any()

    def test_broadcasts(self, backend):
        result = clip_saturated(backend.array([[0.5, 1.5]] * 2), backend.array([[1], [-1]]))
        assert to_numpy(result).tolist() == [[False, True], [True, False]]


class TestClippedSlope:
    @pytest.mark.parametrize("options", OPTIONS)
    @pytest.mark.parametrize("advantage", [-2.0, -0.5, 0.0, 0.5, 3.0])
    def test_is_the_derivative(self, options, advantage):
        ratio = np.array(RATIOS) + 1e-3
        exact = torch_gradient(lambda r: clipped_surrogate(r, r.detach() * 0 + advantage, **options).sum(), ratio)
        slope = clipped_slope(ratio, np.full_like(ratio, advantage), **options)
        np.testing.assert_allclose(slope, exact, rtol=1e-14)

    def test_at_ratio_one_it_is_the_advantage(self, backend):
        backend.check(clipped_slope(backend.array([1.0, 1.0]), backend.array([2, -3])), [2, -3])
