"""All policies over three actions as a triangle, and which way an estimator climbs in it."""

from __future__ import annotations

import streamlit as st

from app import snippets_gradients, state, widgets
from app.explain import gradients as explain
from app.explain.gradients import Bandit
from app.figures import gradients as figures
from app.figures.base import Figure
from app.lens import Lens
from app.numbers import plain, short
from app.views.gradients import actions, common
from app.widgets import Question, Readout, Table
from app.words import prose, t
from grpo_core.policies import expected_reward

THREE = 3


def draw(lens: Lens) -> None:
    """Draw the triangle with both directions."""
    problem, own = explain.bandit(lens), lens.values["gest"]
    if _not_three(problem) or common.too_many(problem.groups, problem.largest):
        return
    widgets.picture(_triangle(own, problem), "simplex", alt=t("alt.grad.simplex"))
    found = explain.report(own, problem)
    widgets.readouts(
        [
            Readout("grad_angle", t("readout.degrees", value=plain(explain.angle(found), 1))),
            Readout("grad_cosine", plain(found.cosine, 4)),
            Readout("grad_scale", plain(found.scale)),
            Readout("grad_variance", plain(found.variance)),
        ]
    )
    widgets.formula(common.gradient_lines(problem, own, found))
    section, numbers = actions.notice(problem, own)
    widgets.notice("gradients", section, **numbers)
    widgets.check_yourself("gradients-simplex", lambda: question(problem))
    widgets.take_away(
        "gradients-simplex", "simplex", lambda: snippets_gradients.report(own, problem), lambda: table(own, problem)
    )


def _not_three(problem: Bandit) -> bool:
    """Say so, and offer to change it, if there are not three actions; return whether that is so."""
    if len(problem.probs) == THREE:
        return False
    st.info(t("grad.three_only", count=len(problem.probs)), icon=":material/change_history:")
    st.button(t("grad.to_three"), key="grad-to-three", on_click=_to_three, disabled=state.locked())
    return True


def _triangle(own: str, problem: Bandit) -> Figure:
    field, paths, here = explain.triangle(own, problem)
    corners = [
        t("chart.grad.corner", action=n, reward=short(r)) for n, r in zip(problem.names, problem.rewards, strict=True)
    ]
    return figures.simplex(
        widgets.colors(), corners=corners, field=field, paths=paths, here=here, name=explain.title(own)
    )


def _to_three() -> None:
    state.put({"pi": (state.get("pi") * THREE)[:THREE], "rw": (state.get("rw") * THREE)[:THREE]})


def settings(lens: Lens) -> None:
    """Draw the policy, and whose direction is compared."""
    live = st.container()
    widgets.select("gest")
    with live:
        widgets.controls("grad-simplex", common.policy_rows(lens))


def question(problem: Bandit) -> Question:
    """Ask for the expected reward of the current policy."""
    value = expected_reward(problem.outcomes, problem.rewards)
    terms = " + ".join(f"{plain(p, 2)} · {short(r)}" for p, r in zip(problem.probs, problem.rewards, strict=True))
    worked = prose("gradients", "worked-reward", terms=terms, answer=plain(value))
    return Question(prose("gradients", "ask-reward"), value, worked)


def table(own: str, problem: Bandit) -> Table:
    """Return both paths as data."""
    _, paths, _ = explain.triangle(own, problem)
    names = (t("chart.grad.true"), explain.title(own))
    rows = [(name, k, *map(float, p)) for name, path in zip(names, paths, strict=True) for k, p in enumerate(path)]
    return Table(("direction", "step", *problem.names), rows)
