"""What the Loss page says about the current group: its tokens' pulls, and what another choice makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app import params, walk
from app.alternatives import ALTERNATIVES
from app.figures.loss import Change
from app.lens import Lens, longest, look, look_under
from app.numbers import plain, short, signed
from app.token_table import Place, share, visible
from app.walk import Chain
from app.widgets import Question, Table
from app.words import known, prose, t
from grpo_core import Recipe, Whitening, get_recipe
from grpo_core.differences import (
    Difference,
    advantage_differences,
    objective_differences,
    sampling_differences,
    take,
    take_advantage,
)

NOTHING = 1e-12  # a pull below this is rounding
MOST_CHANGES = 10


# One loss


def added(lens: Lens) -> tuple[np.ndarray, np.ndarray]:
    """Return what each completion adds to the loss: its policy term and its KL term, both (G,)."""
    whole = np.asarray(lens.terms.contribution)
    policy = -np.asarray(lens.terms.objective) * np.asarray(lens.terms.weights)
    return policy.sum(axis=1), (whole - policy).sum(axis=1)


def both_ways(pull: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of each completion's upward pulls and of its downward pulls, both (G,)."""
    return np.where(pull > 0, pull, 0.0).sum(axis=1), np.where(pull < 0, pull, 0.0).sum(axis=1)


def kl_part(lens: Lens) -> float:
    """Return what the KL term adds to the loss."""
    return float(lens.terms.loss) - float(lens.terms.policy_loss)


def notice(lens: Lens, pull: np.ndarray) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    loss, signal = float(lens.terms.loss), bool(np.any(lens.advantages != 0))
    pulling = int((np.abs(pull) > NOTHING).sum())
    if not pulling:
        return ("no-pull" if signal else "no-signal"), {"kind": t(f"kind.{lens.group.kind}")}
    if not signal:
        up, down = int((pull > NOTHING).sum()), int((pull < -NOTHING).sum())
        numbers = {"beta": short(lens.objective.beta), "up": str(up), "down": str(down)}
        return "kl-only", {**numbers, "kind": t(f"kind.{lens.group.kind}")}
    if left_out := _left_out(lens):
        return "cut", {"which": left_out}
    if lens.objective.ratio_level != "token" and walk.needs_ratio(lens):
        return "shared-ratio", {"level": t(f"param.level.{lens.objective.ratio_level}")}
    flat = int((lens.terms.saturated & lens.terms.mask).sum())
    if flat:
        return "saturated", {"count": str(flat), "total": str(int(lens.terms.mask.sum()))}
    if lens.objective.aggregation == "sequence_mean" and (pair := _unequal(lens)):
        return "lengths", pair
    if abs(loss) < 1e-9:
        return "zero-loss", {"count": str(pulling), "size": plain(np.abs(pull).sum())}
    section = "negative-loss" if loss < 0 else "plain"
    return section, {"loss": signed(loss), "size": plain(np.abs(pull).sum())}


def _left_out(lens: Lens) -> str:
    """Return the numbers of the completions that the loss leaves out because they were cut off."""
    cut = [str(i + 1) for i, was in enumerate(lens.group.truncated) if was] if lens.objective.mask_truncated else []
    return ", ".join(cut)


def _unequal(lens: Lens) -> dict[str, Any] | None:
    """Return the shortest and the longest completion with an advantage, if one is at least three times the other."""
    own = [(n, i) for i, n in enumerate(lens.lengths) if n and lens.advantages[i] != 0]
    if not own or min(own)[0] * 3 > max(own)[0]:
        return None
    (few, low), (many, high) = min(own), max(own)
    numbers = {"short": str(low + 1), "long": str(high + 1), "few": str(few), "many": str(many)}
    return {**numbers, "times": short(round(many / few, 1))}


def question(lens: Lens) -> Question:
    """Ask for the loss before the first update: every ratio 1, no KL."""
    start = lens.group.replace(old_logp=lens.group.logp)
    value = float(look_under(start, lens.values, lens.spec, lens.objective.replace(beta=0.0)).terms.loss)
    section = "worked-zero" if abs(value) < 1e-9 else "worked-start"
    return Question(prose("loss", "ask"), value, prose("loss", section, answer=signed(value)), tolerance=0.005)


