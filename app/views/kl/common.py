"""What the pictures of the KL page share: the rows of the editable distributions, and the way to the KL elsewhere."""

from __future__ import annotations

import math

import streamlit as st

from app import link, state, widgets
from app.explain import kl as explain
from app.lens import Distributions, Lens
from app.numbers import plain
from app.widgets import Row
from app.words import prose, t


def rows(both: Distributions) -> list[Row]:
    """Return a row for each event under each policy, event by event, and the number of events."""
    pairs = zip(widgets.weight_rows("cur", both.current), widgets.weight_rows("ref", both.reference), strict=False)
    return [*(row for pair in pairs for row in pair), widgets.events_row()]


def settings(lens: Lens, key: str, *, estimator: bool = True) -> None:
    """Draw the two distributions, and which estimator is looked at."""
    live = st.container()
    if estimator:
        widgets.choice("kl")
    with live:
        widgets.controls(f"kl-{key}", rows(explain.compared(lens)), two=True)


def degrees(value: float) -> str:
    """Return an angle as text, a dash where a gradient is zero."""
    return plain(value) if math.isnan(value) else t("readout.degrees", value=plain(value, 1))


def elsewhere(view: str) -> None:
    """Say what the From PPO page shows of this, with the link that opens its picture `view` for the current group."""
    if widgets.hidden("notice"):
        return
    with st.container(key="kl-elsewhere", gap="xxsmall"):
        st.caption(prose("kl", f"elsewhere-{view}"))
        st.page_link(
            "../pages/ppo.py",
            label=t(f"kl.elsewhere.{view}"),
            icon=":material/arrow_forward:",
            query_params={**link.to_query(state.view()), "ppo_view": view},
        )
