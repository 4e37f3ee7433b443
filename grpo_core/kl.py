"""Divergence from the reference policy: per-token estimators and the exact value."""

from __future__ import annotations

import numpy as np

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, one_of, stop_gradient

ESTIMATORS = ("k1", "k2", "k3")


def kl_estimate(logp: Array, ref_logp: Array, *, estimator: str = "k3") -> Array:
    r"""Return a per-token estimate of KL(current, reference) from one sampled token, in nats.

    With d = ref_logp - logp:

    - ``k1``: -d, unbiased, may be negative
    - ``k2``: d^2 / 2, never negative, biased
    - ``k3``: expm1(d) - d, never negative, unbiased when the token was drawn from the current policy

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


def kl_from_log_ratio(d: Array, *, estimator: str = "k3") -> Array:
    """Return the estimate from d = ref_logp - logp (the order in which GRPO's k3 is written)."""
    one_of(estimator, "estimator", ESTIMATORS)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d * d
    with np.errstate(over="ignore"):  # inf is the defined result of an overflow, as in torch
        return namespace(d).expm1(d) - d


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
        raise ValueError(f"{name} must hold at least one probability, got shape {tuple(p.shape)}")
    xp = namespace(p)
    total = xp.sum(stop_gradient(p), axis=-1)
    tolerance = 1e-4 if p.dtype == xp.float32 else 1e-6
    if not bool(xp.all(stop_gradient(p) >= 0)) or not bool(xp.all(xp.abs(total - 1.0) <= tolerance)):
        raise ValueError(f"{name} must be non-negative probabilities that sum to 1, got sums {total}")
    return p
