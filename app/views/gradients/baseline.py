"""A baseline is free: any number may be subtracted, and one of them makes the estimate vary least."""

from __future__ import annotations

import numpy as np

from app import snippets_gradients, widgets
from app.explain import gradients as explain
from app.explain.gradients import Bandit, Baselines
from app.figures import gradients as figures
from app.lens import Lens
from app.numbers import latex, plain
from app.views.gradients import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.policies import baseline_report, optimal_baseline, softmax_outcomes


def draw(lens: Lens) -> None:
    """Draw the variance over the baseline."""
    problem, own = explain.bandit(lens), explain.baselines(lens)
    marks = [
        (t(f"chart.grad.{name}"), x, own.variances[name])
        for name, x in (("none", 0.0), ("mean", own.mean), ("best", own.best))
    ]
    figure = figures.baseline(widgets.colors(), own.b, own.variance, marks=marks, at=(own.own, own.variances["own"]))
    widgets.picture(figure, "baseline", alt=t("alt.grad.baseline"))
    found = baseline_report(problem.outcomes, problem.rewards, baseline=own.own)
    widgets.readouts(
        [
            Readout("grad_own", plain(own.own)),
            Readout("grad_variance", plain(own.variances["own"])),
            Readout("grad_bias", plain(explain.bias(found))),
            Readout("grad_best", plain(own.best)),
        ]
    )
    widgets.formula(lines(problem, own))
    section, numbers = notice(own)
    widgets.notice("gradients", section, **numbers)
    widgets.check_yourself("gradients-baseline", question)
    widgets.take_away(
        "gradients-baseline", "baseline", lambda: snippets_gradients.baseline(problem, own.own), lambda: table(own)
    )


def settings(lens: Lens) -> None:
    """Draw the policy and the baseline."""
    mean = explain.baselines(lens).mean
    row = slider("gbase", value=mean, text=plain(mean))
    widgets.controls("grad-baseline", [row, *common.policy_rows(lens, size=False)])


def lines(problem: Bandit, own: Baselines) -> list[str]:
    """Return why a baseline changes nothing on average, and which one varies least."""
    true = explain.report("reinforce", problem).true
    k = int(np.abs(true).argmax())
    action, p, reward = problem.names[k], problem.probs[k], problem.rewards[k]
    return [
        r"\mathbb{E}[b\, \nabla\log p(y)] &= b \sum_y p(y)\, \frac{\nabla p(y)}{p(y)} = b\, \nabla 1 = 0",
        rf"\frac{{\partial J}}{{\partial\theta_{action}}} &= p_{action}(r_{action} - J)"
        rf" = {latex(p)} \cdot ({latex(reward)} - {latex(own.mean)}) = {latex(true[k], sign=True)}",
        r"b^* &= \frac{\mathbb{E}[\,r\,\|\nabla\log p\|^2]}{\mathbb{E}[\,\|\nabla\log p\|^2]}"
        rf" = {latex(own.best)}, \qquad J = {latex(own.mean)}",
    ]


def notice(own: Baselines) -> tuple[str, dict[str, str]]:
    """Return what to notice, and the numbers in it."""
    least = own.variances["best"]
    numbers = {name: plain(own.variances[name]) for name in ("own", "mean", "none", "best")}
    numbers |= {"b_best": plain(own.best), "b_mean": plain(own.mean)}
    if abs(own.best - own.mean) < 1e-9:
        return "baseline-same", numbers
    if least < 1e-12:
        return "baseline-none-left", numbers
    return "baseline", {**numbers, "times": plain(own.variances["none"] / least, 1)}


def question() -> Question:
    """Ask for the best baseline of two equally likely actions."""
    value = optimal_baseline(softmax_outcomes([0.0, 0.0]), [5.0, 1.0])
    return Question(
        prose("gradients", "ask-baseline"), value, prose("gradients", "worked-baseline", answer=plain(value))
    )


def table(own: Baselines) -> Table:
    """Return the curve as data."""
    return Table(("baseline", "variance"), [(float(b), float(v)) for b, v in zip(own.b, own.variance, strict=True)])
