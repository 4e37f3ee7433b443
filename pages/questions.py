"""Questions: what people keep asking about GRPO, each answered by a link to the page that shows it."""

from __future__ import annotations

import streamlit as st

from app import asked, link, state, widgets
from app.explain.questions import Asked, question, questions
from app.lens import Lens
from app.shell import explorer
from app.words import known, t

STYLE = """<style>
[class*="st-key-question-"] h3 { padding: 0 0 0.25rem; }
[class*="st-key-question-"] a[data-testid="stPageLink-NavLink"] { background: none; }
[class*="st-key-question-"] a[data-testid="stPageLink-NavLink"]:hover { background: rgb(128 128 128 / 14%); }
[class*="st-key-show-"] a[data-testid="stPageLink-NavLink"] * { color: COLOR; font-weight: 600; }
[class*="st-key-question-"] [data-testid="stElementContainer"]:not([class*="st-key-show-"]) a * { font-weight: 400; }
</style>"""


def body(_: Lens) -> None:
    """Draw the question that the link names, then those that the reader searches for."""
    st.html(STYLE.replace("COLOR", widgets.colors().up_text))
    named = state.get("q")
    if named is not None:
        named_question(question(named))
    words = search()
    topic = state.get("topic")
    found = questions(topic, words)
    st.caption(t("questions.count", n=len(found), total=len(asked.asked())))
    for name in asked.topics():
        own = [one for one in found if one.topic == name]
        if own:
            st.header(t(f"param.topic.{name}"), anchor=name)
            cards(own)


def search() -> str:
    """Draw the search and the topics; return what was typed."""
    words = st.text_input(
        t("questions.search"), key="question-search", icon=":material/search:", placeholder=t("questions.hint")
    )
    widgets.choice("topic", hide_label=True)
    return words[:100]


def named_question(one: Asked) -> None:
    """Draw the one question that the link names, and the way to all others."""
    with st.container(key="named-question"):
        card(one, key="named")
    st.button(
        t("questions.all"), type="tertiary", icon=":material/expand_more:", on_click=lambda: state.put({"q": None})
    )


def cards(own: list[Asked]) -> None:
    """Draw questions two by two, so that they are read from left to right."""
    for left, right in zip(own[::2], [*own[1::2], None], strict=False):
        columns = st.columns(2, gap="medium")
        for column, one in zip(columns, (left, right), strict=True):
            if one is not None:
                with column:
                    card(one, key=one.id)


def card(one: Asked, *, key: str) -> None:
    """Draw a question with its answer, the link that shows it, and the link to itself."""
    with st.container(border=True, height="stretch", key=f"question-{key}"):
        st.subheader(one.question, anchor=one.id if key == one.id else False)
        st.markdown(one.answer)
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            title = t(f"page.{one.place.page}") if known(f"page.{one.place.page}") else one.place.page
            with st.container(key=f"show-{key}", width="content"):
                st.page_link(
                    f"../pages/{one.place.page}.py",
                    label=t("questions.open", page=title),
                    icon=":material/arrow_forward:",
                    query_params=one.place.query(),
                )
            st.page_link(
                "../pages/questions.py",
                label=t("questions.link"),
                icon=":material/link:",
                help=t("questions.link_help"),
                query_params={**link.to_query(state.view()), "q": one.id},
            )


explorer("questions", body, bar=False)
