"""What the pictures of the Ratio and clip page share."""

from __future__ import annotations

import streamlit as st

from app import presets, state, widgets
from app.widgets import Row, slider
from app.words import prose, t


def clip_rows(*, delta: bool = True) -> list[Row]:
    """Return the rows of the clip range."""
    return [slider("eps_low"), slider("eps_high"), *([slider("delta")] if delta else [])]


def timeline(key: str) -> None:
    """Say which of the three policies moves when, and offer the page that draws it as lanes over time."""
    if widgets.hidden("notice"):
        return
    st.markdown(prose("clip", "timeline"))
    if st.button(t("clip.timeline"), key=f"timeline-{key}", icon=":material/timeline:", disabled=state.locked()):
        state.put(presets.presets("ppo")["stale"]["set"])
        st.switch_page("../pages/ppo.py")
