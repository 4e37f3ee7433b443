import math

import numpy as np
import pytest

from grpo_core.masks import off_policy_mask, rollout_weights, top_entropy_mask
from tests.support import to_numpy

MASK = [[True, True, True, True], [True, False, False, False]]


class TestTopEntropyMask:
    ENTROPY = ((1.0, 2.0, 3.0, 4.0), (5.0, 99.0, 99.0, 99.0))

    @pytest.mark.parametrize(
        ("quantile", "kept"),
        [
            (1.0, MASK),
            (0.75, [[False, True, True, True], [True, False, False, False]]),  # threshold 2, the first quartile
            (0.5, [[False, False, True, True], [True, False, False, False]]),  # the median, 3
            (0.1, [[False] * 4, [True, False, False, False]]),  # 4.6
            (0.0, [[False] * 4, [True, False, False, False]]),  # the maximum itself stays
        ],
    )
    def test_by_hand(self, backend, quantile, kept):
        result = top_entropy_mask(backend.array(self.ENTROPY), backend.mask(MASK), quantile=quantile)
        assert to_numpy(result).tolist() == kept

    def test_nothing_to_choose_from(self, backend):
        empty = backend.mask([[False, False]])
        assert not to_numpy(top_entropy_mask(backend.array([[1, 2]]), empty, quantile=0.5)).any()

    def test_equal_entropies_all_stay(self, backend):
        result = top_entropy_mask(backend.array([[0.3] * 7]), backend.mask([[True] * 7]), quantile=0.2)
        assert to_numpy(result).all()

    @pytest.mark.parametrize("quantile", [-0.1, 1.1, math.nan, "a"])
    def test_bad_share(self, quantile):
        with pytest.raises(ValueError, match="quantile must be"):
            top_entropy_mask(np.zeros((1, 1)), np.ones((1, 1), dtype=bool), quantile=quantile)


class TestOffPolicyMask:
    def test_only_a_negative_completion_that_drifted_is_dropped(self, backend):
        log_ratio = backend.array([[-2, -2, -2, -2], [-2, 9, 9, 9], [2, 2, 2, 2], [-0.1, 0, 0, 0]])
        mask = backend.mask([[True] * 4, [True, False, False, False], [True] * 4, [True] * 4])
        advantages = backend.array([[-1], [1], [-1], [-1]])
        # mean of old - current: 2, 2, -2, 0.025
        assert to_numpy(off_policy_mask(log_ratio, mask, advantages, threshold=0.5)).tolist() == [
            [False],
            [True],
            [True],
            [True],
        ]

    def test_zero_advantage_stays(self, backend):
        mask = backend.mask([[True]])
        assert to_numpy(off_policy_mask(backend.array([[-9]]), mask, backend.array([[0]]), threshold=0.1)).all()


class TestRolloutWeights:
    OLD = ((math.log(0.5), math.log(0.5), 7.0),)
    ROLLOUT = ((math.log(0.1), math.log(1.0), -7.0),)
    MASK = ((True, True, False),)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, [[5.0, 0.5, 1.0]]),
            ({"high": 3}, [[3.0, 0.5, 1.0]]),
            ({"low": 0.8, "high": 3}, [[3.0, 0.8, 1.0]]),
            ({"mode": "mask", "high": 3}, [[0.0, 0.5, 1.0]]),
            ({"mode": "mask", "low": 0.8}, [[5.0, 0.0, 1.0]]),
            ({"level": "sequence"}, [[2.5]]),
            ({"level": "sequence", "mode": "mask", "high": 2}, [[0.0]]),
            ({"level": "sequence", "mode": "truncate", "high": 2}, [[2.0]]),
        ],
    )
    def test_by_hand(self, backend, options, expected):
        weights = rollout_weights(
            backend.array(self.OLD), backend.array(self.ROLLOUT), backend.mask(self.MASK), **options
        )
        backend.check(weights, expected)

    def test_a_token_without_a_score_counts_as_equal(self, backend):
        weights = rollout_weights(backend.array([[-1.0]]), backend.array([[math.nan]]), backend.mask([[True]]))
        backend.check(weights, [[1.0]])

    def test_carries_no_gradient(self):
        import torch

        old = torch.zeros((1, 1), requires_grad=True)
        assert not rollout_weights(old, old - 1, torch.ones((1, 1), dtype=torch.bool)).requires_grad

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"level": "word"}, "level must be one of 'token', 'sequence'; got 'word'"),
            ({"mode": "cut"}, "mode must be one of 'truncate', 'mask'; got 'cut'"),
        ],
    )
    def test_bad_names(self, options, says):
        with pytest.raises(ValueError, match=says):
            rollout_weights(np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1), dtype=bool), **options)