def table(lens: Lens) -> Table:
    """Return every token with every part of its loss."""
    header = (
        "completion", "position", "token", "reward", "advantage", "ratio", "objective", "saturated", "kl", "weight",
        "adds to the loss", "pull", "mask", "logp", "old_logp", "ref_logp",
    )  # fmt: skip
    terms, pull = lens.terms, walk.pulls(lens)
    kl = np.zeros_like(pull) if terms.kl is None else np.asarray(terms.kl)
    numbers = (terms.ratio, terms.objective, terms.saturated, kl, terms.weights, terms.contribution, pull)
    rewards = ["unscored" if reward is None else reward for reward in lens.group.rewards]
    given = [rows for rows in (lens.group.mask, lens.group.logp, lens.group.old_logp, lens.group.ref_logp) if rows]
    header = header[: 12 + len(given)]
    rows = [
        (
            *(i + 1, k + 1, text, rewards[i], float(lens.advantages[i])),
            *(values[i, k].item() for values in numbers),
            *(values[i][k] for values in given),
        )
        for i, tokens in enumerate(lens.group.tokens)
        for k, text in enumerate(tokens)
    ]
    return Table(header, rows)


# Two losses


@dataclass(frozen=True)
class Pair:
    """One group under two losses. Pulls are (B, T)."""

    first: Lens
    second: Lens

    @cached_property
    def pulls(self) -> tuple[np.ndarray, np.ndarray]:
        """Each token's pull under both."""
        return walk.pulls(self.first), walk.pulls(self.second)

    @cached_property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Each token's share of all pull under both."""
        first, second = self.pulls
        return share(first), share(second)

    @property
    def moved(self) -> float:
        """The part of all pull that acts elsewhere, or the other way, under the second loss: 0 to 1."""
        first, second = self.shares
        empty = [not np.any(each) for each in (first, second)]
        return float(empty[0] != empty[1]) if any(empty) else 0.5 * float(np.abs(second - first).sum())

    @property
    def changed(self) -> int:
        """How many tokens have another pull."""
        first, second = self.pulls
        return int((np.abs(second - first) > NOTHING + 1e-9 * np.abs(first)).sum())

    @property
    def factor(self) -> float | None:
        """The number that multiplies every pull, if nothing else changes; None otherwise."""
        first, second = self.pulls
        size = float(np.abs(first).sum())
        return float(np.abs(second).sum()) / size if size > 0 and self.moved < 1e-9 and np.any(second) else None


def changes(pair: Pair, *, in_shares: bool) -> list[Change]:
    """Return the tokens whose pull changes most, the largest change first."""
    first, second = pair.shares if in_shares else pair.pulls
    size = np.nan_to_num(np.abs(second - first))
    order = sorted(zip(*np.nonzero(size > NOTHING), strict=True), key=lambda at: (-round(float(size[at]), 12), at))
    tokens = pair.first.group.tokens
    return [
        Change(int(i), int(k), visible(tokens[i][k], 14), float(first[i, k]), float(second[i, k]))
        for i, k in order[:MOST_CHANGES]
    ]


def pair_notice(pair: Pair) -> tuple[str, dict[str, Any]]:
    """Return what to notice about two losses, and the numbers in it."""
    first, second = pair.pulls
    if not pair.changed:
        return "same", {}
    numbers = {"count": str(pair.changed), "total": str(int(pair.first.terms.mask.sum()))}
    if pair.factor is not None:
        return "factor", {**numbers, "factor": short(round(pair.factor, 4))}
    flipped = int((first * second < -(NOTHING**2)).sum())
    if flipped:
        return "flipped", {**numbers, "flipped": str(flipped)}
    silent = int(((np.abs(first) > NOTHING) & (np.abs(second) <= NOTHING)).sum())
    woken = int(((np.abs(first) <= NOTHING) & (np.abs(second) > NOTHING)).sum())
    if silent or woken:
        return "silent", {**numbers, "silent": str(silent), "woken": str(woken), "moved": f"{100 * pair.moved:.1f} %"}
    return "moved", {**numbers, "moved": f"{100 * pair.moved:.1f} %"}


def pair_question(pair: Pair, at: Place) -> Question:
    """Ask by which factor the chosen token's pull changes, or for its new value if it pulled nothing before."""
    first, second = (float(pull[at]) for pull in pair.pulls)
    where = {"completion": at[0] + 1, "position": at[1] + 1}
    if abs(first) <= NOTHING:
        text = prose("loss", "ask-pull", **where)
        return Question(text, second, prose("loss", "worked-pull", answer=signed(second, 4)), tolerance=0.02)
    numbers = {"first": signed(first, 4), "second": signed(second, 4), "answer": short(round(second / first, 4))}
    return Question(
        prose("loss", "ask-factor", **where), second / first, prose("loss", "worked-factor", **numbers), 0.02
    )


def pair_table(pair: Pair) -> Table:
    """Return every token's pull under both losses."""
    (first, second), (a, b) = pair.pulls, pair.shares
    rows = [
        (i + 1, k + 1, text, float(first[i, k]), float(second[i, k]), float(a[i, k]), float(b[i, k]))
        for i, tokens in enumerate(pair.first.group.tokens)
        for k, text in enumerate(tokens)
    ]
    return Table(("completion", "position", "token", "pull 1", "pull 2", "share 1", "share 2"), rows)


