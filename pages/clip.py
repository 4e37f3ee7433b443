"""Ratio and clip: how far one batch may push a token, and where the push stops."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.clip import curve, epochs, graph, levels, minmax, quadrants, surrogates

VIEWS = {
    "curve": curve,
    "surrogates": surrogates,
    "quadrants": quadrants,
    "minmax": minmax,
    "levels": levels,
    "epochs": epochs,
    "graph": graph,
}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["clip_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("clip", body, view="clip_view")
