"""PPO, DPO and GRPO side by side: data, models, signal, memory, fit."""

from __future__ import annotations

import streamlit as st

from app import widgets
from app.figures import ppo as figures
from app.lens import Lens
from app.views.ppo import memory
from app.widgets import Table, slider
from app.words import prose, t

METHODS = ("ppo", "dpo", "grpo")
WIDE = True


def settings(lens: Lens) -> None:
    """Draw the controls."""
    widgets.controls("compared", [slider("mem_p")])
    widgets.choice("mem_prec")


def draw(lens: Lens) -> None:
    """Draw the memory of the three, and the table."""
    names = [t(f"method.{method}") for method in METHODS]
    figure = figures.memory(widgets.colors(), names, memory.parts(lens, METHODS))
    widgets.picture(figure, "compared", alt=t("alt.memory"))


def below(lens: Lens) -> None:
    """Draw what needs the whole width: the table."""
    numbers = {method: memory.gigabytes(memory.total(lens, method)) for method in METHODS}
    st.markdown(prose("ppo", "compared-table", **numbers))
    widgets.notice("ppo", "compared")
    widgets.check_yourself("compared", lambda: memory.question(lens))
    widgets.take_away("ppo", "compared", lambda: memory.snippet(lens), lambda: table(lens))


def table(lens: Lens) -> Table:
    """Return the comparison as data: the cells of the table on the page."""
    numbers = {method: memory.gigabytes(memory.total(lens, method)) for method in METHODS}
    lines = prose("ppo", "compared-table", **numbers).splitlines()
    rows = [tuple(cell.strip().replace("**", "") for cell in line.strip("|").split("|")) for line in lines]
    return Table(rows[0], [row for row in rows[1:] if not set("".join(row)) <= set("-: ")])
