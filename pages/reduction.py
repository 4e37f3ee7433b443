"""Reduction: how much each token counts when token losses become one number."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.reduction import masks, parts, rules, tokens

VIEWS = {"tokens": tokens, "rules": rules, "parts": parts, "masks": masks}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["red_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("reduction", body, view="red_view")
