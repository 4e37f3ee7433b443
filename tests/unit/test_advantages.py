import math

import numpy as np
import pytest

from grpo_core import (
    AdvantageSpec,
    as_rewards,
    binary_advantages,
    compute_advantages,
    gae,
    group_advantages,
    group_kind,
    leave_one_out_advantages,
    mixed_group_probability,
    process_advantages,
)
from tests.support import to_numpy

ROOT3 = math.sqrt(3.0)


class TestAsRewards:
    def test_none_becomes_nan_and_the_rest_float64(self):
        result = as_rewards([1, None, 0.5, True, np.float32(2)])
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, [1.0, np.nan, 0.5, 1.0, 2.0])

    def test_groups_of_one_size(self):
        np.testing.assert_array_equal(as_rewards([[1, None], [0, 2]]), [[1, np.nan], [0, 2]])
        np.testing.assert_array_equal(as_rewards(np.array([[1.0, 3.0]])), [[1.0, 3.0]])

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            ([], "rewards must not be empty"),
            ([[1, 2], []], "rewards must not be empty"),
            ([1.0, float("nan")], r"rewards\[1\] must be a finite number, or None .* got nan"),
            ([float("inf")], r"rewards\[0\] .* got inf"),
            ([-math.inf], r"rewards\[0\] .* got -inf"),
            ([1, "0.5"], r"rewards\[1\] .* got '0.5'"),
            ([1, [2]], r"rewards\[1\] .* got \[2\]"),
            ([1 + 2j], r"rewards\[0\]"),
            ([[1, 2], [3]], r"groups must have one size, got sizes \[2, 1\]"),
            ([[1, 2], 3], "rewards must be a list of numbers or None, got 3"),
            ("10", "rewards must be a list"),
            (None, "rewards must be a list"),
            (7, "rewards must be a list"),
            ({1: 2}, "rewards must be a list"),
        ],
    )
    def test_bad_values_are_named(self, values, says):
        with pytest.raises(ValueError, match=says):
            as_rewards(values)

    def test_a_long_bad_value_is_cut_in_the_message(self):
        with pytest.raises(ValueError, match="rewards") as caught:
            as_rewards(["x" * 10_000])
        assert len(str(caught.value)) < 300


