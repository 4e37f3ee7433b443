"""How far a policy may move: the performance difference, its bound, and the natural-gradient step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, number, whole_number
from grpo_core.kl import categorical_kl, check_distribution
from grpo_core.messages import InputError
from grpo_core.policies import Outcomes, expected_reward, log_softmax, token_advantages
from grpo_core.ratios import importance_ratio


def total_variation(p: Array, q: Array) -> Array:
    """Return the total variation distance sum |p - q| / 2 of distributions over the last axis, between 0 and 1.

    >>> total_variation([0.5, 0.5], [0.25, 0.75]).item()
    0.25
    """
    p, q = check_distribution(p, "p"), check_distribution(q, "q")
    check_same_shape(p, q, "p", "q")
    xp = namespace(p, q)
    return 0.5 * xp.sum(xp.abs(p - q), axis=-1)


def surrogate_error_bound(alpha: float, a_max: float, *, horizon: int) -> float:
    r"""Return 2 a_max T (T - 1) alpha^2, the most by which TRPO's surrogate can miss the true objective.

    `alpha`: the largest total variation between old and new policy over all prefixes; `a_max`: the largest absolute
    advantage under the old policy; `horizon` T: the longest completion, in tokens. Undiscounted, finite horizon: the
    discounted bound with 1 / (1 - gamma)^2 is another one. It is loose, and grows with the square of both the move and
    the length.
    Raises ValueError for alpha outside [0, 1], a negative a_max or a horizon below 1.
    Source: TRPO arXiv:1502.05477 theorem 1, for a finite horizon without discount.

    >>> round(surrogate_error_bound(0.1, 1.0, horizon=10), 12)
    1.8
    """
    steps = whole_number(horizon, "horizon", low=1)
    return 2.0 * number(a_max, "a_max", low=0.0) * steps * (steps - 1) * number(alpha, "alpha", low=0.0, high=1.0) ** 2


@dataclass(frozen=True)
class PerformanceDifference:
    """What a policy change does to the expected reward, and what the old policy's data can say about it.

    `old` and `new`: expected rewards. `identity`: the old advantages summed along the *new* policy's completions, equal
    to `new` - `old`. `surrogate`: `old` plus the ratio-weighted advantages along the *old* policy's completions; it
    misses `new` because it keeps the old prefixes. `alpha`, `a_max`, `horizon` and `bound` as in
    `surrogate_error_bound`.
    """

    old: float
    new: float
    identity: float
    surrogate: float
    alpha: float
    a_max: float
    horizon: int

    @property
    def error(self) -> float:
        """The surrogate's distance from the truth; never above `bound`."""
        return abs(self.new - self.surrogate)

    @property
    def bound(self) -> float:
        """The guaranteed limit of `error`."""
        return surrogate_error_bound(self.alpha, self.a_max, horizon=self.horizon)


def performance_difference(old: Outcomes, new: Outcomes, rewards: Any) -> PerformanceDifference:
    r"""Return J(new) - J(old) in its exact forms, for two policies over the same outcomes.

    J(new) - J(old) = E_new[sum_t A_old(s_t, a_t)], against the surrogate E_old[sum_t ratio_t A_old(s_t, a_t)].
    `rewards` (K,), one for each outcome. Raises ValueError when the outcomes differ.
    Source: TRPO arXiv:1502.05477 eq. 1 to 3 (after Kakade and Langford 2002).
    """
    if old.tokens != new.tokens:
        raise InputError("new must list the same outcomes as old: build both with the same tokens and max_length")
    advantages = token_advantages(old, rewards)
    ratio = importance_ratio(new.logp, old.logp, old.mask)
    before = expected_reward(old, rewards)
    return PerformanceDifference(
        old=before,
        new=expected_reward(new, rewards),
        identity=float(new.probs @ advantages.sum(axis=1)),
        surrogate=before + float(old.probs @ (ratio * advantages).sum(axis=1)),
        alpha=float(np.max(total_variation(old.choices, new.choices))),
        a_max=float(np.max(np.abs(advantages))),
        horizon=old.mask.shape[1],
    )


def softmax_fisher(probs: Array) -> Array:
    r"""Return the Fisher information of one softmax distribution in its logits, diag(p) - p p^T, shape (K, K).

    It is the Hessian of KL(old, new) at equal policies. Adding one number to all logits changes nothing, so that it is
    singular along (1, ..., 1).

    >>> softmax_fisher([0.5, 0.5]).tolist()
    [[0.25, -0.25], [-0.25, 0.25]]
    """
    probs = check_distribution(probs, "probs")
    if probs.ndim != 1:
        raise InputError("probs must be one distribution of shape (K,), got {shape}", shape=tuple(probs.shape))
    xp = namespace(probs)
    rows = xp.zeros_like(probs)[:, None] + probs[None, :]
    return xp.eye(probs.shape[0], dtype=probs.dtype) * rows - probs[:, None] * probs[None, :]


