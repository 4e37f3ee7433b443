"""What a reader asks for: runs to start, commands for the run that goes on, a pace; and why something was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import live_form
from app.live import groups
from app.live.changes import pace_name, pace_of, settings_at
from app.live_reader import Look, Reader
from app.widgets import literal
from app.words import t, told
from grpo_core.live import runner
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStoreError

PACE, PACE_OF, REFUSED = "live-pace", "live-pace-of", "live-refused"  # session keys


def start(source: Reader) -> None:
    """Start a run with the settings that stand in the form, and show it."""
    try:
        run_id = runner.start_run(live_form.chosen(chosen_pace()), source.store)
    except (ValueError, RunStoreError) as error:
        refuse(told(error))
        return
    show(run_id)


def start_all(
    source: Reader, configs: Sequence[RunConfig], *, name: str, changed: Sequence[Mapping[str, Any]], **query: str
) -> None:
    """Let runs follow one another, called `name` together, and show the first one."""
    try:
        found = runner.enqueue(configs, source.store, experiment=name, changed=changed)
    except (ValueError, RunStoreError) as error:
        refuse(told(error))
        return
    show(found[0], **query)


def show(run_id: str, **query: str) -> None:
    """Draw the page anew on a run, at its newest step."""
    st.query_params.pop("part", None)
    st.query_params.update({"run": run_id, **query})
    groups.follow_newest()
    st.rerun()


def command(source: Reader, run_id: str, name: str, value: Any = None) -> None:
    """Leave a command for the run; a refusal is shown under the buttons."""
    refuse("")
    try:
        source.store.post_command(run_id, name, value)
    except (ValueError, RunStoreError) as error:
        refuse(told(error))


def refuse(reason: str) -> None:
    """Remember what was not possible, for the page to say."""
    st.session_state[REFUSED] = reason


def say_refused() -> None:
    """Draw what was not possible, if anything was refused."""
    reason = str(st.session_state.get(REFUSED, ""))
    if reason:
        st.error(f"{t('live.refused')} {literal(reason)}", icon=":material/block:")


def take_pace(look: Look | None) -> None:
    """Show the pace of a run that is met for the first time; after that, the field shows what this reader chose."""
    st.session_state.setdefault(PACE, pace_name(live_form.DEFAULT.pace))
    if look is None or not look.run.active or st.session_state.get(PACE_OF) == look.run.id:
        return
    st.session_state[PACE_OF] = look.run.id
    st.session_state[PACE] = pace_name(settings_at(look).pace)


def chosen_pace() -> float | None:
    """Return the pace that this reader chose."""
    return pace_of(st.session_state.get(PACE, pace_name(live_form.DEFAULT.pace)))