class TestGroupAdvantages:
    # rewards 1, 0, 0, 0: mean 1/4; squares 9/16 + 3/16 = 3/4, so variance 3/16 (ddof 0) or 1/4 (ddof 1)
    def test_population_std(self, backend):
        result = group_advantages(backend.array([1, 0, 0, 0]), ddof=0, eps=0.0)
        backend.check(result.advantages, [ROOT3, -1 / ROOT3, -1 / ROOT3, -1 / ROOT3])
        backend.check(result.mean, 0.25)
        backend.check(result.std, ROOT3 / 4)
        backend.check(result.divisor, ROOT3 / 4)
        assert int(result.valid_count) == 4

    def test_sample_std(self, backend):
        result = group_advantages(backend.array([1, 0, 0, 0]), ddof=1, eps=0.0)
        backend.check(result.advantages, [1.5, -0.5, -0.5, -0.5])

    def test_eps_is_added_to_the_std_after_the_root(self, backend):
        result = group_advantages(backend.array([1, 0, 0, 0]), ddof=1, eps=0.5)
        backend.check(result.advantages, [0.75, -0.25, -0.25, -0.25])
        backend.check(result.std, 0.5)
        backend.check(result.divisor, 1.0)

    def test_rows_are_groups(self, backend):
        result = group_advantages(backend.array([[1, 0], [4, 4], [0, 2]]), ddof=0, eps=0.0)
        backend.check(result.advantages, [[1, -1], [0, 0], [-1, 1]])
        backend.check(result.mean, [0.5, 4.0, 1.0])
        backend.check(result.std, [0.5, 0.0, 1.0])

    def test_leading_axes_may_be_many(self, backend):
        rewards = np.arange(12.0).reshape(2, 3, 2) ** 2
        whole = group_advantages(backend.array(rewards)).advantages
        for i, j in np.ndindex(2, 3):
            backend.check(whole[i, j, :], to_numpy(group_advantages(backend.array(rewards[i, j])).advantages))

    def test_no_scaling_only_centres(self, backend):
        result = group_advantages(backend.array([1, 0, 0, 0]), scale="none")
        backend.check(result.advantages, [0.75, -0.25, -0.25, -0.25])
        backend.check(result.divisor, 1.0)
        backend.check(result.std, 0.5)

    def test_batch_scaling_keeps_each_group_s_mean(self, backend):
        # all four rewards 0, 2, 4, 6: mean 3, squares 9 + 1 + 1 + 9 = 20, sample variance 20/3
        result = group_advantages(backend.array([[0, 2], [4, 6]]), scale="batch", ddof=1, eps=0.0)
        expected = 1 / math.sqrt(20 / 3)
        backend.check(result.advantages, [[-expected, expected], [-expected, expected]])
        backend.check(result.divisor, [math.sqrt(20 / 3)] * 2)
        backend.check(result.std, [math.sqrt(2)] * 2)

    def test_batch_scaling_gives_equal_groups_zero(self, backend):
        result = group_advantages(backend.array([[1, 1], [0, 1]]), scale="batch")
        assert to_numpy(result.advantages)[0].tolist() == [0.0, 0.0]

    def test_unscored_takes_no_part(self, backend):
        # scored: 1, 0, 0 with mean 1/3 and sample std sqrt(1/3)
        result = group_advantages(backend.array([1, math.nan, 0, 0]), ddof=1, eps=0.0)
        backend.check(result.advantages, [2 / ROOT3, 0, -1 / ROOT3, -1 / ROOT3])
        backend.check(result.mean, 1 / 3)
        assert int(result.valid_count) == 3

    @pytest.mark.parametrize("rewards", [[math.nan, math.nan], [math.nan, 0.7, math.nan], [1.0], [math.nan]])
    @pytest.mark.parametrize("scale", ["group", "batch", "none"])
    @pytest.mark.parametrize("ddof", [0, 1])
    @pytest.mark.parametrize("eps", [0.0, 1e-4])
    def test_without_two_scores_there_is_no_signal(self, backend, rewards, scale, ddof, eps):
        result = group_advantages(backend.array(rewards), scale=scale, ddof=ddof, eps=eps)
        assert to_numpy(result.advantages).tolist() == [0.0] * len(rewards)
        assert float(result.std) == 0.0
        scored = [r for r in rewards if not math.isnan(r)]
        assert int(result.valid_count) == len(scored)
        if scored:
            backend.check(result.mean, scored[0])
        else:
            assert math.isnan(float(result.mean))

    @pytest.mark.parametrize("value", [0.1, 0.2, 1 / 3, 1e-30, -7.3, 1e30])
    @pytest.mark.parametrize("size", [2, 3, 6, 7, 9, 13])
    @pytest.mark.parametrize("eps", [0.0, 1e-9, 1e-4])
    def test_equal_rewards_give_exactly_zero(self, backend, value, size, eps):
        result = group_advantages(backend.array([value] * size), eps=eps)
        assert to_numpy(result.advantages).tolist() == [0.0] * size
        assert float(result.std) == 0.0
        assert float(result.mean) == to_numpy(backend.array([value]))[0]

    def test_a_tiny_real_difference_is_a_difference(self):
        result = group_advantages(np.array([1.0, 1.0 + 2.0**-40]), ddof=0, eps=0.0)
        assert result.advantages.tolist() == [-1.0, 1.0]

    def test_list_with_none(self):
        assert group_advantages([2, None, 0], eps=0.0, ddof=0).advantages.tolist() == [1.0, 0.0, -1.0]

    def test_integer_arrays_are_rewards_too(self):
        assert group_advantages(np.array([0, 2]), eps=0.0, ddof=0).advantages.tolist() == [-1.0, 1.0]

    def test_the_input_is_not_changed(self, backend):
        rewards = backend.array([1, math.nan, 0])
        group_advantages(rewards)
        np.testing.assert_array_equal(to_numpy(rewards), [1, math.nan, 0])

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"ddof": 2}, "ddof must be 0 .* or 1 .* got 2"),
            ({"ddof": True}, "ddof must be 0 .* got True"),
            ({"ddof": "1"}, "ddof must be 0 .* got '1'"),
            ({"eps": -1e-4}, "eps must be .* at least 0, got -0.0001"),
            ({"eps": math.nan}, "eps must be .* got nan"),
            ({"eps": math.inf}, "eps must be .* got inf"),
            ({"eps": "a"}, "eps must be a number, got 'a'"),
            ({"scale": "std"}, "scale must be one of 'group', 'batch', 'none'; got 'std'"),
        ],
    )
    def test_bad_hyperparameters_are_named(self, arguments, says):
        with pytest.raises(ValueError, match=says):
            group_advantages([1, 0], **arguments)

    @pytest.mark.parametrize("rewards", [np.zeros((0,)), np.zeros((3, 0)), np.float64(3.0)])
    def test_arrays_without_a_group_are_refused(self, rewards):
        with pytest.raises(ValueError, match="rewards must"):
            group_advantages(rewards)

    def test_infinite_rewards_are_refused(self, backend):
        with pytest.raises(ValueError, match="rewards must be finite"):
            group_advantages(backend.array([1, math.inf]))


