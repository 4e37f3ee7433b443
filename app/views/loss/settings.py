"""Settings that the sources name beside the loss: learning rate, group size, batch; and the recipe as equations."""

from __future__ import annotations

import streamlit as st

from app import widgets
from app.explain import settings as explain
from app.lens import Lens
from app.recipe_words import recipe_note, recipe_title
from app.words import prose, t
from grpo_core import get_recipe

ROW = 35


def draw(lens: Lens) -> None:
    """Draw the table of settings over the whole width, and the current recipe below it."""
    height = ROW * (len(explain.rows()) + 1) + 3
    config = explain.column_config()
    st.dataframe(
        explain.frame(), key="loss-settings", hide_index=True, column_config=config, row_height=ROW, height=height
    )
    st.caption(prose("loss", "settings-note"))
    widgets.notice("loss", "settings")
    _recipe(lens)
    widgets.check_yourself("loss-settings", explain.question)
    widgets.take_away("loss-settings", None, explain.snippet, explain.table)


def _recipe(lens: Lens) -> None:
    """Draw the recipe in the bar: where it is defined, its equations, its data."""
    recipe = get_recipe(lens.values["recipe"])
    st.header(recipe_title(recipe.name), anchor=False)
    st.markdown(widgets.literal(recipe_note(recipe.name)))
    st.caption(widgets.literal(str(recipe.source)))
    equations = explain.equations(lens)
    for pair in (equations[k : k + 2] for k in range(0, len(equations), 2)):
        for column, (name, equation) in zip(st.columns(2, gap="large"), pair, strict=False):
            with column:
                st.caption(t(f"loss.equation.{name}"))
                widgets.latex(equation)
    st.code(explain.recipe_data(recipe), language="python", wrap_lines=True)
