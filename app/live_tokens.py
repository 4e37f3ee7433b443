"""A step's groups seen token by token: what the loss made of each token, computed by grpo_core for the whole step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grpo_core import AdvantageSpec, Group, GroupBatch, Objective, get_recipe, loss_terms
from grpo_core.live.config import RunConfig
from grpo_core.live.groups import event_group

Facts = dict[str, Any]


def objective_of(config: RunConfig) -> Objective:
    """Return the loss that a run minimises."""
    recipe = get_recipe(config.recipe)
    return recipe.with_constant(config.max_new_tokens).replace(
        beta=config.beta, epsilon_low=config.epsilon_low, epsilon_high=config.epsilon_high
    )


def advantage_of(config: RunConfig) -> AdvantageSpec:
    """Return the advantages that a run uses."""
    spec = get_recipe(config.recipe).advantage
    return spec if config.scale_rewards == "recipe" else replace(spec, scale=config.scale_rewards)


def step_tokens(groups: Sequence[Mapping[str, Any]], config: RunConfig) -> list[list[list[Facts]]]:
    """Return, for each group, completion and token of a step, what the update did to it.

    "pull" is minus the token's contribution to the loss of the whole step, at the policy that sampled it: positive is
    pushed up. "ratio" is its probability after the update over that before. "clipped": the ratio has left the range on
    the side where the token is pushed no further.
    """
    members = [event_group(group) for group in groups]
    after = GroupBatch.from_groups(members, advantage_of(config))
    before = GroupBatch.from_groups([group.replace(logp=group.old_logp) for group in members], advantage_of(config))
    objective = objective_of(config)
    if after.ref_logp is None:
        objective = objective.replace(beta=0.0)
    at_start, at_end = loss_terms(before, objective), loss_terms(after, objective)
    arrays = {
        "pull": -at_start.contribution,
        "weight": at_start.weights,
        "advantage": np.broadcast_to(before.advantages[:, None], before.logp.shape),
        "logp_old": before.logp,
        "logp_new": after.logp,
        "ratio": np.exp(at_end.log_ratio),
        "clipped": at_end.saturated,
    }
    return _unpadded(members, groups, arrays)


def _unpadded(
    members: Sequence[Group], groups: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
) -> list[list[list[Facts]]]:
    rows = {name: values.tolist() for name, values in arrays.items()}
    result, place = [], 0
    for group, event in zip(members, groups, strict=True):
        completions = []
        for i, texts in enumerate(group.tokens):
            completions.append([_facts(group, event, rows, place, i, k) for k in range(len(texts))])
            place += 1
        result.append(completions)
    return result


def _facts(group: Group, event: Mapping[str, Any], rows: Mapping[str, Any], place: int, i: int, k: int) -> Facts:
    entropy = event.get("entropy")
    return {
        "text": group.tokens[i][k],
        "logp_ref": group.ref_logp[i][k] if group.ref_logp is not None else None,
        "entropy": entropy[i][k] if entropy else None,
        **{name: values[place][k] for name, values in rows.items()},
    }
