"""The least that Streamlit needs for a slider and a chart: what the explorer's pages are measured against.

Two pages, each a fragment with one live slider and a chart of one point. No mathematics, no text.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import streamlit as st
from plotly.basedatatypes import BaseFigure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.components import component


class Unchecked(BaseFigure):
    """A figure that is sent as it stands, as the explorer sends its own."""

    def __init__(self, spec: dict[str, Any]) -> None:
        object.__setattr__(self, "_spec", spec)

    def to_dict(self) -> dict[str, Any]:
        return self._spec


def page() -> None:
    """Draw the slider and the chart."""
    st.title("Bare")
    fragment()


@st.fragment
def fragment() -> None:
    """Draw what a slider reruns."""
    edit = (st.session_state.get("controls") or {}).get("edit") or {}
    value = float(edit.get("value", 0.5))
    chart = {
        "data": [{"type": "scatter", "x": [value], "y": [0]}],
        "layout": {"height": 430, "xaxis": {"range": [0, 1]}},
    }
    st.plotly_chart(Unchecked(chart), key="picture-bare", theme=None)
    row = {"id": "x", "label": "x", "value": value, "text": str(value), "low": 0, "high": 1, "step": 0.01, "stops": []}
    data = {"rows": [row], "words": {"help": "", "exact": ""}, "seen": int(edit.get("at", 0))}
    component("live_controls", '<div class="controls"></div>')(key="controls", data=data, on_edit_change=lambda: None)


def other() -> None:
    """Draw the second page."""
    page()


pages = [st.Page(page, title="Bare", url_path="bare", default=True), st.Page(other, title="Other", url_path="other")]
st.set_page_config(layout="wide")
st.navigation(pages).run()
