"""The gradient trap: which divergence an estimator's gradient goes down, when the samples are frozen."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from app import snippets_kl, state, widgets
from app.explain import kl as explain
from app.explain.kl import Trap
from app.figures import kl_gradients as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, signed
from app.views.kl import common
from app.widgets import Question, Readout, Table
from app.words import prose, t
from grpo_core.policies import angle

THREE = 3


def draw(lens: Lens) -> None:
    """Draw the gradients and what belongs to them."""
    one = explain.trap(lens)
    if one is None:
        widgets.notice("kl", "positive")
        return
    size = len(one.both.current)
    triangle = (one.both.reference, explain.arrows(one), explain.descents(one)) if size == THREE else None
    figure = figures.trap(widgets.colors(), one.forward, one.reverse, one.mean, name=one.estimator, triangle=triangle)
    widgets.picture(figure, "kl-trap", alt=t("alt.kl_trap" if triangle else "alt.kl_trap_bars"))
    widgets.readouts(
        [
            Readout("kl_angle", common.degrees(angle(one.forward, one.reverse))),
            Readout("kl_own_angle", common.degrees(angle(one.mean, one.forward))),
            Readout("exact", plain(one.both.exact, 4)),
            Readout("reverse", plain(one.both.reverse, 4)),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("kl-trap", lambda: question(one))
    widgets.take_away("kl-trap", "kl-trap", lambda: snippets_kl.trap(one), lambda: table(one))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    common.settings(lens, "trap")
    if len(explain.compared(lens).current) != THREE:
        st.button(t("grad.to_three"), key="kl-to-three", on_click=_to_three, disabled=state.locked())
    common.elsewhere("where")


def _to_three() -> None:
    state.put({name: state.resized_list(state.get(name), THREE) for name in ("cur", "ref")})


_MEANS = {
    "k1": r"\sum_x p_x \cdot 1 \cdot (\mathbf 1[x = {j}] - p_{j})",
    "k2": r"\sum_x p_x \log\tfrac{{p_x}}{{q_x}}\,(\mathbf 1[x = {j}] - p_{j})",
    "k3": r"\sum_x p_x \big(1 - \tfrac{{q_x}}{{p_x}}\big)(\mathbf 1[x = {j}] - p_{j})",
}


def focus(one: Trap) -> int:
    """Return the event whose logit the two KLs pull on most differently, in sum the most."""
    return int(np.argmax(np.abs(one.forward) + np.abs(one.reverse)))


def formula(one: Trap) -> list[str]:
    """Return both gradients and the estimator's mean at one event."""
    k = focus(one)
    name, p, q = explain.letters(len(one.forward))[k], float(one.both.current[k]), float(one.both.reference[k])
    log = float(np.log(p / q))
    inside = rf"{latex(p)}\,({latex(log, sign=True)} - {latex(one.both.exact)})"
    return [
        rf"\partial_{name}\,\mathrm{{KL}}(p\,\|\,q) &="
        rf" p_{name}\big(\log\tfrac{{p_{name}}}{{q_{name}}} - \mathrm{{KL}}\big) = {inside}"
        rf" = {latex(one.forward[k], sign=True)}",
        rf"\partial_{name}\,\mathrm{{KL}}(q\,\|\,p) &="
        rf" p_{name} - q_{name} = {latex(p)} - {bracketed(q)} = {latex(one.reverse[k], sign=True)}",
        rf"\mathbb{{E}}_p[\partial_{name} k_{one.estimator[1]}] &="
        rf" {_MEANS[one.estimator].format(j=name)} = {latex(one.mean[k], sign=True)}",
    ]


def notice(one: Trap) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    if explain.same(one.both):
        return "trap-same", {}
    numbers = {"angle": plain(angle(one.forward, one.reverse), 1)}
    if one.estimator == "k3" and len(one.forward) == 2:
        times = float(np.linalg.norm(one.reverse) / np.linalg.norm(one.forward))
        return "trap-two", {"times": plain(times, 2)}
    return f"trap-{one.estimator}", numbers


def question(one: Trap) -> Question:
    """Ask for one entry of the gradient of the reverse KL."""
    k = focus(one)
    name, p, q = explain.letters(len(one.forward))[k], float(one.both.current[k]), float(one.both.reference[k])
    numbers = {"event": name, "p": plain(p), "q": plain(q)}
    value = float(one.reverse[k])
    worked = prose("kl", "worked-trap", answer=signed(value), **numbers)
    return Question(prose("kl", "ask-trap", **numbers), value, worked)


def table(one: Trap) -> Table:
    """Return the gradients as data."""
    columns = (one.both.current, one.both.reference, one.forward, one.reverse, one.mean)
    rows = [(name, *(float(c[i]) for c in columns)) for i, name in enumerate(explain.letters(len(one.forward)))]
    names = ("gradient of KL(current, reference)", "gradient of KL(reference, current)")
    return Table(("event", "current", "reference", *names, f"mean gradient of {one.estimator}"), rows)
