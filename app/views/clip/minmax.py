"""The minimum, and the mistake of writing a maximum: what the conservative side is for."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import snippets_clip, widgets
from app.explain import clip as curve
from app.explain import clip_regions as explain
from app.figures import clip_regions as figures
from app.figures.clip_regions import Side
from app.lens import Lens
from app.numbers import plain, signed
from app.views.clip import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.clip_regions import max_slope


def draw(lens: Lens) -> None:
    """Draw min and max for both signs."""
    high = curve.widest(lens, curve.probe(lens))
    sides = explain.sides(lens, high)
    ratio, clip = float(lens.values["r"]), explain.plain_range(lens)
    figure = figures.min_and_max(widgets.colors(), sides, clip=clip, ratio=ratio, high=high)
    widgets.picture(figure, "min-max", alt=t("alt.minmax"))
    own = sides[0] if lens.values["sign"] == "up" else sides[1]
    widgets.readouts(
        [
            Readout("min_value", signed(own.at_right[0])),
            Readout("min_slope", signed(own.at_right[1])),
            Readout("max_value", signed(own.at_wrong[0])),
            Readout("max_slope", signed(own.at_wrong[1])),
        ]
    )
    widgets.formula(explain.max_lines(lens, own))
    section, numbers = explain.max_notice(lens, own)
    widgets.notice("clip", section, **numbers)
    widgets.check_yourself("minmax", question)
    widgets.take_away("minmax", "min-max", lambda: snippets_clip.minmax(lens, own), lambda: table(sides))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    live = st.container()
    widgets.choice("sign")
    with live:
        widgets.controls("clip-minmax", [slider("r"), *common.clip_rows(delta=False)])


def question() -> Question:
    """Ask for the slope that the mistake leaves to a token that must recover."""
    value = float(max_slope(np.array([0.5]), np.array([1.0]))[0])
    return Question(prose("clip", "ask-minmax"), value, prose("clip", "worked-minmax", answer=plain(value, 0)))


def table(sides: list[Side]) -> Table:
    """Return the curves as data."""
    rows = [
        (s.right.advantage, float(r), *(float(x) for x in row))
        for s in sides
        for r, *row in zip(
            s.right.ratio, s.right.objective, s.wrong.objective, s.right.slope, s.wrong.slope, strict=True
        )
    ]
    return Table(("advantage", "ratio", "min", "max", "slope of min", "slope of max"), rows)
