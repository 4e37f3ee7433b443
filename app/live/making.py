"""Making runs to compare: two to four that differ in one setting, or in what the reader names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from app import live_form
from app.live import one_setting, variants
from app.live.plans import Plan, queue
from app.live_reader import Reader
from app.widgets import literal
from app.words import t, told
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStoreError

WAY = "live-compare-way"  # session key
WAYS: Mapping[str, Callable[[RunConfig], Plan | None]] = {"one": one_setting.form, "variants": variants.form}
"""How runs are described: the form of each way gives them, or says what is wrong and gives None."""


def form(source: Reader, *, opened: bool) -> list[str]:
    """Draw the form that makes runs; return the ids of those that were put in line just now."""
    with st.expander(t("compare.make"), icon=":material/science:", key="live-compare-make", expanded=opened):
        try:
            base = live_form.chosen(None)
        except ValueError as error:
            st.error(f"{t('live.invalid')} {literal(told(error))}", icon=":material/error:")
            return []
        way = st.segmented_control(
            t("compare.way"), list(WAYS), key=WAY, default="one", required=True, label_visibility="collapsed",
            format_func=lambda name: t(f"compare.way.{name}"), persist_state="session",
        )  # fmt: skip
        plan = WAYS[way or "one"](base)
        words, button = st.columns([4, 1], vertical_alignment="center", gap="medium")
        words.caption(t("compare.base", summary=literal(live_form.summary(base)), seed=base.seed))
        with button:
            return _button(source, plan)


def _button(source: Reader, plan: Plan | None) -> list[str]:
    """Draw the button that queues the runs, and do so when it was pressed."""
    count = len(plan.configs) if plan else 0
    pressed = st.button(
        t("compare.queue", count=count), key="live-compare-queue", type="primary", width="stretch",
        icon=":material/playlist_add:", disabled=plan is None, help=t("compare.queue_help"),
    )  # fmt: skip
    if not pressed or plan is None:
        return []
    try:
        return queue(source, plan)
    except (ValueError, RunStoreError) as error:
        st.error(f"{t('live.refused')} {literal(told(error))}", icon=":material/block:")
        return []
