"""Confidence intervals: against a table, by their defining equation, and by how often they hold what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import clustered_interval, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_against_published_values(successes, trials, low, high):
    # Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263 gives 0.2553 to 0.3662.
    assert wilson_interval(successes, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.5, 0.999))
def test_the_ends_are_where_the_score_test_stops_rejecting(trials, share, confidence):
    successes = round(share * trials)
    z = float(np.sqrt(2) * _erfinv(confidence))
    low, high = wilson_interval(successes, trials, confidence=confidence)
    for end in (float(low), float(high)):
        if 0 < end < 1:
            score = abs(successes / trials - end) / math.sqrt(end * (1 - end) / trials)
            assert score == pytest.approx(z, rel=1e-6)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1


@given(st.integers(1, 10_000), st.floats(0.01, 0.999))
def test_without_a_failure_or_a_success_that_end_is_exact(trials, confidence):
    assert wilson_interval(trials, trials, confidence=confidence)[1] == 1.0
    assert wilson_interval(0, trials, confidence=confidence)[0] == 0.0
    assert 0 < wilson_interval(trials, trials, confidence=confidence)[0] < 1


def _erfinv(x):
    return float(torch.erfinv(torch.tensor(x, dtype=torch.float64)))


def test_wilson_takes_arrays_and_keeps_their_kind():
    low, high = wilson_interval(torch.tensor([0.0, 5.0], dtype=torch.float64), torch.tensor([10.0, 10.0]).double())
    assert isinstance(low, torch.Tensor)
    assert low.tolist() == pytest.approx([0.0, 0.2366], abs=5e-5)
    assert high[0] == pytest.approx(0.2775, abs=5e-5)


def test_no_trials_say_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wilson_interval(3, 2), "successes must lie between 0 and trials, got 3 of 2"),
        (lambda: wilson_interval(1, 2, confidence=1), "confidence must be below 1"),
        (lambda: wilson_interval(1, 2, confidence=0), "confidence must be between 0 and 1"),
        (lambda: clustered_interval([], samples=4), "correct must be whole numbers between 0 and 4"),
        (lambda: clustered_interval([5], samples=4), "correct must be whole numbers between 0 and 4"),
        (lambda: clustered_interval([1], samples=0), "samples must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_sample_a_prompt_is_wilson():
    correct = [1, 0, 1, 1, 0, 0, 1, 0, 1, 1]
    expected = tuple(float(x) for x in wilson_interval(6, 10))
    assert clustered_interval(correct, samples=1) == pytest.approx(expected)


def test_samples_that_are_copies_count_once():
    once = tuple(float(x) for x in wilson_interval(4, 8))
    assert clustered_interval([4, 0] * 4, samples=4) == pytest.approx(once)
    assert clustered_interval([4] * 8, samples=4) == pytest.approx(tuple(float(x) for x in wilson_interval(8, 8)))


@pytest.mark.parametrize("concentration", [0.5, 50.0])
def test_the_clustered_interval_covers(concentration):
    """Prompts of very different (0.5) and of nearly one (50) difficulty; 40 prompts with 4 samples, 600 times."""
    rng, p = np.random.default_rng(0), 0.3
    held = naive = 0
    for _ in range(600):
        chances = rng.beta(concentration * p, concentration * (1 - p), size=40)
        correct = rng.binomial(4, chances)
        low, high = clustered_interval(correct, samples=4)
        held += low <= p <= high
        low, high = wilson_interval(int(correct.sum()), 160)
        naive += bool(low <= p <= high)
    assert held / 600 > 0.92
    assert (naive / 600 < 0.85) == (concentration < 1)  # what the design effect is for
