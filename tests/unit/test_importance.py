"""What each ratio corrects, on policies whose every outcome is listed."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_core import sequence_outcomes, softmax_outcomes
from grpo_core.importance import reweighted_rewards

RNG = np.random.default_rng(0)


def policies(steps):
    """Two policies over two tokens; "stop" never comes, so that all outcomes are equally long."""
    rows = [RNG.normal(size=(sum(2**k for k in range(steps)), 2)) for _ in range(2)]
    rows = [np.concatenate([row, np.full((len(row), 1), -60.0)], axis=1) for row in rows]
    return [sequence_outcomes(row, tokens=["a", "b", "stop"], max_length=steps, eos="stop") for row in rows]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_product_is_exact_and_the_token_ratio_changes_one_token(steps):
    old, new = policies(steps)
    rewards = RNG.normal(size=old.size)
    found = reweighted_rewards(old, new, rewards)
    assert found["trajectory"] == pytest.approx(found["new"], rel=1e-12)
    assert found["new"] == pytest.approx(new.probs @ rewards)
    swapped = []  # token t from the new policy, all others from the old one
    for t in range(steps):
        logp = old.logp.copy()
        logp[:, t] = new.logp[:, t]
        swapped.append(np.exp(logp.sum(axis=1)) @ rewards)
    assert found["token"] == pytest.approx(np.mean(swapped), rel=1e-9)
    assert (steps == 1) == (found["token"] == pytest.approx(found["new"], rel=1e-9))
    assert (steps == 1) == (found["sequence"] == pytest.approx(found["new"], rel=1e-9))


def test_equal_policies_need_no_correction():
    old = softmax_outcomes([0.3, -0.2, 0.0])
    found = reweighted_rewards(old, old, [1.0, 2.0, 4.0])
    assert len({round(value, 12) for value in found.values()}) == 1


def test_bad_input():
    old = softmax_outcomes([0.0, 0.0])
    with pytest.raises(ValueError, match="same outcomes"):
        reweighted_rewards(old, softmax_outcomes([0.0, 0.0, 0.0]), [1, 0])
