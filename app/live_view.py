"""The Live page: controls, curves, and the groups of a step. Everything shown is read from the run store."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any

import streamlit as st

from app import live_form, live_groups
from app.figures import live as figures
from app.figures.live import Stamp
from app.live_plot import live_plot
from app.live_reader import Look, Reader
from app.numbers import plain, short
from app.widgets import colors, literal
from app.words import ENGLISH, known, language, plain_text, prose, t
from grpo_core.live import runner
from grpo_core.live.store import RunInfo, RunStore, RunStoreError

CHARTS_EVERY = 0.5  # seconds between two looks at an active run
GROUPS_EVERY = 1.0
WATCH_EVERY = 5.0  # between two looks for a run that somebody else has started
WATCHED = "live-watched"  # session key
STEADY = """<style>
.st-key-live-board [data-stale="true"], .st-key-live-groups [data-stale="true"] { opacity: 1 !important; }
</style>"""
"""While it redraws, Streamlit fades what it is about to replace: several times a second, that would be a flicker."""
SETTLE = 0.06
"""Seconds that a run of the whole page waits at its end, for its messages to leave. A fragment's run that begins before
that makes Streamlit 1.67 drop the page's own messages for this fragment (ForwardMsgQueue.clear) but keep the news that
the page is complete: the browser then throws the fragment's elements away, and what the reader had chosen in them."""
PACES = (1.0, 2.0, 5.0, 10.0, None)
FULL = "full"
PACE, PACE_OF = "live-pace", "live-pace-of"  # session keys
STATES = {
    "queued": ("gray", "hourglass_top"), "running": ("green", "play_arrow"), "paused": ("orange", "pause"),
    "finished": ("blue", "check"), "stopped": ("gray", "stop"), "failed": ("red", "error"),
}  # fmt: skip


def page() -> None:
    """Draw the page."""
    st.html(STEADY)
    keep_language()
    st.title(t("page.live"), anchor=False)
    st.markdown(prose("live", "question"))
    refuse("")
    source = open_store()
    if source is None:
        return
    run_id = chosen_run(source)
    look = first_look(source, run_id)
    other_active(source, look)
    take_pace(look)
    live_form.form(title=t("live.settings_of", summary=_summary_of_next()))
    every = CHARTS_EVERY if look is not None and look.run.active else None
    if every is None:
        get_ready(source)
        st.fragment(lambda: watch(source, run_id), run_every=WATCH_EVERY)()
    with st.container(key="live-board"):
        st.fragment(lambda: board(source, run_id, polling=every is not None), run_every=every)()
    with st.container(key="live-groups"):
        st.fragment(lambda: live_groups.section(source, run_id), run_every=GROUPS_EVERY if every else None)()
    st.info(prose("live", "what"), icon=":material/visibility:")
    time.sleep(SETTLE)


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
            st.rerun()


def keep_language() -> None:
    """Write the reader's language into the address; English is left out."""
    wanted = None if language() == ENGLISH else language()
    if wanted is None:
        st.query_params.pop("lang", None)
    elif st.query_params.get("lang") != wanted:
        st.query_params["lang"] = wanted


# The store and the run


@st.cache_resource(show_spinner=False)
def _reader(where: str | None) -> Reader:
    """Return the one reader of this process for a store; an error is not remembered: the next try is a new one."""
    return Reader(RunStore(where))


def open_store() -> Reader | None:
    """Return the reader of the run store, or say why there is none."""
    try:
        return _reader(os.environ.get("GRPO_LAB_RUNS"))
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(str(error))}", icon=":material/error:")
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
        st.error(f"{t('live.store')} {literal(str(error))}", icon=":material/error:")
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
        st.error(f"{t('live.store')} {literal(str(error))}", icon=":material/error:")
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


def _summary_of_next() -> str:
    try:
        return literal(live_form.summary(live_form.chosen(None)))
    except ValueError:
        return t("live.not_accepted")


# Controls and curves: one fragment


