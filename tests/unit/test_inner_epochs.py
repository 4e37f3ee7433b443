"""Several updates on one batch: against autograd, against the plain policy gradient, and what the clip does not do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grpo_core import SURROGATES, Objective, group_advantages
from grpo_core.inner_epochs import inner_epochs

LOGITS = np.log([0.2] * 5)
ACTIONS = [0, 1, 2, 3]
ADVANTAGES = group_advantages(np.array([1.0, 0.0, 0.0, 0.0]), ddof=0, eps=0.0).advantages


def run(epochs=8, learning_rate=0.3, logits=LOGITS, actions=ACTIONS, advantages=ADVANTAGES, **choices):
    objective = Objective(**choices)
    return inner_epochs(logits, actions, advantages, objective, epochs=epochs, learning_rate=learning_rate)


def test_the_first_step_is_the_policy_gradient_whatever_the_clip():
    probs = np.full(5, 0.2)
    by_hand = sum(a * (np.eye(5)[i] - probs) for i, a in zip(ACTIONS, ADVANTAGES, strict=True)) / 4
    for name in ("clip", "unclipped", "policy_gradient", "sapo", "dro", "cispo"):
        np.testing.assert_allclose(run(epochs=1, surrogate=name).gradients[0], by_hand, atol=1e-15)
    np.testing.assert_allclose(run(epochs=1, epsilon_low=0.0, epsilon_high=0.0).gradients[0], by_hand, atol=1e-15)


@pytest.mark.parametrize("name", sorted(set(SURROGATES) - {"clip_cov"}))
def test_every_step_is_the_one_that_autograd_takes(name):
    rng = np.random.default_rng(3)
    start, actions, advantages = rng.normal(size=6), [0, 0, 2, 3, 5, 5, 1], rng.normal(size=7)
    done = run(epochs=6, learning_rate=0.8, logits=start, actions=actions, advantages=advantages, surrogate=name)
    objective = Objective(surrogate=name)
    theta, adv = torch.tensor(start, requires_grad=True), torch.tensor(advantages)
    old = torch.log_softmax(torch.tensor(start), 0)[actions]
    for epoch in range(6):
        x = _inputs(torch.log_softmax(theta, 0)[actions], old, adv)
        value = SURROGATES[name].objective(x, **objective.surrogate_parameters())
        (slope,) = torch.autograd.grad(value.mean(), theta)
        np.testing.assert_allclose(done.gradients[epoch], slope.numpy(), rtol=1e-9, atol=1e-13)
        theta = (theta + 0.8 * slope).detach().requires_grad_()
    np.testing.assert_allclose(done.logits[-1], theta.detach().numpy(), rtol=1e-9)


def _inputs(logp, old, advantages):
    from grpo_core.surrogates import SurrogateInputs

    d = (logp - old)[:, None]
    mask = torch.ones_like(d) > 0
    return SurrogateInputs(logp[:, None], old[:, None], d, d.exp(), advantages[:, None], mask, torch.zeros_like(d))


def test_with_one_update_every_ratio_is_one_and_nothing_is_clipped():
    for rate in (0.01, 1.0, 100.0):
        done = run(epochs=1, learning_rate=rate)
        assert done.ratios[0].tolist() == [1.0] * 4
        assert done.clip_ratios.tolist() == [0.0]


def test_the_clip_is_not_a_trust_region():
    done, free = run(), run(surrogate="unclipped")
    after = np.flatnonzero(done.saturated[:, 0])
    assert after[0] == 2  # outside from the third update on
    assert np.all(done.drives[after, 0] == 0)
    assert np.all(np.diff(done.ratios[2:, 0]) > 0.02)  # ... and it still moves away: the others carry it
    assert done.ratios[-1, 0] > 1.5
    assert 0 < done.kl[-1] < free.kl[-1]
    assert run(epochs=4, learning_rate=20.0).kl[-1] > 10 * done.kl[-1]  # no bound that the clip range sets


def test_ratios_and_kl_are_those_of_the_logits():
    done = run(epochs=3)
    probs = np.exp(done.logits) / np.exp(done.logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(done.ratios, probs[:, ACTIONS] / 0.2)
    np.testing.assert_allclose(done.kl, (0.2 * np.log(0.2 / probs)).sum(axis=1), atol=1e-15)


def test_a_group_without_signal_stands_still():
    done = run(advantages=np.zeros(4))
    assert np.all(done.gradients == 0)
    assert np.all(done.ratios == 1)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"logits": [0.0]}, "logits"), ({"logits": [0.0, np.inf]}, "logits"), ({"actions": [0, 1, 2, 5]}, "actions"),
        ({"actions": [0, 1]}, "actions"), ({"actions": [0.5, 1, 2, 3]}, "actions"), ({"epochs": 0}, "epochs"),
        ({"learning_rate": 0.0}, "learning_rate"), ({"advantages": [np.nan] * 4}, "advantages"),
    ],
)  # fmt: skip
def test_bad_input_is_named(change, name):
    with pytest.raises(ValueError, match=name):
        run(**change)
