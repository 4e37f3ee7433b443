"""The same rewards under every definition of the advantage."""

from __future__ import annotations

from app import formulas, snippets, widgets
from app.explain import advantages as explain
from app.figures import advantages as figures
from app.lens import Lens
from app.views.advantages import bars
from app.words import t


def settings(lens: Lens) -> None:
    """Draw the group's rewards."""
    bars.settings(lens)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    names, table = explain.compared(lens)
    widgets.picture(figures.estimators(widgets.colors(), names, table), "estimators", alt=t("alt.estimators"))
    widgets.formula(formulas.advantage(lens, explain.focus(lens)))
    widgets.notice("advantages", "estimators")
    widgets.check_yourself("estimators", lambda: explain.question(lens))
    widgets.take_away(
        "advantages", "estimators", lambda: snippets.advantages(lens), lambda: explain.compared_table(lens)
    )
