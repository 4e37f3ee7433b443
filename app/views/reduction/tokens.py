"""Every token as a block as tall as its weight."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app import lens as lenses
from app.explain import reduction as explain
from app.figures import reduction as figures
from app.lens import Lens
from app.numbers import plain, signed
from app.widgets import Readout, Row, slider
from app.words import prose, t

MODES = ("sequence_mean", "token_mean", "constant", "sequence_sum")


def settings(lens: Lens) -> None:
    """Draw the rule and the lengths."""
    rule(lens)
    constant = [constant_row(lens)] if lens.values["reduce"] == "constant" else []
    widgets.controls("reduction-tokens", [*constant, *widgets.length_rows()])


def rule(lens: Lens) -> None:
    """Draw the choice of the rule."""
    widgets.choice("reduce", MODES if lens.values["reduce"] in MODES else None)


def constant_row(lens: Lens) -> Row:
    """Return the row of the constant that divides."""
    longest = lenses.longest(lens.group)
    return slider("constant", value=longest, text=t("control.auto", n=longest))


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    widgets.picture(figures.blocks(widgets.colors(), explain.rows(lens)), "reduction", alt=t("alt.reduction"))
    large, small = explain.heaviest(lens)
    widgets.readouts(
        [
            Readout("loss", signed(float(lens.terms.loss))),
            Readout("token_count", str(sum(lens.trained))),
            Readout("largest_weight", plain(large, 4)),
            Readout("smallest_weight", plain(small, 4)),
        ]
    )
    widgets.formula(formulas.reduction(lens, explain.extremes(lens), explain.constant(lens)))
    section, numbers = explain.notice(lens)
    widgets.notice("reduction", section, **numbers)
    if any(lens.group.truncated):
        st.caption(prose("reduction", "truncated"))
    widgets.see_also("gradients", "all-good")
    widgets.check_yourself("reduction", lambda: explain.question(lens))
    widgets.take_away("reduction", "reduction", lambda: snippets.reduction(lens), lambda: explain.table(lens))
