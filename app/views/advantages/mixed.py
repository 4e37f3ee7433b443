"""How likely each kind of group is: mixed, all right, all wrong, unscored."""

from __future__ import annotations

from app import formulas, snippets, widgets
from app.explain import advantages as explain
from app.figures import advantages as figures
from app.figures import advantages_batches as batches
from app.lens import Lens
from app.numbers import plain
from app.widgets import Readout, slider
from app.words import t


def settings(lens: Lens) -> None:
    """Draw the success rate, the group size, and how often a completion cannot be scored."""
    widgets.controls("advantage-mixed", [slider("p"), slider("mix_g"), slider("miss")])


def draw(lens: Lens) -> None:
    """Draw the pictures and what belongs to them."""
    p, curves, at, size = explain.mixed(lens)
    chances = explain.kinds(lens)
    widgets.picture(figures.mixed(widgets.colors(), p, curves, at=at, size=size), "mixed", alt=t("alt.mixed"))
    widgets.picture(batches.kinds(widgets.colors(), chances), "kinds", alt=t("alt.kinds"))
    widgets.readouts(
        [
            Readout("mixed", plain(chances["mixed"])),
            Readout("all_right", plain(chances["all-right"])),
            Readout("all_wrong", plain(chances["all-wrong"])),
            Readout("none_scored", plain(chances["unscored"])),
        ]
    )
    unscored = float(lens.values["miss"])
    widgets.formula(formulas.mixed(at[0], size, at[1], unscored))
    section, numbers = explain.kind_notice(lens)
    widgets.notice("advantages", section, **numbers)
    widgets.check_yourself("mixed", lambda: explain.mixed_question(lens))
    widgets.take_away(
        "advantages", "mixed", lambda: snippets.mixed(at[0], size, unscored), lambda: explain.mixed_table(lens)
    )
