"""Objective: a frozen set of choices. loss_terms: the one place that composes them into a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from grpo_core import masks, ratios
from grpo_core._arrays import Array, namespace, number, one_of, stop_gradient
from grpo_core.aggregation import MODES, token_weights, weighted_sum, weighted_terms
from grpo_core.groups import Accounting, GroupBatch
from grpo_core.kl import ESTIMATORS, kl_from_log_ratio
from grpo_core.messages import InputError
from grpo_core.surrogates import SURROGATES, SurrogateInputs

SCOPES = ("batch", "global")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The choices that make a GRPO-like loss; every field is data, so that two objectives can be compared.

    `ratio_level` "token" | "sequence" | "trajectory"; `surrogate` a name in SURROGATES; `epsilon_low`, `epsilon_high`,
    `delta` its clip range; `options` further hyperparameters of the surrogate; `beta` the weight of the KL term (0: no
    reference at all), `kl_estimator` a name in kl.ESTIMATORS, `kl_ratio_weighted` whether the estimate is multiplied by
    the importance ratio (TRL's bias correction), `kl_log_ratio_cap` and `kl_value_cap` its clamps; `aggregation` a mode
    of token_weights, `constant` its length, `scope` whether its counts are this batch's or the whole optimizer step's;
    `mask_truncated` drops truncated completions; `top_entropy_quantile` and `off_policy_threshold` restrict the policy
    term (see masks); `entropy_coefficient` the weight of an entropy bonus, `entropy_aggregation` its own mode (None:
    that of the loss); `log_ratio_cap` bounds the ratio's exponent.
    """

    ratio_level: str = "token"
    surrogate: str = "clip"
    epsilon_low: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    options: Mapping[str, float] = field(default_factory=dict)
    beta: float = 0.0
    kl_estimator: str = "k3"
    kl_ratio_weighted: bool = False
    kl_log_ratio_cap: float | None = None
    kl_value_cap: float | None = None
    aggregation: str = "sequence_mean"
    constant: float | None = None
    scope: str = "batch"
    mask_truncated: bool = False
    top_entropy_quantile: float = 1.0
    off_policy_threshold: float | None = None
    entropy_coefficient: float = 0.0
    entropy_aggregation: str | None = None
    log_ratio_cap: float = ratios.LOG_RATIO_CAP

    def __post_init__(self) -> None:
        one_of(self.ratio_level, "ratio_level", ratios.LEVELS)
        one_of(self.surrogate, "surrogate", tuple(SURROGATES))
        one_of(self.kl_estimator, "kl_estimator", ESTIMATORS)
        one_of(self.aggregation, "aggregation", MODES)
        one_of(self.scope, "scope", SCOPES)
        if self.entropy_aggregation is not None:
            one_of(self.entropy_aggregation, "entropy_aggregation", ("token_mean",))
        number(self.epsilon_low, "epsilon_low", low=0.0, high=1.0)
        number(self.epsilon_high, "epsilon_high", low=0.0)
        number(self.beta, "beta", low=0.0)
        number(self.top_entropy_quantile, "top_entropy_quantile", low=0.0, high=1.0)
        number(self.entropy_coefficient, "entropy_coefficient")
        for name in ("delta", "constant", "log_ratio_cap", "kl_log_ratio_cap", "kl_value_cap"):
            if getattr(self, name) is not None:
                number(getattr(self, name), name, low=0.0, open_low=True)
        known = set(SURROGATES[self.surrogate].parameters) - set(self.__dataclass_fields__)
        unknown = sorted(set(self.options) - known)
        if unknown:
            raise InputError(
                "options of {surrogate!r} are {known}, got {unknown}",
                surrogate=self.surrogate,
                known=sorted(known) or "none",
                unknown=unknown,
            )

    def surrogate_parameters(self) -> dict[str, Any]:
        """Return the surrogate's hyperparameters: the objective's own fields, then `options`, then defaults."""
        values = dict(SURROGATES[self.surrogate].parameters)
        values.update({name: getattr(self, name) for name in values if name in self.__dataclass_fields__})
        return {**values, **self.options}

    def replace(self, **changes: Any) -> Objective:
        """Return a copy with some choices changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class LossTerms:
    """A loss with every per-token part of it, so that a page shows what the trainer differentiates.

    `loss` = `policy_loss` + beta `kl_loss` - the entropy bonus, scalars. Per token (B, T): `log_ratio`; `ratio`, at the
    objective's level, broadcast; `objective`, to be maximised; `kl`, None without reference log-probabilities;
    `weights`; `saturated`, where clipping has zeroed the gradient; `per_token` = -objective + beta kl; `contribution` =
    weights * per_token minus the bonus, which sums to the loss. `mask` is the mask that was used. Masked positions have
    ratio 1 and 0 everywhere else. What the loss itself does not need is computed when it is first asked for.
    """

    loss: Array
    weights: Array
    inputs: SurrogateInputs
    batch: GroupBatch
    choices: Objective
    raw_objective: Array
    raw_kl: Array | None

    @property
    def mask(self) -> Array:
        """The tokens that took part, boolean (B, T)."""
        return self.inputs.mask

    @property
    def log_ratio(self) -> Array:
        """Current minus old log-probability per token, (B, T)."""
        return self.inputs.log_ratio

    @cached_property
    def ratio(self) -> Array:
        """The importance ratio at the objective's level, (B, T)."""
        return self._whole(self.inputs.ratio, fill=1.0)

    @cached_property
    def objective(self) -> Array:
        """The surrogate per token, to be maximised, (B, T)."""
        return self._whole(self.raw_objective)

    @cached_property
    def kl(self) -> Array | None:
        """The KL estimate per token, (B, T), or None without reference log-probabilities."""
        if self.raw_kl is None and self.batch.ref_logp is None:
            return None
        return self._whole(_kl(self.batch, self.inputs, self.choices) if self.raw_kl is None else self.raw_kl)

    @cached_property
    def saturated(self) -> Array:
        """Where clipping has zeroed the gradient, boolean (B, T)."""
        surrogate = SURROGATES[self.choices.surrogate]
        return self.mask & surrogate.saturated(self.inputs, **self.choices.surrogate_parameters())

    @cached_property
    def per_token(self) -> Array:
        """-objective + beta kl, (B, T)."""
        return self._whole(_per_token(self.raw_objective, self.raw_kl, self.choices))

    @cached_property
    def contribution(self) -> Array:
        """Each token's share of the loss, (B, T)."""
        return self.weights * self.per_token - _entropy_bonus(self.batch, self.inputs, self.weights, self.choices)

    @cached_property
    def policy_loss(self) -> Array:
        """The loss without KL and entropy, a scalar."""
        return weighted_sum(-self.objective, self.weights)

    @cached_property
    def kl_loss(self) -> Array:
        """The weighted sum of the KL estimates, before beta, a scalar."""
        return (
            namespace(self.weights).sum(0.0 * self.weights) if self.kl is None else weighted_sum(self.kl, self.weights)
        )

    def _whole(self, values: Array, *, fill: float = 0.0) -> Array:
        xp = namespace(self.weights)
        return xp.where(self.mask, values, xp.full_like(self.weights, fill))


