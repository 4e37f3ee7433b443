"""How the loss answers to each token's log-probability: d loss / d logp in closed form, for every surrogate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_core import surrogates as s
from grpo_core._arrays import Array, namespace, stop_gradient
from grpo_core.aggregation import sequence_mean, sequence_sum
from grpo_core.groups import GroupBatch
from grpo_core.kl import kl_from_log_ratio, kl_slope
from grpo_core.objective import LossTerms, Objective, loss_terms, restricted
from grpo_core.ratios import LOG_RATIO_CAP
from grpo_core.surrogates import SURROGATES, SurrogateInputs


@dataclass(frozen=True)
class TokenGradients:
    """d loss / d logp of each token, (B, T): what the policy term and what beta times the KL term add to it.

    A step of gradient descent raises a token's log-probability where `total` is negative. Masked positions are 0.
    """

    policy: Array
    kl: Array

    @property
    def total(self) -> Array:
        """The derivative of the whole loss, (B, T)."""
        return self.policy + self.kl


def token_gradients(batch: GroupBatch, objective: Objective) -> TokenGradients:
    r"""Return the derivative of `loss_terms(batch, objective).loss` with respect to every entry of `batch.logp`.

    Exact, without automatic differentiation. For the clipped surrogate of token ratios it is
    -w slope r + beta w dKL/dlogp; at sequence and trajectory level each token moves the ratio that all tokens of its
    completion share, and that is counted. An entropy bonus depends on log-probabilities that are not in the batch and
    adds nothing here. At a corner the derivative is the one that torch takes.
    Arguments, shapes and errors are those of `loss_terms`.

    >>> import numpy as np
    >>> logp = np.log([[0.5, 0.4]])
    >>> one = GroupBatch(logp, logp, None, np.array([[True, True]]), np.array([2.0]))
    >>> token_gradients(one, Objective()).total.tolist()
    [[-1.0, -1.0]]
    """
    return gradients_of(loss_terms(batch, objective))


def gradients_of(terms: LossTerms) -> TokenGradients:
    """Return the derivative of a loss that `loss_terms` returned, as `token_gradients` does."""
    x, batch, choices = terms.inputs, terms.batch, terms.choices
    xp = namespace(terms.weights)
    weights = stop_gradient(terms.weights)
    to_objective = -weights * restricted(xp.ones_like(weights), batch, x, choices)
    direct, to_ratio = PULLBACKS[choices.surrogate](x, to_objective, **choices.surrogate_parameters())
    policy = direct + _through_ratio(to_ratio, x, choices)
    kl = _kl_gradient(weights, batch, x, choices) if choices.beta > 0 else xp.zeros_like(weights)
    return TokenGradients(*(xp.where(x.mask, part, xp.zeros_like(weights)) for part in (policy, kl)))


def _through_ratio(to_ratio: Array, x: SurrogateInputs, choices: Objective) -> Array:
    """Return the derivative by logp from the derivative by each token's ratio, (B, T): the chain rule's last link."""
    xp = namespace(to_ratio)
    log_ratio, ratio = stop_gradient(x.log_ratio), stop_gradient(x.ratio)
    if choices.ratio_level == "token":
        return to_ratio * ratio * xp.astype(xp.abs(log_ratio) <= choices.log_ratio_cap, ratio.dtype)
    pooled = (sequence_mean if choices.ratio_level == "sequence" else sequence_sum)(log_ratio, x.mask)
    inside = xp.astype(xp.abs(pooled) <= choices.log_ratio_cap, ratio.dtype)
    share = _counts(x) if choices.ratio_level == "sequence" else 1.0
    return sequence_sum(to_ratio, x.mask) * ratio * inside / share * xp.ones_like(log_ratio)


def _counts(x: SurrogateInputs) -> Array:
    """Return each completion's number of tokens, at least 1, (B, 1)."""
    xp = namespace(x.log_ratio)
    return xp.clip(sequence_sum(xp.ones_like(stop_gradient(x.log_ratio)), x.mask), 1.0, None)


def _kl_gradient(weights: Array, batch: GroupBatch, x: SurrogateInputs, choices: Objective) -> Array:
    assert batch.ref_logp is not None
    xp = namespace(weights)
    d = stop_gradient(batch.ref_logp) - stop_gradient(batch.logp)
    d = xp.where(x.mask, d, xp.zeros_like(d))
    outer = float(choices.beta) * weights
    slope = _kl_slope(d, choices)
    if not choices.kl_ratio_weighted:
        return outer * slope
    caps = {"log_ratio_cap": choices.kl_log_ratio_cap, "value_cap": choices.kl_value_cap}
    value = kl_from_log_ratio(d, estimator=choices.kl_estimator, **caps)
    return outer * stop_gradient(x.ratio) * slope + _through_ratio(outer * value, x, choices)


