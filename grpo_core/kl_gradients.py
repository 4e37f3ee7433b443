"""What a KL estimator is on average, and what its gradient points at, by summing over a categorical policy.

Everything is exact: no sampling. Distributions are over the last axis, gradients are with respect to the logits of the
current policy, for one fixed prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core._arrays import Array, check_same_shape, namespace, number, one_of
from grpo_core.kl import categorical_kl, check_distribution, kl_from_log_ratio, kl_slope

WEIGHTINGS = ("none", "full", "detached", "clipped")


def kl_gradient(current: Array, reference: Array) -> Array:
    r"""Return the gradient of KL(current, reference), (..., K): p_j (log(p_j / q_j) - KL).

    `current` and `reference` hold positive probabilities (..., K). Raises ValueError otherwise.

    >>> import numpy as np
    >>> kl_gradient(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])).round(4).tolist()
    [0.3207, -0.0825, -0.2382]
    """
    current, reference = _positive(current, "current"), _positive(reference, "reference")
    kl = categorical_kl(current, reference)[..., None]
    xp = namespace(current, reference)
    return current * (xp.log(current) - xp.log(reference) - kl)


def reverse_kl_gradient(current: Array, reference: Array) -> Array:
    r"""Return the gradient of KL(reference, current), (..., K): p_j - q_j. Arguments as in `kl_gradient`.

    >>> import numpy as np
    >>> reverse_kl_gradient(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])).round(4).tolist()
    [0.3, 0.0, -0.3]
    """
    current, reference = _positive(current, "current"), _positive(reference, "reference")
    check_same_shape(current, reference, "current", "reference")
    return current - reference


@dataclass(frozen=True)
class KLExpectation:
    """The mean of an estimator, its standard deviation (...), and the mean gradient (..., K)."""

    value: Array
    std: Array
    gradient: Array


def expected_kl(
    current: Array,
    reference: Array,
    behaviour: Array | None = None,
    *,
    estimator: str = "k3",
    weighting: str = "none",
    cap: float = 2.0,
) -> KLExpectation:
    r"""Return the exact mean, spread and mean gradient of w k(token) when the token is drawn from `behaviour`.

    All hold positive probabilities (..., K); without `behaviour` the token comes from `current`. The sample is frozen:
    its probability under the current policy carries gradient, having been drawn does not. With r = current / behaviour:

    - ``none``: w = 1. On the current policy's own tokens k3 follows KL(reference, current), k2 follows
      KL(current, reference) and k1 nothing; on another's tokens the value is not the KL either
    - ``full``: w = r, differentiated. Value and gradient are those of E[k] under the current policy: for k1 and k3 the
      KL's own
    - ``detached``: w = r as a number. The right value, the gradient of ``none`` on the current policy's tokens
    - ``clipped``: w = min(r, cap), differentiated. Neither, as soon as some ratio is above the cap

    Raises ValueError for distributions that are not positive, an unknown name or a cap that is not positive.

    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    >>> [round(float(expected_kl(p, q, estimator=name).gradient[0]), 4) for name in ("k1", "k2", "k3")]
    [0.0, 0.3207, 0.3]
    """
    current, reference = _positive(current, "current"), _positive(reference, "reference")
    behaviour = current if behaviour is None else _positive(behaviour, "behaviour")
    check_same_shape(current, reference, "current", "reference")
    check_same_shape(current, behaviour, "current", "behaviour")
    weight, weight_slope = _weight(current / behaviour, weighting, number(cap, "cap", low=0.0, open_low=True))
    xp = namespace(current, reference, behaviour)
    d = xp.log(reference) - xp.log(current)
    kl, slope = kl_from_log_ratio(d, estimator=estimator), kl_slope(d, estimator=estimator)
    value = xp.sum(behaviour * weight * kl, axis=-1)
    spread = xp.sum(behaviour * (weight * kl - value[..., None]) ** 2, axis=-1)
    pull = behaviour * (weight * slope + weight_slope * kl)  # times the score e_a - p of each token
    return KLExpectation(value, xp.sqrt(spread), pull - current * xp.sum(pull, axis=-1, keepdims=True))


def _weight(ratio: Array, weighting: str, cap: float) -> tuple[Array, Array]:
    """Return the importance weight and its derivative with respect to logp, which for r itself is r."""
    xp = namespace(ratio)
    zero = xp.zeros_like(ratio)
    if one_of(weighting, "weighting", WEIGHTINGS) == "none":
        return xp.ones_like(ratio), zero
    if weighting == "clipped":
        return xp.clip(ratio, None, cap), xp.where(ratio <= cap, ratio, zero)
    return ratio, ratio if weighting == "full" else zero


def _positive(p: Array, name: str) -> Array:
    p = check_distribution(p, name)
    if not bool(namespace(p).all(p > 0)):
        raise ValueError(
            f"{name} must give every token a positive probability: the log-ratio of an impossible one is not a number"
        )
    return p