def loss_terms(batch: GroupBatch, objective: Objective) -> LossTerms:
    r"""Return the loss of `batch` under `objective`, with all its parts.

    loss = sum_{i,t} w_{i,t} (-J_{i,t} + beta KL_{i,t}), where J is the surrogate of ratio and advantage, KL the chosen
    estimate and w the aggregation's weights. The gradient flows through `batch.logp`, and through `batch.entropy` if
    there is a bonus. A batch without a token that trains has loss exactly 0.

    Raises ValueError when `objective.beta` is positive and `batch.ref_logp` is None, and for a missing constant.
    Source: GRPO arXiv:2402.03300 eq. 3; each recipe's own source says which choices are its.
    """
    if objective.beta > 0 and batch.ref_logp is None:
        raise InputError(
            "beta is {beta}, so ref_logp must be given; without a reference set beta to 0", beta=objective.beta
        )
    inputs = _surrogate_inputs(batch, objective)
    surrogate = SURROGATES[objective.surrogate]
    value = surrogate.objective(inputs, **objective.surrogate_parameters())
    value = restricted(value, batch, inputs, objective)
    kl = _kl(batch, inputs, objective) if objective.beta > 0 else None
    weights = _weights(batch, inputs.mask, objective)
    xp = namespace(weights)
    # Masked positions are neutral by now, so that a weight of 0 is enough to leave them out.
    loss = -xp.sum(value * weights) if kl is None else xp.sum(_per_token(value, kl, objective) * weights)
    if objective.entropy_coefficient != 0:
        loss = loss - xp.sum(_entropy_bonus(batch, inputs, weights, objective))
    return LossTerms(loss, weights, inputs, batch, objective, value, kl)


def _per_token(value: Array, kl: Array | None, objective: Objective) -> Array:
    return -value if kl is None else float(objective.beta) * kl - value


