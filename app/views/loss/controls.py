"""The controls that the pictures of the Loss page share: the choices of the loss, and the chosen token."""

from __future__ import annotations

import streamlit as st

from app import editing, state, walk, widgets
from app import lens as lenses
from app.lens import Lens
from app.numbers import short
from app.params import PARAMS, RECIPE_BOUND, default
from app.token_table import Place, visible
from app.widgets import Row, slider
from app.words import known, t
from grpo_core import SURROGATES

_DIVIDED = ("group", "best_of_group")


def choices(lens: Lens) -> None:
    """Draw every choice with a few values, two in a row; those that would change nothing are left out."""
    names = ["surrogate", "reduce", "estimator"]
    if walk.needs_ratio(lens):
        names.insert(1, "level")
    if lens.spec.estimator in _DIVIDED:
        names.append("scale")
        names += ["ddof"] if lens.spec.scale != "none" else []
    if lens.objective.beta > 0:
        names += ["kl", "klw"]
    if any(lens.group.truncated) or lens.values["cut"] == "drop":
        names.append("cut")
    columns = st.columns(2, gap="small")
    for number, name in enumerate(names):
        with columns[number % 2]:
            widgets.select(name, words=_WORDS.get(name), format_func=_SHORT.get(name))


def sliders(lens: Lens) -> list[Row]:
    """Return the rows of the numbers that the loss uses."""
    reads = SURROGATES[lens.objective.surrogate].parameters
    rows = [slider(setting) for setting, field in _CLIP.items() if field in reads]
    rows.append(slider("beta"))
    if lens.spec.estimator in _DIVIDED and lens.spec.scale != "none":
        rows.append(slider("eps"))
    if lens.objective.aggregation == "constant":
        size = lenses.longest(lens.group)
        rows.append(slider("constant", value=size, text=t("control.auto", n=size)))
    if lens.spec.estimator == "greedy_baseline":
        rows.append(slider("greedy"))
    if lens.objective.surrogate == "clip_cov":
        rows.append(slider("draw"))
    return rows


_WORDS = {"reduce": "loss.reduce", "kl": "loss.kl"}
_SHORT = {"ddof": lambda value: t(f"loss.ddof.{value}")}
_CLIP = {"eps_low": "epsilon_low", "eps_high": "epsilon_high", "delta": "delta"}


def needs(lens: Lens) -> None:
    """Say what the recipe would need that this group does not have."""
    if lens.no_reference:
        st.warning(t("loss.no_reference"), icon=":material/help:")
    if lens.spec.estimator == "greedy_baseline":
        st.caption(t("loss.needs_greedy"))
    if lens.spec.reward_aggregation == "normalize_then_sum" and len(lens.group.reward_parts) < 2:
        st.caption(t("loss.needs_parts"))
    if lens.spec.whitening is not None:
        st.caption(t("loss.needs_batch"))


def changed_choices(lens: Lens) -> None:
    """Name the settings that are no longer the recipe's, with the way back."""
    changed = [name for name in RECIPE_BOUND if lens.values[name] != default(name, lens.values["recipe"])]
    if not changed:
        return
    text, back = st.columns([3, 2], vertical_alignment="center", gap="small")
    parts = [f"{t(f'param.{name}.label')} {setting_text(name, lens.values[name])}" for name in changed]
    text.caption(t("loss.changed", changes=widgets.literal(", ".join(parts))))
    back.button(
        t("loss.to_recipe"),
        key="loss-to-recipe",
        on_click=_to_recipe,
        disabled=state.locked(),
        icon=":material/undo:",
        width="stretch",
    )


def _to_recipe() -> None:
    recipe = state.get("recipe")
    state.put({name: default(name, recipe) for name in RECIPE_BOUND})


def setting_text(name: str, value: object) -> str:
    """Return a setting's value as text."""
    if value is None:
        return t(f"param.{name}.none")
    if PARAMS[name].kind == "choice":
        return t(f"param.{name}.{value}") if known(f"param.{name}.{value}") else str(value)
    return short(value)


def token_title(lens: Lens, at: Place) -> str:
    """Return the chosen token as a heading: where it stands, and its text so that nothing in it is read as markup."""
    completion, position = at
    where = t(
        "tokens.where", completion=completion + 1, position=position + 1, total=len(lens.group.tokens[completion])
    )
    return f"**{where}** &nbsp; {widgets.literal(visible(lens.group.tokens[completion][position], 60))}"


def token_mask(lens: Lens, at: Place) -> None:
    """Draw the switch that says whether the chosen token trains."""
    completion, position = at
    key = f"loss-mask-{completion}-{position}"
    trains = bool((lens.group.mask or ())[completion][position])
    if st.session_state.get(key) != trains:
        st.session_state[key] = trains

    def take() -> None:
        state.edit_group(editing.with_token(state.group(), completion, position, "mask", bool(st.session_state[key])))

    st.toggle(t("control.trains"), key=key, help=t("control.trains_help"), on_change=take, disabled=state.locked())
