"""Which store and which run the Live page shows, and what is said when one of them is not there."""

from __future__ import annotations

import os

import streamlit as st

from app.live_reader import Look, Reader
from app.widgets import literal
from app.words import plain_text, t, told
from grpo_core.live.store import RunStore, RunStoreError


@st.cache_resource(show_spinner=False)
def _reader(where: str | None) -> Reader:
    """Return the one reader of this process for a store; an error is not remembered: the next try is a new one."""
    return Reader(RunStore(where))


def open_store() -> Reader | None:
    """Return the reader of the run store, or say why there is none."""
    try:
        return _reader(os.environ.get("GRPO_LAB_RUNS"))
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(told(error))}", icon=":material/error:")
        return None


def chosen_run(source: Reader) -> str | None:
    """Return the run that the address names; without one the active or newest run, which the address then names."""
    wanted = st.query_params.get("run")
    try:
        found = source.find(wanted)
    except RunStoreError:
        found = _other_run(source, str(wanted))
    if found and wanted is None:
        st.query_params["run"] = found
    return found


def _other_run(source: Reader, wanted: str) -> str | None:
    try:
        found = source.find()
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(told(error))}", icon=":material/error:")
        return None
    name = literal(plain_text(wanted))
    st.warning(t("live.unknown_run" if found else "live.unknown_run_empty", run=name), icon=":material/link_off:")
    return found


def first_look(source: Reader, run_id: str | None) -> Look | None:
    """Return the run as it stands, or None when there is none or it cannot be read."""
    if run_id is None:
        return None
    try:
        return source.look(run_id)
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(told(error))}", icon=":material/error:")
        return None


def other_active(source: Reader, look: Look | None) -> None:
    """Say so when the run that is shown is an old one while another is going on."""
    try:
        active = source.store.active_run() if look and not look.run.active else None
    except RunStoreError:
        return
    if look is None or active is None or active.id == look.run.id:
        return
    words, button = st.columns([5, 1], vertical_alignment="center")
    words.info(t("live.other_active", run=literal(active.id)), icon=":material/info:")
    if button.button(t("live.show_it"), key="live-show-active", width="stretch"):
        st.query_params["run"] = active.id
        st.rerun()
