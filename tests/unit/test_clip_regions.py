"""The six regions of the clip, counted one by one, and the mistake of writing max for min."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import clipped_slope, clipped_surrogate
from grpo_core.clip_regions import SIDES, SIGNS, clip_regions, max_slope, max_surrogate

RATIO = np.array([[0.5, 0.8, 1.0], [1.2, 1.5, 3.0], [0.7, 1.3, 1.0]])
ADVANTAGES = np.array([[1.0], [-1.0], [0.0]])
MASK = np.array([[True, True, True], [True, True, True], [True, True, False]])


def test_counts_by_hand():
    found = clip_regions(RATIO, ADVANTAGES, MASK)
    assert found.counts == {
        ("up", "below"): 1, ("up", "inside"): 2, ("up", "above"): 0,
        ("down", "below"): 0, ("down", "inside"): 1, ("down", "above"): 2,
    }  # fmt: skip
    assert set(found.saturated.values()) == {0}
    assert found.silent == 2
    assert clip_regions(RATIO, ADVANTAGES, MASK, delta=2.0).saturated["down", "above"] == 1
    assert clip_regions(RATIO, -ADVANTAGES, MASK).saturated == {
        ("up", "below"): 0, ("up", "inside"): 0, ("up", "above"): 2,
        ("down", "below"): 1, ("down", "inside"): 0, ("down", "above"): 0,
    }  # fmt: skip


@given(st.lists(st.tuples(st.floats(0.1, 4.0), st.sampled_from([-1.0, 0.0, 2.0])), min_size=1, max_size=20))
def test_every_token_is_in_one_region_and_flat_ones_have_no_slope(tokens):
    ratio, advantage = (np.array([column]) for column in zip(*tokens, strict=True))
    found = clip_regions(ratio, advantage, ratio > 0)
    assert sum(found.counts.values()) + found.silent == len(tokens)
    slope = clipped_slope(ratio, advantage)
    assert sum(found.saturated.values()) == int(((slope == 0) & (advantage != 0)).sum())
    assert all(found.saturated[key] in (0, found.counts[key]) for key in found.counts)


def test_numpy_and_torch_count_alike():
    own = clip_regions(*map(torch.tensor, (RATIO, ADVANTAGES, MASK)))
    assert own == clip_regions(RATIO, ADVANTAGES, MASK)
    assert {sign for sign, _ in own.counts} == set(SIGNS)
    assert {side for _, side in own.counts} == set(SIDES)


@given(st.floats(0.01, 5.0), st.sampled_from([-2.0, -0.5, 0.0, 1.0]), st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_max_is_the_larger_branch(ratio, advantage, low, high):
    r, a, clip = np.array([ratio]), np.array([advantage]), {"epsilon_low": low, "epsilon_high": high}
    held = np.clip(r, 1 - low, 1 + high)
    np.testing.assert_allclose(max_surrogate(r, a, **clip), np.maximum(r * a, held * a))
    np.testing.assert_allclose(max_surrogate(r, a, **clip) + clipped_surrogate(r, a, **clip), r * a + held * a)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [(0.5, 2.0, 0.0), (1.0, 2.0, 2.0), (1.5, 2.0, 2.0), (0.5, -2.0, -2.0), (1.5, -2.0, 0)],
)
def test_the_slope_of_the_mistake(ratio, advantage, slope):
    logp = torch.tensor([ratio], dtype=torch.float64, requires_grad=True)
    max_surrogate(logp, torch.tensor([advantage]).double()).sum().backward()
    assert max_slope(np.array([ratio]), np.array([advantage]))[0] == logp.grad.item() == slope
