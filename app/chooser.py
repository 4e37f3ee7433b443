"""Where the group comes from: the list of teaching groups, pasted or uploaded text, or a step of a live run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import streamlit as st

from app import link, pasting, redraw, state
from app.teaching import FIRST, teaching_groups
from app.widgets import literal
from app.words import plain_text, prose, t, told
from grpo_core import Group

EDITED, OPENED = "edited", "opened"  # names in the list for a group that is no teaching group
TEXT, FILE = "paste-text", "paste-file"  # session keys
OPEN = "paste-open"
MOST_RUNS = 20
EXAMPLE = """completion,token,logp,old_logp,ref_logp,reward
1,4,-0.31,-0.36,-0.40,1
1,2,-0.22,-0.25,-0.31,1
2,7,-1.90,-1.61,-1.55,0
2,!,-0.75,-0.70,-0.66,0"""


def group_chooser() -> None:
    """Draw the list of teaching groups. A group that was edited, or came from elsewhere, stands first in it."""
    view = state.view()
    wanted = view.base if not link.is_edited(view) else EDITED if view.base else OPENED
    names = ([] if wanted in teaching_groups() else [wanted]) + list(teaching_groups())
    key = "choice-group"
    if st.session_state.get(key) != wanted:
        st.session_state[key] = wanted

    def take() -> None:
        if st.session_state[key] in teaching_groups():
            state.choose_group(st.session_state[key])

    words = {"help": t("bar.group_help"), "format_func": group_title}
    st.selectbox(t("bar.group"), names, key=key, on_change=redraw.with_everything(take), **words)


def group_title(name: str) -> str:
    """Return the title of a teaching group, or of the current group if it is no longer one."""
    if name == OPENED:
        return t("bar.opened")
    return t("bar.edited", title=t(f"group.{state.view().base or FIRST}")) if name == EDITED else t(f"group.{name}")


def group_story() -> None:
    """Draw the sentence that says why the current group is worth a look."""
    view = state.view()
    st.caption(t("bar.opened_story") if not view.base else prose("groups", view.base))


def open_button() -> None:
    """Draw the button that opens a group from elsewhere."""
    words = {"icon": ":material/content_paste:", "help": t("paste.open_help")}
    st.button(t("paste.open"), key="open-group", on_click=_show, args=(True,), **words)
    if st.session_state.get(OPEN):
        st.dialog(t("paste.title"), width="medium", on_dismiss=lambda: _show(False))(_dialog)()


def _show(wanted: bool) -> None:
    st.session_state[OPEN] = wanted


def _dialog() -> None:
    sources = ["paste", *(["live"] if _store_there() else []), "current"]
    chosen = st.segmented_control(
        t("paste.from"), sources, key="paste-from", default="paste", required=True, label_visibility="collapsed",
        format_func=lambda name: t(f"paste.from.{name}"),
    )  # fmt: skip
    {"paste": _paste, "live": _live, "current": _current}[chosen or "paste"]()


# Pasted or uploaded


def _paste() -> None:
    st.markdown(prose("groups", "paste"))
    st.code(EXAMPLE, language=None)
    st.text_area(t("paste.text"), key=TEXT, height=180, help=t("paste.text_help"), max_chars=pasting.MAX_CHARACTERS)
    uploaded = st.file_uploader(t("paste.file"), type=["json", "csv", "tsv", "txt"], key=FILE, max_upload_size=4)
    pressed = st.button(t("paste.take"), key="paste-take", type="primary", icon=":material/check:")
    if not pressed:
        return
    try:
        text = uploaded.getvalue().decode("utf-8") if uploaded is not None else st.session_state[TEXT]
        group, notes = pasting.read_group(text)
        state.open_group(group)
    except UnicodeDecodeError:
        st.error(t("paste.not_text"), icon=":material/block:")
    except ValueError as error:
        st.error(f"{t('paste.refused')} {literal(told(error))}", icon=":material/block:")
    else:
        _close(notes)


def _close(notes: list[str]) -> None:
    """Show the new group; what was left open in it is said above the page, as what a link leaves open is."""
    state.lab().notes = notes
    _show(False)
    st.rerun()


# A step of a live run


def _store_there() -> bool:
    """Return whether there are runs to open; looking for them must not make a store."""
    return "GRPO_LAB_RUNS" in os.environ or Path("runs/runs.db").exists()


def _live() -> None:
    from app.live import groups as live_groups
    from app.live import source as live_source
    from grpo_core.live.store import RunStoreError

    try:
        source = live_source.open_store()
        runs = [run for run in source.store.runs(limit=MOST_RUNS) if run.step] if source else []
        if not runs or source is None:
            st.info(t("paste.no_runs"), icon=":material/info:")
            return
        run = st.selectbox(t("paste.run"), runs, key="paste-run", format_func=_run_name)
        step = st.selectbox(t("paste.step"), source.store.group_steps(run.id)[::-1], key=f"paste-step-{run.id}")
        groups = source.groups(run.id, step)["groups"] if step is not None else []
        if not groups:
            st.info(t("paste.no_groups"), icon=":material/info:")
            return
        index = st.selectbox(
            t("paste.group"), range(len(groups)), key="paste-group", format_func=lambda i: _group_name(groups, i)
        )
        if st.button(t("paste.take"), key="paste-take-live", type="primary", icon=":material/check:"):
            live_groups.take_up(run.config, groups[min(index or 0, len(groups) - 1)])
            _close([])
    except (RunStoreError, ValueError) as error:
        st.error(f"{t('paste.refused')} {literal(told(error))}", icon=":material/block:")


def _run_name(run: Any) -> str:
    note = f" · {plain_text(run.config.note, 40)}" if run.config.note else ""
    return t("paste.run_name", run=run.id, step=run.step, state=t(f"live.state.{run.state}")) + note


def _group_name(groups: Any, index: int) -> str:
    group = groups[index] if index < len(groups) else groups[-1]
    return t(
        "paste.group_name", number=index + 1, kind=t(f"kind.{group['kind']}"), prompt=plain_text(group["prompt"], 60)
    )


# The current group, to take away and to change elsewhere


def _current() -> None:
    st.markdown(prose("groups", "current"))
    group: Group = state.group()
    table, text = pasting.to_table(group), json.dumps(group.to_json(), ensure_ascii=False)
    left, right = st.columns(2)
    words = {"on_click": "ignore", "width": "stretch"}
    left.download_button(
        t("paste.as_table"), table, "grpo-lab-group.csv", "text/csv", icon=":material/table_view:", **words
    )
    right.download_button(
        t("paste.as_json"), text, "grpo-lab-group.json", "application/json", icon=":material/data_object:", **words
    )
    st.code(table if len(table) < 20_000 else table[:20_000], language=None, height=300)
