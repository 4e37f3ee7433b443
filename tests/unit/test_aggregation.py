import math

import numpy as np
import pytest

from grpo_core import masked_mean, pooled_mean, token_weights, weighted_sum
from tests.support import to_numpy, torch_gradient

MASK = [[True, False, False], [True, True, True], [False, False, False]]


class TestTokenWeights:
    @pytest.mark.parametrize(
        ("mode", "options", "rows"),
        [
            ("sequence_mean", {}, [1 / 3, 1 / 9]),
            ("token_mean", {}, [1 / 4, 1 / 4]),
            ("constant", {"constant": 5}, [1 / 15, 1 / 15]),
            ("sequence_sum", {}, [1 / 3, 1 / 3]),
            ("token_sum", {}, [1, 1]),
            ("sequence_mean", {"sequences": 6}, [1 / 6, 1 / 18]),
            ("token_mean", {"tokens": 40}, [1 / 40, 1 / 40]),
            ("constant", {"constant": 5, "sequences": 10}, [1 / 50, 1 / 50]),
            ("sequence_sum", {"sequences": 2, "scale": 0.5}, [1 / 4, 1 / 4]),
            ("token_sum", {"scale": 3}, [3, 3]),
        ],
    )
    def test_by_hand(self, backend, mode, options, rows):
        dtype = getattr(backend.xp, backend.dtype)
        weights = token_weights(backend.mask(MASK), mode=mode, dtype=dtype, **options)
        backend.check(weights, np.array(MASK) * np.array([[rows[0]], [rows[1]], [0.0]]))

    @pytest.mark.parametrize("mode", ["sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"])
    def test_nothing_to_train_is_zero_and_not_zero_by_zero(self, backend, mode):
        weights = to_numpy(token_weights(backend.mask([[False, False]] * 2), mode=mode, constant=4))
        assert (weights == 0).all()

    @pytest.mark.parametrize("mode", ["sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"])
    def test_a_batch_of_no_completions(self, mode):
        assert token_weights(np.zeros((0, 3), dtype=bool), mode=mode, constant=4).shape == (0, 3)

    def test_lists_are_masks_too(self):
        assert token_weights([[True, False]], mode="token_mean").tolist() == [[1.0, 0.0]]

    @pytest.mark.parametrize(
        ("mask", "options", "says"),
        [
            ([[1, 0]], {"mode": "token_mean"}, "mask must be boolean .* got dtype int64"),
            ([True], {"mode": "token_mean"}, r"mask must have shape .* got \(1,\)"),
            ([[True]], {"mode": "mean"}, "mode must be one of .*'token_mean'.* got 'mean'"),
            ([[True]], {"mode": "constant"}, "constant must be given for mode 'constant'"),
            ([[True]], {"mode": "constant", "constant": 0}, "constant must be finite and above 0, got 0"),
            ([[True]], {"mode": "constant", "constant": -3}, "constant .* got -3"),
            ([[True]], {"mode": "token_mean", "tokens": -1}, "tokens .* got -1"),
            ([[True]], {"mode": "token_mean", "scale": math.nan}, "scale .* got nan"),
            ([[True]], {"mode": "sequence_mean", "sequences": -2}, "sequences .* got -2"),
        ],
    )
    def test_bad_input_is_named(self, mask, options, says):
        with pytest.raises(ValueError, match=says):
            token_weights(mask, **options)


class TestWeightedSum:
    def test_by_hand(self, backend):
        backend.check(weighted_sum(backend.array([[1, 2], [3, 4]]), backend.array([[0.5, 0.25], [1, 0]])), 4.0)

    @pytest.mark.parametrize("junk", [math.inf, -math.inf, math.nan])
    def test_weight_zero_silences_anything(self, backend, junk):
        backend.check(weighted_sum(backend.array([[1, junk]]), backend.array([[2, 0]])), 2.0)

    def test_and_its_gradient(self):
        import torch

        weights = torch.tensor([2.0, 0.0], dtype=torch.float64)
        np.testing.assert_array_equal(torch_gradient(lambda x: weighted_sum(x, weights), [1.0, math.nan]), [2.0, 0.0])

    def test_shapes_must_agree(self):
        with pytest.raises(ValueError, match=r"terms must have the shape of weights, \(1, 3\), got \(1, 2\)"):
            weighted_sum(np.zeros((1, 2)), np.zeros((1, 3)))


class TestMaskedMean:
    def test_every_token_counts_once(self, backend):
        values = backend.array([[8, 9, 9], [0, 0, 4], [9, 9, 9]])
        backend.check(masked_mean(values, backend.mask(MASK)), 3.0)

    def test_zero_when_nothing_is_left(self, backend):
        backend.check(masked_mean(backend.array([[math.nan]]), backend.mask([[False]])), 0.0)

    @pytest.mark.parametrize("junk", [math.inf, math.nan])
    def test_masked_values_never_matter(self, backend, junk):
        backend.check(masked_mean(backend.array([[1, junk]]), backend.mask([[True, False]])), 1.0)


class TestPooledMean:
    def test_by_hand(self, backend):
        backend.check(pooled_mean(backend.array([3, 3]), backend.array([12, 4])), 0.375)

    def test_of_nothing_is_zero(self, backend):
        backend.check(pooled_mean(backend.array([0, 0]), backend.array([0, 0])), 0.0)
