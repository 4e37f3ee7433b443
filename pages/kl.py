"""KL: how far the policy has moved from the reference, what an estimate from one token says, and where it pulls."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.kl import curve, distribution, offpolicy, refresh, trap, why

VIEWS = {
    "curve": curve,
    "distribution": distribution,
    "why": why,
    "trap": trap,
    "offpolicy": offpolicy,
    "refresh": refresh,
}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["kl_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)


explorer("kl", body, view="kl_view")
