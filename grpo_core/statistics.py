"""What is logged about groups and updates, under TRL's names where TRL has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grpo_core._arrays import Array, namespace, number, stop_gradient
from grpo_core.advantages import KINDS, group_advantages, group_kind
from grpo_core.aggregation import masked_mean, sequence_mean
from grpo_core.groups import GroupBatch
from grpo_core.kl import kl_from_log_ratio
from grpo_core.messages import InputError
from grpo_core.objective import LossTerms, Objective
from grpo_core.surrogates import SURROGATES


def batch_statistics(batch: GroupBatch, terms: LossTerms, objective: Objective) -> dict[str, float]:
    """Return the statistics of one batch under one objective, as Python floats.

    ``clip_ratio/low_mean``: share of tokens with A < 0 and ratio below 1 - epsilon_low; ``clip_ratio/high_mean``: A > 0
    and ratio above 1 + epsilon_high; ``clip_ratio/region_mean``: either. At sequence level each completion counts once.
    ``clip_ratio/low_min`` and ``clip_ratio/high_max``: the smallest and largest share within one completion. What the
    surrogate itself reports (``cispo_clip_ratio``, ``vespo/phi_seq_mean``) is included.
    ``kl``: token mean of the estimate in the loss; ``kl_old``: token mean of k3 between old and current policy;
    ``entropy``: token mean, if the batch has it. All means are pooled over the tokens that train.
    Source: TRL 1.16 GRPOTrainer metrics.
    """
    xp = namespace(batch.logp)
    result = {
        **_clip_statistics(*clipped_sides(batch.advantages, terms, objective), terms, objective),
        **SURROGATES[objective.surrogate].statistics(terms.inputs, **objective.surrogate_parameters()),
        "saturated_mean": masked_mean(xp.astype(terms.saturated, terms.ratio.dtype), terms.mask),
        "kl_old": masked_mean(kl_from_log_ratio(-terms.log_ratio), terms.mask),
    }
    if terms.kl is not None:
        result["kl"] = masked_mean(terms.kl, terms.mask)
    if batch.entropy is not None:
        result["entropy"] = masked_mean(batch.entropy, terms.mask)
    return {name: float(value) for name, value in result.items()}


def clipped_sides(advantages: Array, terms: LossTerms, objective: Objective) -> tuple[Array, Array]:
    """Return where the ratio left the clip range on the side that matters: (A < 0 below, A > 0 above), (B, T) each."""
    a = advantages if advantages.ndim == 2 else advantages[:, None]
    low = (a < 0) & (terms.ratio < 1.0 - float(objective.epsilon_low)) & terms.mask
    high = (a > 0) & (terms.ratio > 1.0 + float(objective.epsilon_high)) & terms.mask
    return low, high


def _clip_statistics(low: Array, high: Array, terms: LossTerms, objective: Objective) -> dict[str, Array]:
    xp = namespace(terms.ratio)
    low, high = (xp.astype(side, terms.ratio.dtype) for side in (low, high))
    low_shares, high_shares = sequence_mean(low, terms.mask), sequence_mean(high, terms.mask)
    if objective.ratio_level == "token":
        means = [masked_mean(side, terms.mask) for side in (low, high, low + high)]
    else:  # one ratio for each completion, which counts once, however long it is
        means = [xp.mean(shares) for shares in (low_shares, high_shares, low_shares + high_shares)]
    empty = ~xp.any(terms.mask, axis=1, keepdims=True)
    return {
        **dict(zip(("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"), means, strict=True)),
        "clip_ratio/low_min": xp.min(xp.where(empty & ~xp.all(empty), xp.ones_like(low_shares), low_shares)),
        "clip_ratio/high_max": xp.max(high_shares),
    }


def kind_counts(groups: Sequence[Any]) -> dict[str, int]:
    """Return how many groups of rewards are of each kind; `groups` holds one reward list (with None) for each group."""
    kinds = [group_kind(rewards) for rewards in groups]
    return {kind: kinds.count(kind) for kind in KINDS}


def between_group_share(values: Array) -> float:
    """Return which part of the variance of `values` (N, G) lies between the groups' means: eta squared, 0 to 1.

    0: every group has the same mean, so that nothing says which group a value is from. 1: values differ between groups
    only. Values that are all equal give 0.
    """
    values = np.asarray(stop_gradient(values), dtype=float)
    if values.ndim != 2 or not values.size:
        raise InputError("values must have shape (groups, completions), got {shape}", shape=values.shape)
    centred = values - values.mean()
    total = float((centred**2).sum())
    between = float((centred.mean(axis=1) ** 2).sum() * values.shape[1])
    return between / total if total > 1e-24 else 0.0


def _floats(values: Array) -> np.ndarray:
    """Return a one-dimensional array of any kind, on any device, as NumPy floats."""
    return np.asarray(values.tolist() if hasattr(values, "tolist") else [float(x) for x in values], dtype=float)


def ratio_histogram(ratio: Array, mask: Array, *, bins: int = 41, span: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return (counts, edges) of the ratios under `mask`, over 1 - span .. 1 + span, with the rest in the end bins."""
    values = _floats(stop_gradient(ratio)[mask])
    edges = np.linspace(1.0 - span, 1.0 + span, bins + 1)
    return np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)[0], edges