def _surrogate_inputs(batch: GroupBatch, objective: Objective) -> SurrogateInputs:
    xp = namespace(batch.logp, batch.mask)
    mask = batch.mask
    if objective.mask_truncated:
        if batch.truncated is None:
            raise InputError("mask_truncated needs batch.truncated: one boolean for each completion")
        mask = mask & ~batch.truncated[:, None]
    advantages = stop_gradient(batch.advantages)
    if advantages.ndim == 1:
        advantages = advantages[:, None]
    elif advantages.shape[1] > 1:
        advantages = xp.where(mask, advantages, xp.zeros_like(batch.logp))
    log_ratio = ratios.log_ratio(batch.logp, batch.old_logp, mask)
    ratio = ratios.ratio_from_log(log_ratio, mask, level=objective.ratio_level, cap=objective.log_ratio_cap)
    return SurrogateInputs(batch.logp, batch.old_logp, log_ratio, ratio, advantages, mask, batch.uniform)


def restricted(value: Array, batch: GroupBatch, inputs: SurrogateInputs, objective: Objective) -> Array:
    """Return `value` with what restricts or reweights the policy term alone; KL term and normaliser do not see it."""
    xp = namespace(value)
    keep = inputs.mask
    if objective.off_policy_threshold is not None:
        threshold = objective.off_policy_threshold
        keep = keep & masks.off_policy_mask(inputs.log_ratio, keep, inputs.advantages, threshold=threshold)
    if objective.top_entropy_quantile < 1.0:
        entropy = _required_entropy(batch, "top_entropy_quantile")
        keep = keep & masks.top_entropy_mask(entropy, inputs.mask, quantile=objective.top_entropy_quantile)
    if batch.rollout_weights is not None:
        value = value * stop_gradient(batch.rollout_weights)
    elif keep is inputs.mask:
        return value
    return xp.where(keep, value, xp.zeros_like(batch.logp))


def _required_entropy(batch: GroupBatch, name: str) -> Array:
    if batch.entropy is None:
        raise InputError("{name} needs batch.entropy: each token's entropy in nats, (B, T)", name=name)
    return batch.entropy


def _entropy_bonus(batch: GroupBatch, inputs: SurrogateInputs, weights: Array, objective: Objective) -> Array:
    """Return coefficient * weighted entropy per token, averaged like the loss or, as TRL does it, over these tokens."""
    if objective.entropy_coefficient == 0:
        return namespace(weights).zeros_like(weights)
    entropy = _required_entropy(batch, "entropy_coefficient")
    if objective.entropy_aggregation is not None:
        counted = masks.top_entropy_mask(entropy, inputs.mask, quantile=objective.top_entropy_quantile)
        scale = 1.0 / batch.accounting.micro_batches
        weights = token_weights(counted, mode="token_mean", scale=scale, dtype=batch.logp.dtype)
    return float(objective.entropy_coefficient) * weighted_terms(entropy, weights)


def _kl(batch: GroupBatch, inputs: SurrogateInputs, objective: Objective) -> Array:
    xp = namespace(batch.logp)
    assert batch.ref_logp is not None
    difference = xp.where(inputs.mask, stop_gradient(batch.ref_logp) - batch.logp, xp.zeros_like(batch.logp))
    kl = kl_from_log_ratio(
        difference,
        estimator=objective.kl_estimator,
        log_ratio_cap=objective.kl_log_ratio_cap,
        value_cap=objective.kl_value_cap,
    )
    return kl * inputs.ratio if objective.kl_ratio_weighted else kl


def _weights(batch: GroupBatch, mask: Array, objective: Objective) -> Array:
    """Return the token weights; the accounting says how this batch sits in its optimizer step."""
    return token_weights(
        mask,
        mode=objective.aggregation,
        constant=objective.constant,
        dtype=batch.logp.dtype,
        **_counts(batch.accounting, objective),
    )


def _counts(accounting: Accounting, objective: Objective) -> dict[str, float]:
    """Return what replaces this batch's own counts: one rank's share of the step's, or the mean over micro-batches."""
    if objective.scope == "global" and objective.aggregation == "token_mean" and accounting.tokens is not None:
        # TRL: the tokens of the generation batch, spread evenly over its optimizer steps; ranks are averaged later.
        share = accounting.micro_batches / accounting.generation_steps / accounting.processes
        return {"tokens": max(float(accounting.tokens), 1.0) * share}
    if objective.scope == "global" and objective.aggregation == "token_sum":
        return {"scale": float(accounting.processes)}  # ranks are averaged later, micro-batches are summed
    if objective.scope == "global" and accounting.sequences is not None and objective.aggregation != "token_mean":
        return {"sequences": float(accounting.sequences) / accounting.processes}
    return {"scale": 1.0 / accounting.micro_batches}
