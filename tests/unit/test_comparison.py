"""Curves at equal cost: against sums by hand, and by properties that any mean over a stretch must have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import first_reach, interpolate, interval_mean

COSTS = st.lists(st.floats(0.5, 100.0), min_size=1, max_size=20)


def test_values_between_the_points():
    found = interpolate([0, 10, 30], [1.0, math.nan, 4.0], [0, 10, 20, 30, 31, -1])
    assert found[:4].tolist() == [1.0, 2.0, 3.0, 4.0]  # the gap at 10 is bridged: 1 + 10 (4 - 1) / 30
    assert np.isnan(found[4:]).all()
    assert np.isnan(interpolate([], [], [1.0])).all()
    assert np.isnan(interpolate([1.0], [math.nan], 1.0))


def test_a_mean_over_a_stretch_by_hand():
    # steps that cost 100, 200 and 100: the last 150 of 400 are 50 of the second and 100 of the third
    ends, values = [100.0, 300.0, 400.0], [1.0, 0.4, 0.1]
    assert interval_mean(ends, values, 250.0, 400.0) == pytest.approx((50 * 0.4 + 100 * 0.1) / 150)
    assert interval_mean(ends, values, 0.0, 400.0) == pytest.approx((100 + 200 * 0.4 + 100 * 0.1) / 400)
    assert interval_mean(ends, [1.0, math.nan, 0.1], 250.0, 400.0) == pytest.approx(0.1)
    assert math.isnan(interval_mean(ends, values, 400.0, 500.0))
    assert math.isnan(interval_mean([], [], 0.0, 1.0))
    assert math.isnan(interval_mean(ends, values, 50.0, 50.0))


@given(COSTS, st.data())
def test_a_mean_lies_among_its_values_and_stretches_add_up(costs, data):
    ends = np.cumsum(costs)
    values = data.draw(st.lists(st.floats(-5, 5), min_size=len(costs), max_size=len(costs)))
    middle = data.draw(st.floats(0.01, 0.99)) * ends[-1]
    whole = interval_mean(ends, values, 0.0, ends[-1])
    left, right = interval_mean(ends, values, 0.0, middle), interval_mean(ends, values, middle, ends[-1])
    assert min(values) - 1e-9 <= whole <= max(values) + 1e-9
    assert whole * ends[-1] == pytest.approx(left * middle + right * (ends[-1] - middle), abs=1e-7)


@given(COSTS, st.integers(2, 5))
def test_cutting_a_step_in_pieces_changes_nothing(costs, pieces):
    ends = np.cumsum(costs)
    values = np.arange(len(costs), dtype=float)
    fine = np.cumsum(np.repeat(np.asarray(costs) / pieces, pieces))
    low, high = 0.3 * ends[-1], 0.8 * ends[-1]
    assert interval_mean(fine, np.repeat(values, pieces), low, high) == pytest.approx(
        interval_mean(ends, values, low, high)
    )


def test_first_arrival():
    assert first_reach([0, 100, 200], [0.2, 0.4, 0.8], 0.5) == 125.0
    assert first_reach([0, 100, 200], [0.6, 0.4, 0.8], 0.5) == 0.0
    assert first_reach([0, 100, 200], [0.2, math.nan, 0.8], 0.5) == pytest.approx(100.0)
    assert first_reach([0, 100], [0.2, 0.4], 0.5) == math.inf
    assert first_reach([], [], 0.5) == math.inf


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: interpolate([0, 1], [1.0], 0.5), "one value for each cost, got 1 values for 2 costs"),
        (lambda: interval_mean([2.0, 1.0], [1.0, 1.0], 0.0, 1.0), "may not fall"),
        (lambda: interval_mean([1.0], [1.0], 2.0, 1.0), "high must be"),
        (lambda: first_reach([math.nan], [1.0], 0.5), "must be known"),
    ],
)
def test_a_wrong_curve_says_what_is_wrong(call, said):
    with pytest.raises(ValueError, match=said):
        call()
