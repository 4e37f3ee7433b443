"""The board of the Live page: buttons, pace and state of the run, its messages, and under them its curves."""

from __future__ import annotations

import streamlit as st

from app import state
from app.live import after, models, notices, scenarios
from app.live.changes import pace_label, pace_name, pace_of
from app.live.curves import charts
from app.live.orders import PACE, command, say_refused, start
from app.live.source import first_look
from app.live_reader import Look, Reader
from app.widgets import literal
from app.words import known, prose, t, told
from grpo_core.live.store import RunInfo

PACES = (1.0, 2.0, 5.0, 10.0, None)
STATES = {
    "queued": ("gray", "hourglass_top"), "running": ("green", "play_arrow"), "paused": ("orange", "pause"),
    "finished": ("blue", "check"), "stopped": ("gray", "stop"), "failed": ("red", "error"),
}  # fmt: skip


def board(source: Reader, run_id: str | None, *, polling: bool) -> None:
    """Draw controls, state and curves; while a run is active this is drawn again and again."""
    look = first_look(source, run_id)
    if polling and not (look and look.run.active):
        st.rerun()  # the run has ended: draw the page once more, without the timer
    by = controls(source, look)
    messages(source, look)
    scenarios.beside(source, look)
    charts(source, look, by)


def controls(source: Reader, look: Look | None) -> str:
    """Draw the row of buttons, the pace, the axis and the state; return the axis."""
    run = look.run if look else None
    large = state.lab().frame.present  # the state then stands below the buttons
    widths = [1.25, 1, 1, 1.35, 1.75] if large else [1.25, 1, 1, 1.35, 1.75, 3.6]
    columns = st.columns(widths, vertical_alignment="center", gap="small")
    with columns[0]:
        _main_button(source, run)
    active = run is not None and run.active
    for column, name, icon in ((columns[1], "step", "skip_next"), (columns[2], "stop", "stop")):
        pressed = column.button(
            t(f"live.{name}"), icon=f":material/{icon}:", key=f"live-{name}", width="stretch",
            help=t(f"live.{name}_help"), disabled=not active or (name == "step" and run.state == "queued"),
        )  # fmt: skip
        if pressed and run:
            command(source, run.id, name)
    with columns[3]:
        _pace(source, look)
    with columns[4]:
        by = st.segmented_control(
            t("live.by"), ("step", "seconds"), key="live-by", default="step", required=True,
            format_func=lambda name: t(f"live.by.{name}"), label_visibility="collapsed", persist_state="session",
            width="stretch",
        )  # fmt: skip
    (st if large else columns[5]).markdown(status(look))
    return by or "step"


def _main_button(source: Reader, run: RunInfo | None) -> None:
    """Draw the one button that means the next thing: start, pause or resume."""
    now = run.state if run and run.active else None
    name, icon = {
        None: ("start", "play_arrow"), "queued": ("starting", "hourglass_top"), "running": ("pause", "pause"),
        "paused": ("resume", "play_arrow"),
    }[now]  # fmt: skip
    pressed = st.button(
        t(f"live.{name}"), icon=f":material/{icon}:", key=f"live-{name}", type="primary", width="stretch",
        help=t(f"live.{name}_help"), disabled=now == "queued",
    )  # fmt: skip
    if pressed and name == "start":
        start(source)
    elif pressed and run:
        command(source, run.id, name)


def _pace(source: Reader, look: Look | None) -> None:
    run = look.run if look and look.run.active else None
    names = [pace_name(pace) for pace in PACES]
    if st.session_state[PACE] not in names:
        names.insert(0, st.session_state[PACE])

    def changed() -> None:
        if run:
            command(source, run.id, "set", {"pace": pace_of(st.session_state[PACE])})

    st.selectbox(
        t("live.pace"), names, key=PACE, format_func=pace_label, label_visibility="collapsed", on_change=changed,
        persist_state="session",
    )  # fmt: skip


def status(look: Look | None) -> str:
    """Return the state of the run in words, as badges."""
    if look is None:
        return f":gray-badge[{t('live.state.none')}]"
    run = look.run
    color, icon = STATES[run.state]
    parts = [f":{color}-badge[:material/{icon}: {t(f'live.state.{run.state}')}]"]
    parts.append(f":gray-badge[{t('live.status.step', step=run.step, steps=run.steps)}]")
    if look.last.get("step_time") is not None:
        milliseconds = f"{1000 * look.last['step_time']:.0f}"
        parts.append(f":gray-badge[{t('live.status.ms', ms=milliseconds)}]")
    if run.device:
        parts.append(f":gray-badge[{literal(device_words(run.device, look.start.get('parameters')))}]")
    return " ".join(parts)


def device_words(device: str, parameters: int | None) -> str:
    """Return a device and a model's size in words: "CPU, 0.11 M parameters"."""
    kind, _, name = device.partition(" ")
    words = t(f"live.device.{kind}") if known(f"live.device.{kind}") else kind
    text = f"{words} {name}".strip()
    if not parameters:
        return text
    size = t("live.status.parameters", count=f"{parameters / 1e6:.2f}")
    return t("live.status.device", device=text, size=size)


def messages(source: Reader, look: Look | None) -> None:
    """Say what the reader should know before looking at the curves."""
    say_refused()
    if look is None:
        st.info(prose("live", "empty"), icon=":material/play_circle:")
        return
    run = look.run
    if look.problem:
        st.warning(f"{t('live.stale')} {literal(told(look.problem))}", icon=":material/warning:")
    if run.state == "failed":
        st.error(t("live.failed", step=run.step, reason=literal(told(run.reason))), icon=":material/error:")
        after.go_on(source, look)
    elif run.waiting:
        st.info(t("runs.in_line"), icon=":material/queue:")
    elif run.state == "queued" or (run.active and not look.step):
        st.info(prose("live", "starting"), icon=":material/hourglass_top:")
    notices.show(source, look)
    models.show_troubles(look.last)
