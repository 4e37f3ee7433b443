"""What the group size does: the factor (G-1)/G of a mean that contains its own reward, and how direction settles."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import snippets_gradients, widgets
from app.explain import gradients as explain
from app.explain.gradients import Bandit, Sizes
from app.figures import gradients as figures
from app.figures.gradients import Curve
from app.lens import Lens
from app.numbers import latex, plain
from app.views.gradients import common
from app.widgets import Question, Readout, Table
from app.words import prose, t

NAMES = ("mean", "loo", "std")


def draw(lens: Lens) -> None:
    """Draw factor, cosine and variance over the group size."""
    problem = explain.bandit(lens)
    rows = explain.sizes(problem, NAMES)
    steps = rows[0].sizes
    at = min(problem.size, steps[-1])
    figure = figures.sizes(widgets.colors(), steps, curves(rows), at=at)
    widgets.picture(figure, "group-size", alt=t("alt.grad.sizes"))
    if problem.size > steps[-1]:
        st.caption(t("grad.sizes_end", largest=steps[-1]))
    here = {row.name: row for row in rows}
    factor = here["mean"].scale[at - 1]
    widgets.readouts(
        [
            Readout("grad_scale_mean", plain(factor)),
            Readout("grad_scale_loo", plain(here["loo"].scale[at - 1])),
            Readout("grad_scale_std", plain(here["std"].scale[at - 1])),
            Readout("grad_cosine_std", plain(here["std"].cosine[at - 1], 4)),
        ]
    )
    widgets.formula(lines(factor))
    widgets.notice("gradients", "size", factor=plain(factor), size=str(at))
    widgets.check_yourself("gradients-size", question)
    widgets.take_away(
        "gradients-size", "group-size", lambda: snippets_gradients.sizes(problem, steps[-1]), lambda: table(problem)
    )


def curves(rows: Sequence[Sizes]) -> list[Curve]:
    """Return each estimator's curves with their name and style."""
    own = widgets.colors()
    styles = {"mean": (own.second, "solid"), "loo": (own.old, "dash"), "std": (own.up, "solid")}
    return [Curve(explain.title(r.name), *styles[r.name], r.scale, r.cosine, r.variance) for r in rows]


def lines(factor: float) -> list[str]:
    """Return what the group mean keeps of the gradient, and what leaving one out keeps."""
    return [
        r"\mathbb{E}\Big[\frac1G\sum_i (r_i - \bar r)\, \nabla\log p(y_i)\Big] &= \frac{G-1}{G}\, \nabla J"
        rf" = {latex(factor)}\, \nabla J",
        r"\mathbb{E}\Big[\frac1G\sum_i \frac{G}{G-1} (r_i - \bar r)\, \nabla\log p(y_i)\Big] &= \nabla J",
    ]


def settings(lens: Lens) -> None:
    """Draw the policy."""
    widgets.controls("grad-size", common.policy_rows(lens))


def question() -> Question:
    """Ask for the factor at a group of four."""
    value = explain.report("mean", Bandit((0.5, 0.5), (0.0, 1.0), 4)).scale
    return Question(prose("gradients", "ask-size"), value, prose("gradients", "worked-size", answer=plain(value)))


def table(problem: Bandit) -> Table:
    """Return the curves as data."""
    rows = [
        (explain.title(row.name), size, row.scale[k], row.cosine[k], row.variance[k])
        for row in explain.sizes(problem, NAMES)
        for k, size in enumerate(row.sizes)
    ]
    return Table(("estimator", "group size", "factor", "cosine", "variance"), rows)
