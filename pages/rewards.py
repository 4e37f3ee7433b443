"""Rewards: what verifiers pay for a completion, and what a policy would make of that."""

from __future__ import annotations

import streamlit as st

from app import state, widgets
from app.lens import Lens
from app.shell import explorer
from app.views.rewards import lengths, scores, texts
from app.words import t

VIEWS = {"scores": scores, "lengths": lengths}


def body(lens: Lens) -> None:
    """Draw the completions, and below them the controls and what the verifiers say."""
    bench, problem = texts.current()
    if problem:
        st.warning(widgets.literal(t("bench.link", problem=problem)), icon=":material/link:")
    texts.editor(bench)
    _, message = state.lab().errors.get("bench", ("", ""))
    if message:
        st.error(widgets.literal(message), icon=":material/edit:")
    view = VIEWS[lens.values["rew_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens, bench)
    with left:
        view.settings(lens)


explorer("rewards", body, view="rew_view")
