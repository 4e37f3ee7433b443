"""What if one choice were another: every alternative ranked by the pull it moves, one of them in detail."""

from __future__ import annotations

import streamlit as st

from app import state, widgets
from app.explain import loss as explain
from app.figures import loss as figures
from app.lens import Lens
from app.recipe_words import recipe_title
from app.views.loss import controls, pairs
from app.words import t

MOST_ROWS = 22


def draw(lens: Lens) -> None:
    """Draw the group under the current loss and under the chosen alternative."""
    own = explain.alternative(lens, lens.values["alt"])
    pairs.draw(own.pair, key="whatif", first=recipe_title(lens.values["recipe"]), second=own.title)


def settings(lens: Lens) -> None:
    """Draw the alternatives, ranked, and the choice of one."""
    ranked = explain.alternatives(lens)
    names = [each.name for each in ranked]
    own = lens.values["alt"]
    options = names if own in names else [own, *names]
    widgets.select("alt", format_func=explain.alternative_title, options=options, words="loss.alt")
    st.button(
        t("loss.apply"),
        key="loss-apply",
        on_click=_apply,
        disabled=state.locked(),
        icon=":material/check:",
        help=t("loss.apply_help"),
    )
    controls.changed_choices(lens)
    shown = [each for k, each in enumerate(ranked) if k < MOST_ROWS or each.name == own]
    place = next((k for k, each in enumerate(shown) if each.name == own), None)
    figure = figures.ranking(
        widgets.colors(),
        [each.title for each in shown],
        [each.pair.moved for each in shown],
        chosen=place,
        factor=[each.pair.factor is not None and abs(each.pair.factor - 1) > 1e-9 for each in shown],
    )
    widgets.picture(figure, "loss-ranking", alt=t("alt.loss.ranking"))
    if len(ranked) > len(shown):
        st.caption(t("loss.less", count=len(ranked) - len(shown)))


def _apply() -> None:
    state.put(explain.ALTERNATIVES[state.get("alt")])
