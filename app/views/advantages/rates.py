"""What a success and a failure are worth, by success rate."""

from __future__ import annotations

from app import formulas, snippets, widgets
from app.explain import advantages as explain
from app.figures import advantages as figures
from app.lens import Lens
from app.numbers import signed
from app.widgets import Readout, slider
from app.words import t


def settings(lens: Lens) -> None:
    """Draw the success rate."""
    widgets.controls("advantage-rates", [slider("p")])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    q, success, failure, at = explain.rates(lens)
    widgets.picture(figures.rates(widgets.colors(), q, success, failure, at=at), "rates", alt=t("alt.rates"))
    widgets.readouts([Readout("success", signed(at[1])), Readout("failure", signed(at[2]))])
    widgets.formula(formulas.binary(*at))
    widgets.notice("advantages", "rates")
    widgets.check_yourself("rates", explain.rate_question)
    widgets.take_away("advantages", "rates", lambda: snippets.binary(at[0]), lambda: explain.rate_table(lens))
