"""Watching a run: settings, the board that follows it, and the groups of its newest step."""

from __future__ import annotations

import contextlib
import os

import streamlit as st

from app import live_form, live_runs
from app.live import evaluation, groups, knobs, scenarios, tempo
from app.live.board import board
from app.live.orders import take_pace
from app.live.source import chosen_run, first_look, other_active
from app.live_reader import Reader
from app.widgets import literal
from app.words import prose, t
from grpo_core.live import runner
from grpo_core.live.store import RunStoreError

CHARTS_EVERY = 0.5  # seconds between two looks at an active run
GROUPS_EVERY = 1.0
WATCH_EVERY = 5.0  # between two looks for a run that somebody else has started
WATCHED, UNDER_KEY = "live-watched", "live-under"  # session keys
UNDER = {"groups": groups.section, "evaluation": evaluation.section}
"""What can stand under the curves, by its name in the address."""


def section(source: Reader) -> None:
    """Draw the part of the page that follows one run."""
    run_id = chosen_run(source)
    look = first_look(source, run_id)
    other_active(source, look)
    live_runs.line(source)
    take_pace(look)
    live_form.form(title=t("live.settings_of", summary=_summary_of_next()))
    every = tempo.every(CHARTS_EVERY) if look is not None and look.run.active else None
    if every is None:
        get_ready(source)
        st.fragment(lambda: watch(source, run_id), run_every=WATCH_EVERY)()
    if look is not None and look.run.active:
        with st.container(key="live-knobs"):
            st.fragment(lambda: knobs.section(source, look.run.id), run_every=tempo.every(knobs.EVERY))()
    with st.container(key="live-board"):
        st.fragment(lambda: board(source, run_id, polling=every is not None), run_every=every)()
    drawn = UNDER[_under()]
    with st.container(key="live-groups"):
        st.fragment(lambda: drawn(source, run_id), run_every=tempo.every(GROUPS_EVERY) if every else None)()
    st.info(prose("live", "what"), icon=":material/visibility:")


def _under() -> str:
    """Draw the choice of what stands under the curves; it is kept in the address, where the first one is left out."""
    names = tuple(UNDER)
    wanted = st.query_params.get("under", names[0])
    wanted = wanted if wanted in names else names[0]
    if st.session_state.get(UNDER_KEY) != wanted:
        st.session_state[UNDER_KEY] = wanted

    def go() -> None:
        st.query_params["under"] = st.session_state[UNDER_KEY]

    st.segmented_control(
        t("live.under"), names, key=UNDER_KEY, required=True, label_visibility="collapsed", on_change=go,
        format_func=lambda name: t(f"live.under.{name}"),
    )  # fmt: skip
    return wanted


def get_ready(source: Reader) -> None:
    """Have a worker load its libraries before Start is pressed; GRPO_LAB_STANDBY=0 saves that memory."""
    if os.environ.get("GRPO_LAB_STANDBY", "1") == "0":
        return
    with contextlib.suppress(RunStoreError):
        if source.store.active_run() is None:
            runner.prepare(source.store)


def watch(source: Reader, shown: str | None) -> None:
    """Draw the page again when a run begins that this reader did not start, so that a room can follow it."""
    with contextlib.suppress(RunStoreError):
        active = source.store.active_run()
        if active is not None and active.id not in (shown, st.session_state.get(WATCHED)):
            st.session_state[WATCHED] = active.id
            if scenarios.continues(source, shown, active):
                st.query_params["run"] = active.id
            st.rerun()


def _summary_of_next() -> str:
    try:
        return literal(live_form.summary(live_form.chosen(None)))
    except ValueError:
        return t("live.not_accepted")
