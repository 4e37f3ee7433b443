"""The same token losses under every rule."""

from __future__ import annotations

from app import formulas, snippets, widgets
from app.explain import reduction as explain
from app.figures import reduction as figures
from app.lens import Lens
from app.views.reduction import tokens
from app.words import t


def settings(lens: Lens) -> None:
    """Draw the rule, the constant and the lengths."""
    tokens.rule(lens)
    widgets.controls("reduction-rules", [tokens.constant_row(lens), *widgets.length_rows()])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    names, totals, losses, chosen = explain.rules(lens)
    figure = figures.rules(widgets.colors(), names, totals, losses, lens.advantages, chosen)
    widgets.picture(figure, "rules", alt=t("alt.rules"))
    widgets.formula(formulas.reduction(lens, explain.extremes(lens), explain.constant(lens)))
    widgets.notice("reduction", "rules")
    widgets.check_yourself("reduction", lambda: explain.question(lens))
    widgets.take_away("reduction", "rules", lambda: snippets.reduction(lens), lambda: explain.rules_table(lens))
