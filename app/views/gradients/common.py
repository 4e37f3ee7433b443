"""What the pictures of the Gradients page share: the controls of a one-step policy, and the limit of what is listed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app import widgets
from app.explain import gradients as explain
from app.explain.gradients import Bandit
from app.figures import gradients as figures
from app.figures.base import Figure
from app.figures.gradients import Facet
from app.lens import Lens
from app.numbers import latex, plain
from app.widgets import Row, slider
from app.words import t
from grpo_core.policies import GradientReport


def too_many(groups: int, largest: int) -> bool:
    """Say so, if there are more groups than can be listed while a slider moves; return whether there are."""
    if groups <= explain.MOST_GROUPS:
        return False
    st.warning(
        t("grad.too_many", groups=groups, limit=explain.MOST_GROUPS, largest=largest), icon=":material/grid_off:"
    )
    return True


def policy_rows(lens: Lens, *, size: bool = True) -> list[Row]:
    """Return the rows of a one-step policy: its actions' probabilities, their rewards, and the group size."""
    problem = explain.bandit(lens)
    facts_ = [{"action": name} for name in problem.names]
    rows = cell_rows("pi", "pi", facts_, color=widgets.colors().current)
    for row, weight, p in zip(rows, lens.values["pi"], problem.probs, strict=False):
        row["unit"] = "" if abs(weight - p) < 5e-4 else t("control.normalised", p=plain(p))
    rewards = cell_rows("rw", "rw", facts_)
    own = [slider("gg")] if size else []
    return [*own, *rows, *rewards, widgets.count_row(["pi", "rw"], t("control.grad.actions"))]


def cell_rows(name: str, words: str, facts_: list[dict[str, Any]], *, color: str | None = None) -> list[Row]:
    """Return a row for each number of a list, with label and help from the catalogue."""
    key = f"control.grad.{words}"
    rows = widgets.cell_rows(name, [t(key, **each) for each in facts_], color=color)
    return [{**row, "help": t(f"{key}.help", **each)} for row, each in zip(rows, facts_, strict=False)]


def facts(found: GradientReport) -> str:
    """Return an estimator's numbers as one line."""
    return t("grad.facts", cosine=plain(found.cosine), scale=plain(found.scale), spread=plain(found.variance))


def by_position(reports: dict[str, GradientReport], lens: Lens) -> Figure:
    """Return a small chart for each report, by the position at which a completion ends; the keys are their titles."""
    rows = [Facet(title, facts(found), explain.ending(found.expected)) for title, found in reports.items()]
    true = explain.ending(next(iter(reports.values())).true)
    names = [t("chart.grad.position", position=k + 1) for k in range(len(true))]
    return figures.facets(widgets.colors(), true, rows, names, scaled=lens.values["gunit"] == "direction")


def reports_table(reports: dict[str, GradientReport]) -> None:
    """Draw the numbers of several estimators as a table."""
    frame = pd.DataFrame(
        [
            {
                "estimator": explain.title(name) if name in explain.ESTIMATORS else name,
                "cosine": plain(found.cosine, 4),
                "scale": plain(found.scale, 4),
                "bias": plain(explain.bias(found), 4),
                "variance": plain(found.variance, 4),
                "signal": f"{100 * found.signal:.0f} %",
            }
            for name, found in reports.items()
        ]
    )
    columns = {
        name: st.column_config.TextColumn(t(f"grad.column.{name}"), help=t(f"grad.column.{name}.help"), width=width)
        for name, width in (
            ("estimator", 216),
            ("cosine", 62),
            ("scale", 62),
            ("bias", 62),
            ("variance", 72),
            ("signal", 58),
        )
    }
    st.dataframe(frame, key="grad-reports", hide_index=True, column_config=columns, height="content")


def gradient_lines(problem: Bandit, name: str, found: GradientReport) -> list[str]:
    """Return the true gradient and an estimator's expectation at the action where the true gradient is largest."""
    k = int(abs(found.true).argmax())
    action, over = problem.names[k], rf"\sum_{{\text{{{found.groups} groups}}}}"
    p, reward = problem.probs[k], problem.rewards[k]
    mean = sum(a * b for a, b in zip(problem.probs, problem.rewards, strict=True))
    inside = rf"{latex(p)} \cdot ({latex(reward)} - {_bracketed(mean)})"
    return [
        rf"\frac{{\partial J}}{{\partial\theta_{action}}} &= p_{action} (r_{action} - J) = {inside}"
        rf" = {latex(found.true[k], sign=True)}",
        rf"\mathbb{{E}}[\hat g_{action}] &= {over} \Pr(\text{{group}})\, \hat g_{action}"
        rf" = {latex(found.expected[k], sign=True)}",
        rf"\cos\angle(\mathbb{{E}}[\hat g], \nabla J) &= {latex(found.cosine, 4)}",
    ]


def _bracketed(value: float) -> str:
    text = latex(value)
    return f"({text})" if text.startswith("-") else text
