"""Advantages: which completions a group pushes up, which down, and how hard."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.advantages import bars, estimators, mixed, prompts, rates, several, steps

VIEWS = {
    "bars": bars,
    "estimators": estimators,
    "rates": rates,
    "mixed": mixed,
    "prompts": prompts,
    "several": several,
    "steps": steps,
}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["adv_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("advantages", body, view="adv_view")
