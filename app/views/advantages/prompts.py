"""Several prompts in one batch: groups of their own, one group of all, and baselines over the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import streamlit as st

from app import widgets
from app.figures import advantages_batches as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, signed
from app.snippets_loss import code
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import (
    AdvantageSpec,
    GroupAdvantages,
    between_group_share,
    compute_advantages,
    get_recipe,
    group_advantages,
    kind_counts,
    reward_statistics,
)
from grpo_core.baselines import whitening_moments

POOLS: Mapping[str, str | None] = {
    "one": None,
    "whitened": "reinforce_plus_plus_paper",
    "group_whitened": "verl_reinforce_plus_plus_baseline",
    "batch_mean": "openrlhf_flash_reinforce",
    "batch_std": None,
}
"""What is set against groups of their own, and the recipe whose advantage it is (None: built from the settings)."""


@dataclass(frozen=True)
class Batch:
    """Rewards 0 or 1 of several prompts (prompts, G), the group's own definition, and the one that is compared."""

    rewards: np.ndarray
    own: AdvantageSpec
    pool: str

    @property
    def spec(self) -> AdvantageSpec:
        """The definition that is compared."""
        recipe = POOLS[self.pool]
        if recipe is not None:
            return get_recipe(recipe).advantage
        return replace(self.own, scale="batch") if self.pool == "batch_std" else self.own

    @property
    def lengths(self) -> np.ndarray:
        """Completions are equally long here, so that a mean over tokens is one over completions."""
        return np.ones_like(self.rewards)

    @cached_property
    def separate(self) -> GroupAdvantages:
        """Each prompt's completions in a group of their own."""
        return compute_advantages(self.rewards, self.own)

    @cached_property
    def compared(self) -> GroupAdvantages:
        """The other definition; in one group, all completions are one row."""
        rewards = self.rewards.reshape(1, -1) if self.pool == "one" else self.rewards
        return compute_advantages(rewards, self.spec, lengths=np.ones_like(rewards))

    @property
    def advantages(self) -> np.ndarray:
        """The other definition's advantages (prompts, G)."""
        return self.compared.advantages.reshape(self.rewards.shape)

    @cached_property
    def moments(self) -> tuple[float, float]:
        """What whitening subtracts and divides by, over the batch's tokens."""
        assert self.spec.whitening is not None
        before = compute_advantages(self.rewards, replace(self.spec, whitening=None)).advantages
        scored = np.ones(self.rewards.shape, dtype=bool)
        mean, divisor = whitening_moments(before, self.lengths, scored, whitening=self.spec.whitening)
        return float(mean), float(divisor)

    @property
    def easy(self) -> int:
        """The prompt with the most right completions."""
        return int(np.argmax(self.rewards.sum(axis=1)))

    @property
    def hard(self) -> int:
        """The prompt with the fewest right completions; another one than the easy prompt."""
        return int(len(self.rewards) - 1 - np.argmin(self.rewards.sum(axis=1)[::-1]))

    @property
    def difficulty(self) -> float:
        """Which part of the advantages' variance says only which prompt a completion is from."""
        return between_group_share(self.advantages)


def batch(lens: Lens) -> Batch:
    """Return what the settings describe: of each prompt's G completions, the nearest number to its rate is right."""
    v = lens.values
    size = int(v["mix_g"])
    right = [round(rate * size) for rate in v["levels"]]
    rewards = np.array([[1.0] * n + [0.0] * (size - n) for n in right])
    own = AdvantageSpec(ddof=lens.spec.ddof, eps=lens.spec.eps)
    return Batch(rewards, own, v["pool"])


def names(count: int) -> list[str]:
    """Return the prompts' names."""
    return [chr(ord("A") + i) for i in range(count)]


def settings(lens: Lens) -> None:
    """Draw the prompts' success rates, the group size, and what is compared."""
    one = batch(lens)
    titles = [t("control.prompt", name=name) for name in names(len(one.rewards))]
    rows = widgets.cell_rows("levels", titles)
    for row, right in zip(rows, one.rewards, strict=True):
        row["unit"] = t("control.right_of", n=int(right.sum()), total=right.size)
        row["help"] = t("control.level_help")
    count = widgets.count_row(["levels"], t("control.prompts"))
    live = st.container()
    widgets.select("pool")
    widgets.choice("ddof")
    with live:
        widgets.controls("prompts", [*rows, slider("mix_g"), slider("eps"), count])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    one = batch(lens)
    panels = [
        figures.Panel(t("chart.separate"), one.separate.advantages),
        figures.Panel(t(f"param.pool.{one.pool}"), one.advantages),
    ]
    figure = figures.prompts(widgets.colors(), panels, one.rewards, names(len(one.rewards)))
    widgets.picture(figure, "prompts", alt=t("alt.prompts"))
    widgets.readouts(
        [
            Readout("easy_mean", signed(float(one.advantages[one.easy].mean()))),
            Readout("hard_mean", signed(float(one.advantages[one.hard].mean()))),
            Readout("difficulty", t("readout.percent", value=plain(100 * one.difficulty, 0))),
            Readout("reward_std", plain(reward_statistics(one.rewards)["reward_std"])),
        ]
    )
    st.caption(kinds(one))
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("advantages", section, **numbers)
    widgets.check_yourself("prompts", lambda: question(one))
    widgets.take_away("advantages-prompts", "prompts", lambda: snippet(one), lambda: table(one))


def kinds(one: Batch) -> str:
    """Return how many groups of each kind the batch has, prompt by prompt in groups of their own."""
    counts = kind_counts([row.tolist() for row in one.rewards])
    return t("advantage.kinds", **{kind.replace("-", "_"): n for kind, n in counts.items()})


