"""Sampling: which completions are drawn, what they cost, and what the ratio must divide by."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.sampling import budget, dynamic, passk, temperature

VIEWS = {"dynamic": dynamic, "budget": budget, "temperature": temperature, "pass": passk}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["samp_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("sampling", body, view="samp_view")
