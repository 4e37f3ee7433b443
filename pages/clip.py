"""Ratio and clip: how far one batch may push a token, and where the push stops."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app import lens as lenses
from app.explain import clip as explain
from app.figures import clip as figures
from app.lens import Lens
from app.numbers import plain, short, signed
from app.shell import explorer
from app.widgets import Readout, slider
from app.words import t


def body(lens: Lens) -> None:
    """Draw the page for the current group: the picture first, so that it follows a slider without delay."""
    left, right = st.columns([4, 7], gap="large")
    with right:
        widgets.choice("clip_view", hide_label=True)
        {"curve": curve_view, "levels": level_view, "graph": graph_view}[lens.values["clip_view"]](lens)
    with left:
        settings(lens)


def settings(lens: Lens) -> None:
    """Draw the controls that the chosen picture depends on."""
    view = lens.values["clip_view"]
    live = st.container()
    if view != "levels":
        widgets.choice("sign")
    if view != "graph":
        widgets.choice("level")
    clip = [slider("eps_low"), slider("eps_high")]
    rows = {
        "curve": [slider("r"), *clip, slider("delta")],
        "levels": [slider("drift"), slider("drift_n"), *clip],
        "graph": clip,
    }
    with live:
        widgets.controls(f"clip-{view}", rows[view])


def curve_view(lens: Lens) -> None:
    """Objective and slope against the ratio, with the group's tokens on them."""
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


def level_view(lens: Lens) -> None:
    """One completion, three ratios: of its tokens, of its geometric mean, of their product."""
    clip = lenses.clip_range(lens.values)
    rows = explain.level_rows(lens)
    if rows:
        figure = figures.levels(widgets.colors(), rows, clip=clip, level=lens.values["level"])
        widgets.picture(figure, "levels", alt=t("alt.levels"))
    token, tokens = float(lens.values["drift"]), int(lens.values["drift_n"])
    ratios = lenses.drift(token, tokens)
    lengths, trajectory = lenses.drift_curve(token, tokens)
    figure = figures.drift(widgets.colors(), lengths, trajectory, token=token, at=(tokens, ratios["trajectory"]))
    widgets.picture(figure, "drift", alt=t("alt.drift"))
    widgets.readouts([Readout(f"level_{name}", plain(value, 2)) for name, value in ratios.items()])
    widgets.formula(formulas.levels(token, tokens, ratios))
    section = "levels-capped" if lenses.is_capped(ratios["trajectory"]) else "levels"
    widgets.notice("clip", section, token=short(token), tokens=str(tokens), product=plain(ratios["trajectory"], 2))
    widgets.check_yourself("levels", lambda: explain.drift_question(lens))
    widgets.take_away("clip", "drift", lambda: snippets.drift(token, tokens), lambda: explain.level_table(lens))


def graph_view(lens: Lens) -> None:
    """Why the old policy's log-probability must be a frozen number."""
    at = explain.probe(lens)
    change, frozen = explain.graph_curve(lens, at.advantage)
    widgets.picture(
        figures.graph(widgets.colors(), change, frozen, advantage=at.advantage), "graph", alt=t("alt.graph")
    )
    slopes = lenses.graph_slopes(at.advantage, lens.values)
    widgets.readouts([Readout(f"graph_{name}", signed(value)) for name, value in slopes.items()])
    widgets.formula(formulas.graph(slopes))
    widgets.notice("clip", "graph", advantage=signed(at.advantage, 2))
    widgets.take_away("clip", "graph", lambda: snippets.graph(at.advantage), lambda: explain.graph_table(lens, at))


explorer("clip", body)