class TestLeaveOneOutAdvantages:
    def test_each_against_the_mean_of_the_others(self, backend):
        # 6 - (0 + 3)/2, 0 - (6 + 3)/2, 3 - (6 + 0)/2
        backend.check(leave_one_out_advantages(backend.array([6, 0, 3])), [4.5, -4.5, 0.0])

    def test_unscored_is_left_out_of_the_others(self, backend):
        backend.check(leave_one_out_advantages(backend.array([6, math.nan, 0])), [6.0, 0.0, -6.0])

    def test_without_a_scored_sibling_zero(self, backend):
        for rewards in ([5.0], [math.nan, 5.0], [math.nan]):
            assert to_numpy(leave_one_out_advantages(backend.array(rewards))).tolist() == [0.0] * len(rewards)

    def test_winner_against_three_zeros_does_not_explode(self):
        np.testing.assert_allclose(leave_one_out_advantages([1, 0, 0, 0]), [1, -1 / 3, -1 / 3, -1 / 3], rtol=1e-14)

    def test_rows(self, backend):
        backend.check(leave_one_out_advantages(backend.array([[1, 0], [2, 2]])), [[1, -1], [0, 0]])

    def test_equal_rewards_exactly_zero(self, backend):
        assert to_numpy(leave_one_out_advantages(backend.array([0.1] * 7))).tolist() == [0.0] * 7


class TestAdvantageSpec:
    def test_default_is_trl_s_group_estimator(self):
        spec = AdvantageSpec()
        assert (spec.estimator, spec.ddof, spec.eps, spec.scale) == ("group", 1, 1e-4, "group")

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"estimator": "grpo"}, "estimator must be one of .*'group'.* got 'grpo'"),
            ({"ddof": 3}, "ddof .* got 3"),
            ({"eps": -1}, "eps .* got -1"),
            ({"scale": "all"}, "scale .* got 'all'"),
        ],
    )
    def test_bad_choices_are_named(self, arguments, says):
        with pytest.raises(ValueError, match=says):
            AdvantageSpec(**arguments)