# Two recipes


@dataclass(frozen=True)
class Comparison:
    """The current loss against another recipe, and where they differ. `kept`: what is not taken over."""

    pair: Pair
    differences: tuple[Difference, ...]
    kept: frozenset[str]
    other: Recipe

    @property
    def acting(self) -> list[Difference]:
        """The differences that can change a token's pull."""
        return [d for d in self.differences if not d.idle]

    @property
    def idle(self) -> list[Difference]:
        """The differences that change nothing on this page."""
        return [d for d in self.differences if d.idle]


def comparison(lens: Lens) -> Comparison:
    """Return the current loss against the other recipe, with the choices in `kept` left as they are."""
    other = get_recipe(lens.values["other"])
    objective = other.objective
    if other.constant_from is not None or objective.aggregation != "constant":
        length = float(lens.values["constant"] or longest(lens.group))
        objective = objective.replace(constant=length)
    current = params.objective(lens.values, longest=longest(lens.group))
    found = [
        *advantage_differences(lens.spec, other.advantage),
        *objective_differences(current, objective),
        *sampling_differences(get_recipe(lens.values["recipe"]).sampling, other.sampling),
    ]
    kept = frozenset(lens.values["kept"] or ())
    names = [d.name for d in found if d.name not in kept]
    second = look_under(
        lens.group, lens.values, take_advantage(lens.spec, other.advantage, names), take(current, objective, names)
    )
    return Comparison(Pair(lens, second), tuple(found), kept, other)


_SETTING = {
    "ratio_level": "level", "surrogate": "surrogate", "aggregation": "reduce", "scale": "scale",
    "estimator": "estimator", "kl_estimator": "kl",
}  # fmt: skip


def choice_text(name: str, value: Any) -> str:
    """Return one side of a difference as text."""
    if value is None:
        return t("choice.none")
    if isinstance(value, bool):
        return t("choice.yes" if value else "choice.no")
    if isinstance(value, int | float):
        return short(value)
    if isinstance(value, Whitening):
        return t("choice.value.whitening", ddof=value.ddof, eps=short(value.eps))
    keys = (f"param.{_SETTING.get(name)}.{value}", f"choice.value.{value}")
    return next((t(key) for key in keys if known(key)), str(value))


def choice_name(name: str) -> str:
    """Return the name of a choice as text."""
    return t(f"choice.{name}")


# What if


@dataclass(frozen=True)
class Alternative:
    """One changed choice: its id, what it is called, and the two losses."""

    name: str
    title: str
    pair: Pair

    @property
    def order(self) -> tuple[float, float]:
        """What alternatives are ranked by: pull that moves, then the size of a common factor."""
        factor = self.pair.factor
        return (-round(self.pair.moved, 9), -abs(np.log(factor)) if factor else 0.0)


def alternative(lens: Lens, name: str) -> Alternative:
    """Return the group under one changed choice."""
    changed = {**lens.values, **ALTERNATIVES[name]}
    return Alternative(name, alternative_title(name), Pair(lens, look(lens.group, changed)))


def alternatives(lens: Lens) -> list[Alternative]:
    """Return every single choice that could be made otherwise, the one that moves most pull first."""
    open_names = [
        name for name in ALTERNATIVES if not _chosen_already(lens.values, ALTERNATIVES[name]) and _possible(lens, name)
    ]
    return sorted((alternative(lens, name) for name in open_names), key=lambda each: each.order)


def _chosen_already(values: Mapping[str, Any], changes_: Mapping[str, Any]) -> bool:
    return all(values[name] == value for name, value in changes_.items())


def _possible(lens: Lens, name: str) -> bool:
    """Return whether a choice exists for this group: no KL without a reference, nothing cut off without a cut."""
    setting = name.split(":")[0]
    if setting in ("kl", "klw"):
        return lens.objective.beta > 0
    if setting == "beta":
        return lens.group.ref_logp is not None
    if setting == "cut":
        return any(lens.group.truncated)
    return True


def alternative_title(name: str) -> str:
    """Return an alternative as text: which choice, and what it would be."""
    setting, _, value = name.partition(":")
    if known(f"alt.{name}"):
        return t(f"alt.{name}")
    return t("alt.title", setting=t(f"alt.{setting}"), value=t(f"param.{setting}.{value}"))


# One token under two losses


def chains(pair: Pair, at: Place) -> tuple[Chain, Chain]:
    """Return one token's way through both losses."""
    return walk.chain(pair.first, *at), walk.chain(pair.second, *at)
