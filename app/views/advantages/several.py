"""Several reward functions: summed and then normalised, against each normalised and then summed (GDPO).

They are the current group's own where it recorded several, or an example's, whose numbers can be edited here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from app import formulas, state, widgets
from app.figures import advantages_batches as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, short, signed
from app.widgets import Question, Readout, Row, Table, slider
from app.words import prose, t
from grpo_core import (
    AdvantageSpec,
    GroupAdvantages,
    as_rewards,
    group_advantages,
    multi_reward_advantages,
    sum_rewards,
)

FUNCTIONS = ("mc", "mf", "ml")
MOST_PARTS = 8  # reward functions of a group that the picture has room for


@dataclass(frozen=True)
class Several:
    """The rewards of several functions (G, functions), their names and weights, and how the std is taken.

    nan: the function could not score. `names` of a group's own functions are a stranger's text.
    """

    parts: np.ndarray
    weights: tuple[float, ...]
    spec: AdvantageSpec
    names: tuple[str, ...]
    own: bool = False

    @property
    def used(self) -> list[int]:
        """The functions whose weight is not 0."""
        return [f for f, weight in enumerate(self.weights) if weight]

    def under(self, aggregation: str) -> GroupAdvantages:
        """Return the advantages when rewards are put together one way or the other."""
        spec = replace(self.spec, reward_aggregation=aggregation)
        return multi_reward_advantages(self.parts, spec, weights=self.weights)

    @cached_property
    def summed(self) -> GroupAdvantages:
        """Summed, then normalised."""
        return self.under("sum_then_normalize")

    @cached_property
    def apart(self) -> GroupAdvantages:
        """Each normalised, then summed."""
        return self.under("normalize_then_sum")

    @cached_property
    def totals(self) -> np.ndarray:
        """Each completion's weighted sum (G,)."""
        return np.asarray(sum_rewards(self.parts, weights=self.weights))

    @cached_property
    def each(self) -> list[GroupAdvantages]:
        """Every function's rewards as advantages of their own."""
        return [
            group_advantages(column, ddof=self.spec.ddof, eps=self.spec.eps)
            for column in np.moveaxis(self.parts, -1, 0)
        ]

    @cached_property
    def focus(self) -> int:
        """The completion whose two advantages differ most."""
        return int(np.argmax(np.abs(self.summed.advantages - self.apart.advantages)))


def several(lens: Lens) -> Several:
    """Return the group's reward functions, or the example's: its lists are brought to the length of the first."""
    v = lens.values
    spec = AdvantageSpec(ddof=lens.spec.ddof, eps=lens.spec.eps)
    if takes_group(lens):
        names, columns = zip(*lens.group.reward_parts.items(), strict=True)
        parts = np.stack([as_rewards(list(column)) for column in columns], axis=-1)
        return Several(parts, _weights(v["mgw"], len(names)), spec, names, own=True)
    size = len(v["mc"])
    columns = [state.resized_list(v[name], size) for name in FUNCTIONS]
    words = tuple(t(f"param.mfun.{name}") for name in FUNCTIONS)
    return Several(np.array(columns).T, _weights(v["mw"], len(FUNCTIONS)), spec, words)


