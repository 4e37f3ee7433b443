"""Handing a view on: the link with its options, the presentation switch, and the way out of a locked view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from app import frame, link, redraw, state, widgets
from app.components import component
from app.frame import PARTS, Frame
from app.words import t

OFFERED = tuple(part for part in PARTS if part != "menu")
LARGE = """html { font-size: 20px !important; }
[data-testid="stMainBlockContainer"] { max-width: 96rem !important; }
@media (max-width: 1600px) { [data-testid="stMain"] .katex-display { font-size: 17px; } }
@media (max-width: 1420px) { [data-testid="stMain"] .katex-display { font-size: 15px; } }
[data-testid="stMetricLabel"] *, [data-testid="stMetricValue"] * { white-space: normal !important; }
[data-testid="stMetricLabel"] * { overflow: visible !important; }"""
"""Larger type, as long as a formula and the name of a number are not cut off by it."""
GONE = "{ display: none !important; }"
READABLE = '[data-testid="stWidgetLabel"] p {{ color: {ink} !important; opacity: 1 !important; }}'
"""A locked control is still there to be read; Streamlit fades the label of what is disabled."""
HIDDEN = {
    # The left one of the page's two columns. Its widgets are still there: what they say stays in force.
    "controls": '.st-key-page-body > [data-testid="stLayoutWrapper"] > [data-testid="stHorizontalBlock"]'
    ' > [data-testid="stColumn"]:first-child:not(:last-child)',
    "menu": '[data-testid="stSidebar"], [data-testid="stExpandSidebarButton"]',
}


def style() -> str:
    """Return the style sheet of the current frame, empty if it is the usual one."""
    own = state.lab().frame
    rules = [f"{selector} {GONE}" for part, selector in HIDDEN.items() if own.hides(part)]
    rules += [LARGE] if own.present else []
    rules += [READABLE.format(ink=widgets.colors().ink)] if own.lock else []
    return "<style>" + "\n".join(rules) + "</style>"


def buttons() -> None:
    """Draw the presentation switch and the link with its options, for the frame's head."""
    present_button(redraw.with_everything)
    box = st.popover(t("share.link"), icon=":material/link:", key="share", help=t("share.link_help"), on_change="rerun")
    if box.open:
        with box:
            _options()


def present_button(callback: Callable[[Callable[[], None]], Callable[..., None]]) -> None:
    """Draw the presentation switch. `callback` makes the button's callback of the change."""
    own = state.lab().frame
    st.button(
        t("share.present"),
        icon=":material/present_to_all:",
        key="present",
        type="primary" if own.present else "secondary",
        help=t("share.present_help"),
        on_click=callback(lambda: state.show(replace(own, present=not own.present))),
    )


def _options() -> None:
    """Draw what a link can do, and the link that does it."""
    st.markdown(t("share.title"))
    lock = st.checkbox(t("share.lock"), key="share-lock", help=t("share.lock_help"))
    hide = st.pills(
        t("share.hide"), OFFERED, selection_mode="multi", key="share-hide", format_func=lambda part: t(f"part.{part}")
    )
    present = st.checkbox(t("share.present_link"), key="share-present")
    hide = tuple(part for part in OFFERED if part in hide)
    chosen = Frame(hide=hide, lock=lock, present=present, language=state.lab().frame.language)
    query = link.encode({**link.to_query(state.view()), **frame.to_query(chosen)})
    words = {name: t(f"share.{name}") for name in ("address", "copy", "copied", "by_hand")}
    mount = component("copy_link", '<div class="copy-link"></div>')
    mount(key="copy-link", data={"query": query, "words": words})
    if link.too_large(state.view()):
        st.caption(t("link.left_out"))


def way_out() -> None:
    """Say that the link leaves parts of the page out, or locks it, and offer the whole page."""
    own = state.lab().frame
    if not own.lock and not own.hide:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="way-out"):
        st.caption(t("share.locked" if own.lock else "share.hidden"), width="content")
        st.button(
            t("share.unlock" if own.lock else "share.show"),
            type="tertiary",
            icon=":material/lock_open:" if own.lock else ":material/visibility:",
            key="unlock",
            on_click=redraw.with_everything(lambda: state.show(own.opened())),
        )
