"""Rewards of the group with mean and std above, advantages below."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app.explain import advantages as explain
from app.figures import advantages as figures
from app.lens import Lens
from app.numbers import plain
from app.widgets import Readout, slider
from app.words import t

DIVIDED = ("group", "best_of_group")


def settings(lens: Lens) -> None:
    """Draw the rewards and how they become advantages."""
    spec, live = lens.spec, st.container()
    widgets.select("estimator")
    divides = spec.estimator in DIVIDED
    if divides:
        widgets.choice("scale")
    if divides and spec.scale != "none":
        widgets.choice("ddof")
    rows = [widgets.size_row(), *widgets.reward_rows()]
    if divides and spec.scale != "none":
        rows.append(slider("eps"))
    if spec.estimator == "greedy_baseline":
        rows.insert(1, slider("greedy"))
    with live:
        widgets.rewards_line()
        widgets.controls("advantage-rewards", rows)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    s = lens.scores
    figure = figures.bars(
        widgets.colors(),
        lens.group.reward_array,
        s.advantages,
        mean=float(s.mean),
        std=float(s.std),
        scaled=explain.scaled(lens.spec),
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
