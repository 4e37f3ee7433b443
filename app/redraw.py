"""What of an explorer page is drawn again after a change.

A page has two fragments: its head (group, recipe, telling cases, undo) and its body (the picture and what goes with
it). A slider that is dragged reruns the body alone, so that the picture comes soon; the head follows when it would
look different: at the first move of a drag, not at every one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import link, presets, state

HEAD, BODY = "page-head", "page-body"  # the fragments' keys
_DRAWN = "page-head-drawn"  # session key: the head's page, and what it showed


def head_drawn(page: str) -> None:
    """Remember what the head shows; call it when the head is drawn."""
    st.session_state[_DRAWN] = (page, _face(page))


def head_stale() -> bool:
    """Return whether the head would look different by now."""
    page, shown = st.session_state.get(_DRAWN, (None, None))
    return page is not None and _face(page) != shown


def then(change: Callable[..., None], *, live: bool = False) -> Callable[..., None]:
    """Return a widget's callback that makes a change and has the body drawn again, and the head if it is stale.

    `live`: the widget is a panel of live sliders. Any other widget whose value seems to change in the same message as
    a slider's has only not heard yet what the slider's last move made of it: that is no change of the reader's.
    """

    def changed(*args: Any) -> None:
        if not live and _slider_moved():
            return
        change(*args)
        if head_stale():
            everything()

    return changed


def with_everything(change: Callable[..., None]) -> Callable[..., None]:
    """As `then`, for a widget of the head: whatever it changes, the body shows it."""

    def changed(*args: Any) -> None:
        if not _slider_moved():
            change(*args)
            everything()

    return changed


def _slider_moved() -> bool:
    """Return whether the message that is being answered brought the move of a live slider."""
    own = state.lab()
    if time.monotonic() - own.edited < 0.05:  # its callback came first
        return True
    panels = {key: st.session_state.get(key) for key in own.panels}
    edits = {key: panel.get("edit") for key, panel in panels.items() if panel is not None}
    return any(edit["at"] > own.answered.get(key, 0) for key, edit in edits.items() if isinstance(edit, dict))


def everything() -> None:
    """Have body and head drawn again. Only from a widget's callback; a run of the whole page draws both anyway."""
    if in_fragment():
        st.rerun(
            [HEAD, BODY]
        )  # in this order: the sliders of the body then answer last, and the next move waits for it


def in_fragment() -> bool:
    """Return whether this run of the script is one of fragments only."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and bool(context.fragment_ids_this_run)


def _face(page: str) -> tuple[Any, ...]:
    """Return everything that the head's look depends on."""
    own = state.lab()
    chosen = {name: value for name, value in own.view.chosen.items() if name == "recipe" or name.endswith("_view")}
    edited = link.is_edited(own.view)
    return chosen, own.view.base, edited, bool(own.undo), tuple(own.notes), own.frame, presets.current(page)
