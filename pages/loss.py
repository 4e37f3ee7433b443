"""Loss: everything put together for one group, and what each token gets from it."""

from __future__ import annotations

import streamlit as st

from app import widgets
from app.lens import Lens
from app.shell import explorer
from app.views.loss import compare, settings, tokens, whatif

VIEWS = {"tokens": tokens, "compare": compare, "whatif": whatif, "settings": settings}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["loss_view"]]
    if view is settings:
        widgets.choice("loss_view", hide_label=True)
        settings.draw(lens)
        return
    left, right = st.columns([4, 7], gap="large")
    with right:
        widgets.choice("loss_view", hide_label=True)
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("loss", body)
