"""Runs that differ in one setting: which one, and its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.live.plans import Plan
from app.live.wording import label, words_of
from app.widgets import literal
from app.words import prose, t, told
from grpo_core import RECIPES
from grpo_core.live.config import SCALES, SURROGATES, RunConfig, accepted
from grpo_core.live.experiments import FEWEST, MOST, variants
from grpo_core.live.tasks import TASKS

KNOB = "live-compare-knob"
SUGGESTED: Mapping[str, Any] = {
    "learning_rate": "3e-5, 1e-4, 3e-4",
    "recipe": ("dr_grpo_paper", "trl_grpo"),
    "group_size": "2, 8",
    "prompts_per_step": "4, 8, 16",
    "beta": "0, 0.04, 1",
    "epsilon_low": "0.1, 0.2, 0.4",
    "epsilon_high": "0.2, 0.28, 0.4",
    "inner_epochs": "1, 4, 8",
    "temperature": "0.7, 1, 1.3",
    "scale_rewards": ("group", "none"),
    "surrogate": ("clip", "unclipped"),
    "top_p": "0.8, 1",
    "refills": "0, 8",
    "max_new_tokens": "8, 14, 20",
    "task": ("shell_game", "shell_game_lenient"),
    "seed": "0, 1, 2",
}
"""The settings that one experiment may change, each with values to begin with."""
CHOICES: Mapping[str, Sequence[str]] = {
    "recipe": tuple(RECIPES), "task": tuple(TASKS), "scale_rewards": SCALES, "surrogate": SURROGATES,
}  # fmt: skip


def form(base: RunConfig) -> Plan | None:
    """Draw the choice of a setting and its values; return the runs, None after saying what is wrong with them."""
    st.markdown(prose("compare", "make"))
    first, second = st.columns([1.2, 3.4], vertical_alignment="bottom", gap="small")
    knob = first.selectbox(
        t("compare.knob"), list(SUGGESTED), key=KNOB, format_func=label, help=t("compare.knob_help"),
        persist_state="session",
    )  # fmt: skip
    with second:
        configs = _configs(base, knob, _values(knob))
    if not configs:
        return None
    changed = [{knob: getattr(config, knob)} for config in configs]
    values = ", ".join(words_of(knob, own[knob]) for own in changed)
    return Plan(t("compare.named", knob=label(knob), values=values), configs, changed)


def _values(knob: str) -> list[Any]:
    key, note = f"live-compare-values-{knob}", t("compare.values_help", fewest=FEWEST, most=MOST)
    if knob in CHOICES:
        st.session_state.setdefault(key, list(SUGGESTED[knob]))
        return st.multiselect(
            t("compare.values"), CHOICES[knob], key=key, max_selections=MOST, help=note, persist_state="session",
            format_func=lambda value: words_of(knob, value),
        )  # fmt: skip
    st.session_state.setdefault(key, SUGGESTED[knob])
    said = t("live.accepted", accepted=told(accepted(knob)))
    text = st.text_input(t("compare.values"), key=key, help=f"{note} {said}", persist_state="session")
    return [part for part in re.split(r"[,;，；\s]+", text) if part]


def _configs(base: RunConfig, knob: str, values: Sequence[Any]) -> list[RunConfig]:
    """Return the runs of the experiment; say what is wrong with the values if there are none."""
    if not FEWEST <= len(values) <= MOST:
        st.error(t("compare.how_many", fewest=FEWEST, most=MOST), icon=":material/error:")
        return []
    try:
        return variants(base, knob, values)
    except ValueError as error:
        text = t("compare.twice") if "is there already" in str(error) else told(error)
        st.error(literal(text), icon=":material/error:")
        return []