def board(source: Reader, run_id: str | None, *, polling: bool) -> None:
    """Draw controls, state and curves; while a run is active this is drawn again and again."""
    look = first_look(source, run_id)
    if polling and not (look and look.run.active):
        st.rerun()  # the run has ended: draw the page once more, without the timer
    by = controls(source, look)
    messages(look)
    charts(look, by)


def controls(source: Reader, look: Look | None) -> str:
    """Draw the row of buttons, the pace, the axis and the state; return the axis."""
    run = look.run if look else None
    columns = st.columns([1.25, 1, 1, 1.35, 1.75, 3.6], vertical_alignment="center", gap="small")
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
    columns[5].markdown(status(look))
    return by or "step"


def _main_button(source: Reader, run: RunInfo | None) -> None:
    """Draw the one button that means the next thing: start, pause or resume."""
    state = run.state if run and run.active else None
    name, icon = {
        None: ("start", "play_arrow"), "queued": ("starting", "hourglass_top"), "running": ("pause", "pause"),
        "paused": ("resume", "play_arrow"),
    }[state]  # fmt: skip
    pressed = st.button(
        t(f"live.{name}"), icon=f":material/{icon}:", key=f"live-{name}", type="primary", width="stretch",
        help=t(f"live.{name}_help"), disabled=state == "queued",
    )  # fmt: skip
    if pressed and name == "start":
        start(source)
    elif pressed and run:
        command(source, run.id, name)


def start(source: Reader) -> None:
    """Start a run with the settings that stand in the form, and show it."""
    from grpo_core.live.runner import start_run

    try:
        run_id = start_run(live_form.chosen(_pace_of(st.session_state[PACE])), source.store)
    except (ValueError, RunStoreError) as error:
        refuse(str(error))
        return
    st.query_params["run"] = run_id
    live_groups.follow_newest()
    st.rerun()


def command(source: Reader, run_id: str, name: str, value: Any = None) -> None:
    """Leave a command for the run; a refusal is shown under the buttons."""
    refuse("")
    try:
        source.store.post_command(run_id, name, value)
    except (ValueError, RunStoreError) as error:
        refuse(str(error))


def refuse(reason: str) -> None:
    """Remember what was not possible, for `messages` to say."""
    st.session_state["live-refused"] = reason


def take_pace(look: Look | None) -> None:
    """Show the pace of a run that is met for the first time; after that, the field shows what this reader chose."""
    st.session_state.setdefault(PACE, _pace_name(live_form.DEFAULT.pace))
    if look is None or not look.run.active or st.session_state.get(PACE_OF) == look.run.id:
        return
    st.session_state[PACE_OF] = look.run.id
    st.session_state[PACE] = _pace_name(current_pace(look))


def current_pace(look: Look) -> float | None:
    """Return the pace that a run keeps: the last one it was told, or that of its settings."""
    pace = look.run.config.pace
    for row in look.commands:
        if row.get("name") == "set" and "refused" not in row and "pace" in (row.get("value") or {}):
            pace = row["value"]["pace"]
    return pace


def _pace(source: Reader, look: Look | None) -> None:
    run = look.run if look and look.run.active else None
    names = [_pace_name(pace) for pace in PACES]
    if st.session_state[PACE] not in names:
        names.insert(0, st.session_state[PACE])

    def changed() -> None:
        if run:
            command(source, run.id, "set", {"pace": _pace_of(st.session_state[PACE])})

    st.selectbox(
        t("live.pace"), names, key=PACE, format_func=_pace_label, label_visibility="collapsed", on_change=changed,
        persist_state="session",
    )  # fmt: skip


def _pace_name(pace: float | None) -> str:
    return FULL if pace is None else short(pace)


def _pace_of(name: str) -> float | None:
    return None if name == FULL else float(name)


def _pace_label(name: str) -> str:
    if name == FULL:
        return t("live.pace_full")
    return t("live.pace_one") if name == "1" else t("live.pace_value", pace=name)


