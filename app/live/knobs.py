"""Interventions: the settings that may change while a run goes on, as a form made from the core's list of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app import live_form
from app.live.changes import settings_at
from app.live.orders import command
from app.live.source import first_look
from app.live_form import Field
from app.live_reader import Look, Reader
from app.widgets import literal
from app.words import t, told
from grpo_core.live.commands import COMMANDS, check_command
from grpo_core.live.config import LIVE_SETTINGS, RunConfig

FILLED, SENT = "live-knobs-filled", "live-knobs-sent"  # session keys
ACROSS = 5
ON_THE_BOARD = ("pace",)
"""Settings that have their place among the buttons above."""
EXTRA = tuple(name for name in COMMANDS if name not in ("pause", "resume", "stop", "step", "set"))
"""Commands without a button above: each gets one here."""
EVERY = 2.0  # seconds between two looks at what others have changed


def fields() -> list[Field]:
    """Return the settings that may change, as the form draws them."""
    known = {field.name: field for field in live_form.ALL}
    return [known.get(name, Field(name, "real")) for name in LIVE_SETTINGS if name not in ON_THE_BOARD]


def section(source: Reader, run_id: str) -> None:
    """Draw the form; what is applied takes effect at the run's next step and is marked on every chart."""
    look = first_look(source, run_id)
    if look is None or not look.run.active:
        return
    now = settings_at(look)
    _fill(look, now)
    with st.expander(t("live.knobs"), icon=":material/build:", key="live-knobs-box"):
        with st.form("live-knobs-form", border=False):
            for start in range(0, len(fields()), ACROSS):
                row = fields()[start : start + ACROSS]
                for column, field in zip(st.columns(ACROSS), row, strict=False):
                    with column:
                        live_form.draw(field, key_of(field.name))
            words = {"help": t("live.knobs.apply_help"), "icon": ":material/check:", "type": "primary"}
            if st.form_submit_button(t("live.knobs.apply"), key="live-knobs-apply", **words):
                apply(source, look, now)
        _extra(source, look)
        if st.session_state.get(SENT, (None, ""))[0] == look.run.id:
            st.caption(literal(st.session_state[SENT][1]))


def key_of(name: str) -> str:
    """Return the session key of a setting's input."""
    return f"live-knob-{name}"


def _fill(look: Look, now: RunConfig) -> None:
    """Show what the run has now, in the inputs of what has changed since they were filled."""
    run, filled = st.session_state.get(FILLED, ("", {}))
    filled = filled if run == look.run.id else {}
    for field in fields():
        value = live_form.shown(field, now)
        if filled.get(field.name) != value or key_of(field.name) not in st.session_state:
            st.session_state[key_of(field.name)] = filled[field.name] = value
    st.session_state[FILLED] = (look.run.id, filled)


def wishes(typed: Mapping[str, Any], now: RunConfig) -> dict[str, Any]:
    """Return what was typed and differs from what the run has now. ValueError says what is accepted."""
    wanted = {field.name: typed[field.name] for field in fields()}
    different = {name: value for name, value in wanted.items() if value != live_form.shown(_field(name), now)}
    if not different:
        return {}
    asked = check_command("set", different)
    return {name: asked[name] for name in different if asked[name] != getattr(now, name)}


def _field(name: str) -> Field:
    return next(field for field in fields() if field.name == name)


def apply(source: Reader, look: Look, now: RunConfig) -> None:
    """Send what was changed in the form to the run, and say what was sent."""
    try:
        asked = wishes({field.name: st.session_state[key_of(field.name)] for field in fields()}, now)
    except ValueError as error:
        st.error(f"{t('live.invalid')} {literal(told(error))}", icon=":material/error:")
        return
    if not asked:
        st.session_state[SENT] = (look.run.id, t("live.knobs.nothing"))
        return
    command(source, look.run.id, "set", asked)
    said = ", ".join(f"{t(f'live.set.{name}')} {live_form.value_words(name, value)}" for name, value in asked.items())
    st.session_state[SENT] = (look.run.id, t("live.knobs.sent", settings=said))


def _extra(source: Reader, look: Look) -> None:
    with st.container(horizontal=True, key="live-knobs-extra"):
        for name in EXTRA:
            words = {"help": t(f"live.{name}_help"), "icon": ":material/autorenew:", "disabled": not look.step}
            if st.button(t(f"live.{name}"), key=f"live-{name}", **words):
                command(source, look.run.id, name)
                st.session_state[SENT] = (look.run.id, t("live.knobs.sent", settings=t(f"live.{name}")))
