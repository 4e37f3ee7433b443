"""The Live page: its parts, one at a time, named in the address. Everything shown is read from the run store."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

import streamlit as st

from app import sharing, state
from app.live import scenarios
from app.live.orders import refuse
from app.live.source import open_store
from app.live_reader import Reader
from app.words import ENGLISH, plain_text, prose, t

STEADY = """<style>
.st-key-live-board [data-stale="true"], .st-key-live-groups [data-stale="true"] { opacity: 1 !important; }
</style>"""
"""While it redraws, Streamlit fades what it is about to replace: several times a second, that would be a flicker."""
SETTLE = 0.06
"""Seconds that a run of the whole page waits at its end, for its messages to leave. A fragment's run that begins before
that makes Streamlit 1.67 drop the page's own messages for this fragment (ForwardMsgQueue.clear) but keep the news that
the page is complete: the browser then throws the fragment's elements away, and what the reader had chosen in them."""
PARTS = {
    "watch": ("app.live.watch", "visibility"),
    "scenarios": ("app.live.scenarios", "science"),
    "compare": ("app.live_compare", "stacked_line_chart"),
    "runs": ("app.live_runs", "list"),
}
"""The parts by their names in the address: the module whose section(source) draws the part, and the icon."""
PART = "live-part"  # session key


def page() -> None:
    """Draw the page."""
    st.html(STEADY + (f"<style>{sharing.LARGE}</style>" if state.lab().frame.present else ""))
    keep_frame()
    title, choice, switch = st.columns([2, 6, 0.6], vertical_alignment="bottom")
    title.title(t("page.live"), anchor=False)
    with choice:
        part = chosen_part()
    with switch.container(horizontal=True, horizontal_alignment="right", key="actions"):
        sharing.present_button(_and_keep)
    st.markdown(prose("live", "question"))
    refuse("")
    source = open_store()
    if source is not None:
        section_of(part)(source)
    time.sleep(SETTLE)


def section_of(part: str) -> Callable[[Reader], None]:
    """Return the function that draws a part; its module is loaded only when it is shown."""
    section: Callable[[Reader], None] = import_module(PARTS[part][0]).section
    return section


def chosen_part() -> str:
    """Draw the choice of parts and return the one that the address names."""
    names, wanted = list(PARTS), st.query_params.get("part") or _usual_part()
    known = wanted if wanted in names else names[0]
    if st.session_state.get(PART) != known:
        st.session_state[PART] = known
    st.segmented_control(
        t("live.part"), names, key=PART, required=True, label_visibility="collapsed", on_change=_go,
        format_func=lambda name: f":material/{PARTS[name][1]}: {t(f'live.part.{name}')}",
    )  # fmt: skip
    if known != wanted:
        accepted = t("accept.one_of", choices=", ".join(names))
        st.warning(t("link.value", name="part", text=plain_text(wanted), accepted=accepted), icon=":material/link:")
    return known


def _usual_part() -> str:
    """Return the part of a link that names none: a scenario without a run is there to be started."""
    query = st.query_params
    return "scenarios" if scenarios.PARAM in query and "run" not in query else "watch"


def _go() -> None:
    """Write the chosen part into the address."""
    st.query_params["part"] = st.session_state[PART]


def keep_frame() -> None:
    """Write the reader's language and size into the address; English and the usual size are left out."""
    own = state.lab().frame
    wanted = {"lang": "" if own.language == ENGLISH else own.language, "present": "1" if own.present else ""}
    for name, value in wanted.items():
        if not value:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value


def _and_keep(change: Callable[[], None]) -> Callable[[], None]:
    """Make a change of the frame that is in the address before the page runs again, which reads it there."""

    def changed() -> None:
        change()
        keep_frame()

    return changed