def status(look: Look | None) -> str:
    """Return the state of the run in words, as badges."""
    if look is None:
        return f":gray-badge[{t('live.state.none')}]"
    run = look.run
    color, icon = STATES[run.state]
    parts = [f":{color}-badge[:material/{icon}: {t(f'live.state.{run.state}')}]"]
    parts.append(f":gray-badge[{t('live.status.step', step=run.step, steps=run.steps)}]")
    if "step_time" in look.last:
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


def messages(look: Look | None) -> None:
    """Say what the reader should know before looking at the curves."""
    refused = st.session_state.get("live-refused", "")
    if refused:
        st.error(f"{t('live.refused')} {literal(refused)}", icon=":material/block:")
    if look is None:
        st.info(prose("live", "empty"), icon=":material/play_circle:")
        return
    run = look.run
    if look.problem:
        st.warning(f"{t('live.stale')} {literal(look.problem)}", icon=":material/warning:")
    if run.state == "failed":
        st.error(t("live.failed", step=run.step, reason=literal(run.reason)), icon=":material/error:")
    elif run.state == "queued" or (run.active and not look.step):
        st.info(prose("live", "starting"), icon=":material/hourglass_top:")


def charts(look: Look | None, by: str) -> None:
    """Draw the main curve and the small multiples."""
    left, right = st.columns([1, 1], gap="medium")
    palette = colors()
    version = (look.run.id, look.version) if look else None
    which = (palette.page, by, language())
    with left:
        figure = _once(look, ("progress", *which), lambda: progress(look, by, palette))
        live_plot(figure, key="live-progress", version=(version, which), alt=_progress_alt(look, by))
    with right:
        figure = _once(look, ("panels", *which), lambda: small_multiples(look, by, palette))
        live_plot(figure, key="live-panels", version=(version, which), alt=t("live.alt.panels"))
    if look is not None:
        every = " · " + t("live.point_means", every=look.every) if look.every > 1 else ""
        st.caption(literal(live_form.in_full(look.run.config)) + every)


def _once(look: Look | None, name: Any, make: Any) -> Any:
    return look.once(name, make) if look else make()


def progress(look: Look | None, by: str, palette: Any) -> Any:
    """Return the main curve of a run, or its empty axes."""
    return figures.progress(
        palette, look.curves if look else {}, look.evaluations if look else (), stamps(look, by), **_axis(look, by)
    )


def small_multiples(look: Look | None, by: str, palette: Any) -> Any:
    """Return the small panels of a run, or their empty axes."""
    return figures.panels(palette, look.curves if look else {}, stamps(look, by), **_axis(look, by))


def _axis(look: Look | None, by: str) -> dict[str, Any]:
    steps = look.run.steps if look else live_form.DEFAULT.steps
    total = float(steps) if by == "step" else None if look and look.step else 10.0
    return {"by": by, "total": total, "revision": f"{look.run.id if look else ''} {by}"}


def _progress_alt(look: Look | None, by: str) -> str:
    reward = look.last.get("reward") if look else None
    accuracy = look.evaluations[-1].get("accuracy") if look and look.evaluations else None
    return t("live.alt.progress", by=t(f"live.by.{by}"), reward=plain(reward), accuracy=plain(accuracy))


def stamps(look: Look | None, by: str) -> list[Stamp]:
    """Return the commands of a run where they took effect."""
    taken = [row for row in (look.commands if look else ()) if "refused" not in row]
    return [Stamp(float(row[by]), words) for row in taken for words in command_words(row)]


def command_words(row: dict[str, Any]) -> list[str]:
    """Return a command in a word or two, one for each setting it changed."""
    name, value = str(row.get("name")), row.get("value")
    if name == "set" and isinstance(value, dict):
        return [_set_words(setting, wish) for setting, wish in value.items()]
    return [t(f"live.cmd.{name}") if known(f"live.cmd.{name}") else re.sub(r"\W", " ", name)]


def _set_words(setting: str, wish: Any) -> str:
    if setting == "pace":
        return _pace_label(_pace_name(wish))
    name = t(f"live.cmd.{setting}") if known(f"live.cmd.{setting}") else setting
    return t("live.cmd.set", name=name, value=live_form.compact(float(wish)))
