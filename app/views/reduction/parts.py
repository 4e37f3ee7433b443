"""A token mean over micro-batches and ranks, against the token mean of the whole batch."""

from __future__ import annotations

from app import formulas, snippets, widgets
from app import lens as lenses
from app.explain import reduction as explain
from app.figures import reduction as figures
from app.lens import Lens, Parts
from app.numbers import signed
from app.widgets import Readout, slider
from app.words import t


def divided(lens: Lens) -> Parts:
    """Return what the settings describe."""
    return lenses.split(lens, int(lens.values["parts"]), int(lens.values["ranks"]))


def settings(lens: Lens) -> None:
    """Draw ranks, micro-batches, what each counts its tokens over, and the lengths."""
    widgets.controls("reduction-parts", [slider("ranks"), slider("parts"), *widgets.length_rows()])
    widgets.choice("span")


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    parts, span = divided(lens), lens.values["span"]
    figure = figures.parts(widgets.colors(), explain.part_names(parts), parts, span=span)
    widgets.picture(figure, "parts", alt=t("alt.parts"))
    widgets.readouts(
        [
            Readout("layout", t("readout.layout_text", ranks=parts.ranks, each=parts.each)),
            Readout("mean_of_means", signed(parts.mean_of_means)),
            Readout("mean_of_ranks", signed(parts.losses["rank"])),
            Readout("pooled", signed(parts.pooled)),
        ]
    )
    widgets.formula(formulas.parts(parts, span))
    section, numbers = explain.parts_notice(parts, span)
    widgets.notice("reduction", section, **numbers)
    widgets.check_yourself("parts", lambda: explain.parts_question(parts))
    widgets.take_away("reduction", "parts", lambda: snippets.parts(lens, parts), lambda: explain.parts_table(parts))