class TestComputeAdvantages:
    def test_group_is_group_advantages(self, backend):
        rewards = backend.array([[1, 0, 3], [2, math.nan, 5]])
        spec = AdvantageSpec(ddof=0, eps=1e-3, scale="batch")
        expected = group_advantages(rewards, ddof=0, eps=1e-3, scale="batch")
        result = compute_advantages(rewards, spec)
        backend.check(result.advantages, to_numpy(expected.advantages))
        backend.check(result.divisor, to_numpy(expected.divisor))

    def test_leave_one_out_keeps_the_group_s_statistics(self, backend):
        result = compute_advantages(backend.array([6, 0, 3]), AdvantageSpec(estimator="leave_one_out"))
        backend.check(result.advantages, [4.5, -4.5, 0.0])
        backend.check(result.mean, 3.0)
        backend.check(result.std, 3.0)
        backend.check(result.divisor, 1.0)

    def test_lists_with_none(self):
        result = compute_advantages([2, None, 0], AdvantageSpec(ddof=0, eps=0.0))
        assert result.advantages.tolist() == [1.0, 0.0, -1.0]


class TestGroupKind:
    @pytest.mark.parametrize(
        ("rewards", "kind"),
        [
            ([1, 0], "mixed"),
            ([0.51, 0.5], "mixed"),
            ([1, 1], "all-right"),
            ([1, None], "all-right"),
            ([2.5], "all-right"),
            ([0.5, 0.5], "all-wrong"),
            ([0.1] * 7, "all-wrong"),
            ([-1, -1], "all-wrong"),
            ([None, None], "unscored"),
            ([1, None, 0], "mixed"),
        ],
    )
    def test_kinds(self, rewards, kind):
        assert group_kind(rewards) == kind

    def test_what_counts_as_right_is_a_choice(self):
        assert group_kind([0.5, 0.5], right_at=0.5) == "all-right"

    def test_one_group_only(self):
        with pytest.raises(ValueError, match=r"rewards must be one group .* got \(1, 2\)"):
            group_kind([[1, 0]])


class TestBinaryAdvantages:
    def test_closed_form(self, backend):
        success, failure = binary_advantages(backend.array([0.5, 0.2, 0.9]))
        backend.check(success, [1.0, 2.0, 1 / 3])
        backend.check(failure, [-1.0, -0.5, -3.0])

    @pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 1.1, math.nan])
    def test_strictly_between_zero_and_one(self, q):
        with pytest.raises(ValueError, match="success_rate must be strictly between 0 and 1, got"):
            binary_advantages(q)


class TestMixedGroupProbability:
    def test_by_hand(self, backend):
        # G = 3: 1 - p^3 - (1 - p)^3 = 3 p (1 - p)
        backend.check(mixed_group_probability(backend.array([0.0, 0.25, 0.5, 1.0]), 3), [0, 0.5625, 0.75, 0])

    def test_one_completion_is_never_mixed(self, backend):
        p = backend.array(np.linspace(0, 1, 11))
        assert np.max(np.abs(to_numpy(mixed_group_probability(p, 1)))) <= backend.atol

    @pytest.mark.parametrize(
        ("p", "size", "says"),
        [
            (1.5, 4, "p must be a probability .* got"),
            (-0.1, 4, "p must be a probability"),
            (math.nan, 4, "p must be a probability"),
            (0.5, 0, "group_size must be a whole number of at least 1, got 0"),
            (0.5, 2.5, "group_size .* got 2.5"),
            (0.5, True, "group_size .* got True"),
        ],
    )
    def test_bad_input_is_named(self, p, size, says):
        with pytest.raises(ValueError, match=says):
            mixed_group_probability(p, size)


