"""What the pictures of two losses share: the tokens coloured by what changes, the largest changes, one token twice."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import snippets_loss, walk, widgets
from app.explain import loss as explain
from app.explain.loss import Pair
from app.figures import loss as figures
from app.lens import Lens
from app.numbers import signed
from app.token_table import Heat, chosen, token_table
from app.views.loss import controls
from app.widgets import Readout
from app.words import t


def draw(pair: Pair, *, key: str, first: str, second: str) -> None:
    """Draw a group under two losses; `first` and `second` are what they are called."""
    in_shares = pair.first.values["unit"] == "share"
    a, b = pair.shares if in_shares else pair.pulls
    difference = Heat(b - a, share=in_shares)
    at, note = chosen(pair.first, difference)
    _choose_heat(first, second)
    lens, heat = _heat(pair, a, b, difference)
    token_table(lens, heat, at, key=f"loss-{key}", hint=t(f"tokens.hint_{lens.values['heat']}"))
    if note:
        st.caption(note)
    _readouts(pair)
    section, numbers = explain.pair_notice(pair)
    widgets.notice("loss", section, **numbers)
    rows = explain.changes(pair, in_shares=in_shares)
    if rows:
        figure = figures.changes(widgets.colors(), rows, first=first, second=second, share=in_shares)
        widgets.picture(figure, f"loss-{key}-changes", alt=t("alt.loss.changes"))
    if at is not None:
        st.markdown(controls.token_title(pair.first, at))
        widgets.latex(walk.both(*explain.chains(pair, at)))
        widgets.check_yourself(f"loss-{key}", lambda: explain.pair_question(pair, at))
    widgets.take_away(
        "loss",
        f"loss-{key}",
        lambda: snippets_loss.compare(pair.first, pair.second),
        lambda: explain.pair_table(pair),
    )


def _heat(pair: Pair, a: np.ndarray, b: np.ndarray, difference: Heat) -> tuple[Lens, Heat]:
    """Return the lens and the values that colour the table; both single losses share one scale."""
    choice, share = pair.first.values["heat"], difference.share
    if choice == "difference":
        return pair.first, difference
    scale = max(Heat(a).reach, Heat(b).reach)
    return (pair.first, Heat(a, share, scale)) if choice == "first" else (pair.second, Heat(b, share, scale))


def _choose_heat(first: str, second: str) -> None:
    st.markdown(t("loss.both", first=widgets.literal(first), second=widgets.literal(second)))
    left, right = st.columns([3, 2], gap="small")
    with left:
        widgets.choice("heat")
    with right:
        widgets.choice("unit")


def _readouts(pair: Pair) -> None:
    losses = [float(each.terms.loss) for each in (pair.first, pair.second)]
    total = int(pair.first.terms.mask.sum())
    widgets.readouts(
        [
            Readout("loss_first", signed(losses[0])),
            Readout("loss_second", signed(losses[1])),
            Readout("changed", t("readout.of", n=pair.changed, total=total)),
            Readout("moved", f"{100 * pair.moved:.1f} %"),
        ]
    )