def _kl_slope(d: Array, choices: Objective) -> Array:
    """Return the derivative of the estimate by logp, 0 where a clamp holds it."""
    name = choices.kl_estimator
    if name.endswith("+"):  # the gradient of k2, which no clamp touches
        return kl_slope(d, estimator=name)
    xp = namespace(d)
    slope, zero = kl_slope(d, estimator=name), xp.zeros_like(d)
    if choices.kl_log_ratio_cap is not None:
        slope = xp.where(xp.abs(d) <= choices.kl_log_ratio_cap, slope, zero)
    if choices.kl_value_cap is not None:
        value = kl_from_log_ratio(d, estimator=name, log_ratio_cap=choices.kl_log_ratio_cap)
        slope = xp.where(xp.abs(value) <= choices.kl_value_cap, slope, zero)
    return slope


# --- surrogates -------------------------------------------------------------------------------------------------------
# Each takes d loss / d objective, (B, T), and returns d loss / d logp as far as it does not pass through the ratio, and
# d loss / d ratio token by token. Stop-gradients of the surrogate are constants here as there.

_Pair = tuple[Array, Array]


def _none(u: Array) -> Array:
    return namespace(u).zeros_like(u)


def _open(name: str, x: SurrogateInputs, u: Array, p: Mapping[str, Any]) -> Array:
    """Return `u` where the surrogate has a gradient, 0 where it is flat."""
    return namespace(u).where(SURROGATES[name].saturated(x, **p), _none(u), u)


def _clip(x: SurrogateInputs, u: Array, **p: Any) -> _Pair:
    return _none(u), u * s.clipped_slope(stop_gradient(x.ratio), x.advantages, **p)


def _clip_cov(x: SurrogateInputs, u: Array, **p: Any) -> _Pair:
    return _none(u), _open("clip_cov", x, u, p) * x.advantages


def _unclipped(x: SurrogateInputs, u: Array) -> _Pair:
    return _none(u), u * x.advantages


def _policy_gradient(x: SurrogateInputs, u: Array) -> _Pair:
    return u * x.advantages, _none(u)


def _cispo(x: SurrogateInputs, u: Array, *, weight_low: float, weight_high: float) -> _Pair:
    ratio = stop_gradient(x.ratio)
    return u * namespace(ratio).clip(ratio, float(weight_low), float(weight_high)) * x.advantages, _none(u)


def _sapo(x: SurrogateInputs, u: Array, **p: Any) -> _Pair:
    return _none(u), u * s.sapo_slope(stop_gradient(x.ratio), x.advantages, **p)


def _vespo(x: SurrogateInputs, u: Array, **p: Any) -> _Pair:
    return u * s.vespo_weight(x.log_ratio, x.mask, x.advantages, **p) * x.advantages, _none(u)


def _gmpo(x: SurrogateInputs, u: Array, **p: Any) -> _Pair:
    """Each open token moves the geometric mean that its whole completion shares."""
    xp = namespace(u)
    log_ratio = stop_gradient(x.log_ratio)
    sign = xp.where(x.advantages >= 0, xp.ones_like(x.advantages), -xp.ones_like(x.advantages))
    size = xp.abs(s.geometric_mean_surrogate(log_ratio, sign, x.mask, **p))
    inside = xp.astype(xp.abs(xp.log(size)) < LOG_RATIO_CAP, size.dtype)
    shared = sequence_sum(u, x.mask) * size * inside * x.advantages / _counts(x)
    return _open("gmpo", x, shared * xp.ones_like(u), p), _none(u)


def _dppo(name: str) -> Callable[..., _Pair]:
    def pullback(x: SurrogateInputs, u: Array, **p: Any) -> _Pair:
        ratio = stop_gradient(x.ratio)
        weight = namespace(ratio).clip(ratio, None, float(p["weight_cap"]))
        return _open(name, x, u, p) * weight * x.advantages, _none(u)

    return pullback


def _dro(x: SurrogateInputs, u: Array, *, dro_beta: float) -> _Pair:
    return u * (x.advantages - float(dro_beta) * stop_gradient(x.log_ratio)), _none(u)


def _kl_cov(x: SurrogateInputs, u: Array, *, share: float, coefficient: float) -> _Pair:
    xp = namespace(u)
    covariance = s.token_covariance(stop_gradient(x.logp), x.advantages, x.mask)
    penalised = s.kl_cov_penalised(covariance, x.mask, share=share)
    slope = -float(coefficient) * xp.sign(stop_gradient(x.log_ratio))
    return u * xp.where(penalised, slope, xp.zeros_like(slope)), u * x.advantages


PULLBACKS: Mapping[str, Callable[..., _Pair]] = {
    "clip": _clip,
    "policy_gradient": _policy_gradient,
    "unclipped": _unclipped,
    "cispo": _cispo,
    "sapo": _sapo,
    "vespo": _vespo,
    "gmpo": _gmpo,
    "dppo_tv": _dppo("dppo_tv"),
    "dppo_kl": _dppo("dppo_kl"),
    "dro": _dro,
    "kl_cov": _kl_cov,
    "clip_cov": _clip_cov,
}
"""How each surrogate hands a derivative on, by the names of SURROGATES."""
