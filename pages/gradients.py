"""Gradients: what every estimator is on average, exactly, on policies small enough to list every group."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.gradients import actions, baseline, lengths, simplex, size, togo

VIEWS = {
    "actions": actions,
    "simplex": simplex,
    "size": size,
    "baseline": baseline,
    "lengths": lengths,
    "togo": togo,
}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["grad_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("gradients", body, view="grad_view", bar=False)
