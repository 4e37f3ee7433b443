"""Why the old policy's log-probability must be a frozen number."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app import lens as lenses
from app.explain import clip as explain
from app.figures import clip as figures
from app.lens import Lens
from app.numbers import signed
from app.views.clip import common
from app.widgets import Readout
from app.words import t


def draw(lens: Lens) -> None:
    """Draw the objective with a frozen old policy and with one that shares the graph."""
    at = explain.probe(lens)
    change, frozen = explain.graph_curve(lens, at.advantage)
    widgets.picture(
        figures.graph(widgets.colors(), change, frozen, advantage=at.advantage), "graph", alt=t("alt.graph")
    )
    slopes = lenses.graph_slopes(at.advantage, lens.values)
    widgets.readouts([Readout(f"graph_{name}", signed(value)) for name, value in slopes.items()])
    widgets.formula(formulas.graph(slopes))
    widgets.notice("clip", "graph", advantage=signed(at.advantage, 2))
    common.timeline("graph")
    widgets.check_yourself("graph", lambda: explain.graph_question(lens))
    widgets.take_away("clip", "graph", lambda: snippets.graph(at.advantage), lambda: explain.graph_table(lens, at))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    live = st.container()
    widgets.choice("sign")
    with live:
        widgets.controls("clip-graph", common.clip_rows(delta=False))
