import math

import numpy as np
import pytest

from grpo_core import (
    GroupBatch,
    Objective,
    advantage_statistics,
    batch_statistics,
    between_group_share,
    kind_counts,
    length_statistics,
    loss_terms,
    ratio_histogram,
    ratio_statistics,
    reward_statistics,
)


def statistics(ratio, advantages, mask, *, objective=None, **parts):
    ratio = np.asarray(ratio, dtype=float)
    batch = GroupBatch(
        logp=np.full(ratio.shape, -1.0),
        old_logp=-1.0 - np.log(ratio),
        ref_logp=parts.pop("ref_logp", None),
        mask=np.asarray(mask, dtype=bool),
        advantages=np.asarray(advantages, dtype=float),
        **parts,
    )
    objective = objective or Objective()
    return batch_statistics(batch, loss_terms(batch, objective), objective)


class TestBatchStatistics:
    RATIO = ((1.5, 0.5, 1.0, 9.0), (1.5, 0.5, 1.0, 1.0))
    MASK = ((1, 1, 1, 0), (1, 1, 1, 1))

    def test_only_the_side_that_clips_counts(self):
        result = statistics(self.RATIO, [1, -1], self.MASK)
        assert result["clip_ratio/high_mean"] == pytest.approx(1 / 7)
        assert result["clip_ratio/low_mean"] == pytest.approx(1 / 7)
        assert result["clip_ratio/region_mean"] == pytest.approx(2 / 7)
        assert result["saturated_mean"] == pytest.approx(2 / 7)
        # k3 from old to current: r - 1 - log r, reversed: 1/r - 1 + log r
        tokens = np.array([1.5, 0.5, 1.0, 1.5, 0.5, 1.0, 1.0])
        assert result["kl_old"] == pytest.approx(np.mean(1 / tokens - 1 + np.log(tokens)))
        assert "kl" not in result
        assert "entropy" not in result

    def test_sequence_level_counts_completions(self):
        # sequence ratios: 0.75^(1/3) = 0.909 and 0.75^(1/4)
        result = statistics(
            self.RATIO, [-1, -1], self.MASK, objective=Objective(ratio_level="sequence", epsilon_low=0.08)
        )
        assert result["clip_ratio/low_mean"] == pytest.approx(1 / 2)
        assert result["clip_ratio/high_mean"] == 0.0

    def test_kl_and_entropy_are_token_means(self):
        ref = np.full((2, 4), -1.0) + math.log(2.0)
        result = statistics(
            np.ones((2, 4)), [1, 1], self.MASK, ref_logp=ref, entropy=np.array([[1, 2, 3, 99], [4, 5, 6, 7.0]])
        )
        assert result["kl"] == pytest.approx(1 - math.log(2))
        assert result["entropy"] == pytest.approx(4.0)

    def test_nothing_to_train(self):
        result = statistics(self.RATIO, [1, -1], np.zeros((2, 4)))
        assert set(result.values()) == {0.0}

    def test_values_are_python_floats(self):
        assert {type(value) for value in statistics(self.RATIO, [1, -1], self.MASK).values()} == {float}


class TestKindCounts:
    def test_counts(self):
        groups = [[1, 0], [1, 1], [0, 0], [None, None], [0.5, None, 1]]
        assert kind_counts(groups) == {"mixed": 2, "all-right": 1, "all-wrong": 1, "unscored": 1}

    def test_none(self):
        assert set(kind_counts([]).values()) == {0}


class TestRatioHistogram:
    def test_every_token_is_in_a_bin(self):
        ratio = np.array([[0.0, 0.9, 1.0], [1.1, 50.0, 7.0]])
        mask = np.array([[True, True, True], [True, True, False]])
        counts, edges = ratio_histogram(ratio, mask, bins=5, span=0.5)
        np.testing.assert_allclose(edges, [0.5, 0.7, 0.9, 1.1, 1.3, 1.5])
        assert counts.sum() == 5
        assert counts[0] == 1
        assert counts[-1] == 1

    def test_torch(self):
        import torch

        counts, _ = ratio_histogram(torch.ones((2, 2), requires_grad=True), torch.ones((2, 2), dtype=torch.bool))
        assert counts.sum() == 4

    def test_empty(self):
        counts, edges = ratio_histogram(np.ones((1, 2)), np.zeros((1, 2), dtype=bool))
        assert counts.sum() == 0
        assert len(edges) == len(counts) + 1


