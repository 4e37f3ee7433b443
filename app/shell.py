"""The frame around every explorer page: title, the shared group and recipe, notes, and the link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from app import chooser, link, redraw, sharing, state, widgets
from app.components import component
from app.lens import Lens, look
from app.recipe_words import recipe_title
from app.words import LANGUAGES, known, prose, t

STYLE = """<style>
[data-testid="stMainBlockContainer"] { max-width: 84rem; padding-left: 2.5rem; padding-right: 2.5rem; }
[data-testid="stMetricLabel"] p { font-size: 0.85rem; opacity: 0.75; }
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
.st-key-group-bar h1 { padding: 0 0 0.15rem; }
.katex-display { padding: 0.35rem 0.5rem; }
[data-testid="stCaptionContainer"] { opacity: 0.75; } /* Streamlit's 0.6 is too pale to read on white */
button[kind="primary"] * { color: light-dark(#FFFFFF, #101418) !important; } /* white is too pale on the light blue */
.stCode .token { color: inherit !important; }
.stCode .token.keyword { color: light-dark(#0B5FA5, #6CB6EC) !important; } /* as in the pictures, dark enough to read */
.stCode .token:is(.number, .boolean) { color: light-dark(#B34700, #F08A4B) !important; }
.stCode .token.string { color: light-dark(#00735A, #4CC9A0) !important; }
.stCode .token:is(.operator, .punctuation, .comment) { color: light-dark(#5B6670, #A3AEB8) !important; }
.st-key-actions button { padding: 0.25rem 0.5rem; min-width: 2.4rem; }
.st-key-actions button * { gap: 0; margin: 0; }
.st-key-actions [data-testid="stPopoverButton"] div[aria-hidden] { display: none; }
.st-key-actions button p { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.st-key-url-sync, .st-key-page-language, .st-key-page-reach { position: absolute; height: 0; overflow: hidden; }
.js-plotly-plot .modebar { opacity: 0; transition: opacity 0.15s; }
.js-plotly-plot:hover .modebar { opacity: 1; }
</style>"""


def explorer(page: str, body: Callable[[Lens], None], *, view: str | None = None, bar: bool = True) -> None:
    """Draw an explorer page: its head and its body, each a fragment (see app.redraw).

    A page with many pictures names the setting that chooses one, `view`: its buttons stand above the telling cases.
    `bar` False: the page shows neither group nor recipe, so neither is offered.
    """
    st.fragment(lambda: _top(page, view, bar), key=redraw.HEAD)()
    st.fragment(lambda: _body(body), key=redraw.BODY)()


def _top(page: str, view: str | None, bar: bool) -> None:
    st.html(sharing.style())
    _head(page, bar)
    _notes()
    if view is not None:
        widgets.choice(view, hide_label=True)
    widgets.preset_pills(page, view)
    redraw.head_drawn(page)


def _body(body: Callable[[Lens], None]) -> None:
    with st.container(key="page-body"):
        body(look(state.group(), state.values()))
    widgets.sync_link()
    if redraw.in_fragment() and redraw.head_stale():
        st.rerun()  # something in the body changed what the head shows without saying so


def language_switch() -> None:
    """Draw the languages under the menu; a choice is spoken at once, with group and settings as they are."""
    own = state.lab().frame
    widgets.fill("language", own.language)
    with st.sidebar:
        st.segmented_control(
            t("nav.language"), list(LANGUAGES), key="language", format_func=LANGUAGES.get, required=True,
            label_visibility="collapsed",
            on_change=_speak,
        )  # fmt: skip
        component("page_language", "<span></span>")(key="page-language", data={"language": own.language}, height=1)
        component("page_reach", "<span></span>")(key="page-reach", height=1)


def _speak() -> None:
    """Take up the chosen language. A list keeps the words that it shows until its value is set: so it is, to itself."""
    state.show(replace(state.lab().frame, language=st.session_state["language"]))
    for name, value in st.session_state.to_dict().items():
        if isinstance(value, str):
            st.session_state[name] = value


def _head(page: str, bar: bool) -> None:
    own = state.lab().frame
    with st.container(key="group-bar"):
        title, group, recipe, actions = st.columns([2.2, 2.3, 2.2, 2.7], vertical_alignment="bottom", gap="small")
    title.title(t(f"title.{page}") if known(f"title.{page}") else t(f"page.{page}"), anchor=False)
    if bar and not own.hides("bar"):
        with group:
            chooser.group_chooser()
        with recipe:
            widgets.select("recipe", format_func=recipe_title)
    with actions, st.container(horizontal=True, horizontal_alignment="right", gap="xsmall", key="actions"):
        if not own.hides("bar"):
            if bar and not own.lock:
                chooser.open_button()
            _back_buttons()
        if not own.lock:
            sharing.buttons()
    sharing.way_out()
    st.markdown(prose(page, "question"))


def _back_buttons() -> None:
    for name, icon, act in (("undo", "undo", state.undo), ("reset", "restart_alt", state.reset)):
        st.button(
            t(f"bar.{name}"), icon=f":material/{icon}:", key=name, help=t(f"bar.{name}"),
            on_click=redraw.with_everything(act), disabled=name == "undo" and not state.lab().undo,
        )  # fmt: skip


def _notes() -> None:
    own = state.lab()
    for text in own.notes:
        st.warning(widgets.literal(text), icon=":material/link:")
    if link.too_large(own.view):
        st.caption(t("link.left_out"))