def ratio_statistics(
    ratio: Array, mask: Array, *, epsilon_low: float = 0.2, epsilon_high: float = 0.2
) -> dict[str, float]:
    """Return the smallest and largest ratio under `mask`, and ``ratio/outside_mean``, the share outside the clip range.

    Outside counts on both sides, whatever the advantage: clipping only ends a token's own pull, so that ratios do leave
    the range. The clip fraction counts the side that stops the pull. No tokens: 1, 1 and 0.
    """
    low, high = 1.0 - number(epsilon_low, "epsilon_low", low=0.0, high=1.0), 1.0 + number(epsilon_high, "epsilon_high")
    values = _floats(stop_gradient(ratio)[mask])
    if not values.size:
        return {"ratio/min": 1.0, "ratio/max": 1.0, "ratio/outside_mean": 0.0}
    outside = (values < low) | (values > high)
    return {
        "ratio/min": float(values.min()),
        "ratio/max": float(values.max()),
        "ratio/outside_mean": float(outside.mean()),
    }


def advantage_statistics(advantages: Array) -> dict[str, float]:
    """Return the mean size, the smallest and the largest of the advantages, an array of any shape with at least one."""
    values = np.asarray(stop_gradient(advantages), dtype=float)
    return {
        "advantages/abs_mean": float(np.abs(values).mean()),
        "advantages/min": float(values.min()),
        "advantages/max": float(values.max()),
    }


def length_statistics(lengths: Array, truncated: Array) -> dict[str, float]:
    """Return lengths and truncation under TRL's names; "terminated" are the completions that ended by themselves.

    ``completions/clipped_ratio`` is TRL's name for the share of truncated completions.
    """
    lengths, truncated = np.asarray(lengths, dtype=float), np.asarray(truncated, dtype=bool)
    ended = lengths[~truncated]
    return {
        "completions/mean_length": float(lengths.mean()) if lengths.size else 0.0,
        "completions/min_length": float(lengths.min()) if lengths.size else 0.0,
        "completions/max_length": float(lengths.max()) if lengths.size else 0.0,
        "completions/clipped_ratio": float(truncated.mean()) if truncated.size else 0.0,
        "completions/mean_terminated_length": float(ended.mean()) if ended.size else 0.0,
    }


def reward_statistics(rewards: Array) -> dict[str, float]:
    """Return TRL's reward, reward_std (sample std over the whole batch) and frac_reward_zero_std of rewards (N, G).

    nan marks unscored completions, which take no part. ``reward_std_within`` is the mean of the groups' own stds, which
    is what ``reward_std`` meant up to TRL 0.26.
    """
    rewards = np.asarray(rewards, dtype=float)
    groups = group_advantages(rewards, ddof=1, eps=0.0)
    whole = group_advantages(rewards.reshape(-1), ddof=1, eps=0.0)
    scored = groups.valid_count > 0
    return {
        "reward": float(whole.mean) if whole.valid_count else float("nan"),
        "reward_std": float(whole.std),
        "reward_std_within": float(groups.std[scored].mean()) if scored.any() else 0.0,
        "frac_reward_zero_std": float((groups.std == 0).mean()),
    }
