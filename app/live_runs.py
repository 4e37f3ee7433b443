"""The runs of the store: what became of each, and what can be done with it; and the line of those that wait."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app import live_form
from app.live import after, groups
from app.live.source import first_look
from app.live.wording import setting_words
from app.live_reader import Reader
from app.numbers import MISSING
from app.recipe_words import recipe_title
from app.widgets import literal
from app.words import prose, t, told
from grpo_core.live import runner
from grpo_core.live.experiments import difference
from grpo_core.live.store import NAME_LENGTH, NOTE_LENGTH, RunInfo, RunStoreError

LISTED = 200
LINE_EVERY = 2.0  # seconds between two looks at the line
LIST_EVERY = 5.0  # and at the list while a run goes on
CHOICE, TABLE, SAID = "live-runs-choice", "live-runs-table", "live-runs-said"  # session keys
FILES = "live-runs-files"  # session key: how many files have been brought in
EXPORT = "grpo_core.live.export"
RUN = "run"  # in the address
ROW_HEIGHT, MOST_ROWS = 35, 10


def section(source: Reader) -> None:
    """Draw the part of the page that lists the runs."""
    line(source)
    going = None
    with contextlib.suppress(RunStoreError):
        going = source.store.active_run()
    with st.container(key="live-runs"):
        st.fragment(lambda: _runs(source), run_every=LIST_EVERY if going else None)()


def title(run: RunInfo) -> str:
    """Return what a run is called where there is little room: its name, or what it is and when it was asked for."""
    what = run.name or _changed(run) or recipe_title(run.config.recipe)
    return f"{what} · {_when(run.created)}"


def _when(seconds: float | None) -> str:
    return MISSING if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


# The line of waiting runs


def line(source: Reader) -> None:
    """Draw the runs that wait, each with a button to take it out; nothing while none waits."""
    waiting = _waiting(source)
    if waiting:
        with st.container(key="live-line"):
            st.fragment(lambda: _line(source, len(waiting)), run_every=LINE_EVERY)()


def _waiting(source: Reader) -> list[RunInfo]:
    """Return the runs that wait; if their turn has come and nobody has noticed, start the first."""
    with contextlib.suppress(RunStoreError):
        waiting = source.store.waiting_runs()
        if waiting and source.store.active_run() is None:
            runner.start_next(source.store)
            waiting = source.store.waiting_runs()
        return waiting
    return []


def _line(source: Reader, drawn: int) -> None:
    waiting = _waiting(source)
    if len(waiting) != drawn:
        st.rerun()
    with st.container(border=True):
        left, right = st.columns([4, 1], vertical_alignment="center")
        left.markdown(f":material/queue: {t('runs.line', count=len(waiting))}")
        if right.button(t("runs.cancel_all"), key="live-line-cancel-all", width="stretch"):
            _cancel(source, waiting)
        for place, run in enumerate(waiting[:MOST_ROWS], start=1):
            words, button = st.columns([6, 1], vertical_alignment="center")
            words.caption(f"{place}. {literal(title(run))}")
            key, note = f"live-line-cancel-{run.id}", t("runs.cancel_help")
            if button.button(t("runs.cancel"), key=key, help=note, width="stretch"):
                _cancel(source, [run])


def _changed(run: RunInfo) -> str:
    """Return what makes a run differ from the others of its experiment."""
    return ", ".join(setting_words(name, value) for name, value in run.changed.items())


def _cancel(source: Reader, runs: Sequence[RunInfo]) -> None:
    try:
        for run in reversed(runs):  # so that none begins while the others are taken out
            source.store.cancel(run.id)
    except RunStoreError as error:
        st.error(f"{t('live.refused')} {literal(told(error))}", icon=":material/block:")
        return
    st.rerun()


# The list


def _runs(source: Reader) -> None:
    try:
        source.store.mark_dead()
        runs = source.store.runs(LISTED)
        names = {experiment.id: experiment.name for experiment in source.store.experiments(LISTED)}
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(told(error))}", icon=":material/error:")
        return
    _say()
    if find_spec(EXPORT):
        _bring_in(source)
    if not runs:
        st.info(prose("runs", "empty"), icon=":material/list:")
        return
    _table(source, runs, names)
    run = _chosen(runs)
    with st.container(border=True):
        _details(source, run, names.get(run.experiment or "", ""))


def _say() -> None:
    """Say what became of the last thing that was asked for."""
    kind, text = st.session_state.pop(SAID, (None, ""))
    if kind == "error":
        st.error(f"{t('live.refused')} {literal(text)}", icon=":material/block:")
    elif kind:
        st.success(literal(text), icon=":material/check:")


def _bring_in(source: Reader) -> None:
    """Draw the field that takes a run from a file. A new field follows each file: the old one would bring it again."""
    key = f"live-runs-file-{st.session_state.get(FILES, 0)}"

    def take() -> None:
        file = st.session_state[key]
        if file is not None:
            st.session_state[FILES] = st.session_state.get(FILES, 0) + 1
            _import(source, file.name, file.getvalue())

    with st.popover(t("runs.bring"), icon=":material/upload:", help=t("runs.bring_help")):
        st.file_uploader(t("runs.file"), type="zip", key=key, on_change=take, help=t("runs.file_help"))


def _import(source: Reader, name: str, data: bytes) -> None:
    """Bring a run that was taken away into this store, and choose it."""
    from grpo_core.live.export import import_run

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.zip"
        path.write_bytes(data)
        try:
            run_id = import_run(path, source.store)
        except (ValueError, RuntimeError, OSError) as error:
            st.session_state[SAID] = ("error", told(error).replace(path.name, name))
            return
    st.session_state[SAID] = ("done", t("runs.brought", run=run_id))
    _choose(run_id)


def _table(source: Reader, runs: Sequence[RunInfo], names: dict[str, str]) -> None:
    frame = pd.DataFrame([_row(source, run, names) for run in runs])
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    columns = {
        "state": text(t("runs.column.state"), width=84),
        "name": text(t("runs.column.name"), width=130),
        "settings": text(t("runs.column.settings"), width=220),
        "accuracy": number(t("runs.column.accuracy"), help=t("runs.column.accuracy_help"), format="%.2f", width=76),
        "steps": text(t("runs.column.steps"), width=72),
        "seconds": number(t("runs.column.seconds"), help=t("runs.column.seconds_help"), format="%.0f", width=70),
        "started": text(t("runs.column.started"), width=142),
        "note": text(t("runs.column.note"), width=130),
    }
    height = ROW_HEIGHT * (min(len(frame), MOST_ROWS) + 1) + 3
    more: dict[str, Any] = {"height": height, "row_height": ROW_HEIGHT, "column_config": columns}

    def take() -> None:
        rows = st.session_state[TABLE]["selection"]["rows"]
        if rows and rows[0] < len(runs):
            _choose(runs[rows[0]].id)

    st.dataframe(frame, key=TABLE, hide_index=True, on_select=take, selection_mode="single-row", **more)


def _row(source: Reader, run: RunInfo, names: dict[str, str]) -> dict[str, Any]:
    last = source.last_evaluation(run)
    settings = " · ".join(filter(None, (_changed(run), live_form.summary(run.config))))
    return {
        "state": t("runs.waits") if run.waiting else t(f"live.state.{run.state}"),
        "name": run.name or names.get(run.experiment or "", ""),
        "settings": settings,
        "accuracy": last.get("accuracy"),
        "steps": f"{run.step}/{run.steps}",
        "seconds": last.get("seconds"),
        "started": _when(run.started),
        "note": run.note.replace("\n", " "),
    }


def _chosen(runs: Sequence[RunInfo]) -> RunInfo:
    """Draw the choice of the run to look at, and return it: the one that the address names, else the newest."""
    there = {run.id: run for run in runs}
    wanted = st.query_params.get(RUN)
    name = wanted if wanted in there else runs[0].id
    if st.session_state.get(CHOICE) != name:
        st.session_state[CHOICE] = name
    st.selectbox(
        t("runs.choose"), list(there), key=CHOICE, format_func=lambda one: f"{title(there[one])} · {one}",
        on_change=lambda: _choose(st.session_state[CHOICE]), help=t("runs.choose_help"),
    )  # fmt: skip
    return there[name]


def _choose(run_id: str) -> None:
    st.query_params[RUN] = run_id


# One run


def _details(source: Reader, run: RunInfo, experiment: str) -> None:
    st.caption(literal(" · ".join(filter(None, (experiment, live_form.in_full(run.config), told(run.reason))))))
    left, right = st.columns([1, 2], gap="small")
    for column, what, most, value in ((left, "name", NAME_LENGTH, run.name), (right, "note", NOTE_LENGTH, run.note)):
        key = f"live-runs-{what}-{run.id}"
        st.session_state.setdefault(key, value)
        column.text_input(
            t(f"runs.{what}"), key=key, max_chars=most, help=t(f"runs.{what}_help"),
            on_change=_describe, args=(source, run.id, what, key),
        )  # fmt: skip
    with st.container(horizontal=True, key="live-runs-actions"):
        _button("open", "visibility", lambda: _open(run.id))
        _button("compare", "stacked_line_chart", lambda: _compare(run.id))
        _button("restore", "tune", lambda: _restore(run))
        look = first_look(source, run.id)
        if look is not None:
            after.go_on(source, look)
            if find_spec(EXPORT):
                after.downloads(source, look)
        _delete(source, run)


def _button(name: str, icon: str, act: Callable[[], None], **more: Any) -> None:
    pressed = st.button(
        t(f"runs.{name}"), key=f"live-runs-{name}", icon=f":material/{icon}:", help=t(f"runs.{name}_help"), **more
    )
    if pressed:
        act()


def _describe(source: Reader, run_id: str, what: str, key: str) -> None:
    try:
        source.store.describe(run_id, **{what: st.session_state[key]})
    except (ValueError, RunStoreError) as error:
        st.session_state[SAID] = ("error", told(error))


def _open(run_id: str) -> None:
    """Show the run in the part that follows one."""
    st.query_params.pop("part", None)
    st.query_params[RUN] = run_id
    groups.follow_newest()
    st.rerun()


def _compare(run_id: str) -> None:
    """Put the run beside those that are compared."""
    from app.live_compare import RUNS
    from grpo_core.live.experiments import MOST

    names = [name for name in st.query_params.get(RUNS, "").split(",") if name and name != run_id]
    st.query_params.update({RUNS: ",".join([*names[-(MOST - 1) :], run_id]), "part": "compare"})
    st.rerun()


def _restore(run: RunInfo) -> None:
    """Put the run's settings into the form; name those that the form does not have."""
    live_form.restore(run.config)
    own = {field.name for field in live_form.ALL} | {"note", "pace"}
    others = sorted(set(difference([run.config, live_form.DEFAULT])) - own)
    text = t("runs.restored") if not others else t("runs.restored_but", names=", ".join(others))
    st.session_state[SAID] = ("done", text)
    st.rerun()


def _delete(source: Reader, run: RunInfo) -> None:
    """Draw the button that deletes the run, once it has been confirmed; a run with a worker cannot be deleted."""
    busy = run.alive and not run.waiting
    with st.popover(t("runs.delete"), icon=":material/delete:", disabled=busy, help=t("runs.delete_help")):
        st.markdown(t("runs.delete_sure", run=literal(title(run)), steps=run.step))
        if st.button(t("runs.delete_now"), key="live-runs-delete-now", type="primary", disabled=busy):
            _delete_now(source, run)


def _delete_now(source: Reader, run: RunInfo) -> None:
    try:
        source.store.delete_run(run.id)
        st.session_state[SAID] = ("done", t("runs.deleted", run=title(run)))
    except RunStoreError as error:
        st.session_state[SAID] = ("error", told(error))
    if st.query_params.get(RUN) == run.id:
        st.query_params.pop(RUN)
    st.rerun()
