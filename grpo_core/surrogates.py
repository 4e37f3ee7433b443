"""Ratio and advantage to the per-token objective (to be maximised), and where its gradient is zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grpo_core._arrays import Array, as_data, namespace, number, one_of, stop_gradient
from grpo_core.aggregation import masked_mean, sequence_mean, sequence_sum
from grpo_core.messages import InputError
from grpo_core.ratios import LOG_RATIO_CAP


def clipped_surrogate(
    ratio: Array,
    advantages: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Array:
    r"""Return PPO's clipped objective per token: min(r A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A).

    `ratio` and `advantages` broadcast, (B, T) or (B, 1). With `delta`, the unclipped branch uses min(r, delta), which
    bounds the objective of a negative advantage (TRL's two-sided clip; PPO's dual clip with c = delta).
    Raises ValueError for epsilon_low outside [0, 1], a negative epsilon_high or a delta that is not positive.
    Source: PPO arXiv:1707.06347 eq. 7; asymmetric: DAPO arXiv:2503.14476 eq. 10; delta: INTELLECT-2 arXiv:2505.07291
    (two-sided clipping).

    >>> import numpy as np
    >>> clipped_surrogate(np.array([0.5, 1.5]), np.array([1.0, 1.0])).tolist()
    [0.5, 1.2]
    >>> clipped_surrogate(np.array([0.5, 1.5]), np.array([-1.0, -1.0])).tolist()
    [-0.8, -1.5]
    """
    low, high, delta = _clip_range(epsilon_low, epsilon_high, delta)
    ratio, advantages = as_data(ratio, "ratio"), as_data(advantages, "advantages")
    # The minimum of the two products is A times r held on one side only, which side being the sign of A: half the work,
    # the same value, and at the corner torch's clamp passes the gradient, as the minimum of two equal branches does.
    floor, ceiling = _one_sided_bounds(advantages, low, high, delta)
    return namespace(ratio, advantages).clip(ratio, floor, ceiling) * advantages


def _one_sided_bounds(advantages: Array, low: float, high: float, delta: float | None) -> tuple[Array, Array]:
    """Return where r is held: for A > 0 only from above, for A <= 0 from below (and above only by delta)."""
    xp = namespace(advantages)
    up = advantages > 0
    one = xp.ones_like(stop_gradient(advantages))
    ceiling_up = high if delta is None else min(high, delta)
    ceiling_down = math.inf if delta is None else max(high, delta)
    return xp.where(up, 0.0 * one, low * one), xp.where(up, ceiling_up * one, ceiling_down * one)


def clip_saturated(
    ratio: Array,
    advantages: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Array:
    """Return where clipping has made the gradient of `clipped_surrogate` zero, as booleans of the broadcast shape.

    A > 0: r above 1 + epsilon_high (or above delta, if that is lower). A < 0: r below 1 - epsilon_low, or above both
    delta and 1 + epsilon_high. The boundary itself is a kink and counts as open; a zero advantage has nothing to clip.
    """
    low, high, delta = _clip_range(epsilon_low, epsilon_high, delta)
    ratio, advantages = as_data(ratio, "ratio"), as_data(advantages, "advantages")
    ceiling = high if delta is None else min(high, delta)
    up = (advantages > 0) & (ratio > ceiling)
    down = (advantages < 0) & (ratio < low)
    if delta is not None:
        down = down | ((advantages < 0) & (ratio > max(high, delta)))
    return up | down


def clipped_slope(
    ratio: Array,
    advantages: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Array:
    """Return d(clipped_surrogate)/d(ratio): the advantage where the term is open, 0 where it is saturated.

    At ratio 1 this is the advantage itself, although the ratio's value says nothing: d(ratio)/d(logp) = ratio = 1. Had
    the old policy's log-probabilities shared the graph, the two derivatives would cancel and the slope would be 0.
    """
    ratio, advantages = as_data(ratio, "ratio"), as_data(advantages, "advantages")
    saturated = clip_saturated(ratio, advantages, epsilon_low=epsilon_low, epsilon_high=epsilon_high, delta=delta)
    xp = namespace(ratio, advantages)
    return xp.where(saturated, xp.zeros_like(ratio * advantages), xp.ones_like(ratio) * advantages)


def _clip_range(epsilon_low: float, epsilon_high: float, delta: float | None) -> tuple[float, float, float | None]:
    low = 1.0 - number(epsilon_low, "epsilon_low", low=0.0, high=1.0)
    high = 1.0 + number(epsilon_high, "epsilon_high", low=0.0)
    return low, high, None if delta is None else number(delta, "delta", low=0.0, open_low=True)


def cispo_surrogate(
    logp: Array,
    ratio: Array,
    advantages: Array,
    *,
    weight_low: float = 0.0,
    weight_high: float = 1.2,
) -> Array:
    r"""Return CISPO's objective: stop_gradient(clip(r, weight_low, weight_high)) A log pi.

    The bounds are those of the weight itself: TRL 1.16 takes epsilon_high as `weight_high` (with its default 0.2 every
    weight is then at most 0.2), verl 0.9.1 takes 1 - epsilon_low and 1 + epsilon_high. The gradient never vanishes: a
    clipped token keeps a bounded pull. Shapes broadcast to (B, T). Source: MiniMax-M1 arXiv:2506.13585 (CISPO).
    """
    low = number(weight_low, "weight_low", low=0.0)
    high = number(weight_high, "weight_high", low=low)
    return stop_gradient(namespace(ratio).clip(ratio, low, high)) * advantages * logp


def cispo_capped(
    ratio: Array, advantages: Array, *, weight_low: float = 0.0, weight_high: float = 1.2
) -> tuple[Array, Array]:
    """Return where CISPO's weight is held at its lower and at its upper bound; the gradient there is bounded, not 0."""
    return (advantages < 0) & (ratio < weight_low), (advantages > 0) & (ratio > weight_high)


