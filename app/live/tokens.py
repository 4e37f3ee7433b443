"""A step's groups seen token by token: what the loss made of each token, computed by grpo_core for the whole step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grpo_core import AdvantageSpec, Group, GroupBatch, loss_terms
from grpo_core.live.config import RunConfig, objective_of
from grpo_core.live.groups import event_group

Facts = dict[str, Any]


def step_tokens(groups: Sequence[Mapping[str, Any]], config: RunConfig) -> list[list[list[Facts]]]:
    """Return, for each group, completion and token of a step, what the update did to it.

    "pull" is weight times advantage: minus the slope of the step's loss in the token's log-probability at the policy
    that sampled it, where every ratio is 1; positive is pushed up, and the KL term is left out. "ratio" is the token's
    probability after the update over that before. "clipped": the ratio has left the range on the side where the token
    is pushed no further. ValueError for an objective that cannot be computed again from what was recorded (one that
    draws tokens at random).
    """
    members = [event_group(group) for group in groups]
    after = _batch(members, groups)
    before = replace(after, logp=after.old_logp)
    objective = objective_of(config)
    if after.ref_logp is None:
        objective = objective.replace(beta=0.0)
    at_start, at_end = loss_terms(before, objective), loss_terms(after, objective)
    advantages = np.broadcast_to(before.advantages[:, None], before.logp.shape)
    arrays = {
        "pull": at_start.weights * advantages,
        "weight": at_start.weights,
        "advantage": advantages,
        "logp_old": before.logp,
        "logp_new": after.logp,
        "ratio": np.exp(at_end.log_ratio),
        "clipped": at_end.saturated,
        "entropy": after.entropy,
        "logp_ref": after.ref_logp,
        "kl": at_start.kl,
    }
    return _unpadded(members, arrays)


def _batch(members: Sequence[Group], groups: Sequence[Mapping[str, Any]]) -> GroupBatch:
    """Return the step as the update saw it: with the advantages that it used, and the entropies."""
    batch = GroupBatch.from_groups(members, AdvantageSpec())
    advantages = np.array([value for group in groups for value in group["advantages"]], dtype=float)
    rows = [row for group in groups for row in group.get("entropy") or ()]
    entropy = None
    if len(rows) == len(advantages):
        entropy = np.zeros(batch.mask.shape)
        for target, row in zip(entropy, rows, strict=True):
            target[: len(row)] = row
    return replace(batch, advantages=advantages, entropy=entropy)


def _unpadded(members: Sequence[Group], arrays: Mapping[str, Any]) -> list[list[list[Facts]]]:
    rows = {name: values.tolist() for name, values in arrays.items() if values is not None}
    result, place = [], 0
    for group in members:
        completions = []
        for texts in group.tokens:
            own = [{"text": text, **{k: v[place][i] for k, v in rows.items()}} for i, text in enumerate(texts)]
            completions.append(own)
            place += 1
        result.append(completions)
    return result
