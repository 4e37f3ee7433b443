"""d loss / d logp in closed form, against torch's autograd and by hand."""

import numpy as np
import pytest
import torch

from grpo_core import RECIPES, SURROGATES, GroupBatch, Objective, loss_terms
from grpo_core.kl import ESTIMATORS
from grpo_core.ratios import LEVELS
from grpo_core.token_gradients import PULLBACKS, gradients_of, token_gradients
from tests.support import to_numpy, torch_gradient

B, T = 5, 7


def batch(seed: int = 0, *, spread: float = 0.4, ragged: bool = True, **more) -> GroupBatch:
    """Return a batch with ratios on both sides of every clip range, ragged masks, one hole and one empty completion."""
    rng = np.random.default_rng(seed)
    old = -rng.uniform(0.1, 3.0, (B, T))
    logp = np.minimum(old + rng.normal(0, spread, (B, T)), -0.01)
    mask = np.arange(T)[None, :] < np.array([T, 3, 5, 0, 1])[:, None] if ragged else np.ones((B, T), dtype=bool)
    mask[0, 2] = False
    advantages = np.array([1.3, -0.7, 0.0, 2.0, -1.6])
    defaults = {
        "ref_logp": np.minimum(old + rng.normal(0, spread, (B, T)), -0.01),
        "advantages": advantages,
        "uniform": rng.random((B, T)),
        "truncated": np.array([False, True, False, False, True]),
    }
    return GroupBatch(logp=logp, old_logp=old, mask=mask, **{**defaults, **more})


def as_torch(data: GroupBatch, logp: torch.Tensor) -> GroupBatch:
    fields = {
        name: None if getattr(data, name) is None else torch.tensor(getattr(data, name))
        for name in ("old_logp", "ref_logp", "mask", "advantages", "truncated", "rollout_weights", "uniform", "entropy")
    }
    return GroupBatch(logp=logp, accounting=data.accounting, **fields)


def by_autograd(data: GroupBatch, objective: Objective) -> np.ndarray:
    return torch_gradient(lambda logp: loss_terms(as_torch(data, logp), objective).loss, data.logp)


def check(data: GroupBatch, objective: Objective) -> np.ndarray:
    expected = by_autograd(data, objective)
    result = token_gradients(data, objective)
    assert result.total.shape == data.logp.shape
    np.testing.assert_allclose(result.total, expected, rtol=1e-10, atol=1e-14)
    return expected


def test_every_surrogate_has_a_pullback():
    assert set(PULLBACKS) == set(SURROGATES)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_every_surrogate_at_every_level_agrees_with_autograd(surrogate, level):
    for seed in range(6):
        expected = check(batch(seed), Objective(surrogate=surrogate, ratio_level=level))
        assert np.any(expected != 0)


@pytest.mark.parametrize(
    "surrogate", ["clip", "unclipped", "sapo", "cispo", "dro", "kl_cov", "dppo_tv", "policy_gradient"]
)
def test_advantages_per_token(surrogate):
    advantages = np.random.default_rng(1).normal(size=(B, T))
    for level in LEVELS:
        check(batch(advantages=advantages), Objective(surrogate=surrogate, ratio_level=level))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_agrees_with_autograd(name):
    objective = RECIPES[name].with_constant(T)
    for beta in (objective.beta, 0.3):
        check(batch(3), objective.replace(beta=beta))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_kl_estimator_with_and_without_the_ratio(estimator, weighted):
    for level in LEVELS:
        objective = Objective(beta=0.5, kl_estimator=estimator, kl_ratio_weighted=weighted, ratio_level=level)
        data = batch(2)
        check(data, objective)
        parts = token_gradients(data, objective)
        alone = token_gradients(data, objective.replace(beta=0.0))
        np.testing.assert_array_equal(parts.policy, alone.total)
        assert np.any(parts.kl != 0)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3+"])
