"""One loss, token by token: a table of pulls, and the way of one token through the formula."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import snippets_loss, walk, widgets
from app.explain import loss as explain
from app.figures import loss as figures
from app.lens import Lens
from app.numbers import plain, signed
from app.token_table import Heat, Place, chosen, token_table
from app.views.loss import controls
from app.widgets import Readout
from app.words import t


def draw(lens: Lens) -> None:
    """Draw the tokens, the totals, and the chosen token's way."""
    pull = walk.pulls(lens)
    heat = Heat(pull)
    at, note = chosen(lens, heat)
    token_table(lens, heat, at, key="loss-tokens", hint=t("tokens.hint"))
    if note:
        st.caption(note)
    _readouts(lens, pull)
    section, numbers = explain.notice(lens, pull)
    widgets.notice("loss", section, **numbers)
    if at is not None:
        st.markdown(controls.token_title(lens, at))
        rows = r"\\[0.4em] ".join(walk.lines(lens, walk.chain(lens, *at)))
        widgets.latex(rf"\small\begin{{aligned}} {rows} \end{{aligned}}")
    _totals(lens, pull)
    widgets.check_yourself("loss", lambda: explain.question(lens))
    _take_away(lens, at)


def _readouts(lens: Lens, pull: np.ndarray) -> None:
    kl = [Readout("kl_term", signed(explain.kl_part(lens)))] if lens.objective.beta > 0 else []
    widgets.readouts(
        [
            Readout("policy_loss", signed(float(lens.terms.policy_loss))),
            *kl,
            Readout("loss", signed(float(lens.terms.loss))),
            Readout("all_pull", plain(float(np.abs(pull).sum()))),
        ]
    )


def _totals(lens: Lens, pull: np.ndarray) -> None:
    figure = figures.totals(widgets.colors(), *explain.added(lens), *explain.both_ways(pull))
    widgets.picture(figure, "loss-totals", alt=t("alt.loss.totals"))


def _take_away(lens: Lens, at: Place | None) -> None:
    step = None if at is None else walk.chain(lens, *at)
    widgets.take_away("loss", "loss-tokens", lambda: snippets_loss.pull(lens, step), lambda: explain.table(lens))
    snippets_loss_note(lens)


def snippets_loss_note(lens: Lens) -> None:
    """Offer the group as a file where it is too large to stand in the snippet."""
    if sum(len(row) for row in lens.group.tokens) > snippets_loss.MOST_TOKENS:
        st.download_button(
            t("loss.group_file"),
            data=lambda: snippets_loss.group_json(lens),
            file_name="group.json",
            mime="application/json",
            on_click="ignore",
            icon=":material/data_object:",
        )


def settings(lens: Lens) -> None:
    """Draw the choices of the loss, and the chosen token's log-probabilities."""
    at, _ = chosen(lens, Heat(walk.pulls(lens)))
    live = st.container()
    controls.choices(lens)
    controls.needs(lens)
    controls.changed_choices(lens)
    token = st.container()
    if at is not None:
        with token:
            st.markdown(controls.token_title(lens, at))
            controls.token_mask(lens, at)
            widgets.controls("loss-token", widgets.token_rows(*at))
    with live:
        widgets.controls("loss", controls.sliders(lens))