def sapo_surrogate(
    ratio: Array,
    advantages: Array,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Array:
    r"""Return SAPO's soft gate: (4 / tau) sigmoid(tau (r - 1)) A, with tau by the sign of A (A = 0 counts as negative).

    The slope at r = 1 is exactly A and fades on both sides without a corner. `ratio` and `advantages` broadcast.
    Source: SAPO arXiv:2511.20347; TRL 1.16 and verl 0.9.1 alike.
    """
    positive = number(tau_positive, "tau_positive", low=0.0, open_low=True)
    negative = number(tau_negative, "tau_negative", low=0.0, open_low=True)
    xp = namespace(ratio, advantages)
    one = xp.ones_like(ratio * advantages)
    tau = xp.where(advantages > 0, one * positive, one * negative)
    return (4.0 / tau) * _sigmoid(tau * (ratio - 1.0)) * advantages


def sapo_slope(
    ratio: Array,
    advantages: Array,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Array:
    """Return d(sapo_surrogate)/d(ratio): 4 sigmoid(x) (1 - sigmoid(x)) A with x = tau (r - 1), which is A at r = 1."""
    xp = namespace(ratio, advantages)
    one = xp.ones_like(ratio * advantages)
    tau = xp.where(advantages > 0, one * float(tau_positive), one * float(tau_negative))
    gate = _sigmoid(tau * (ratio - 1.0))
    return 4.0 * gate * (1.0 - gate) * advantages


def _sigmoid(x: Array) -> Array:
    """Return the logistic function without overflow at either end: half of 1 + tanh(x / 2)."""
    return 0.5 * (1.0 + namespace(x).tanh(0.5 * x))


def vespo_weight(
    log_ratio: Array,
    mask: Array,
    advantages: Array,
    *,
    k_positive: float = 2.0,
    lambda_positive: float = 3.0,
    k_negative: float = 3.0,
    lambda_negative: float = 2.0,
) -> Array:
    r"""Return VESPO's sequence weight phi = exp(lambda + k log W - lambda W), (B, 1), with W the trajectory ratio.

    k and lambda are chosen by the sign of the advantage (0 counts as positive); phi is 1 at W = 1 and fades for W far
    from it. Log-ratios are kept within 20 per token and in the sum, from below at log 1e-8. Carries no gradient.
    `advantages` (B, 1). Source: VESPO arXiv:2602.10693; TRL 1.16 GRPOTrainer.
    """
    xp = namespace(log_ratio, advantages)
    summed = sequence_sum(xp.clip(stop_gradient(log_ratio), -20.0, 20.0), mask)
    log_w = xp.clip(summed, math.log(1e-8), 20.0)
    positive = advantages >= 0
    one = xp.ones_like(log_w)
    k = xp.where(positive, one * float(k_positive), one * float(k_negative))
    lam = xp.where(positive, one * max(float(lambda_positive), 1e-4), one * max(float(lambda_negative), 1e-4))
    return xp.exp(lam + k * log_w - lam * xp.exp(log_w))


def geometric_mean_surrogate(
    log_ratio: Array,
    advantages: Array,
    mask: Array,
    *,
    log_epsilon_low: float = 0.4,
    log_epsilon_high: float = 0.4,
) -> Array:
    r"""Return GMPO's objective per completion: A exp(mean_t c_t), (B, 1), with each token's log-ratio d_t clipped.

    c_t = min(d_t, clip(d_t, -low, high)) for A >= 0 and max(d_t, clip(d_t, -low, high)) for A < 0: PPO's pessimistic
    side, but on the log-ratio and inside a geometric mean. `advantages` (B, 1).
    Source: GMPO arXiv:2507.20673; TRL 1.16 experimental GMPOTrainer, verl 0.9.1 'geo_mean'.
    """
    clipped = _pessimistic_log_ratio(log_ratio, advantages, low=log_epsilon_low, high=log_epsilon_high)
    xp = namespace(clipped)
    return xp.exp(xp.clip(sequence_mean(clipped, mask), -LOG_RATIO_CAP, LOG_RATIO_CAP)) * advantages


def _pessimistic_log_ratio(log_ratio: Array, advantages: Array, *, low: float, high: float) -> Array:
    low, high = number(low, "log_epsilon_low", low=0.0), number(high, "log_epsilon_high", low=0.0)
    xp = namespace(log_ratio, advantages)
    bounded = xp.clip(log_ratio, -low, high)
    return xp.where(advantages >= 0, xp.minimum(log_ratio, bounded), xp.maximum(log_ratio, bounded))


def geometric_mean_saturated(
    log_ratio: Array,
    advantages: Array,
    *,
    log_epsilon_low: float = 0.4,
    log_epsilon_high: float = 0.4,
) -> Array:
    """Return the tokens whose log-ratio GMPO has clipped, so that they no longer move the geometric mean."""
    up = (advantages > 0) & (log_ratio > log_epsilon_high)
    return up | ((advantages < 0) & (log_ratio < -log_epsilon_low))


def divergence_masked_surrogate(
    logp: Array,
    old_logp: Array,
    ratio: Array,
    advantages: Array,
    *,
    divergence: str = "tv",
    threshold_low: float = 0.2,
    threshold_high: float = 0.2,
    weight_cap: float = 3.0,
) -> Array:
    r"""Return DPPO's objective: stop_gradient(min(r, weight_cap)) A log pi while the token is inside the trust region.

    Outside it (`divergence_exceeded`) the term is 0. Shapes broadcast to (B, T).
    Source: DPPO arXiv:2602.04879; verl 0.9.1 'dppo_tv' and 'dppo_kl'.
    """
    xp = namespace(logp, ratio)
    outside = divergence_exceeded(
        logp,
        old_logp,
        advantages,
        divergence=divergence,
        threshold_low=threshold_low,
        threshold_high=threshold_high,
    )
    cap = number(weight_cap, "weight_cap", low=0.0, open_low=True)
    value = stop_gradient(xp.clip(ratio, None, cap)) * advantages * logp
    return xp.where(outside, xp.zeros_like(value), value)


def divergence_exceeded(
    logp: Array,
    old_logp: Array,
    advantages: Array,
    *,
    divergence: str = "tv",
    threshold_low: float = 0.2,
    threshold_high: float = 0.2,
) -> Array:
    """Return where DPPO drops a token: it moved beyond the threshold in the direction its advantage pushes it.

    "tv": p - q beyond threshold_high for A > 0, q - p beyond threshold_low otherwise (p current, q old probability of
    the token). "kl": the binary KL(q, p) beyond the threshold on that same side.
    """
    one_of(divergence, "divergence", ("tv", "kl"))
    xp = namespace(logp)
    p, q = (xp.clip(xp.exp(stop_gradient(x)), None, 1.0) for x in (logp, old_logp))
    if divergence == "tv":
        up, down = p - q > threshold_high, q - p > threshold_low
    else:
        binary = q * (old_logp - stop_gradient(logp)) + (1.0 - q) * xp.log((1.0 - q + 1e-8) / (1.0 - p + 1e-8))
        up, down = (binary > threshold_high) & (p > q), (binary > threshold_low) & (p < q)
    return xp.where(advantages > 0, up, down)


def dro_surrogate(logp: Array, log_ratio: Array, advantages: Array, *, dro_beta: float = 1.0) -> Array:
    r"""Return DRO's objective: A log pi - (dro_beta / 2) (log r)^2, (B, T).

    Source: DRO arXiv:2405.19107; verl 0.9.1 'dro'.
    """
    weight = number(dro_beta, "dro_beta", low=0.0, open_low=True)
    return logp * advantages - 0.5 * weight * log_ratio * log_ratio


def token_covariance(logp: Array, advantages: Array, mask: Array) -> Array:
    """Return each token's term of the covariance between log-probability and advantage, (B, T); 0 on masked positions.

    (A - mean A)(log pi - mean log pi) over the tokens that train. Source: arXiv:2505.22617; verl 0.9.1.
    """
    xp = namespace(logp, advantages)
    a = xp.where(mask, advantages * xp.ones_like(logp), xp.zeros_like(logp))
    p = stop_gradient(logp)
    product = (a - masked_mean(a, mask)) * (p - masked_mean(p, mask))
    return xp.where(mask, product, xp.zeros_like(product))


def kl_cov_surrogate(
    log_ratio: Array,
    ratio: Array,
    advantages: Array,
    covariance: Array,
    mask: Array,
    *,
    share: float = 2e-4,
    coefficient: float = 0.1,
) -> Array:
    """Return KL-Cov's objective: r A without a clip, minus coefficient |log r| on the tokens of largest covariance.

    `share` of the tokens that train, at least one, are penalised. Source: arXiv:2505.22617; verl 0.9.1 'kl_cov'.
    """
    xp = namespace(ratio, advantages)
    penalised = kl_cov_penalised(covariance, mask, share=share)
    penalty = number(coefficient, "coefficient", low=0.0) * xp.abs(log_ratio)
    return ratio * advantages - xp.where(penalised, penalty, xp.zeros_like(penalty))


def kl_cov_penalised(covariance: Array, mask: Array, *, share: float = 2e-4) -> Array:
    """Return the tokens that KL-Cov penalises: `share` of those that train, at least one, by largest covariance."""
    wanted = number(share, "share", low=0.0, high=1.0) * _count(mask)
    return largest(covariance, mask, count=max(int(wanted), 1))


def largest(values: Array, mask: Array, *, count: int) -> Array:
    """Return the positions of the `count` largest values under `mask`, or all of them; of equals, the first."""
    xp = namespace(values, mask)
    keep = min(count, _count(mask))
    if keep < 1:
        return xp.zeros_like(mask)
    counted = xp.where(mask, stop_gradient(values), xp.full_like(values, -math.inf))
    order = xp.argsort(xp.reshape(counted, (-1,)), descending=True, stable=True)
    return mask & xp.reshape(xp.argsort(order) < keep, mask.shape)


def _count(mask: Array) -> int:
    return int(namespace(mask).count_nonzero(mask))


def clip_cov_dropped(
    covariance: Array,
    ratio: Array,
    advantages: Array,
    mask: Array,
    uniform: Array,
    *,
    share: float = 2e-4,
    covariance_low: float = 1.0,
    covariance_high: float = 5.0,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
) -> Array:
    """Return the tokens whose gradient Clip-Cov drops: a random few of those with a covariance inside the bounds.

    Candidates are open (not clipped already) and have `covariance_low` < covariance < `covariance_high`; of these the
    `share` of all tokens (at least one) with the smallest `uniform` numbers (B, T) is dropped.
    Source: arXiv:2505.22617; verl 0.9.1 'clip_cov'.
    """
    clipped = clip_saturated(ratio, advantages, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    candidates = mask & ~clipped & (covariance > covariance_low) & (covariance < covariance_high)
    wanted = number(share, "share", low=0.0, high=1.0) * _count(mask)
    return largest(-uniform, candidates, count=max(int(wanted), 1))


@dataclass(frozen=True)
class SurrogateInputs:
    """What a surrogate may use, masked positions already neutral: arrays (B, T), or (B, 1) where said.

    `logp` and `old_logp` (B, T), 0 where masked; `log_ratio` (B, T), per token; `ratio` (B, T) or (B, 1), at the
    objective's level; `advantages` (B, T) or (B, 1); `mask` boolean (B, T); `uniform` (B, T) random numbers in [0, 1).
    """

    raw_logp: Array
    raw_old_logp: Array
    log_ratio: Array
    ratio: Array
    advantages: Array
    mask: Array
    uniform: Array | None = None

    @cached_property
    def logp(self) -> Array:
        """Current log-probabilities, 0 where masked."""
        return self._masked(self.raw_logp)

    @cached_property
    def old_logp(self) -> Array:
        """Old log-probabilities, 0 where masked, without gradient."""
        return self._masked(stop_gradient(self.raw_old_logp))

    def _masked(self, values: Array) -> Array:
        xp = namespace(values)
        return xp.where(self.mask, values, xp.zeros_like(values))


@dataclass(frozen=True)
class Surrogate:
    """A per-token objective as data: what it is called, the hyperparameters it reads, its value, its flat region."""

    title: str
    parameters: Mapping[str, Any]  # name -> default
    objective: Callable[..., Array]  # (SurrogateInputs, **parameters) -> (B, T) or (B, 1)
    saturated: Callable[..., Array]  # the same arguments -> bool: where the gradient is exactly zero
    statistics: Callable[..., dict[str, Array]] = lambda x, **_: {}  # the same arguments -> what its trainer logs


def _cispo_statistics(x: SurrogateInputs, **p: Any) -> dict[str, Array]:
    _, high = cispo_capped(x.ratio, x.advantages, **p)
    held = namespace(x.ratio).astype(high & x.mask, x.ratio.dtype)
    return {"cispo_clip_ratio": masked_mean(held, x.mask)}


def _vespo_statistics(x: SurrogateInputs, **p: Any) -> dict[str, Array]:
    return {"vespo/phi_seq_mean": namespace(x.log_ratio).mean(vespo_weight(x.log_ratio, x.mask, x.advantages, **p))}


def _never(x: SurrogateInputs, **_: Any) -> Array:
    return namespace(x.mask).zeros_like(x.mask)


def _clip_cov(x: SurrogateInputs, **p: Any) -> Array:
    value = clipped_surrogate(x.ratio, x.advantages, epsilon_low=p["epsilon_low"], epsilon_high=p["epsilon_high"])
    return namespace(value).where(_clip_cov_dropped(x, **p), namespace(value).zeros_like(value), value)


def _clip_cov_dropped(x: SurrogateInputs, **p: Any) -> Array:
    if x.uniform is None:
        raise InputError("the surrogate 'clip_cov' draws tokens at random: give the batch `uniform`, (B, T) in [0, 1)")
    covariance = token_covariance(x.logp, x.advantages, x.mask)
    return clip_cov_dropped(covariance, x.ratio, x.advantages, x.mask, x.uniform, **p)


def _clip_cov_saturated(x: SurrogateInputs, **p: Any) -> Array:
    clipped = clip_saturated(x.ratio, x.advantages, epsilon_low=p["epsilon_low"], epsilon_high=p["epsilon_high"])
    return clipped | _clip_cov_dropped(x, **p)


def _kl_cov(x: SurrogateInputs, **p: Any) -> Array:
    covariance = token_covariance(x.logp, x.advantages, x.mask)
    return kl_cov_surrogate(x.log_ratio, x.ratio, x.advantages, covariance, x.mask, **p)


def _divergence_parameters(divergence: str) -> dict[str, Any]:
    return {"divergence": divergence, "threshold_low": 0.2, "threshold_high": 0.2, "weight_cap": 3.0}


def _dppo(x: SurrogateInputs, **p: Any) -> Array:
    return divergence_masked_surrogate(x.logp, x.old_logp, x.ratio, x.advantages, **p)


def _dppo_outside(x: SurrogateInputs, *, weight_cap: float, **p: Any) -> Array:
    return divergence_exceeded(x.logp, x.old_logp, x.advantages, **p)


_CLIP = {"epsilon_low": 0.2, "epsilon_high": 0.2}
_CLIP_COV = {**_CLIP, "share": 2e-4, "covariance_low": 1.0, "covariance_high": 5.0}
_GEOMETRIC = {"log_epsilon_low": 0.4, "log_epsilon_high": 0.4}
_VESPO = {"k_positive": 2.0, "lambda_positive": 3.0, "k_negative": 3.0, "lambda_negative": 2.0}

SURROGATES: Mapping[str, Surrogate] = {
    "clip": Surrogate(
        "PPO clip",
        {**_CLIP, "delta": None},
        lambda x, **p: clipped_surrogate(x.ratio, x.advantages, **p),
        lambda x, **p: clip_saturated(x.ratio, x.advantages, **p),
    ),
    "policy_gradient": Surrogate("score function, no ratio", {}, lambda x: x.logp * x.advantages, _never),
    "unclipped": Surrogate("importance ratio, no clip", {}, lambda x: x.ratio * x.advantages, _never),
    "cispo": Surrogate(
        "CISPO",
        {"weight_low": 0.0, "weight_high": 1.2},
        lambda x, **p: cispo_surrogate(x.logp, x.ratio, x.advantages, **p),
        _never,
        _cispo_statistics,
    ),
    "sapo": Surrogate(
        "SAPO",
        {"tau_positive": 1.0, "tau_negative": 1.05},
        lambda x, **p: sapo_surrogate(x.ratio, x.advantages, **p),
        _never,
    ),
    "vespo": Surrogate(
        "VESPO",
        _VESPO,
        lambda x, **p: vespo_weight(x.log_ratio, x.mask, x.advantages, **p) * x.advantages * x.logp,
        _never,
        _vespo_statistics,
    ),
    "gmpo": Surrogate(
        "GMPO, geometric mean",
        _GEOMETRIC,
        lambda x, **p: geometric_mean_surrogate(x.log_ratio, x.advantages, x.mask, **p),
        lambda x, **p: geometric_mean_saturated(x.log_ratio, x.advantages, **p),
    ),
    "dppo_tv": Surrogate("DPPO, total variation", _divergence_parameters("tv"), _dppo, _dppo_outside),
    "dppo_kl": Surrogate("DPPO, binary KL", _divergence_parameters("kl"), _dppo, _dppo_outside),
    "dro": Surrogate(
        "DRO", {"dro_beta": 1.0}, lambda x, **p: dro_surrogate(x.logp, x.log_ratio, x.advantages, **p), _never
    ),
    "kl_cov": Surrogate("KL-Cov", {"share": 2e-4, "coefficient": 0.1}, _kl_cov, _never),
    "clip_cov": Surrogate("Clip-Cov", _CLIP_COV, _clip_cov, _clip_cov_saturated),
}
"""Every per-token objective by name."""
