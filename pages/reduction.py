"""Reduction: how much each token counts when token losses become one number."""

from __future__ import annotations

import streamlit as st

from app import formulas, snippets, widgets
from app import lens as lenses
from app.explain import reduction as explain
from app.figures import reduction as figures
from app.lens import Lens
from app.numbers import plain, signed
from app.shell import explorer
from app.widgets import Readout, slider
from app.words import prose, t

MODES = ("sequence_mean", "token_mean", "constant", "sequence_sum")


def body(lens: Lens) -> None:
    """Draw the page for the current group: the picture first, so that it follows a slider without delay."""
    left, right = st.columns([4, 7], gap="large")
    with right:
        widgets.choice("red_view", hide_label=True)
        {"tokens": token_view, "rules": rule_view, "parts": part_view}[lens.values["red_view"]](lens)
    with left:
        settings(lens)


def settings(lens: Lens) -> None:
    """Draw the controls that the chosen picture depends on."""
    view, mode = lens.values["red_view"], lens.values["reduce"]
    if view != "parts":
        widgets.choice("reduce", MODES if mode in MODES else None)
    rows = widgets.length_rows()
    if view == "parts":
        rows.insert(0, slider("parts"))
    if view == "rules" or mode == "constant":
        longest = lenses.longest(lens.group)
        rows.insert(0, slider("constant", value=longest, text=t("control.auto", n=longest)))
    widgets.controls(f"reduction-{view}", rows)


def token_view(lens: Lens) -> None:
    """Every token as a block as tall as its weight."""
    widgets.picture(figures.blocks(widgets.colors(), explain.rows(lens)), "reduction", alt=t("alt.reduction"))
    large, small = explain.heaviest(lens)
    widgets.readouts(
        [
            Readout("loss", signed(float(lens.terms.loss))),
            Readout("token_count", str(sum(lens.lengths))),
            Readout("largest_weight", plain(large, 4)),
            Readout("smallest_weight", plain(small, 4)),
        ]
    )
    widgets.formula(formulas.reduction(lens, explain.extremes(lens), explain.constant(lens)))
    section, numbers = explain.notice(lens)
    widgets.notice("reduction", section, **numbers)
    if any(lens.group.truncated):
        st.caption(prose("reduction", "truncated"))
    widgets.check_yourself("reduction", lambda: explain.question(lens))
    widgets.take_away("reduction", "reduction", lambda: snippets.reduction(lens), lambda: explain.table(lens))


def rule_view(lens: Lens) -> None:
    """The same token losses under every rule."""
    names, totals, losses, chosen = explain.rules(lens)
    figure = figures.rules(widgets.colors(), names, totals, losses, lens.advantages, chosen)
    widgets.picture(figure, "rules", alt=t("alt.rules"))
    widgets.formula(formulas.reduction(lens, explain.extremes(lens), explain.constant(lens)))
    widgets.notice("reduction", "rules")
    widgets.check_yourself("reduction", lambda: explain.question(lens))
    widgets.take_away("reduction", "rules", lambda: snippets.reduction(lens), lambda: explain.rules_table(lens))


def part_view(lens: Lens) -> None:
    """A token mean over micro-batches, against the token mean of the whole batch."""
    parts = lenses.split(lens, int(lens.values["parts"]))
    figure = figures.parts(
        widgets.colors(), explain.part_names(parts), parts.local, mean_of_means=parts.mean_of_means, pooled=parts.pooled
    )
    widgets.picture(figure, "parts", alt=t("alt.parts"))
    widgets.readouts([Readout("mean_of_means", signed(parts.mean_of_means)), Readout("pooled", signed(parts.pooled))])
    widgets.formula(formulas.parts(parts))
    section, numbers = explain.parts_notice(parts)
    widgets.notice("reduction", section, **numbers)
    widgets.take_away("reduction", "parts", lambda: snippets.parts(parts), lambda: explain.parts_table(parts))


explorer("reduction", body)