def _weights(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    return tuple(map(float, state.resized_list(values, count)))


def has_parts(lens: Lens) -> bool:
    """Return whether the group recorded several reward functions, as many as the picture has room for."""
    return 2 <= len(lens.group.reward_parts) <= MOST_PARTS


def takes_group(lens: Lens) -> bool:
    """Return whether the group's own reward functions are shown."""
    return has_parts(lens) and lens.values["msrc"] == "group"


def settings(lens: Lens) -> None:
    """Draw the weights, and for the example the rewards of one function."""
    own = several(lens)
    if has_parts(lens):
        widgets.choice("msrc")
    if not own.own:
        widgets.choice("mfun")
    rewards = [] if own.own else _reward_rows(lens, own)
    count = [] if own.own else [widgets.count_row(FUNCTIONS, t("control.completions"))]
    widgets.controls("several", [*rewards, *_weight_rows(own), slider("eps"), *count])
    widgets.choice("ddof")


def _reward_rows(lens: Lens, own: Several) -> list[Row]:
    """Return a row for each completion's reward from the function to edit."""
    chosen = lens.values["mfun"]
    values = own.parts[:, FUNCTIONS.index(chosen)]
    titles = [t("control.completion", number=i + 1) for i in range(len(values))]
    return [
        {**row, "help": t("control.part_help"), "low": min(0.0, *values), "high": max(1.0, *values)}
        for row in widgets.cell_rows(chosen, titles)
    ]


def _weight_rows(own: Several) -> list[Row]:
    titles = [t("control.weight", name=name if len(name) <= 24 else f"{name[:23]}…") for name in own.names]
    said = t("param.mgw.help") if own.own else t("control.function_weight_help")
    return [{**row, "help": said} for row in widgets.cell_rows("mgw" if own.own else "mw", titles)]


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    own = several(lens)
    panels = [
        figures.Panel(t("chart.sum_first"), own.summed.advantages[None, :]),
        figures.Panel(t("chart.each_first"), own.apart.advantages[None, :]),
    ]
    stds = [float(one.std) for one in own.each]
    figure = figures.several(widgets.colors(), own.names, own.parts, own.weights, panels, stds=stds)
    widgets.picture(figure, "several", alt=t("alt.several"))
    widgets.readouts(
        [
            Readout("sum_std", plain(float(own.summed.std))),
            Readout("distinct_sum", t("readout.of", n=distinct(own.summed.advantages), total=vectors(own))),
            Readout("distinct_each", t("readout.of", n=distinct(own.apart.advantages), total=vectors(own))),
        ]
    )
    widgets.formula(formula(own))
    section, numbers = notice(own)
    widgets.notice("advantages", section, **numbers)
    widgets.check_yourself("several", lambda: question(own))
    widgets.take_away("advantages-several", "several", lambda: snippet(own), lambda: table(own))


def distinct(values: np.ndarray) -> int:
    """Return how many different values there are."""
    return len(np.unique(np.round(values, 9)))


def vectors(own: Several) -> int:
    """Return how many different reward vectors there are among the functions in use."""
    return len({tuple(map(str, row)) for row in own.parts[:, own.used].tolist()}) if own.used else 1


def formula(own: Several) -> list[str]:
    """Return one completion's advantage both ways, with numbers; a function that could not score it has no part."""
    i, eps = own.focus, own.spec.eps
    used = [f for f in own.used if not np.isnan(own.parts[i, f])]
    n = i + 1
    terms = [rf"{_short(own.weights[f])}\cdot {_short(own.parts[i, f])}" for f in used] or ["0"]
    lines = [
        rf"R_{{{n}}} &= \sum_f w_f\, r_{{{n},f}} = {' + '.join(terms)} = {latex(own.totals[i])}",
        formulas.normalised(rf"A_{{{n}}}^{{\text{{sum first}}}}", rf"R_{{{n}}}", own.totals[i], own.summed, eps, i),
    ]
    for f in used:
        symbol = rf"{n},{f + 1}"
        lines.append(formulas.normalised(rf"z_{{{symbol}}}", rf"r_{{{symbol}}}", own.parts[i, f], own.each[f], eps, i))
    return [*lines, *_each_first(own, used)]


def _each_first(own: Several, used: list[int]) -> list[str]:
    """Return the lines that put the functions' own advantages together."""
    i, eps = own.focus, own.spec.eps
    n = i + 1
    z = np.stack([one.advantages for one in own.each], axis=-1)
    total = np.where(np.isnan(own.totals), np.nan, sum_rewards(z, weights=own.weights))
    parts = [rf"{_short(own.weights[f])}\cdot {bracketed(z[i, f])}" for f in used] or ["0"]
    again = group_advantages(total, ddof=own.spec.ddof, eps=eps)
    summed = rf"{' + '.join(parts)} = {latex(total[i], sign=True)}"
    head = rf"Z_{{{n}}} &= \sum_f w_f\, z_{{{n},f}}"
    lines = [rf"{head} = {summed}"] if len(parts) < 3 else [head, rf"&= {summed}"]
    left = rf"A_{{{n}}}^{{\text{{each first}}}}"
    return [*lines, formulas.normalised(left, rf"Z_{{{n}}}", total[i], again, eps, i)]


def _short(value: float) -> str:
    """Return a number for LaTeX without trailing zeros."""
    text = short(value).replace("\N{MINUS SIGN}", "-")
    return f"({text})" if text.startswith("-") else text


def notice(own: Several) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "best": str(int(np.argmax(own.summed.advantages)) + 1), "std": plain(float(own.summed.std)),
        "stds": ", ".join(plain(float(own.each[f].std), 2) for f in own.used),
    }  # fmt: skip
    if not own.used or all(float(own.each[f].std) == 0 for f in own.used):
        return "several-flat", numbers
    if float(own.summed.std) == 0:
        return "several-cancel", numbers
    if (pair := collision(own)) is not None:
        return "several-same", _same_numbers(own, *pair)
    if (pair := drowned(own)) is not None:
        return "several-loud", _loud_numbers(own, *pair)
    constant = [_said(own, f) for f in own.used if float(own.each[f].std) == 0]
    return ("several-constant", {"name": constant[0]}) if constant else ("several", numbers)


