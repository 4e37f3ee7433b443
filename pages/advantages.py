"""Advantages: which completions a group pushes up, which down, and how hard."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app.explain import advantages as explain
from app.figures import advantages as figures
from app.lens import Lens
from app.numbers import plain, signed
from app.shell import explorer
from app.widgets import Readout, slider
from app.words import t

ESTIMATORS = ("group", "leave_one_out")  # the buttons; a recipe may bring another one


def body(lens: Lens) -> None:
    """Draw the page for the current group: the picture first, so that it follows a slider without delay."""
    left, right = st.columns([4, 7], gap="large")
    with right:
        widgets.choice("adv_view", hide_label=True)
        {"bars": group_view, "estimators": estimator_view, "rates": rate_view, "mixed": mixed_view}[
            lens.values["adv_view"]
        ](lens)
    with left:
        settings(lens)


def settings(lens: Lens) -> None:
    """Draw the controls that the chosen picture depends on."""
    view = lens.values["adv_view"]
    if view == "rates":
        widgets.controls("advantage-rates", [slider("p")])
    elif view == "mixed":
        widgets.controls("advantage-mixed", [slider("p"), slider("mix_g")])
    else:
        live = st.container()
        own = lens.spec.estimator
        widgets.choice("estimator", ESTIMATORS if own in ESTIMATORS else (*ESTIMATORS, own))
        if lens.spec.estimator == "group":
            widgets.choice("scale")
        if lens.spec.estimator == "group" and lens.spec.scale != "none":
            widgets.choice("ddof")
        rows = [widgets.size_row(), *widgets.reward_rows()]
        if lens.spec.estimator == "group" and lens.spec.scale != "none":
            rows.append(slider("eps"))
        with live:
            widgets.rewards_line()
            widgets.controls("advantage-rewards", rows)


def group_view(lens: Lens) -> None:
    """Rewards, mean and std above, advantages below."""
    s = lens.scores
    scaled = lens.spec.estimator == "group" and lens.spec.scale != "none"
    figure = figures.bars(
        widgets.colors(), lens.group.reward_array, s.advantages, mean=float(s.mean), std=float(s.std), scaled=scaled
    )
    widgets.picture(figure, "advantages", alt=t("alt.advantages"))
    count = t("readout.of", n=int(s.valid_count), total=lens.group.size)
    widgets.readouts(
        [
            Readout("mean", plain(float(s.mean))),
            Readout("std", plain(float(s.std))),
            Readout("scored", count),
            Readout("kind", t(f"kind.{lens.group.kind}")),
        ]
    )
    widgets.formula(formulas.advantage(lens, explain.focus(lens)))
    section, numbers = explain.notice(lens)
    widgets.notice("advantages", section, **numbers)
    widgets.check_yourself("advantages", lambda: explain.question(lens))
    widgets.take_away("advantages", "advantages", lambda: snippets.advantages(lens), lambda: explain.table(lens))


def estimator_view(lens: Lens) -> None:
    """The same rewards under four definitions."""
    names, table = explain.compared(lens)
    widgets.picture(figures.estimators(widgets.colors(), names, table), "estimators", alt=t("alt.estimators"))
    widgets.formula(formulas.advantage(lens, explain.focus(lens)))
    widgets.notice("advantages", "estimators")
    widgets.take_away(
        "advantages", "estimators", lambda: snippets.advantages(lens), lambda: explain.compared_table(lens)
    )


def rate_view(lens: Lens) -> None:
    """What a success and a failure are worth, by success rate."""
    q, success, failure, at = explain.rates(lens)
    widgets.picture(figures.rates(widgets.colors(), q, success, failure, at=at), "rates", alt=t("alt.rates"))
    widgets.readouts([Readout("success", signed(at[1])), Readout("failure", signed(at[2]))])
    widgets.formula(formulas.binary(*at))
    widgets.notice("advantages", "rates")
    widgets.check_yourself("rates", explain.rate_question)
    widgets.take_away("advantages", "rates", lambda: snippets.binary(at[0]), lambda: explain.rate_table(lens))


def mixed_view(lens: Lens) -> None:
    """How often a group carries a signal at all."""
    p, curves, at, size = explain.mixed(lens)
    widgets.picture(figures.mixed(widgets.colors(), p, curves, at=at, size=size), "mixed", alt=t("alt.mixed"))
    widgets.readouts([Readout("mixed", plain(at[1])), Readout("no_signal", plain(1 - at[1]))])
    widgets.formula(formulas.mixed(at[0], size, at[1]))
    widgets.notice("advantages", "mixed")
    widgets.check_yourself("mixed", lambda: explain.mixed_question(lens))
    widgets.take_away("advantages", "mixed", lambda: snippets.mixed(at[0], size), lambda: explain.mixed_table(lens))


explorer("advantages", body)