def test_clamps_stop_the_gradient_where_they_hold(estimator):
    objective = Objective(beta=1.0, kl_estimator=estimator, kl_log_ratio_cap=0.5, kl_value_cap=0.1)
    expected = check(batch(4, spread=1.0), objective)
    assert np.any(expected != 0)


@pytest.mark.parametrize("level", LEVELS)
def test_the_ratio_cap_stops_the_gradient(level):
    data = batch(5, spread=1.5)
    capped = check(data, Objective(surrogate="unclipped", ratio_level=level, log_ratio_cap=0.3))
    free = token_gradients(data, Objective(surrogate="unclipped", ratio_level=level)).total
    assert np.any((capped == 0) & (free != 0))


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"])
def test_every_aggregation(aggregation):
    check(batch(), Objective(aggregation=aggregation, constant=4.0, beta=0.2))


def test_masks_and_weights_on_the_policy_term():
    weights = np.random.default_rng(8).uniform(0.2, 2.0, (B, T))
    for objective in (
        Objective(beta=0.1, mask_truncated=True),
        Objective(beta=0.1, off_policy_threshold=0.05),
        Objective(beta=0.1, delta=1.3, epsilon_high=0.28),
    ):
        check(batch(6), objective)
        check(batch(6, rollout_weights=weights), objective)


def test_on_policy_it_is_minus_weight_times_advantage_although_the_loss_is_zero():
    logp = np.log(np.full((2, 3), 0.4))
    mask = np.array([[True, True, False], [True, True, True]])
    data = GroupBatch(logp, logp, None, mask, np.array([1.0, -1.0]))
    terms = loss_terms(data, Objective())
    assert abs(float(terms.loss)) < 1e-16
    np.testing.assert_allclose(gradients_of(terms).total, [[-1 / 4, -1 / 4, 0.0], [1 / 6, 1 / 6, 1 / 6]], rtol=1e-14)


def test_a_saturated_token_pulls_nothing_and_the_kink_still_does():
    logp = np.log(np.array([[1.3, 1.2, 1.1]]) * 0.1)
    data = GroupBatch(logp, np.log(np.full((1, 3), 0.1)), None, np.ones((1, 3), dtype=bool), np.array([1.0]))
    ratio = np.exp(data.logp - data.old_logp)
    high = float(ratio[0, 1]) - 1.0  # the second token sits exactly on the boundary
    total = token_gradients(data, Objective(epsilon_high=high)).total
    np.testing.assert_allclose(total, [[0.0, -ratio[0, 1] / 3, -ratio[0, 2] / 3]], rtol=1e-14)


def test_a_sequence_ratio_gives_every_token_of_a_completion_the_same_pull():
    total = token_gradients(
        batch(9, ragged=False), Objective(ratio_level="sequence", epsilon_low=1, epsilon_high=9)
    ).total
    for row, mask in zip(total, batch(9, ragged=False).mask, strict=True):
        assert np.ptp(row[mask]) < 1e-15


def test_backends(backend):
    data = batch(10)
    fields = {
        name: backend.array(getattr(data, name)) for name in ("logp", "old_logp", "ref_logp", "advantages", "uniform")
    }
    own = GroupBatch(mask=backend.mask(data.mask), truncated=backend.mask(data.truncated), **fields)
    for surrogate in SURROGATES:
        objective = Objective(surrogate=surrogate, beta=0.2, kl_ratio_weighted=True, ratio_level="sequence")
        backend.check(token_gradients(own, objective).total, token_gradients(data, objective).total)


def test_torch_results_carry_no_graph():
    data = batch(11)
    logp = torch.tensor(data.logp, requires_grad=True)
    for surrogate in SURROGATES:
        total = token_gradients(
            as_torch(data, logp), Objective(surrogate=surrogate, beta=0.1, kl_ratio_weighted=True)
        ).total
        assert not total.requires_grad, surrogate
        assert to_numpy(total).shape == (B, T)


def test_beta_without_a_reference_is_an_error():
    with pytest.raises(ValueError, match="ref_logp"):
        token_gradients(batch(ref_logp=None), Objective(beta=0.1))
