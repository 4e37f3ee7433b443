"""From PPO: what GRPO took over, what it dropped, and what that saves and costs."""

from __future__ import annotations

import streamlit as st

from app.lens import Lens
from app.shell import explorer
from app.views.ppo import compared, critic, dpo, memory, rounds, trust, where

VIEWS = {
    "critic": critic,
    "memory": memory,
    "trust": trust,
    "dpo": dpo,
    "where": where,
    "rounds": rounds,
    "compared": compared,
}


def body(lens: Lens) -> None:
    """Draw the chosen picture first, so that it follows a slider without delay."""
    view = VIEWS[lens.values["ppo_view"]]
    left, right = st.columns([4, 7], gap="large")
    with right:
        view.draw(lens)
    with left:
        view.settings(lens)
    if view is compared:
        compared.below(lens)


explorer("ppo", body, view="ppo_view")
