"""KL: how far the policy has moved from the reference, and what an estimate from one token says about it."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app.explain import kl as explain
from app.figures import kl as figures
from app.lens import Lens
from app.numbers import plain, signed
from app.shell import explorer
from app.widgets import Readout, slider
from app.words import prose, t


def body(lens: Lens) -> None:
    """Draw the page for the current group: the picture first, so that it follows a slider without delay."""
    left, right = st.columns([4, 7], gap="large")
    with right:
        widgets.choice("kl_view", hide_label=True)
        {"curve": curve_view, "distribution": distribution_view}[lens.values["kl_view"]](lens)
    with left:
        settings(lens)


def settings(lens: Lens) -> None:
    """Draw the controls that the chosen picture depends on."""
    live = st.container()
    widgets.choice("kl")
    with live:
        if lens.values["kl_view"] == "curve":
            widgets.controls("kl-curve", [slider("d"), slider("beta")])
        else:
            both = explain.compared(lens)
            pairs = zip(
                widgets.weight_rows("cur", both.current), widgets.weight_rows("ref", both.reference), strict=True
            )
            rows = [row for pair in pairs for row in pair]
            widgets.controls("kl-distribution", [*rows, widgets.events_row()], two=True)


def curve_view(lens: Lens) -> None:
    """The three estimators against the log-ratio, with the group's tokens on the chosen one."""
    d, values = explain.curves(lens)
    at, chosen = explain.at(lens), lens.values["kl"]
    figure = figures.curves(widgets.colors(), d, values, chosen=chosen, at=at, tokens=explain.token_points(lens))
    widgets.picture(figure, "kl", alt=t("alt.kl_curves"))
    own = [Readout(name, signed(value) if name == "k1" else plain(value)) for name, value in at[1].items()]
    widgets.readouts([*own, Readout("kl_mean", plain(explain.group_mean(lens), 4))])
    widgets.formula(formulas.kl(at[0], at[1]))
    section, numbers = explain.notice(lens)
    widgets.notice("kl", section, **numbers)
    if lens.objective.beta == 0:
        st.caption(prose("kl", "beta-zero"))
    widgets.check_yourself("kl", lambda: explain.question(lens))
    widgets.take_away("kl", "kl", lambda: snippets.kl(at[0]), lambda: explain.table(lens))


def distribution_view(lens: Lens) -> None:
    """Two distributions over a few events: the exact divergence, and what the estimators give on average."""
    both, chosen = explain.compared(lens), lens.values["kl"]
    figure = figures.distribution(widgets.colors(), both.current, both.reference, both.estimates[chosen], name=chosen)
    widgets.picture(figure, "distribution", alt=t("alt.distribution"))
    expected = [Readout(f"mean_{name}", plain(value, 4)) for name, value in both.expected.items()]
    widgets.readouts([Readout("exact", plain(both.exact, 4)), *expected, Readout("reverse", plain(both.reverse, 4))])
    widgets.formula(formulas.expectation(both, chosen))
    section, numbers = explain.distribution_notice(both)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("distribution", explain.distribution_question)
    widgets.take_away(
        "kl", "distribution", lambda: snippets.expectation(both), lambda: explain.distribution_table(both)
    )


explorer("kl", body)
