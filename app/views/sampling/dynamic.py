"""Dynamic sampling: what it costs to fill a batch with mixed groups, and which prompts it makes heavier."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app import widgets
from app.figures import sampling as figures
from app.lens import Lens
from app.numbers import MISSING, latex, plain, short
from app.widgets import Question, Readout, Row, Table, slider
from app.words import prose, t
from grpo_core.sampling import DynamicSampling, dynamic_sampling, fill_probability

POINTS = 25


@dataclass(frozen=True)
class Batch:
    """Prompts with their success rates (N,), a group size, the groups wanted, the rule for groups without signal."""

    rates: tuple[float, ...]
    size: int
    wanted: int
    rule: str

    @cached_property
    def result(self) -> DynamicSampling:
        """Cost and effect under the rule."""
        return dynamic_sampling(self.rates, group_size=self.size, batch_groups=self.wanted, rule=self.rule)

    @property
    def mean(self) -> float:
        """The average probability of a mixed group."""
        return float(np.mean(self.result.mixed))

    @property
    def efficiency(self) -> float:
        """The share of sampled groups that carry a signal."""
        return self.mean if self.rule == "keep" else self.wanted / self.result.draws

    def fill(self) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers of draws and the probability that so many fill the batch; empty if it never fills."""
        cost = self.result
        if self.rule != "resample" or not math.isfinite(cost.draws):
            return np.array([]), np.array([])
        ends = max(self.wanted, cost.draws - 3 * cost.draws_std), cost.draws + 3.5 * cost.draws_std + 1
        draws = np.unique(np.linspace(*ends, POINTS).round().astype(int))
        chances = [fill_probability(self.mean, batch_groups=self.wanted, draws=int(n)) for n in draws]
        return draws, np.array(chances)


def batch(lens: Lens) -> Batch:
    """Return what the settings describe."""
    v = lens.values
    return Batch(tuple(v["rates"]), int(v["mix_g"]), int(v["batch_n"]), v["refill"])


def rate_rows(count: int) -> list[Row]:
    """Return a row for each prompt's success rate, and one for their number."""
    titles = [t("control.prompt", name=name) for name in names(count)]
    return [*widgets.cell_rows("rates", titles), widgets.count_row(["rates"], t("control.prompts"))]


def names(count: int) -> list[str]:
    """Return the prompts' names."""
    return [chr(ord("A") + i) for i in range(count)]


def settings(lens: Lens) -> None:
    """Draw the controls."""
    widgets.choice("refill")
    top = [{**slider(name), "wide": True} for name in ("mix_g", "batch_n")]
    widgets.controls("dynamic", [*top, *rate_rows(len(lens.values["rates"]))], two=True)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    one = batch(lens)
    cost = one.result
    widgets.picture(figures.dynamic(widgets.colors(), one, names(len(one.rates))), "dynamic", alt=t("alt.dynamic"))
    draws, chances = one.fill()
    if len(draws):
        figure = figures.fill(widgets.colors(), draws, chances, mean=cost.draws)
        widgets.picture(figure, "fill", alt=t("alt.fill"))
    spread = "" if one.rule == "keep" or not math.isfinite(cost.draws_std) else f" ± {plain(cost.draws_std, 0)}"
    widgets.readouts(
        [
            Readout("draws", plain(cost.draws, 0) + spread),
            Readout("completions", plain(cost.completions, 0)),
            Readout("efficiency", t("readout.percent", value=plain(100 * one.efficiency, 0))),
            Readout("direction", direction(one)),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("sampling", section, **numbers)
    widgets.check_yourself("dynamic", lambda: question(one))
    widgets.take_away("sampling", "dynamic", lambda: snippet(one), lambda: table(one))


def direction(one: Batch) -> str:
    """Return whether the expected gradient keeps its direction; a dash where nothing trains."""
    if one.mean == 0:
        return MISSING
    return t("readout.same_direction" if one.result.only_rescales else "readout.new_direction")


def focus(one: Batch) -> int:
    """Return the prompt that gains most; the rarest mixed one that can be mixed at all."""
    mixed = np.where(one.result.mixed > 0, one.result.mixed, np.inf)
    return int(np.argmin(mixed))


def formula(one: Batch) -> list[str]:
    """Return the chance of a mixed group, the draws and the factor, with numbers."""
    i, g = focus(one), one.size
    name, p, m = names(len(one.rates))[i], one.rates[i], float(one.result.mixed[i])
    lines = [
        rf"m_{{{name}}} &= 1 - p^G - (1-p)^G = 1 - {latex(p, 2)}^{{{g}}} - {latex(1 - p, 2)}^{{{g}}} = {latex(m)}",
    ]
    draws, mean, factor = latex(one.result.draws, 0), latex(one.mean), latex(float(one.result.factor[i]), 2)
    if one.rule == "keep":
        return [
            *lines,
            rf"\text{{mixed groups}} &= N \bar m = {one.wanted} \cdot {mean} = {latex(one.wanted * one.mean, 1)}",
        ]
    if one.rule == "resample":
        return [
            *lines,
            rf"\mathbb{{E}}[\text{{groups}}] &= \frac{{N}}{{\bar m}} = \frac{{{one.wanted}}}{{{mean}}} = {draws}",
            rf"\text{{factor}} &= \frac{{1}}{{\bar m}} = {factor}\quad\text{{for every prompt}}",
        ]
    return [
        *lines,
        rf"\mathbb{{E}}[\text{{groups}}] &= N\,\tfrac{{1}}{{|x|}}\sum_x \frac{{1}}{{m_x}} = {draws}",
        rf"\text{{factor}}_{{{name}}} &= \frac{{1}}{{m_{{{name}}}}} = {factor}",
    ]


def notice(one: Batch) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    cost, i = one.result, focus(one)
    numbers = {
        "wasted": plain(100 * (1 - one.efficiency), 0), "factor": plain(float(cost.factor[i]), 1),
        "name": names(len(one.rates))[i], "p": plain(one.rates[i], 2), "draws": plain(cost.draws, 0),
        "wanted": str(one.wanted), "mixed": plain(one.wanted * one.mean, 1),
    }  # fmt: skip
    if one.mean == 0:
        return "dynamic-never", numbers
    if one.rule == "retry" and not math.isfinite(cost.draws):
        return "dynamic-endless", numbers
    return f"dynamic-{one.rule}", numbers


def question(one: Batch) -> Question:
    """Ask for the expected draws of an even prompt with small groups."""
    value = dynamic_sampling([0.5], group_size=2, batch_groups=32).draws
    return Question(prose("sampling", "ask-dynamic"), value, prose("sampling", "worked-dynamic", answer=short(value)))


def snippet(one: Batch) -> str:
    """Return Python for cost and effect."""
    return f"""from grpo_core.sampling import dynamic_sampling

cost = dynamic_sampling({list(one.rates)}, group_size={one.size}, batch_groups={one.wanted}, rule={one.rule!r})
print("groups drawn", cost.draws, "+-", cost.draws_std, "completions", cost.completions)
print("mixed", cost.mixed)
print("share of what trains", cost.share, "factor", cost.factor, "only rescales", cost.only_rescales)"""


def table(one: Batch) -> Table:
    """Return the prompts as data."""
    cost = one.result
    rows = [
        (name, p, float(cost.mixed[i]), float(cost.share[i]), float(cost.factor[i]))
        for i, (name, p) in enumerate(zip(names(len(one.rates)), one.rates, strict=True))
    ]
    return Table(("prompt", "success rate", "mixed", "share of what trains", "factor"), rows)
