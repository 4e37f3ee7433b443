import math

import numpy as np
import pytest

from grpo_core import masked_mean, mean_of_means_weights, pooled_mean, token_weights, weighted_sum
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


class TestMeanOfMeans:
    MASK = ((True, True, False), (True, False, False), (True, True, True), (True, True, False))

    def test_parts_count_alike_and_their_tokens_share(self, backend):
        # parts {0, 1} with 3 tokens, {2} with 3, {3} with 2: 1/9, 1/9, 1/6
        weights = mean_of_means_weights(backend.mask(self.MASK), [4, 4, 7, 1])
        row = np.array([1 / 9, 1 / 9, 1 / 9, 1 / 6])
        np.testing.assert_allclose(to_numpy(weights), row[:, None] * np.array(self.MASK), rtol=1e-6)

    def test_one_part_and_equal_parts_are_the_token_mean(self):
        mask = np.array(self.MASK)
        np.testing.assert_allclose(mean_of_means_weights(mask, [0] * 4), token_weights(mask, mode="token_mean"))
        equal = np.ones((4, 3), dtype=bool)
        np.testing.assert_allclose(
            mean_of_means_weights(equal, [0, 0, 1, 1]), token_weights(equal, mode="token_mean"), rtol=1e-15
        )

    def test_it_is_the_mean_of_the_parts_own_means(self):
        rng = np.random.default_rng(0)
        mask, terms = np.array(self.MASK), rng.normal(size=(4, 3))
        parts = [0, 1, 1, 0]
        local = [masked_mean(terms[rows], mask[rows]) for rows in ([0, 3], [1, 2])]
        assert weighted_sum(terms, mean_of_means_weights(mask, parts)) == pytest.approx(np.mean(local))

    def test_an_empty_part_still_counts(self):
        mask = np.array([[True, True], [False, False]])
        assert mean_of_means_weights(mask, [0, 1]).tolist() == [[0.25, 0.25], [0.0, 0.0]]

    def test_every_completion_needs_a_part(self):
        with pytest.raises(ValueError, match="one part for each of the 4 completions, got 3"):
            mean_of_means_weights(np.array(self.MASK), [0, 0, 1])
