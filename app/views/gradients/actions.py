"""A policy over a few actions: every estimator's expected gradient on the true one."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import snippets_gradients, widgets
from app.explain import gradients as explain
from app.explain.gradients import Bandit
from app.figures import gradients as figures
from app.figures.gradients import Facet
from app.lens import Lens
from app.numbers import plain, signed
from app.views.gradients import common
from app.widgets import Question, Readout, Table
from app.words import prose, t
from grpo_core.policies import expected_reward

MOST_LISTED = 40


def draw(lens: Lens) -> None:
    """Draw the estimators beside each other."""
    problem = explain.bandit(lens)
    if common.too_many(problem.groups, problem.largest):
        return
    own = lens.values["gest"]
    names = [*explain.FACETS, *([own] if own not in explain.FACETS else [])]
    reports = {name: explain.report(name, problem) for name in names}
    rows = [Facet(explain.title(name), common.facts(found), found.expected) for name, found in reports.items()]
    scaled = lens.values["gunit"] == "direction"
    figure = figures.facets(widgets.colors(), reports[names[0]].true, rows, problem.names, scaled=scaled)
    widgets.picture(figure, "gradients", alt=t("alt.grad.facets"))
    focus = reports[own]
    widgets.readouts(
        [
            Readout("grad_reward", plain(expected_reward(problem.outcomes, problem.rewards))),
            Readout("grad_cosine", plain(focus.cosine, 4)),
            Readout("grad_bias", plain(explain.bias(focus))),
            Readout("grad_variance", plain(focus.variance)),
        ]
    )
    common.reports_table(reports)
    widgets.formula(common.gradient_lines(problem, own, focus))
    section, numbers = notice(problem, own)
    widgets.notice("gradients", section, **numbers)
    _groups(own, problem)
    widgets.check_yourself("gradients", lambda: question(problem))
    widgets.take_away(
        "gradients", "gradients", lambda: snippets_gradients.report(own, problem), lambda: table(problem, names)
    )


def settings(lens: Lens) -> None:
    """Draw the policy, and which estimator is looked at closely."""
    live = st.container()
    widgets.select("gest")
    widgets.choice("gunit")
    with live:
        widgets.controls("grad-policy", common.policy_rows(lens))


def notice(problem: Bandit, own: str) -> tuple[str, dict[str, str]]:
    """Return what to notice about the estimator in focus, and the numbers in it."""
    found, size = explain.report(own, problem), problem.size
    if len(set(problem.rewards)) == 1:
        return "all-equal", {}
    if explain.alone(own, size):
        return "single", {}
    numbers = {"cosine": plain(found.cosine, 4), "angle": plain(explain.angle(found), 1), "size": str(size)}
    if explain.turned(found):
        section = "turned-three" if own == "std" and size == 2 and len(problem.probs) == 3 else "turned"
        return section, {**numbers, "estimator": explain.title(own)}
    if own in ("std", "trl"):
        return "not-turned", numbers
    if own == "mean":
        return "self-inclusion", {**numbers, "factor": plain(found.scale), "others": str(size - 1)}
    numbers = {"estimator": explain.title(own), "variance": plain(found.variance)}
    if abs(found.scale - 1.0) > 1e-9:
        return "rescaled", {**numbers, "factor": plain(found.scale)}
    if own == "reinforce":
        return "unbiased-plain", {**numbers, "critic": plain(explain.report("critic", problem).variance)}
    return "unbiased", {**numbers, "plain": plain(explain.report("reinforce", problem).variance)}


def _groups(own: str, problem: Bandit) -> None:
    """Draw the groups that the expectation sums over, when the box is open."""
    box = st.expander(t("grad.list"), icon=":material/list:", key="grad-list", on_change="rerun")
    if not box.open:
        return
    rows = explain.listed(own, problem)
    shown = rows[:MOST_LISTED]
    columns = [t(f"grad.column.{name}") for name in ("group", "chance", "advantages")]
    columns += [t("grad.column.estimate", action=name) for name in problem.names]
    cells = [(row.actions, plain(row.chance, 4), _joined(row.advantages), *map(signed, row.estimate)) for row in shown]
    with box:
        height = min(35 * (len(cells) + 1) + 3, 390)
        st.dataframe(pd.DataFrame(cells, columns=columns), key="grad-groups", hide_index=True, height=height)
        st.caption(t("grad.list_note", count=len(rows), shown=len(shown)))


def _joined(values: Sequence[float]) -> str:
    return ", ".join(signed(value) for value in values)


def question(problem: Bandit) -> Question:
    """Ask for one entry of the true gradient."""
    found = explain.report("reinforce", problem)
    mean = expected_reward(problem.outcomes, problem.rewards)
    name, p, reward = problem.names[0], problem.probs[0], problem.rewards[0]
    numbers = {"action": name, "p": plain(p), "reward": plain(reward), "mean": plain(mean)}
    worked = prose("gradients", "worked-true", answer=signed(found.true[0]), **numbers)
    return Question(prose("gradients", "ask-true", **numbers), float(found.true[0]), worked)


def table(problem: Bandit, names: list[str]) -> Table:
    """Return the true gradient and every estimator's expectation."""
    reports = [explain.report(name, problem) for name in names]
    rows = [
        (
            action,
            problem.probs[k],
            problem.rewards[k],
            float(reports[0].true[k]),
            *(float(r.expected[k]) for r in reports),
        )
        for k, action in enumerate(problem.names)
    ]
    return Table(("action", "probability", "reward", "true gradient", *map(explain.title, names)), rows)
