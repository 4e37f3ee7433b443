"""Two distributions over a few events: the exact divergence, and what the estimators give on average."""

from __future__ import annotations

from app import formulas, snippets, widgets
from app.explain import kl as explain
from app.figures import kl as figures
from app.lens import Lens
from app.numbers import plain
from app.views.kl import common
from app.widgets import Readout
from app.words import t


def draw(lens: Lens) -> None:
    """Draw both distributions and the chosen estimator."""
    both, chosen = explain.compared(lens), lens.values["kl"]
    figure = figures.distribution(widgets.colors(), both.current, both.reference, both.estimates[chosen], name=chosen)
    widgets.picture(figure, "distribution", alt=t("alt.distribution"))
    expected = [Readout(f"mean_{name}", plain(value, 4)) for name, value in both.expected.items()]
    widgets.readouts([Readout("exact", plain(both.exact, 4)), *expected, Readout("reverse", plain(both.reverse, 4))])
    widgets.readouts([Readout(f"std_{name}", plain(value, 4)) for name, value in both.spread.items()])
    widgets.formula(formulas.expectation(both, chosen))
    section, numbers = explain.distribution_notice(both)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("distribution", explain.distribution_question)
    widgets.take_away(
        "kl", "distribution", lambda: snippets.expectation(both), lambda: explain.distribution_table(both)
    )


def settings(lens: Lens) -> None:
    """Draw the controls."""
    common.settings(lens, "distribution")
