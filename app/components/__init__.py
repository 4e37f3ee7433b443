"""Small browser components of our own, where Streamlit has none: their JavaScript and CSS lie beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def component(name: str, root: str, *, isolate: bool = True) -> Any:
    """Return the component whose files are `name`.js and, if there is one, `name`.css.

    `isolate` False leaves it in the page's own document, where other components find it.
    """
    css = _read(f"{name}.css") if (_HERE / f"{name}.css").exists() else None
    js = _read(f"{name}.js")
    return st.components.v2.component(f"grpo_{name}", html=root, css=css, js=js, isolate_styles=isolate)
