"""Home: one group on its way from prompt to loss, and the groups to choose from."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app.chooser import group_story
from app.components import component
from app.explain import home as explain
from app.lens import Lens
from app.shell import explorer
from app.words import prose


def body(lens: Lens) -> None:
    """Draw the pipeline with the current group's numbers in it."""
    group_story()
    mount = component("pipeline", '<div class="pipeline"></div>')
    clicked = mount(key="pipeline", data=explain.pipeline(lens, widgets.colors()), on_open_change=lambda: None)
    if clicked.open in explain.PAGES.values():
        st.switch_page(f"../pages/{clicked.open}.py")
    widgets.formula(formulas.loss(lens))
    section, numbers = explain.notice(lens)
    widgets.notice("home", section, **numbers)
    if lens.no_reference:
        st.caption(prose("home", "no-reference"))
    widgets.check_yourself("home", lambda: explain.question(lens))
    widgets.take_away("home", None, lambda: snippets.loss(lens), lambda: explain.table(lens))


explorer("home", body)
