"""Which tokens take part: masks and weights on the policy term that leave the normaliser alone."""

from __future__ import annotations

import math

from grpo_core._arrays import Array, check_mask, namespace, number, one_of, stop_gradient
from grpo_core.aggregation import sequence_mean, sequence_sum


def top_entropy_mask(entropy: Array, mask: Array, *, quantile: float) -> Array:
    """Return the tokens whose entropy is among the top `quantile` share of the tokens that train, boolean (B, T).

    The threshold is the (1 - quantile) quantile of the entropies under `mask`, interpolated linearly; 1 keeps all.
    Source: arXiv:2506.01939; TRL 1.16 `top_entropy_quantile` (denominators stay as they are).
    """
    share = number(quantile, "quantile", low=0.0, high=1.0)
    mask = check_mask(mask)
    if share == 1.0:
        return mask
    return mask & (entropy >= _quantile(stop_gradient(entropy)[mask], 1.0 - share))


def _quantile(values: Array, q: float) -> Array:
    """Return the linearly interpolated quantile of a 1-D array, inf for an empty one."""
    xp = namespace(values)
    if values.shape[0] == 0:
        return xp.asarray(math.inf, dtype=values.dtype)
    ordered = xp.sort(values)
    position = q * (values.shape[0] - 1)
    low = math.floor(position)
    high = min(low + 1, values.shape[0] - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def off_policy_mask(log_ratio: Array, mask: Array, advantages: Array, *, threshold: float) -> Array:
    """Return the completions that stay: A >= 0, or a mean of old - current log-probability of at most `threshold`.

    `log_ratio` (B, T) is current minus behaviour; the result is boolean (B, 1), or (B, T) for per-token advantages.
    Source: DeepSeek-V3.2 arXiv:2512.02556 sec. 3.1; TRL 1.16 `off_policy_mask_threshold`.
    """
    drift = sequence_mean(-stop_gradient(log_ratio), mask)
    return (advantages >= 0) | (drift <= number(threshold, "threshold"))


ROLLOUT_LEVELS = ("token", "sequence")
ROLLOUT_MODES = ("truncate", "mask")


def rollout_weights(
    old_logp: Array,
    rollout_logp: Array,
    mask: Array,
    *,
    level: str = "token",
    mode: str = "truncate",
    low: float | None = None,
    high: float | None = None,
) -> Array:
    """Return the correction for completions sampled by an engine whose probabilities differ from the trainer's.

    exp(old - rollout) per token, (B, T), or exp of its sum per sequence, (B, 1); then clipped to [low, high]
    ("truncate") or set to 0 outside ("mask"). Carries no gradient. A position that is nan counts as equal.
    Source: TRL 1.16 `vllm_importance_sampling_correction` (default: sequence, mask, high 3); verl 0.9.1
    `rollout_correction`.
    """
    one_of(level, "level", ROLLOUT_LEVELS)
    one_of(mode, "mode", ROLLOUT_MODES)
    xp = namespace(old_logp, rollout_logp)
    difference = stop_gradient(old_logp) - stop_gradient(rollout_logp)
    counted = check_mask(mask) & ~xp.isnan(difference)
    difference = xp.where(counted, difference, xp.zeros_like(difference))
    if level == "sequence":
        difference = sequence_sum(difference, mask)
    weights = xp.exp(xp.clip(difference, -80.0, 80.0))
    floor, ceiling = 0.0 if low is None else float(low), math.inf if high is None else float(high)
    if mode == "truncate":
        return xp.clip(weights, floor, None if high is None else ceiling)
    return xp.where((weights < floor) | (weights > ceiling), xp.zeros_like(weights), weights)
