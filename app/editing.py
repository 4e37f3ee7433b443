"""Edits of a group by hand: its rewards, its size, a completion's length. Each returns a new group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from app.params import MOST_STEPS, Steps
from app.words import plain_text, t, told
from grpo_core import Group, as_rewards

MAX_SIZE = 64
MAX_LENGTH = 200
MAX_REWARD = 1e6  # either way
MIN_LOGP = -10_000.0  # nats
UNSCORED = ("unscored", "none", "null", "∅")
FILLER = "·"
_ROWS = ("tokens", "logp", "old_logp", "ref_logp", "mask")


def parse_reward(text: str) -> float | None:
    """Return one reward cell: a number, or None for "unscored". ValueError says what to type instead."""
    word = text.strip().lower()
    if word in UNSCORED:
        return None
    if not word:
        raise ValueError(t("edit.empty"))
    try:
        value = float(word.replace(chr(0x2212), "-"))
    except ValueError:
        raise ValueError(t("edit.not_a_number", text=plain_text(text))) from None
    if not math.isfinite(value) or abs(value) > MAX_REWARD:
        raise ValueError(t("edit.not_finite", text=plain_text(text)))
    return value


def parse_rewards(text: str) -> tuple[float | None, ...]:
    """Return the rewards that a comma-separated line lists. ValueError names the cell that is wrong."""
    cells = text.replace(";", ",").strip().strip("[]").split(",")
    if len(cells) > MAX_SIZE:
        raise ValueError(t("edit.too_many", limit=MAX_SIZE, got=len(cells)))
    rewards = []
    for number, cell in enumerate(cells, start=1):
        try:
            rewards.append(parse_reward(cell))
        except ValueError as error:
            raise ValueError(t("edit.cell", number=number, problem=told(error))) from None
    as_rewards(rewards)
    return tuple(rewards)


def write_rewards(rewards: Sequence[float | None]) -> str:
    """Return rewards as a line that `parse_rewards` reads back."""
    return ", ".join("unscored" if r is None else repr(float(r)).removesuffix(".0") for r in rewards)


def with_reward(group: Group, index: int, reward: float | None) -> Group:
    """Return the group with one reward changed."""
    rewards = list(group.rewards)
    rewards[index] = reward
    return group.replace(rewards=tuple(rewards), reward_parts={})


def with_rewards(group: Group, rewards: Sequence[float | None]) -> Group:
    """Return the group with these rewards; it grows or shrinks to their number."""
    return resized(group, len(rewards)).replace(rewards=tuple(rewards), reward_parts={})


def resized(group: Group, size: int) -> Group:
    """Return the group with `size` completions: the last ones dropped, or the first ones repeated with reward 0."""
    if size == group.size:
        return group
    order = [i % group.size for i in range(size)]
    changes: dict[str, Any] = {
        name: tuple(getattr(group, name)[i] for i in order)
        for name in (*_ROWS, "finish")
        if getattr(group, name) is not None
    }
    rewards = tuple(group.rewards[i] if i < group.size else 0.0 for i in range(size))
    return group.replace(**changes, rewards=rewards, reward_parts={})


def with_length(group: Group, index: int, length: int, *, source: Group | None = None) -> Group:
    """Return the group with one completion cut or stretched to `length` tokens, its final token kept.

    Tokens come from `source` (the group before any edit) if that has the completion, so that dragging a length down
    and up again gives the same completion. A completion too short is stretched by repeating its tokens.
    """
    origin = source if source is not None and source.size > index and source.tokens[index] else group
    own = _positions(origin, index) or _positions(group, index)
    ends = origin.finish is not None and origin.finish[index] == "eos"
    positions = _fitted(own, length, ends)
    changes = {
        name: tuple(tuple(p[k] for p in positions) if i == index else row for i, row in enumerate(getattr(group, name)))
        for k, name in enumerate(_ROWS)
        if getattr(group, name) is not None
    }
    return group.replace(**changes)


def with_token(group: Group, index: int, position: int, row: str, value: Any) -> Group:
    """Return the group with one token's entry changed; `row` is "logp", "old_logp", "ref_logp" or "mask"."""
    known = row in _ROWS[1:] and getattr(group, row) is not None
    if not known or not 0 <= index < group.size or not 0 <= position < len(group.tokens[index]):
        raise ValueError(t("edit.no_token"))
    rows = [list(line) for line in getattr(group, row)]
    rows[index][position] = value
    return group.replace(**{row: tuple(map(tuple, rows))})


STEP_RANGES = {"reward": (-100, 100), "end": (1, MAX_LENGTH), "count": (1, MOST_STEPS), "size": (1, MOST_STEPS)}
"""What can be edited of completions with steps, and between which numbers."""


def with_step(steps: Steps, what: str, at: Sequence[int], value: float) -> Steps:
    """Return completions with one thing changed: a step's "reward" or "end" (at completion, step), the "count" of a
    completion's steps (at completion), or the "size", the number of completions.

    An end stays between its neighbours'. More steps or completions repeat the last one.
    """
    if what == "size":
        return (steps + steps[-1:] * MOST_STEPS)[: int(value)]
    row = list(steps[at[0]])
    if what == "count":
        while len(row) < int(value) and row[-1][1] < MAX_LENGTH:
            row.append((row[-1][0], min(row[-1][1] + 2, MAX_LENGTH)))
        row = row[: int(value)]
    else:
        reward, end = row[at[1]]
        row[at[1]] = (round(float(value), 4), end) if what == "reward" else (reward, _between(row, at[1], int(value)))
    return (*steps[: at[0]], tuple(row), *steps[at[0] + 1 :])


def _between(row: Sequence[tuple[float, int]], index: int, end: int) -> int:
    low = row[index - 1][1] + 1 if index else 1
    high = row[index + 1][1] - 1 if index + 1 < len(row) else MAX_LENGTH
    return min(max(end, low), high)


def cut_at(group: Group, limit: int) -> Group:
    """Return the group as if no completion could be longer than `limit` tokens: longer ones are truncated there."""
    long = [len(row) > limit for row in group.tokens]
    changes = {
        name: tuple(row[:limit] for row in getattr(group, name)) for name in _ROWS if getattr(group, name) is not None
    }
    finish = tuple("length" if cut else reason for cut, reason in zip(long, group.finish or (), strict=True))
    return group.replace(**changes, finish=finish)


def _positions(group: Group, index: int) -> list[tuple[Any, ...]]:
    rows = [getattr(group, name) for name in _ROWS]
    return [tuple(row[index][k] if row is not None else -1.0 for row in rows) for k in range(len(group.tokens[index]))]


def _fitted(own: list[tuple[Any, ...]], length: int, ends: bool) -> list[tuple[Any, ...]]:
    if length == 0:
        return []
    if not own:
        return [(FILLER, -1.0, -1.0, -1.0, True)] * length
    tail = own[-1:] if ends and len(own) > 1 else []
    body = own[: len(own) - len(tail)]
    wanted = length - len(tail)
    return [body[k % len(body)] for k in range(wanted)] + tail
