"""What can colour the tokens of a live group: each quantity as data, with its colour and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.live.tokens import BEFORE, StepLoss
from app.numbers import MISSING, plain, short
from app.token_table import Heat
from app.words import t


@dataclass(frozen=True)
class Quantity:
    """One number of every token: `of` gives it for the whole step, (B, T), or None where it was not measured.

    `color`: the palette's colour of large values; None where it is signed, from pushed down to pushed up.
    `write`: its number as text, where the value that colours it is not what one wants to read.
    """

    of: Callable[[StepLoss], Any]
    color: str | None = None
    write: Callable[[float], str] | None = None


@dataclass(frozen=True)
class Written(Heat):
    """Values that are written in a form of their own."""

    write: Callable[[float], str] | None = None

    def text(self, value: float) -> str:
        """Return one value as text."""
        return self.write(value) if self.write else super().text(value)


def _fine(value: float) -> str:
    return plain(value, 4)


QUANTITIES: Mapping[str, Quantity] = {
    "pull": Quantity(lambda step: -np.asarray(step.gradients[BEFORE].total)),
    "ratio": Quantity(lambda step: step.after.log_ratio, write=lambda value: plain(np.exp(value))),
    "advantage": Quantity(lambda step: np.broadcast_to(step.before.inputs.advantages, step.before.mask.shape)),
    "weight": Quantity(lambda step: step.before.weights, "muted", _fine),
    "contribution": Quantity(lambda step: step.before.contribution),
    "kl": Quantity(lambda step: step.before.kl, "reference", _fine),
    "entropy": Quantity(lambda step: step.before.batch.entropy, "entropy", plain),
    "before": Quantity(lambda step: np.exp(step.before.batch.logp), "old", plain),
    "after": Quantity(lambda step: np.exp(step.after.batch.logp), "current", plain),
}
"""Every quantity by its name, in the order of the list."""


def values_of(name: str, step: StepLoss, index: int) -> np.ndarray | None:
    """Return one group's values of a quantity, (G, T); 0 where there is no token, None if it was not measured."""
    values = QUANTITIES[name].of(step)
    if values is None:
        return None
    rows = step.rows(index)
    return np.where(step.before.batch.mask[rows], np.asarray(values)[rows], 0.0)


def heat_of(name: str, values: np.ndarray) -> Heat:
    """Return what colours the table: signed around 0, or from 0 to the largest value."""
    return Written(values, write=QUANTITIES[name].write)


def step_ends(group: Mapping[str, Any]) -> list[dict[int, str]]:
    """Return, for each completion, the last token of every step with what the step was paid, as text.

    [] where completions were not judged in steps, or what a file says of the steps does not fit its completions.
    """
    ends, rewards = group.get("step_ends") or (), group.get("step_rewards") or ()
    try:
        found = [_paid(*both) for both in zip(ends, rewards, strict=True)]
    except (TypeError, ValueError):
        return []
    return found if len(found) == len(group["completions"]) else []


def _paid(ends: Sequence[int], rewards: Sequence[float]) -> dict[int, str]:
    return dict(sorted((int(end), short(reward)) for end, reward in zip(ends, rewards, strict=True)))


def step_words(ends: Mapping[int, str], position: int) -> str:
    """Return which step a token belongs to and what that was paid; a token after the last step belongs to none."""
    number = sum(end < position for end in ends) + 1
    if number > len(ends):
        return MISSING
    return t("live.heat.step_of", number=number, count=len(ends), reward=list(ends.values())[number - 1])


def fact_rows(step: StepLoss, index: int) -> tuple[list[str], list[list[list[str]]]]:
    """Return which quantities were measured, and for each token of each completion all of them as text."""
    measured = {name: values for name in QUANTITIES if (values := values_of(name, step, index)) is not None}
    heats = {name: heat_of(name, values) for name, values in measured.items()}
    rows = [
        [[heats[name].text(float(measured[name][i, k])) for name in measured] for k in range(len(tokens))]
        for i, tokens in enumerate(step.groups[index].tokens)
    ]
    return list(measured), rows
