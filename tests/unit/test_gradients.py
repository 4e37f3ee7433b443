"""torch's own gradcheck on every differentiable function, and finite differences on NumPy beside it."""

import numpy as np
import pytest

from grpo_core import (
    SURROGATES,
    GroupBatch,
    Objective,
    categorical_kl,
    clipped_surrogate,
    dpo_loss,
    gae,
    group_advantages,
    importance_ratio,
    kl_estimate,
    leave_one_out_advantages,
    log_softmax,
    loss_terms,
    token_weights,
    weighted_sum,
)
from grpo_core.surrogates import geometric_mean_surrogate, sapo_surrogate
from tests.support import difference_gradient, torch_gradient

RNG = np.random.default_rng(12)
SHAPE = (3, 4)
MASK = np.array([[True, True, True, False], [True, False, False, False], [True] * 4])
LOGP = -RNG.uniform(0.3, 2.0, SHAPE)
OLD = LOGP + RNG.normal(0, 0.4, SHAPE)
REF = LOGP + RNG.normal(0, 0.6, SHAPE)
ADVANTAGES = np.array([[1.3], [-0.7], [2.0]])
RATIO = np.exp(LOGP - OLD)
REWARDS = np.array([[0.3, 1.7, 0.9, -0.4]])


def weighted(result):
    """Return a scalar that weighs every entry differently, so that no error cancels."""
    return (result * (like(np.arange(1.0, 1.0 + np.prod(result.shape)).reshape(tuple(result.shape)), result))).sum()


def like(constant, x):
    """Return a NumPy constant in the library of `x`."""
    if isinstance(x, np.ndarray):
        return constant
    import torch

    return torch.tensor(constant)


# name -> (function of one array, where to take its derivative); constants follow the argument's library
FUNCTIONS = {
    "importance_ratio token": (lambda x: importance_ratio(x, like(OLD, x), like(MASK, x)), LOGP),
    "importance_ratio sequence": (
        lambda x: importance_ratio(x, like(OLD, x), like(MASK, x), level="sequence"),
        LOGP,
    ),
    "importance_ratio trajectory": (
        lambda x: importance_ratio(x, like(OLD, x), like(MASK, x), level="trajectory"),
        LOGP,
    ),
    "clipped_surrogate": (lambda x: clipped_surrogate(x, like(ADVANTAGES, x), delta=1.4), RATIO),
    "sapo_surrogate": (lambda x: sapo_surrogate(x, like(ADVANTAGES, x)), RATIO),
    "geometric_mean_surrogate": (
        lambda x: geometric_mean_surrogate(x, like(ADVANTAGES, x), like(MASK, x)),
        LOGP - OLD,
    ),
    **{
        f"kl_estimate {name}": (lambda x, name=name: kl_estimate(x, like(REF, x), estimator=name), LOGP)
        for name in ("k1", "k2", "k3", "abs")
    },
    "log_softmax": (log_softmax, LOGP),
    "categorical_kl of a softmax": (
        lambda x: categorical_kl(np_exp(log_softmax(x)), np_exp(log_softmax(like(REF, x)))),
        LOGP,
    ),
    "group_advantages": (lambda x: group_advantages(x).advantages, REWARDS),
    "leave_one_out_advantages": (leave_one_out_advantages, REWARDS),
    "gae": (lambda x: gae(x, like(np.array([0.1, 0.5, -0.2, 0.4, 0.0]), x), gamma=0.9, lam=0.8), REWARDS[0]),
    "weighted_sum": (lambda x: weighted_sum(x, like(token_weights(MASK, mode="sequence_mean"), x)), LOGP),
    "dpo_loss": (lambda x: dpo_loss(x, like(OLD[0], x), 0.2 * x - 2, like(REF[0], x), beta=0.3), REWARDS[0]),
}


def np_exp(x):
    if isinstance(x, np.ndarray):
        return np.exp(x)
    import torch

    return torch.exp(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name):
    import torch

    function, at = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, torch.tensor(at, requires_grad=True), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_differences_agree_with_autograd(name):
    function, at = FUNCTIONS[name]
    exact = torch_gradient(lambda x: weighted(function(x)), at)
    numeric = difference_gradient(lambda x: weighted(function(x)), at)
    np.testing.assert_allclose(exact, numeric, rtol=1e-6, atol=1e-7)
    assert np.abs(exact).max() > 0


SMOOTH = sorted(set(SURROGATES) - {"cispo", "vespo", "dppo_tv", "dppo_kl", "kl_cov", "clip_cov"})


@pytest.mark.parametrize("kl", ["k1", "k2", "k3", "abs"])
@pytest.mark.parametrize("surrogate", SMOOTH)
def test_gradcheck_of_the_loss(surrogate, kl):
    import torch

    rest = {
        "old_logp": torch.tensor(OLD),
        "ref_logp": torch.tensor(REF),
        "mask": torch.tensor(MASK),
        "advantages": torch.tensor(ADVANTAGES[:, 0]),
    }
    objective = Objective(surrogate=surrogate, beta=0.3, kl_estimator=kl, kl_ratio_weighted=True)
    logp = torch.tensor(LOGP, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: loss_terms(GroupBatch(logp=x, **rest), objective).loss, logp, eps=1e-6, atol=1e-7
    )
