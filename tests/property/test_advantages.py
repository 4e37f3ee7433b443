"""What holds for the advantages of any rewards."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpo_core import (
    AdvantageSpec,
    compute_advantages,
    gae,
    group_advantages,
    group_kind,
    leave_one_out_advantages,
    mixed_group_probability,
    multi_reward_advantages,
    process_advantages,
)
from tests.property.strategies import REWARDS, reward_rows

SPECS = [
    AdvantageSpec(),
    AdvantageSpec(ddof=0, eps=0.0),
    AdvantageSpec(scale="batch"),
    AdvantageSpec(scale="none"),
    AdvantageSpec(estimator="leave_one_out"),
]
specs = st.sampled_from(SPECS)


def size_of(rewards):
    scored = rewards[~np.isnan(rewards)]
    return 1.0 + (np.abs(scored).max() if scored.size else 0.0)


@given(reward_rows(unscored=True), specs)
def test_always_finite_with_zero_for_unscored_and_for_equal_scores(rewards, spec):
    result = compute_advantages(rewards, spec)
    assert np.isfinite(result.advantages).all()
    assert np.isfinite(result.std).all()
    assert (result.advantages[np.isnan(rewards)] == 0).all()
    for row, advantages in zip(rewards, result.advantages, strict=True):
        scored = row[~np.isnan(row)]
        if scored.size == 0 or scored.max() == scored.min():
            assert (advantages == 0).all()
        assert result.valid_count.sum() == (~np.isnan(rewards)).sum()


@given(reward_rows(unscored=True), specs)
def test_zero_sum_in_each_group(rewards, spec):
    advantages = compute_advantages(rewards, spec).advantages
    np.testing.assert_allclose(
        advantages.sum(axis=-1), 0.0, atol=1e-9 * size_of(rewards) * (1 + np.abs(advantages).max())
    )


@given(reward_rows(unscored=True), specs, st.floats(-50, 50))
def test_shift_invariance(rewards, spec, shift):
    # a tie must stay a tie after the shift, and a difference must stay one: whole and half numbers do
    rewards, shift = np.round(rewards * 2) / 2, round(shift)
    moved = compute_advantages(rewards + shift, spec).advantages
    np.testing.assert_allclose(moved, compute_advantages(rewards, spec).advantages, rtol=1e-9, atol=1e-9)


@given(reward_rows(unscored=True), st.sampled_from(["group", "batch"]), st.sampled_from([0, 1]), st.integers(-20, 20))
def test_scale_invariance_without_eps(rewards, scale, ddof, power):
    first = group_advantages(rewards, scale=scale, ddof=ddof, eps=0.0).advantages
    second = group_advantages(rewards * 2.0**power, scale=scale, ddof=ddof, eps=0.0).advantages
    np.testing.assert_allclose(second, first, rtol=1e-9, atol=1e-12)


@given(reward_rows(), st.floats(0.01, 100))
def test_eps_breaks_scale_invariance_only_towards_smaller(rewards, factor):
    assume(factor != 1.0)
    small, large = sorted((1.0, factor))
    one = np.abs(group_advantages(rewards * small, eps=1e-2).advantages)
    other = np.abs(group_advantages(rewards * large, eps=1e-2).advantages)
    assert (one <= other + 1e-9).all()


@given(reward_rows(unscored=True), specs, st.randoms(use_true_random=False))
def test_permutation_inside_a_group_permutes_its_advantages(rewards, spec, random):
    order = list(range(rewards.shape[1]))
    random.shuffle(order)
    moved = compute_advantages(rewards[:, order], spec).advantages
    np.testing.assert_allclose(moved, compute_advantages(rewards, spec).advantages[:, order], rtol=1e-9, atol=1e-9)


@given(reward_rows(groups=3, unscored=True), reward_rows(groups=1, max_size=1), specs)
def test_groups_do_not_see_each_other(rewards, other, spec):
    assume(spec.scale != "batch")
    whole = compute_advantages(rewards, spec).advantages
    changed = rewards.copy()
    changed[1] = other[0, 0] * np.arange(rewards.shape[1])
    np.testing.assert_array_equal(compute_advantages(changed, spec).advantages[[0, 2]], whole[[0, 2]])
    for i in range(3):
        np.testing.assert_allclose(compute_advantages(rewards[i], spec).advantages, whole[i], rtol=1e-12)


@given(reward_rows(min_size=2))
def test_leave_one_out_is_the_centred_reward_stretched(rewards):
    size = rewards.shape[1]
    centred = group_advantages(rewards, scale="none").advantages
    np.testing.assert_allclose(leave_one_out_advantages(rewards), centred * size / (size - 1), rtol=1e-12)


@given(reward_rows(min_size=2))
def test_normalised_groups_have_unit_population_variance(rewards):
    result = group_advantages(rewards, ddof=0, eps=0.0)
    spread = np.sqrt((result.advantages**2).mean(axis=-1))
    mixed = rewards.max(axis=-1) != rewards.min(axis=-1)
    np.testing.assert_allclose(spread, mixed.astype(float), rtol=1e-6)


@given(reward_rows(groups=1, unscored=True))
def test_kind_says_whether_there_is_a_signal(rewards):
    rewards = rewards[0]
    kind = group_kind(rewards)
    assert (kind == "mixed") == bool(np.any(group_advantages(rewards, eps=0.0).advantages != 0))
    assert (kind == "unscored") == bool(np.isnan(rewards).all())


@given(reward_rows(unscored=True), st.sampled_from(["sum_then_normalize", "normalize_then_sum"]))
def test_one_reward_function_is_the_plain_case_or_its_batch_normalised_form(rewards, aggregation):
    spec = AdvantageSpec(reward_aggregation=aggregation)
    result = multi_reward_advantages(rewards[..., None], spec).advantages
    assert np.isfinite(result).all()
    if aggregation == "sum_then_normalize":
        np.testing.assert_array_equal(result, group_advantages(rewards).advantages)


@given(st.floats(0, 1), st.integers(1, 64))
def test_mixed_probability_is_a_probability_and_symmetric(p, size):
    value = float(mixed_group_probability(p, size))
    assert 0.0 <= value <= 1.0
    assert value == pytest.approx(float(mixed_group_probability(1 - p, size)), abs=1e-9)
    assert value <= float(mixed_group_probability(p, size + 1)) + 1e-12


@given(st.lists(REWARDS, min_size=1, max_size=8), st.lists(REWARDS, min_size=9, max_size=9), st.floats(0, 1))
def test_gae_telescopes(rewards, values, gamma):
    values = values[: len(rewards) + 1]
    result = gae(rewards, values, gamma=gamma, lam=1.0)
    total, expected = values[-1], []
    for reward, value in zip(reversed(rewards), reversed(values[:-1]), strict=True):
        total = reward + gamma * total
        expected.append(total - value)
    np.testing.assert_allclose(result, expected[::-1], rtol=1e-9, atol=1e-9)


@given(st.lists(st.lists(REWARDS, min_size=0, max_size=4), min_size=1, max_size=4))
def test_process_advantages_end_with_the_last_step(steps):
    ends = [list(range(1, 2 * len(row) + 1, 2)) for row in steps]
    lengths = [2 * len(row) + 3 for row in steps]
    result = process_advantages(steps, ends, lengths)
    for row, end, length in zip(result, ends, lengths, strict=True):
        assert row.shape == (length,)
        last = end[-1] if end else -1
        assert (row[last + 1 :] == 0).all()
        assert not any(math.isnan(x) for x in row)
