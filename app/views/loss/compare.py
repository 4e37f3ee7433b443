"""Two recipes on one group: which choices differ, each of them on its own switch, and whose pull changes."""

from __future__ import annotations

import streamlit as st

from app import state, widgets
from app.explain import loss as explain
from app.explain.loss import Comparison
from app.lens import Lens
from app.recipe_words import recipe_note, recipe_title
from app.views.loss import controls, pairs
from app.words import t
from grpo_core import Objective, get_recipe
from grpo_core.differences import Difference


def draw(lens: Lens) -> None:
    """Draw the current loss against the other recipe."""
    compared = explain.comparison(lens)
    pairs.draw(compared.pair, key="compare", first=recipe_title(lens.values["recipe"]), second=_second(compared))


def _second(compared: Comparison) -> str:
    partly = any(d.name in compared.kept for d in compared.acting)
    title = recipe_title(compared.other.name)
    return t("loss.partly", title=title) if partly else title


def settings(lens: Lens) -> None:
    """Draw the other recipe and a switch for each choice in which it differs."""
    widgets.select("other", format_func=recipe_title, words="loss.other")
    compared = explain.comparison(lens)
    acting = [d for d in compared.acting if not _belongs_to_surrogate(d, compared)]
    st.markdown(t("loss.differ", count=len(acting)) if acting else t("loss.differ_nothing"))
    for difference in acting:
        _switch(difference, compared)
    controls.needs(compared.pair.second)
    _idle(compared)
    _sources(lens, compared)


def _belongs_to_surrogate(difference: Difference, compared: Comparison) -> bool:
    """Return whether a difference is an option that comes and goes with the surrogate."""
    names = {d.name for d in compared.acting}
    return "surrogate" in names and difference.name not in Objective.__dataclass_fields__ and _is_option(difference)


def _is_option(difference: Difference) -> bool:
    return difference.part == "objective" and (difference.first is None or difference.second is None)


def _switch(difference: Difference, compared: Comparison) -> None:
    key = f"loss-take-{difference.name}"
    taken = difference.name not in compared.kept
    if st.session_state.get(key) != taken:
        st.session_state[key] = taken
    sides = [explain.choice_text(difference.name, value) for value in (difference.first, difference.second)]
    label = t("loss.switch", name=explain.choice_name(difference.name), first=sides[0], second=sides[1])

    def take() -> None:
        others = [name for name in (state.get("kept") or ()) if name != difference.name]
        kept = others if st.session_state[key] else [*others, difference.name]
        state.put({"kept": tuple(kept) or None})

    st.checkbox(label, key=key, on_change=take, disabled=state.locked())


def _idle(compared: Comparison) -> None:
    if not compared.idle:
        return
    st.markdown(t("loss.idle"))
    lines = [
        t(
            "loss.idle_line",
            name=explain.choice_name(d.name),
            first=explain.choice_text(d.name, d.first),
            second=explain.choice_text(d.name, d.second),
            why=t(f"loss.idle.{d.idle}"),
        )
        for d in compared.idle
    ]
    st.caption("\n".join(f"- {line}" for line in lines))


def _sources(lens: Lens, compared: Comparison) -> None:
    for recipe in (get_recipe(lens.values["recipe"]), compared.other):
        st.caption(
            t(
                "loss.source",
                title=recipe_title(recipe.name),
                source=widgets.literal(str(recipe.source)),
                note=widgets.literal(recipe_note(recipe.name)),
            )
        )