def fisher_matrix(outcomes: Outcomes) -> np.ndarray:
    """Return the Fisher information E[S S^T] of a listed policy, S the score of a whole completion, (D, D).

    It is the Hessian of the KL over whole completions: of the sum of the per-token KLs along the old policy's prefixes.
    """
    scores = outcomes.scores.sum(axis=1)
    return scores.T @ (outcomes.probs[:, None] * scores)


def natural_gradient_step(gradient: Array, fisher: Array, *, delta: float, damping: float = 0.0) -> Array:
    r"""Return the step sqrt(2 delta / (g^T F^-1 g)) F^-1 g: most gain where step^T F step / 2 = delta.

    `gradient` (D,), `fisher` (D, D) symmetric without negative eigenvalues; `damping` is added to its diagonal. A
    singular F is inverted where it is not zero (pseudo-inverse): directions that leave the policy unchanged are not
    moved along.

    Raises ValueError for shapes that do not fit, a matrix that is not symmetric or has a negative eigenvalue, delta not
    above 0, a zero gradient (no direction leads up), and a gradient along a direction in which F is zero (the model
    allows an endless step there; use damping).
    Source: TRPO arXiv:1502.05477 sec. 6 and appendix C.

    >>> natural_gradient_step([1.0, 2.0], [[2.0, 0.0], [0.0, 0.5]], delta=0.01).round(6).tolist()
    [0.024254, 0.194029]
    """
    delta = number(delta, "delta", low=0.0, open_low=True)
    gradient, fisher = as_data(gradient, "gradient"), as_data(fisher, "fisher")
    if gradient.ndim != 1 or tuple(fisher.shape) != (gradient.shape[0], gradient.shape[0]):
        raise InputError(
            "fisher must have shape (D, D) for a gradient (D,), got {shape} and {other}",
            shape=tuple(fisher.shape),
            other=tuple(gradient.shape),
        )
    xp = namespace(gradient, fisher)
    if not bool(xp.all(xp.isfinite(gradient))) or not bool(xp.any(gradient != 0)):
        raise InputError("gradient must be finite and not zero: at zero the model has no direction that leads up")
    direction = _solve(fisher, gradient, number(damping, "damping", low=0.0))
    return direction * xp.sqrt(2.0 * delta / xp.sum(gradient * direction))


def _solve(fisher: Array, gradient: Array, damping: float) -> Array:
    """Return F^-1 g on the directions where F is positive; ValueError where the gradient leaves them."""
    xp = namespace(fisher, gradient)
    noise = 1e-4 if gradient.dtype == xp.float32 else 1e-9
    largest = float(xp.max(xp.abs(fisher)))
    if not largest < float("inf") or float(xp.max(xp.abs(fisher - fisher.T))) > noise * largest:
        raise InputError("fisher must be finite and symmetric")
    values, vectors = xp.linalg.eigh(fisher)
    if float(xp.min(values)) < -noise * largest:
        raise InputError("fisher must have no negative eigenvalue, got {lowest:.3g}", lowest=float(xp.min(values)))
    values = values + damping
    along = xp.sum(vectors * gradient[:, None], axis=0)  # the gradient in the eigenvectors' coordinates
    known = values > noise * (largest + damping)
    zero = xp.zeros_like(along)
    lost = xp.max(xp.abs(xp.where(known, zero, along)))
    if float(lost) > 10 * noise**0.5 * float(xp.max(xp.abs(gradient))):
        raise InputError(
            "gradient has a part of size {lost:.3g} along a direction in which fisher is zero, "
            "where no step is too long; give damping a positive value",
            lost=float(lost),
        )
    scaled = xp.where(known, along / xp.where(known, values, xp.ones_like(values)), zero)
    return xp.sum(vectors * scaled[None, :], axis=1)


@dataclass(frozen=True)
class StepKL:
    """What a step in the logits does to the policy: KL(old, new), its quadratic model, and the probabilities."""

    exact: Array
    quadratic: Array
    old: Array
    new: Array


def step_kl(logits: Array, step: Array) -> StepKL:
    r"""Return KL(old, new) when `step` is added to `logits` (both (K,)), and the model step^T F step / 2 of it.

    The model is what TRPO's step solves; the exact value is why TRPO then searches along the line.
    """
    logits, step = as_data(logits, "logits"), as_data(step, "step")
    check_same_shape(logits, step, "logits", "step")
    xp = namespace(logits, step)
    old, new = xp.exp(log_softmax(logits)), xp.exp(log_softmax(logits + step))
    quadratic = 0.5 * xp.sum(step * xp.sum(softmax_fisher(old) * step[None, :], axis=1))
    return StepKL(categorical_kl(old, new), quadratic, old, new)
