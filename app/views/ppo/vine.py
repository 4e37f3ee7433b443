"""Values measured by continuing a completion from each step (VinePPO), and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app import widgets
from app.figures import ppo as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, short, signed
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.credit import RolloutBill, continuation_advantages, continuation_bill, continuation_values
from grpo_core.critic import continuation_errors


@dataclass(frozen=True)
class Vine:
    """A completion of some steps: how many of `each` continuations were right from before each step, and its reward."""

    right: tuple[int, ...]
    each: int
    reward: float
    length: int

    @property
    def rewards(self) -> list[list[float]]:
        """The continuations' rewards, prefix by prefix."""
        return [[1.0] * n + [0.0] * (self.each - n) for n in self.right]

    @cached_property
    def values(self) -> np.ndarray:
        """The measured value before each step (steps,)."""
        return continuation_values(self.rewards)

    @cached_property
    def errors(self) -> np.ndarray:
        """Their standard errors (steps,), nan for a single continuation."""
        return continuation_errors(self.rewards)

    @cached_property
    def advantages(self) -> np.ndarray:
        """What each step did to the success rate (steps,)."""
        return continuation_advantages(self.rewards, self.reward)

    @property
    def starts(self) -> list[int]:
        """Where the steps begin, in tokens: evenly spread."""
        return np.unique(np.linspace(0, self.length, len(self.right), endpoint=False).astype(int)).tolist()

    @cached_property
    def bill(self) -> RolloutBill:
        """The cost of continuing from every step."""
        return continuation_bill([self.length], continuations=self.each, starts=[self.starts])

    @cached_property
    def token_bill(self) -> RolloutBill:
        """The cost of continuing from every token."""
        return continuation_bill([self.length], continuations=self.each)


def measured(lens: Lens) -> Vine:
    """Return what the settings describe; a success rate becomes the nearest count of right continuations."""
    v = lens.values
    each = int(v["vine_k"])
    return Vine(tuple(round(p * each) for p in v["vine"]), each, float(v["vine_r"]), int(v["vine_len"]))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    vine = measured(lens)
    titles = [t("control.before_step", number=i + 1) for i in range(len(vine.right))]
    rows = widgets.cell_rows("vine", titles, color=widgets.colors().second)
    for row, n in zip(rows, vine.right, strict=True):
        row["unit"] = t("control.right_of", n=n, total=vine.each)
    size = widgets.count_row(["vine"], t("control.steps"))
    widgets.controls("vine", [slider("vine_k"), slider("vine_len"), slider("vine_r"), size, *rows])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    vine = measured(lens)
    figure = figures.vine(widgets.colors(), vine.values, vine.errors, vine.advantages, reward=vine.reward)
    widgets.picture(figure, "vine", alt=t("alt.vine"))
    widgets.readouts(
        [
            Readout("continuations", str(vine.bill.continuations)),
            Readout("extra_tokens", f"{vine.bill.tokens:,}".replace(",", "\N{THIN SPACE}")),
            Readout("vine_ratio", t("readout.times", value=plain(vine.bill.ratio, 1))),
            Readout("vine_token_ratio", t("readout.times", value=plain(vine.token_bill.ratio, 1))),
        ]
    )
    widgets.formula(formula(vine))
    section, numbers = notice(vine)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("vine", lambda: question(vine))
    widgets.take_away("ppo", "vine", lambda: snippet(vine), lambda: table(vine))


def formula(vine: Vine) -> list[str]:
    """Return the advantage of the step that changed the success rate most, and the bill."""
    i = int(np.argmax(np.abs(vine.advantages)))
    last = i == len(vine.values) - 1
    after, symbol = (vine.reward, "R") if last else (vine.values[i + 1], rf"\hat V_{{{i + 2}}}")
    n = i + 1
    bill = vine.token_bill
    return [
        rf"\hat V_{{{n}}} &= \tfrac1K \sum_k R_k = \tfrac{{{vine.right[i]}}}{{{vine.each}}} = {latex(vine.values[i])}",
        rf"A_{{{n}}} &= {symbol} - \hat V_{{{n}}} = {latex(after)} - {bracketed(vine.values[i])}"
        rf" = {latex(vine.advantages[i], sign=True)}",
        rf"\text{{every token:}}\quad K\,\tfrac{{L(L+1)}}{{2}} &= {vine.each}\cdot\tfrac{{{vine.length}\cdot"
        rf" {vine.length + 1}}}{{2}} = {latex(bill.tokens)}\ \text{{tokens}}",
    ]


def notice(vine: Vine) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    worst = int(np.argmin(vine.advantages))
    numbers = {
        "step": str(worst + 1), "drop": signed(vine.advantages[worst], 2), "count": short(vine.each),
        "ratio": plain(vine.bill.ratio, 0), "token_ratio": plain(vine.token_bill.ratio, 0),
        "error": plain(float(np.nanmax(vine.errors)) if vine.each > 1 else None, 2),
    }  # fmt: skip
    if vine.each == 1:
        return "vine-one", numbers
    return ("vine-drop" if vine.advantages[worst] < 0 else "vine"), numbers


def question(vine: Vine) -> Question:
    """Ask what all the steps' advantages add up to."""
    value = float(vine.advantages.sum())
    numbers = {"reward": plain(vine.reward, 2), "value": plain(vine.values[0], 3), "answer": signed(value)}
    return Question(prose("ppo", "ask-vine"), value, prose("ppo", "worked-vine", **numbers))


def snippet(vine: Vine) -> str:
    """Return Python for values, advantages and the bill."""
    return f"""from grpo_core.credit import continuation_advantages, continuation_bill, continuation_values
from grpo_core.critic import continuation_errors

right, each = {list(vine.right)}, {vine.each}  # right continuations from before each step
rewards = [[1.0] * n + [0.0] * (each - n) for n in right]
print(continuation_values(rewards), continuation_errors(rewards))
print(continuation_advantages(rewards, {vine.reward!r}))
for starts in ([{vine.starts}], None):  # from every step, from every token
    bill = continuation_bill([{vine.length}], continuations=each, starts=starts)
    print(bill.continuations, bill.tokens, bill.ratio)"""


def table(vine: Vine) -> Table:
    """Return the steps as data."""
    rows = [
        (i + 1, n, vine.each, float(v), float(e), float(a))
        for i, (n, v, e, a) in enumerate(zip(vine.right, vine.values, vine.errors, vine.advantages, strict=True))
    ]
    return Table(("step", "right", "continuations", "value before", "standard error", "advantage"), rows)
