"""A step's groups seen token by token: the loss that the update met, and the same loss after it, all by grpo_core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from app.lens import Lens
from grpo_core import (
    AdvantageSpec,
    Group,
    GroupAdvantages,
    GroupBatch,
    LossTerms,
    Objective,
    as_rewards,
    compute_advantages,
    loss_terms,
)
from grpo_core.live.config import RunConfig, advantage_spec, objective_of
from grpo_core.live.groups import event_group
from grpo_core.token_gradients import TokenGradients, gradients_of

BEFORE, AFTER = "before", "after"
COMPUTED = ("ratio", "objective", "kl", "saturated", "per_token", "contribution")
"""Parts of a loss that are computed for the whole step and then cut to one group."""


@dataclass(frozen=True)
class StepLoss:
    """The loss of a whole step: as the update began, where every ratio is 1, and seen again after it.

    `rewards` as recorded, one list a group.
    """

    groups: tuple[Group, ...]
    spec: AdvantageSpec
    objective: Objective
    before: LossTerms
    after: LossTerms

    @cached_property
    def gradients(self) -> Mapping[str, TokenGradients]:
        """d loss / d logp at both moments, (B, T)."""
        return {BEFORE: gradients_of(self.before), AFTER: gradients_of(self.after)}

    @cached_property
    def scores(self) -> GroupAdvantages:
        """The advantages with the statistics they came from: (P, G) and (P,)."""
        used, mask = np.asarray(self.before.batch.advantages), np.asarray(self.before.mask)
        if used.ndim > 1:  # process supervision: a completion's are the mean over its tokens
            used = (used * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        recorded = used.reshape(len(self.groups), -1)
        rewards = np.stack([as_rewards(group.rewards) for group in self.groups])
        lengths = np.stack([[len(row) for row in group.tokens] for group in self.groups])
        try:
            computed = compute_advantages(rewards, self.spec, lengths=lengths)
        except ValueError:  # an estimator that wants what was not recorded: the greedy answer's reward
            computed = compute_advantages(rewards, AdvantageSpec(scale="none"))
        return replace(computed, advantages=recorded)

    def rows(self, index: int) -> slice:
        """Return where a group's completions stand in the step."""
        start = sum(group.size for group in self.groups[:index])
        return slice(start, start + self.groups[index].size)

    def lens(self, index: int, moment: str) -> Lens:
        """Return one group of the step under the step's loss, before or after the update."""
        rows, terms = self.rows(index), self.before if moment == BEFORE else self.after
        own = _cut(terms, rows)
        group = self.groups[index]
        if moment == BEFORE:
            group = group.replace(logp=group.old_logp)
        scores = GroupAdvantages(*(np.asarray(getattr(self.scores, f.name))[index] for f in fields(GroupAdvantages)))
        whole = len(terms.mask), int(terms.mask.sum())
        lens = Lens(group, {"greedy": 0.0}, self.spec, self.objective, own.batch, scores, own, False, whole)
        gradients = self.gradients[moment]
        lens.__dict__["gradients"] = TokenGradients(gradients.policy[rows], gradients.kl[rows])
        return lens


def _cut(terms: LossTerms, rows: slice) -> LossTerms:
    """Return some completions of a loss. What depends on the whole batch keeps the values it has there."""
    own: LossTerms = _rows(terms, rows, len(terms.mask))
    for name in COMPUTED:
        value = getattr(terms, name)
        own.__dict__[name] = None if value is None else value[rows]
    return own


def _rows(whole: Any, rows: slice, size: int) -> Any:
    """Return a dataclass of arrays with these rows of every array that has one for each completion."""
    changes = {}
    for field in fields(whole):
        value = getattr(whole, field.name)
        if isinstance(value, np.ndarray) and value.ndim and len(value) == size:
            changes[field.name] = value[rows]
        elif is_dataclass(value) and not isinstance(value, Objective):
            changes[field.name] = _rows(value, rows, size)
    return replace(whole, **changes)


def step_loss(found: Mapping[str, Any], config: RunConfig) -> StepLoss:
    """Return the loss of a step whose groups were recorded; `config` is what the step was taken with.

    ValueError for an objective that cannot be computed again from what was recorded (one that draws tokens at random).
    """
    members = tuple(event_group(group) for group in found["groups"])
    after = _batch(members, found["groups"])
    before = replace(after, logp=after.old_logp)
    objective, spec = objective_of(config), advantage_spec(config)
    if after.ref_logp is None:
        objective = objective.replace(beta=0.0)
    return StepLoss(members, spec, objective, loss_terms(before, objective), loss_terms(after, objective))


def _batch(members: Sequence[Group], groups: Sequence[Mapping[str, Any]]) -> GroupBatch:
    """Return the step as the update saw it: with the advantages that it used, and the entropies."""
    batch = GroupBatch.from_groups(members, AdvantageSpec())
    advantages = np.array([value for group in groups for value in group["advantages"]], dtype=float)
    by_token, entropy = (_by_token(groups, name, batch.mask.shape) for name in ("token_advantages", "entropy"))
    return replace(batch, advantages=advantages if by_token is None else by_token, entropy=entropy)


def _by_token(groups: Sequence[Mapping[str, Any]], name: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a recorded number for each token, (B, T), 0 on padding; None where it was not recorded."""
    rows = [row for group in groups for row in group.get(name) or ()]
    if len(rows) != shape[0]:
        return None
    table = np.zeros(shape)
    for target, row in zip(table, rows, strict=True):
        target[: len(row)] = row
    return table
