"""One budget of completions: a few large groups or many small ones."""

from __future__ import annotations

from typing import Any

from app import widgets
from app.figures import sampling as figures
from app.lens import Lens
from app.numbers import latex, plain
from app.views.sampling.dynamic import rate_rows
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.sampling import BudgetSplit, budget_splits

SIZES = tuple(2**k for k in range(1, 9))


def splits(lens: Lens) -> tuple[list[BudgetSplit], int]:
    """Return every way to spend the budget, and which of them is in focus."""
    v = lens.values
    own = max(1, min(int(v["mix_g"]), int(v["budget"])))
    sizes = sorted({own, *(size for size in SIZES if size <= v["budget"])})
    return budget_splits(v["rates"], budget=int(v["budget"]), group_sizes=sizes), sizes.index(own)


def settings(lens: Lens) -> None:
    """Draw the controls."""
    top = [{**slider(name), "wide": True} for name in ("budget", "mix_g")]
    widgets.controls("budget", [*top, *rate_rows(len(lens.values["rates"]))], two=True)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    ways, at = splits(lens)
    own = ways[at]
    widgets.picture(figures.budget(widgets.colors(), ways, at=at), "budget", alt=t("alt.budget"))
    widgets.readouts(
        [
            Readout("groups", str(own.prompts)),
            Readout("mixed_groups", plain(own.mixed_groups, 1)),
            Readout("signal", plain(own.signal_completions, 0)),
            Readout("no_signal_batch", plain(own.no_signal)),
        ]
    )
    widgets.formula(formula(lens, own))
    section, numbers = notice(ways, own)
    widgets.notice("sampling", section, **numbers)
    widgets.check_yourself("budget", question)
    widgets.take_away("sampling", "budget", lambda: snippet(lens, ways), lambda: table(ways))


def formula(lens: Lens, own: BudgetSplit) -> list[str]:
    """Return the groups, the mixed ones and the shrinkage, with numbers."""
    budget, g = int(lens.values["budget"]), own.group_size
    return [
        rf"\text{{groups}} &= \lfloor B / G \rfloor = \lfloor {budget} / {g} \rfloor = {own.prompts}",
        rf"\text{{mixed}} &= {own.prompts}\cdot\overline{{1 - p^{{{g}}} - (1-p)^{{{g}}}}} ="
        rf" {own.prompts} \cdot {latex(own.mixed)} = {latex(own.mixed_groups, 1)}",
        rf"\tfrac{{G-1}}{{G}} &= \tfrac{{{g - 1}}}{{{g}}} = {latex(own.self_inclusion)}",
    ]


def notice(ways: list[BudgetSplit], own: BudgetSplit) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    most = max(ways, key=lambda way: way.mixed_groups)
    signal = max(ways, key=lambda way: way.signal_completions)
    numbers = {
        "most": str(most.group_size), "groups": plain(most.mixed_groups, 1), "signal": str(signal.group_size),
        "completions": plain(signal.signal_completions, 0), "shrink": plain(own.self_inclusion, 2),
        "size": str(own.group_size), "unused": str(own.unused),
    }  # fmt: skip
    if own.group_size == 1:
        return "budget-one", numbers
    return ("budget-never" if most.mixed_groups == 0 else "budget"), numbers


def question() -> Question:
    """Ask for mixed groups of one split."""
    value = budget_splits([0.5], budget=16, group_sizes=[4])[0].mixed_groups
    return Question(prose("sampling", "ask-budget"), value, prose("sampling", "worked-budget", answer=plain(value)))


def snippet(lens: Lens, ways: list[BudgetSplit]) -> str:
    """Return Python for every split."""
    sizes = [way.group_size for way in ways]
    return f"""from grpo_core.sampling import budget_splits

for way in budget_splits({list(lens.values["rates"])}, budget={lens.values["budget"]}, group_sizes={sizes}):
    print(way.group_size, way.prompts, way.mixed_groups, way.signal_completions)"""


def table(ways: list[BudgetSplit]) -> Table:
    """Return the splits as data."""
    names = (
        "group_size", "prompts", "unused", "mixed", "mixed_groups", "signal_completions", "no_signal", "self_inclusion",
    )  # fmt: skip
    rows = [tuple(getattr(way, name) for name in names) for way in ways]
    header = ("group size", "groups", "unused", "mixed share", "mixed groups", "completions with signal",
              "no signal at all", "(G-1)/G")  # fmt: skip
    return Table(header, rows)
