"""What a KL estimator is on average, and what its gradient points at, by summing over a categorical policy.

Everything is exact: no sampling. Distributions are over the last axis, gradients are with respect to the logits of the
current policy, for one fixed prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core._arrays import Array, check_same_shape, namespace, number, one_of, whole_number
from grpo_core.kl import check_distribution, kl_from_log_ratio, kl_slope
from grpo_core.messages import InputError

WEIGHTINGS = ("none", "full", "detached", "clipped")


def kl_gradient(current: Array, reference: Array) -> Array:
    r"""Return the gradient of KL(current, reference), (..., K): p_j (log(p_j / q_j) - KL).

    `current` and `reference` hold positive probabilities (..., K). Raises ValueError otherwise.

    >>> import numpy as np
    >>> kl_gradient(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])).round(4).tolist()
    [0.3207, -0.0825, -0.2382]
    """
    current, reference = _positive(current, "current"), _positive(reference, "reference")
    check_same_shape(current, reference, "current", "reference")
    xp = namespace(current, reference)
    return centred(current, xp.log(current) - xp.log(reference))


def centred(policy: Array, values: Array) -> Array:
    """Return p_j (v_j - E_p[v]), the gradient of E_p[v] by the logits of a softmax policy where v itself is held fixed.

    `policy` (..., K) probabilities, `values` (..., K). With v the rewards it is the policy gradient, with
    v = log(p / q) the gradient of KL(p, q), whose own derivative by p averages to 0.

    >>> import numpy as np
    >>> centred(np.array([0.5, 0.5]), np.array([1.0, 0.0])).tolist()
    [0.25, -0.25]
    """
    xp = namespace(policy, values)
    return policy * (values - xp.sum(policy * values, axis=-1, keepdims=True))


def reverse_kl_gradient(current: Array, reference: Array) -> Array:
    r"""Return the gradient of KL(reference, current), (..., K): p_j - q_j. Arguments as in `kl_gradient`.

    >>> import numpy as np
    >>> reverse_kl_gradient(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])).round(4).tolist()
    [0.3, 0.0, -0.3]
    """
    current, reference = _positive(current, "current"), _positive(reference, "reference")
    check_same_shape(current, reference, "current", "reference")
    return current - reference


def kl_descent(
    current: Array, reference: Array, *, reverse: bool = False, learning_rate: float = 1.0, steps: int = 60
) -> Array:
    r"""Return the policies that gradient descent on a KL passes through, the current one first: (steps + 1, ..., K).

    Each step moves the logits by -learning_rate times the exact gradient of KL(current, reference), or with `reverse`
    of KL(reference, current). Both end at the reference, but go there by different ways. Arguments as in `kl_gradient`.

    >>> import numpy as np
    >>> kl_descent(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5]), steps=100)[-1].round(3).tolist()
    [0.2, 0.3, 0.5]
    """
    policy, reference = _positive(current, "current"), _positive(reference, "reference")
    check_same_shape(policy, reference, "current", "reference")
    rate = number(learning_rate, "learning_rate", low=0.0, open_low=True)
    xp = namespace(policy, reference)
    logits, goal, path = xp.log(policy), xp.log(reference), [policy]
    for _ in range(whole_number(steps, "steps", low=0)):
        gradient = policy - reference if reverse else centred(policy, logits - goal)
        logits = logits - rate * gradient
        logits = logits - xp.max(logits, axis=-1, keepdims=True)
        logits = logits - xp.log(xp.sum(xp.exp(logits), axis=-1, keepdims=True))
        policy = xp.exp(logits)
        path.append(policy)
    return xp.stack(path)


@dataclass(frozen=True)
class EstimatorMoments:
    """An estimator k under the current policy p: `estimates` and `terms` p k (..., K), their `mean` and `std` (...)."""

    estimates: Array
    terms: Array
    mean: Array
    std: Array


def estimator_moments(current: Array, reference: Array, *, estimator: str = "k3") -> EstimatorMoments:
    r"""Return an estimator's value at every event, its exact mean under the current policy, and its spread.

    `current`, `reference` probabilities (..., K), which may hold zeros: an event with p = 0 is never drawn, so that its
    estimate and its term stand as 0, and it is inf (k1, k2, k3 alike) where p > 0 and q = 0; then so are mean and std.
    The std is that of one token; the mean of n independent ones scatters by std / sqrt(n).

    >>> m = estimator_moments([0.6, 0.4], [0.5, 0.5], estimator="k1")
    >>> round(float(m.mean), 6), round(float(m.std), 6)
    (0.020136, 0.198637)
    """
    p, q = check_distribution(current, "current"), check_distribution(reference, "reference")
    check_same_shape(p, q, "current", "reference")
    xp = namespace(p, q)
    one, zero, seen, covered = xp.ones_like(p), xp.zeros_like(p), p > 0, q > 0
    usual = seen & covered
    d = xp.log(xp.where(usual, q, one)) - xp.log(xp.where(usual, p, one))
    estimates = xp.where(usual, kl_from_log_ratio(d, estimator=estimator), zero)
    estimates = xp.where(seen & ~covered, xp.full_like(p, float("inf")), estimates)
    terms = xp.where(seen, xp.where(seen, p, one) * estimates, zero)
    mean = xp.sum(terms, axis=-1)
    finite = xp.isfinite(mean)[..., None]
    off = xp.where(finite & seen, estimates, zero) - xp.where(finite, mean[..., None], zero)
    std = xp.sqrt(xp.sum(p * off**2, axis=-1))
    return EstimatorMoments(estimates, terms, mean, xp.where(finite[..., 0], std, xp.full_like(std, float("inf"))))


def ratio_terms(current: Array, reference: Array) -> Array:
    r"""Return p r for every event, r = q / p: the reference's own probability wherever the policy can go, (..., K).

    Their sum E_p[r] is 1 unless the policy rules out an event of the reference (p = 0 < q), whose q is then missing.
    That sum is the whole reason why r - 1 may be added to -log r without changing its mean.

    >>> ratio_terms([0.6, 0.4, 0.0], [0.4, 0.3, 0.3]).tolist()
    [0.4, 0.3, 0.0]
    """
    p, q = check_distribution(current, "current"), check_distribution(reference, "reference")
    check_same_shape(p, q, "current", "reference")
    xp = namespace(p, q)
    return xp.where(p > 0, q, xp.zeros_like(q))


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
        raise InputError(
            "{name} must give every token a positive probability: the log-ratio of an impossible one is not a number",
            name=name,
        )
    return p
