"""Which rewards a token is credited with: the whole return, what came after it, and where the discount belongs."""

from __future__ import annotations

import numpy as np

from app import snippets_gradients, widgets
from app.explain import gradients as explain
from app.explain.gradients import Chain
from app.lens import Lens
from app.numbers import latex, plain
from app.views.gradients import common
from app.widgets import Question, Readout, Row, Table, slider
from app.words import prose, t
from grpo_core.credit import returns_to_go
from grpo_core.policies import GradientReport, return_reports


def draw(lens: Lens) -> None:
    """Draw the three forms of the likelihood-ratio estimator."""
    problem, paid = explain.paid(lens)
    gamma = float(lens.values["gamma"])
    reports = return_reports(problem.outcomes, paid, gamma=gamma)
    figure = common.by_position({t(f"grad.form.{name}"): found for name, found in reports.items()}, lens)
    widgets.picture(figure, "to-go", alt=t("alt.grad.togo"))
    widgets.readouts(
        [
            Readout("grad_var_total", plain(reports["total_return"].variance)),
            Readout("grad_var_togo", plain(reports["reward_to_go"].variance)),
            Readout("grad_bias_dropped", plain(explain.bias(reports["discount_dropped"]))),
            Readout("grad_cos_dropped", plain(reports["discount_dropped"].cosine, 4)),
        ]
    )
    widgets.formula(lines(problem, reports, gamma))
    section, numbers = notice(reports, gamma)
    widgets.notice("gradients", section, **numbers)
    widgets.check_yourself("gradients-togo", question)
    widgets.take_away(
        "gradients-togo",
        "to-go",
        lambda: snippets_gradients.togo(problem, paid, gamma),
        lambda: table(problem, reports),
    )


def settings(lens: Lens) -> None:
    """Draw the policy, what each token is paid, and the discount."""
    problem = explain.chain(lens)
    steps = len(problem.stop)
    positions = [{"position": k + 1} for k in range(steps)]
    stops = common.cell_rows("stop", "stop", positions, color=widgets.colors().current)
    ends = common.cell_rows("pays", "pays", positions)
    onward = common.cell_rows("paya", "paya", positions)
    rows: list[Row] = [slider("gamma"), *stops, *ends, *onward]
    rows.append(widgets.count_row(["stop", "srw", "paya", "pays"], t("control.grad.steps")))
    widgets.controls("grad-togo", rows)
    widgets.choice("gunit")


def lines(problem: Chain, reports: dict[str, GradientReport], gamma: float) -> list[str]:
    """Return the three forms with the number at the first position; without a discount all are equal."""
    first = {name: explain.ending(found.expected)[0] for name, found in reports.items()}
    sign = "=" if gamma == 1 else r"\neq"
    return [
        rf"\nabla J &= \mathbb{{E}}\Big[\sum_t G_0\, \nabla\log\pi(y_t)\Big]"
        rf" \qquad\text{{(ending at 1: }} {{{latex(first['total_return'], sign=True)}}}\text{{)}}",
        rf"&= \mathbb{{E}}\Big[\sum_t \gamma^t G_t\, \nabla\log\pi(y_t)\Big]"
        rf" \qquad ({latex(first['reward_to_go'], sign=True)})",
        rf"&{sign} \mathbb{{E}}\Big[\sum_t G_t\, \nabla\log\pi(y_t)\Big]"
        rf" \qquad ({latex(first['discount_dropped'], sign=True)})",
    ]


def notice(reports: dict[str, GradientReport], gamma: float) -> tuple[str, dict[str, str]]:
    """Return what to notice, and the numbers in it."""
    numbers = {name: plain(found.variance) for name, found in reports.items()}
    if gamma == 1:
        gain = reports["total_return"].variance - reports["reward_to_go"].variance
        return ("togo" if gain > 1e-9 else "togo-worse" if gain < -1e-9 else "togo-end"), numbers
    return "togo-discount", {
        **numbers,
        "bias": plain(explain.bias(reports["discount_dropped"])),
        "gamma": plain(gamma, 2),
    }


def question() -> Question:
    """Ask for a discounted return."""
    value = float(returns_to_go(np.array([[0.0, 0.0, 1.0]]), gamma=0.9)[0, 0])
    return Question(prose("gradients", "ask-togo"), value, prose("gradients", "worked-togo", answer=plain(value)))


def table(problem: Chain, reports: dict[str, GradientReport]) -> Table:
    """Return the expected gradient by position and form."""
    true = explain.ending(reports["total_return"].true)
    rows = [
        (k + 1, float(true[k]), *(float(explain.ending(found.expected)[k]) for found in reports.values()))
        for k in range(len(problem.stop))
    ]
    return Table(("position", "true gradient", *reports), rows)
