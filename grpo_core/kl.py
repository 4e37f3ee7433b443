"""Divergence from the reference policy: per-token estimators and the exact value."""

from __future__ import annotations

import numpy as np

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, number, one_of, stop_gradient
from grpo_core.messages import InputError

ESTIMATORS = ("k1", "k2", "k3", "abs", "k1+", "k2+", "k3+", "abs+")


def kl_estimate(logp: Array, ref_logp: Array, *, estimator: str = "k3") -> Array:
    r"""Return a per-token estimate of KL(current, reference) from one sampled token, in nats.

    With d = ref_logp - logp:

    - ``k1``: -d, unbiased, may be negative
    - ``k2``: d^2 / 2, never negative, biased
    - ``k3``: expm1(d) - d, never negative, unbiased when the token was drawn from the current policy
    - ``abs``: |d|
    - a name with ``+``: that value, with the gradient of k2, which is d logp (logp - ref_logp) (verl 0.9.1)

    Both arrays have one shape and the result has it too. `ref_logp` carries no gradient. k3 grows like exp(d) and may
    overflow to inf, which is then its value. What each estimator's *gradient* points at is another question: through
    frozen samples k3 follows KL(reference, current).

    Raises ValueError for shapes that differ or an unknown estimator.
    Source: J. Schulman, "Approximating KL divergence" (2020); GRPO arXiv:2402.03300 eq. 4 is k3.

    >>> import numpy as np
    >>> kl_estimate(np.log([0.6, 0.4]), np.log([0.5, 0.5])).round(6).tolist()
    [0.015655, 0.026856]
    """
    logp, ref_logp = as_data(logp, "logp"), as_data(ref_logp, "ref_logp")
    check_same_shape(logp, ref_logp, "logp", "ref_logp")
    return kl_from_log_ratio(stop_gradient(ref_logp) - logp, estimator=estimator)


def kl_from_log_ratio(
    d: Array,
    *,
    estimator: str = "k3",
    log_ratio_cap: float | None = None,
    value_cap: float | None = None,
) -> Array:
    """Return the estimate from d = ref_logp - logp (the order in which GRPO's k3 is written).

    `log_ratio_cap` bounds d and `value_cap` the estimate, both on either side, before and after the exponential: verl
    0.9.1 clamps to 20 and 10 for k3.
    """
    one_of(estimator, "estimator", ESTIMATORS)
    base = _bounded(_estimate(_bounded(d, log_ratio_cap), estimator.removesuffix("+")), value_cap)
    if not estimator.endswith("+"):
        return base
    square = 0.5 * d * d
    return square - stop_gradient(square) + stop_gradient(base)


def _bounded(x: Array, cap: float | None) -> Array:
    if cap is None:
        return x
    bound = number(cap, "cap", low=0.0, open_low=True)
    return namespace(x).clip(x, -bound, bound)


def _estimate(d: Array, name: str) -> Array:
    if name == "k1":
        return -d
    if name == "k2":
        return 0.5 * d * d
    if name == "abs":
        return namespace(d).abs(d)
    with np.errstate(over="ignore"):  # inf is the defined result of an overflow, as in torch
        return namespace(d).expm1(d) - d


def k3_as_written(d: Array) -> Array:
    """Return exp(d) - 1 - d computed just so, in d's own precision: what rounding leaves of k3 near 0. Any shape.

    Where |d| is small, exp(d) is rounded at 1, so that k3, about d^2 / 2, loses its digits and may even be negative:
    in float64 at |d| = 1e-8, in float32 at 3e-4 already. `kl_estimate` uses expm1 and keeps them.
    Source: TRL 1.16.0 writes torch.exp(d) - d - 1.

    >>> k3_as_written([1e-8]).item() < 0 < kl_estimate([0.0], [1e-8]).item()
    True
    """
    d = as_data(d, "d")
    with np.errstate(over="ignore"):
        return namespace(d).exp(d) - 1.0 - d


def kl_slope(d: Array, *, estimator: str = "k3") -> Array:
    """Return the derivative of the estimate with respect to logp, through a frozen sample, from d = ref_logp - logp.

    k1: 1. k2: -d. k3: -expm1(d). abs: -sign(d). A name with "+": -d.
    """
    one_of(estimator, "estimator", ESTIMATORS)
    xp = namespace(d)
    if estimator == "k1":
        return xp.ones_like(d)
    if estimator == "k3":
        with np.errstate(over="ignore"):
            return -xp.expm1(d)
    return -xp.sign(d) if estimator == "abs" else -d


def categorical_kl(p: Array, q: Array) -> Array:
    """Return the exact KL(p, q) = sum p log(p / q) over the last axis, in nats.

    `p` and `q` hold probabilities and have one shape. A term with p = 0 is 0; one with p > 0 and q = 0 is inf.
    Raises ValueError for shapes that differ or rows that are not distributions.

    >>> import numpy as np
    >>> round(float(categorical_kl(np.array([0.6, 0.4]), np.array([0.5, 0.5]))), 6)
    0.020136
    """
    p, q = check_distribution(p, "p"), check_distribution(q, "q")
    check_same_shape(p, q, "p", "q")
    xp = namespace(p, q)
    one = xp.ones_like(p)
    possible, covered = p > 0, q > 0
    log_p = xp.log(xp.where(possible, p, one))
    log_q = xp.log(xp.where(covered, q, one))
    term = xp.where(possible, p * (log_p - log_q), xp.zeros_like(p))
    term = xp.where(possible & ~covered, xp.full_like(p, float("inf")), term)
    return xp.sum(term, axis=-1)


def check_distribution(p: Array, name: str) -> Array:
    """Return `p` as floats if every row (last axis) is non-negative and sums to 1; ValueError otherwise."""
    p = as_data(p, name)
    if p.ndim < 1 or p.shape[-1] < 1:
        raise InputError(
            "{name} must hold at least one probability, got shape {shape}", name=name, shape=tuple(p.shape)
        )
    xp = namespace(p)
    total = xp.sum(stop_gradient(p), axis=-1)
    tolerance = 1e-4 if p.dtype == xp.float32 else 1e-6
    if not bool(xp.all(stop_gradient(p) >= 0)) or not bool(xp.all(xp.abs(total - 1.0) <= tolerance)):
        raise InputError(
            "{name} must be non-negative probabilities that sum to 1, got sums {total}", name=name, total=total
        )
    return p
