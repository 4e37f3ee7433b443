"""The clipped objective and its slope against the ratio, with the group's tokens on them."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app import lens as lenses
from app.explain import clip as explain
from app.figures import clip as figures
from app.lens import Lens
from app.numbers import signed
from app.views.clip import common
from app.widgets import Readout, slider
from app.words import t


def draw(lens: Lens) -> None:
    """Draw objective and slope."""
    at = explain.probe(lens)
    high = explain.widest(lens, at)
    points = explain.visible(explain.points(lens), high)
    clip = lenses.clip_range(lens.values)
    figure = figures.curves(widgets.colors(), explain.curves(lens, at, high), points, at, clip=clip, high=high)
    widgets.picture(figure, "clip", alt=t("alt.clip"))
    low, up = explain.clipped(lens)
    widgets.readouts(
        [
            Readout("objective", signed(at.objective)),
            Readout("slope", signed(at.slope)),
            Readout("clipped_low", low),
            Readout("clipped_high", up),
        ]
    )
    widgets.formula(formulas.clip(at, clip))
    section, numbers = explain.notice(lens, at)
    widgets.notice("clip", section, **numbers)
    widgets.check_yourself("clip", lambda: explain.question(lens))
    widgets.take_away("clip", "clip", lambda: snippets.clip(at, clip), lambda: explain.table(lens))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    live = st.container()
    widgets.choice("sign")
    widgets.choice("level")
    with live:
        widgets.controls("clip-curve", [slider("r"), *common.clip_rows()])
