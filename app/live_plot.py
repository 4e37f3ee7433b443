"""A chart that is redrawn in place while its data grow, so that it neither flickers nor forgets the reader's zoom."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import streamlit as st
import streamlit.components.v1 as components_v1

from app import state
from app.components import component
from app.figures.base import Figure, enlarged
from app.words import t


def live_plot(figure: Figure, *, key: str, version: Any, alt: str, name: str | None = None) -> None:
    """Draw a figure, larger in a presentation; it is redrawn only when `version` changes.

    `alt` is what a screen reader says about it. `name`: what a saved picture is called, if not as the key.
    """
    large = state.lab().frame.present
    data = {
        "source": _library(),
        "figure": enlarged(figure) if large else figure,
        "version": f"{version}{' large' * large}",
        "name": f"grpo-lab-{name or key}",
        "alt": alt,
        "missing": t("live.no_plotly"),
    }
    component("live_plot", '<div class="live-plot"></div>', isolate=False)(key=key, data=data)


def _library() -> str:
    """Return the address of plotly.js: Streamlit serves the file that the Python package brings along."""
    folder = Path(str(files("plotly") / "package_data"))
    served = components_v1.declare_component("plotly_js", path=folder)
    base = st.get_option("server.baseUrlPath").strip("/")
    return f"{'/' + base if base else ''}/component/{served.name}/plotly.min.js"