class TestProcessAdvantages:
    def test_a_token_gets_the_steps_that_end_at_or_after_it(self):
        # step rewards 1, -1: mean 0, population std 1
        result = process_advantages([[1.0, -1.0]], [[0, 2]], [4])
        assert [row.tolist() for row in result] == [[0.0, -1.0, -1.0, 0.0]]

    def test_normalised_over_all_steps_of_the_group(self):
        # steps 3 | 1, 1, 3: mean 2, std 1
        result = process_advantages([[3.0], [1.0, 1.0, 3.0]], [[1], [0, 1, 2]], [2, 3])
        assert [row.tolist() for row in result] == [[1.0, 1.0], [-1.0, 0.0, 1.0]]

    def test_ddof_and_eps(self):
        (row,) = process_advantages([[1.0, -1.0]], [[0, 1]], [2], ddof=1, eps=1.0)
        np.testing.assert_allclose(row, [0.0, -1 / (math.sqrt(2) + 1)], atol=1e-15)

    def test_equal_steps_give_zero(self):
        assert process_advantages([[0.1, 0.1], [0.1]], [[0, 1], [0]], [2, 1])[0].tolist() == [0.0, 0.0]

    def test_completions_without_steps(self):
        result = process_advantages([[], [1.0, 0.0]], [[], [0, 1]], [3, 2])
        assert result[0].tolist() == [0.0, 0.0, 0.0]
        assert [row.tolist() for row in process_advantages([[]], [[]], [2])] == [[0.0, 0.0]]

    @pytest.mark.parametrize(
        ("rewards", "ends", "lengths", "says"),
        [
            ([[1.0]], [[0]], [1, 2], "one entry for each completion, got 1, 1 and 2"),
            ([[1.0]], [[0, 1]], [2], "completion 0 has 1 step_rewards but 2 step_ends"),
            ([[1.0]], [[2]], [2], r"step_ends\[0\] must increase and lie in 0..1, got \[2\]"),
            ([[1.0, 2.0]], [[1, 1]], [2], r"step_ends\[0\] must increase"),
            ([[1.0]], [[-1]], [2], r"step_ends\[0\]"),
            ([[math.nan]], [[0]], [1], "finite number"),
        ],
    )
    def test_bad_input_is_named(self, rewards, ends, lengths, says):
        with pytest.raises(ValueError, match=says):
            process_advantages(rewards, ends, lengths)


class TestGae:
    def test_by_hand(self, backend):
        # deltas 1 + 0.5*2 - 1 = 1 and 0 + 0.5*4 - 2 = 0; A_1 = 0, A_0 = 1 + 0.25*0
        backend.check(gae(backend.array([1, 0]), backend.array([1, 2, 4]), gamma=0.5, lam=0.5), [1.0, 0.0])

    def test_lambda_one_is_return_minus_value(self, backend):
        rewards, values = backend.array([1, 2, 3]), backend.array([0.5, -1, 2, 10])
        # returns with the bootstrap value: 1 + 2 + 3 + 10, 2 + 3 + 10, 3 + 10
        backend.check(gae(rewards, values, gamma=1.0, lam=1.0), [16 - 0.5, 15 + 1, 13 - 2])

    def test_lambda_zero_is_the_td_error(self, backend):
        rewards, values = backend.array([1, 2]), backend.array([3, 5, 7])
        backend.check(gae(rewards, values, gamma=1.0, lam=0.0), [1 + 5 - 3, 2 + 7 - 5])

    def test_empty_trajectory(self, backend):
        assert gae(backend.array([]), backend.array([1.0]), gamma=1.0, lam=1.0).shape == (0,)

    @pytest.mark.parametrize(
        ("rewards", "values", "gamma", "lam", "says"),
        [
            ([1, 2], [1, 2], 1, 1, "values must have one entry more than rewards"),
            ([[1]], [[1]], 1, 1, "values must have one entry more"),
            ([1], [1, 0], 1.1, 1, "gamma must be between 0 and 1, got 1.1"),
            ([1], [1, 0], 1, -0.1, "lam must be between 0 and 1, got -0.1"),
            (["a"], [1, 0], 1, 1, "rewards must be numbers"),
        ],
    )
    def test_bad_input_is_named(self, rewards, values, gamma, lam, says):
        with pytest.raises(ValueError, match=says):
            gae(rewards, values, gamma=gamma, lam=lam)