class TestLengthStatistics:
    def test_by_hand(self):
        assert length_statistics([2, 6, 10], [False, False, True]) == {
            "completions/mean_length": 6.0,
            "completions/min_length": 2.0,
            "completions/max_length": 10.0,
            "completions/clipped_ratio": pytest.approx(1 / 3),
            "completions/mean_terminated_length": 4.0,
        }

    @pytest.mark.parametrize(("lengths", "truncated"), [([], []), ([5], [True])])
    def test_nothing_ended(self, lengths, truncated):
        result = length_statistics(lengths, truncated)
        assert all(math.isfinite(value) for value in result.values())
        assert result["completions/mean_terminated_length"] == 0.0


class TestRewardStatistics:
    def test_spread_between_groups_is_not_spread_within(self):
        result = reward_statistics([[2.0] * 8, [2.0] * 8, [-8.0] * 8, [-8.0] * 8])
        assert result["reward"] == -3.0
        assert result["reward_std"] == pytest.approx(5.080005, abs=1e-6)
        assert result["reward_std_within"] == 0.0
        assert result["frac_reward_zero_std"] == 1.0

    def test_unscored_takes_no_part(self):
        result = reward_statistics([[1.0, np.nan], [0.0, 2.0]])
        assert result["reward"] == 1.0
        assert result["reward_std"] == pytest.approx(1.0)

    def test_nothing_scored(self):
        result = reward_statistics([[np.nan, np.nan]])
        assert math.isnan(result["reward"])
        assert result["reward_std"] == 0.0


class TestRatioAndAdvantageStatistics:
    def test_outside_counts_both_sides_under_the_mask(self):
        ratio = np.array([[0.7, 0.8, 1.0, 99.0], [1.2, 1.21, 1.0, 1.0]])
        mask = np.array([[True, True, True, False], [True, True, True, True]])
        assert ratio_statistics(ratio, mask) == {
            "ratio/min": 0.7, "ratio/max": 1.21, "ratio/outside_mean": pytest.approx(2 / 7),
        }  # fmt: skip

    def test_the_range_is_the_runs_own(self):
        ratio, mask = np.array([[0.7, 1.25, 1.3]]), np.ones((1, 3), dtype=bool)
        found = ratio_statistics(ratio, mask, epsilon_low=0.4, epsilon_high=0.28)
        assert found["ratio/outside_mean"] == pytest.approx(1 / 3)
        with pytest.raises(ValueError, match="epsilon_low must be between 0 and 1"):
            ratio_statistics(ratio, mask, epsilon_low=1.5)

    def test_no_tokens_have_moved_nowhere(self):
        found = ratio_statistics(np.ones((1, 2)), np.zeros((1, 2), dtype=bool))
        assert found == {"ratio/min": 1.0, "ratio/max": 1.0, "ratio/outside_mean": 0.0}

    def test_advantages_of_any_shape(self):
        found = advantage_statistics(np.array([[1.0, -3.0], [0.0, 0.0]]))
        assert found == {"advantages/abs_mean": 1.0, "advantages/min": -3.0, "advantages/max": 1.0}


def test_the_share_between_groups_is_eta_squared():
    assert between_group_share([[1.0, 1.0], [0.0, 0.0]]) == 1.0
    assert between_group_share([[1.0, 0.0], [0.0, 1.0]]) == 0.0
    assert between_group_share([[0.1, 0.1], [0.1, 0.1]]) == 0.0
    # means 1 and 3 around 2, every value 1 away from its own: between 1, within 1
    assert between_group_share([[0.0, 2.0], [2.0, 4.0]]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="shape"):
        between_group_share([1.0, 2.0])