def _said(own: Several, f: int) -> str:
    """Return a function's name for the text, where a stranger's must not be read as markup."""
    name = own.names[f]
    return widgets.literal(name if len(name) <= 40 else f"{name[:39]}…") if own.own else name


def _same_numbers(own: Several, i: int, j: int) -> dict[str, str]:
    a, b = own.summed.advantages, own.apart.advantages
    return {
        "first": str(i + 1), "second": str(j + 1), "sum": short(round(float(own.totals[i]), 6)),
        "both": signed(a[i]), "one": signed(b[i]), "two": signed(b[j]),
    }  # fmt: skip


def _loud_numbers(own: Several, f: int, g: int) -> dict[str, str]:
    return {
        "loud": _said(own, f), "quiet": _said(own, g), "large": plain(_spread(own, f), 2),
        "small": plain(_spread(own, g), 2),
    }  # fmt: skip


def collision(own: Several) -> tuple[int, int] | None:
    """Return two completions with the same sum whose advantages differ once each function is normalised first."""
    b = own.apart.advantages
    pairs = [
        (i, j)
        for i in range(len(b))
        for j in range(i + 1, len(b))
        if abs(own.totals[i] - own.totals[j]) < 1e-9 and abs(b[i] - b[j]) > 1e-6
    ]
    return max(pairs, key=lambda pair: abs(b[pair[0]] - b[pair[1]])) if pairs else None


def drowned(own: Several) -> tuple[int, int] | None:
    """Return a function and another that it drowns: its weighted rewards vary ten times as much."""
    spreads = {f: _spread(own, f) for f in own.used if float(own.each[f].std) > 0}
    if len(spreads) < 2:
        return None
    loud, quiet = max(spreads, key=spreads.__getitem__), min(spreads, key=spreads.__getitem__)
    return (loud, quiet) if spreads[loud] >= 10 * spreads[quiet] else None


def _spread(own: Several, f: int) -> float:
    return abs(own.weights[f]) * float(own.each[f].std)


def question(own: Several) -> Question:
    """Ask what a larger scale of one function does when each is normalised first."""
    scaled = own.parts * np.array([10.0, *[1.0] * (len(own.names) - 1)])
    changed = replace(own, parts=scaled)
    i = own.focus
    value = float(changed.apart.advantages[i])
    numbers = {
        "number": i + 1, "answer": signed(value), "before": signed(own.apart.advantages[i]), "name": _said(own, 0),
        "sum": signed(changed.summed.advantages[i]),
    }  # fmt: skip
    return Question(
        prose("advantages", "ask-several", **numbers), value, prose("advantages", "worked-several", **numbers)
    )


def snippet(own: Several) -> str:
    """Return Python for both ways."""
    return f"""import numpy as np
from grpo_core import AdvantageSpec, multi_reward_advantages

parts = np.array({_rows(own.parts)})  # completions x reward functions
weights = {list(own.weights)!r}
for way in ("sum_then_normalize", "normalize_then_sum"):
    spec = AdvantageSpec(ddof={own.spec.ddof}, eps={own.spec.eps!r}, reward_aggregation=way)
    result = multi_reward_advantages(parts, spec, weights=weights)
    print(way, result.std, result.advantages)"""


def _rows(parts: np.ndarray) -> str:
    """Return the rewards as Python; an unscored one is nan there."""
    return repr(parts.tolist()).replace("nan", "np.nan")


def table(own: Several) -> Table:
    """Return rewards and both advantages as data."""
    names = own.names if own.own else ("correct", "format", "length")
    header = ("completion", *names, "sum", "advantage, sum first", "advantage, each first")
    rows = [
        (i + 1, *map(float, own.parts[i]), float(own.totals[i]), float(own.summed.advantages[i]),
         float(own.apart.advantages[i]))
        for i in range(len(own.parts))
    ]  # fmt: skip
    return Table(header, rows)