def focus(one: Batch) -> tuple[int, int]:
    """Return the completion that the formula shows: the hard prompt's first one."""
    return one.hard, 0


def formula(one: Batch) -> list[str]:
    """Return one completion's advantage in its own group and under the other definition, with numbers."""
    at = focus(one)
    reward, i = float(one.rewards[at]), names(len(one.rewards))[at[0]]
    left = rf"A_{{\mathrm{{{i}}},1}}"
    own = one.separate
    lines = [_quotient(rf"{left}^{{\text{{own}}}}", reward, rf"\bar r_{{\mathrm{{{i}}}}}", own, at)]
    if one.spec.whitening is not None:
        return [*lines, *_whitened(one, left, i, at)]
    place = (0, at[0] * one.rewards.shape[1]) if one.pool == "one" else at
    base = r"\bar r" if one.pool in ("one", "batch_mean") else rf"\bar r_{{\mathrm{{{i}}}}}"
    if one.pool == "batch_mean":
        value = float(one.advantages[at])
        return [*lines, rf"{left} &= r - {base} = {latex(reward)} - {bracketed(reward - value)} = {_signed(value)}"]
    return [*lines, _quotient(left, reward, base, one.compared, place, batch=one.pool == "batch_std")]


def _signed(value: float) -> str:
    return latex(value, sign=True)


def _quotient(
    left: str, reward: float, base: str, scores: GroupAdvantages, at: tuple[int, int], *, batch: bool = False
) -> str:
    row, value = at[0], float(scores.advantages[at])
    if float(scores.std[row]) == 0.0:
        return rf"{left} &= 0 \quad\text{{(all equal)}}"
    under = r"s_{\mathrm{batch}}" if batch else "s"
    numbers = rf"\frac{{{latex(reward)} - {bracketed(float(scores.mean[row]))}}}{{{latex(float(scores.divisor[row]))}}}"
    return rf"{left} &= \frac{{r - {base}}}{{{under}}} = {numbers} = {_signed(value)}"


def _whitened(one: Batch, left: str, name: str, at: tuple[int, int]) -> list[str]:
    """Return the lines of an advantage that is centred and scaled over the batch."""
    mean, divisor = one.moments
    reward, value = float(one.rewards[at]), float(one.advantages[at])
    before, lines, symbol = reward, [], "r"
    if one.pool == "group_whitened":
        group_mean = float(one.separate.mean[at[0]])
        before, symbol = reward - group_mean, "A'"
        lines = [
            rf"A' &= r - \bar r_{{\mathrm{{{name}}}}} = {latex(reward)} - {bracketed(group_mean)} = {_signed(before)}"
        ]
    return [
        *lines,
        rf"{left} &= \frac{{{symbol} - \mathrm{{mean}}_{{\mathrm{{batch}}}}}}{{\mathrm{{std}}_{{\mathrm{{batch}}}}}}"
        rf" = \frac{{{latex(before)} - {bracketed(mean)}}}{{{latex(divisor)}}} = {_signed(value)}",
    ]


def notice(one: Batch) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    count = len(one.rewards)
    easy, hard = names(count)[one.easy], names(count)[one.hard]
    logged = reward_statistics(one.rewards)
    numbers = {
        "easy": easy, "hard": hard, "easy_mean": signed(float(one.advantages[one.easy].mean()), 2),
        "hard_mean": signed(float(one.advantages[one.hard].mean()), 2), "share": plain(100 * one.difficulty, 0),
        "std": plain(logged["reward_std"]), "within": plain(logged["reward_std_within"]),
        "failure": signed(float(one.advantages[one.easy].min()), 2),
        "success": signed(float(one.advantages[one.hard].max()), 2),
        "own_success": signed(float(one.separate.advantages[one.hard].max()), 2),
    }  # fmt: skip
    if not np.any(one.separate.advantages) and logged["reward_std"] > 0:
        return ("prompts-flat" if one.difficulty < 1e-9 else "prompts-flat-mixed"), numbers
    if len(np.unique(one.rewards.sum(axis=1))) == 1:
        return "prompts-same", numbers
    return f"prompts-{one.pool}", numbers


def question(one: Batch) -> Question:
    """Ask for an advantage when a solved and an unsolved prompt share a group."""
    rewards = np.array([1.0] * 4 + [0.0] * 4)
    value = float(group_advantages(rewards, ddof=0, eps=0.0).advantages[0])
    return Question(prose("advantages", "ask-prompts"), value, prose("advantages", "worked-prompts"))


def snippet(one: Batch) -> str:
    """Return Python for both definitions."""
    reshaped = ".reshape(1, -1)" if one.pool == "one" else ""
    more = "" if one.spec.whitening is None else "Whitening, "
    return f"""import numpy as np
from grpo_core import AdvantageSpec, {more}between_group_share, compute_advantages, reward_statistics

rewards = np.array({one.rewards.tolist()!r})  # prompts x completions
print(compute_advantages(rewards, {code(one.own, AdvantageSpec())}).advantages)
rows = rewards{reshaped}
spec = {code(one.spec, AdvantageSpec())}
advantages = compute_advantages(rows, spec, lengths=np.ones_like(rows)).advantages.reshape(rewards.shape)
print(advantages.mean(axis=1))
print(100 * between_group_share(advantages), reward_statistics(rewards)["reward_std"])"""


def table(one: Batch) -> Table:
    """Return every completion as data."""
    rows = [
        (name, j + 1, float(one.rewards[k, j]), float(one.separate.advantages[k, j]), float(one.advantages[k, j]))
        for k, name in enumerate(names(len(one.rewards)))
        for j in range(one.rewards.shape[1])
    ]
    return Table(("prompt", "completion", "reward", "advantage in its own group", f"advantage, {one.pool}"), rows)
