"""Runs with names of their own, each with one or several settings changed: a row of inputs for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import streamlit as st

from app import live_form
from app.live.plans import Plan
from app.live.wording import label
from app.live_form import Field
from app.widgets import literal
from app.words import prose, t, told
from grpo_core.live.config import RunConfig, accepted, with_recipe
from grpo_core.live.experiments import FEWEST, MOST, UNCOUNTED, things
from grpo_core.live.store import NAME_LENGTH

IDS = "live-variants"  # session key: the rows that are shown, by number
FIRST: tuple[tuple[str, dict[str, Any]], ...] = (("as_set", {}), ("larger", {"group_size": 16, "prompts_per_step": 4}))
"""The rows to begin with: the key of each one's name, and what it changes."""
MEASURING = ("eval_every", "eval_prompts", "eval_samples")
OFFERED = {field.name: field for field in live_form.ALL if field.name not in (*UNCOUNTED, *MEASURING)}
"""The settings that a variant may change: those of the form that change what is learned."""
MOST_CHANGES = 6
ACROSS = 2


@dataclass(frozen=True)
class Variant:
    """One row as it stands in the inputs, unchecked."""

    name: str
    own: dict[str, Any]


def key_of(row: int, name: str) -> str:
    """Return the session key of an input of a row."""
    return f"live-variant-{row}-{name}"


def form(base: RunConfig) -> Plan | None:
    """Draw the rows; return the runs that they describe, None after saying what is wrong with them."""
    st.markdown(prose("compare", "variants"))
    rows: list[int] = st.session_state.setdefault(IDS, [1, 2])
    found = [_row(base, row, number, removable=len(rows) > FEWEST) for number, row in enumerate(rows, start=1)]
    words = {"icon": ":material/add:", "help": t("compare.variant_add_help", most=MOST)}
    st.button(t("compare.variant_add"), key="live-variant-add", on_click=_add, disabled=len(rows) >= MOST, **words)
    try:
        plan = plan_of(base, found)
    except ValueError as error:
        st.error(literal(told(error)), icon=":material/error:")
        return None
    _note(plan)
    return plan


def _add() -> None:
    rows = st.session_state[IDS]
    st.session_state[IDS] = [*rows, max(rows) + 1]


def _remove(row: int) -> None:
    st.session_state[IDS] = [one for one in st.session_state[IDS] if one != row]


# One row


def _row(base: RunConfig, row: int, number: int, *, removable: bool) -> Variant:
    """Draw a row: its name, what it changes, the new values, and the way to take it out."""
    _begin(base, row)
    name, changes, values, out = st.columns([1.1, 2.2, 2.7, 0.35], vertical_alignment="bottom", gap="small")
    called = name.text_input(
        t("compare.variant", number=number), key=key_of(row, "name"), max_chars=NAME_LENGTH, persist_state="session",
        help=t("compare.variant_help"),
    )  # fmt: skip
    chosen = changes.multiselect(
        t("compare.changes"), list(OFFERED), key=key_of(row, "changes"), format_func=label,
        max_selections=MOST_CHANGES, placeholder=t("compare.changes_none"), help=t("compare.changes_help"),
        persist_state="session",
    )  # fmt: skip
    with values:
        own = _values(base, row, chosen)
    out.button(
        "", icon=":material/close:", key=key_of(row, "remove"), on_click=_remove, args=(row,), type="tertiary",
        disabled=not removable, help=t("compare.variant_remove"),
    )  # fmt: skip
    return Variant(called.strip() or t("compare.variant", number=number), own)


def _begin(base: RunConfig, row: int) -> None:
    """Give the inputs of a row that has just been made what they begin with."""
    if key_of(row, "changes") in st.session_state:
        return
    name, own = FIRST[row - 1] if row <= len(FIRST) else ("", {})
    st.session_state[key_of(row, "name")] = t(f"compare.variant.{name}") if name else ""
    st.session_state[key_of(row, "changes")] = list(own)
    for setting, value in own.items():
        st.session_state[key_of(row, setting)] = live_form.shown(OFFERED[setting], base.changed(**{setting: value}))


def _values(base: RunConfig, row: int, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw an input for each setting that a row changes, with the value of the form to begin with."""
    for start in range(0, len(chosen), ACROSS):
        for column, name in zip(
            st.columns(ACROSS, vertical_alignment="bottom"), chosen[start : start + ACROSS], strict=False
        ):
            key = key_of(row, name)
            st.session_state.setdefault(key, live_form.shown(OFFERED[name], base))
            with column:
                live_form.draw(OFFERED[name], key, persist_state="session")
    return {name: st.session_state[key_of(row, name)] for name in chosen}


# What they describe


def plan_of(base: RunConfig, found: Sequence[Variant]) -> Plan:
    """Return the runs of some rows. ValueError names the variant, the setting, its value and what helps."""
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(t("compare.variant_names", name=twice))
    configs = [_config(base, one) for one in found]
    for first, second in combinations(range(len(configs)), 2):
        if configs[first] == configs[second]:
            raise ValueError(t("compare.variant_twice", first=names[first], second=names[second]))
    changed = [
        {name: getattr(config, name) for name in one.own if getattr(config, name) != getattr(base, name)}
        for one, config in zip(found, configs, strict=True)
    ]
    return Plan(t("compare.variants_named", names=", ".join(names)), configs, changed, names)


def _config(base: RunConfig, one: Variant) -> RunConfig:
    try:
        for name, value in one.own.items():
            if value is None:  # a number field that was emptied
                raise ValueError(_empty(OFFERED[name]))
        return base.changed(**with_recipe(one.own))
    except ValueError as error:
        raise ValueError(t("compare.variant_wrong", name=one.name, reason=told(error))) from None


def _empty(field: Field) -> str:
    return t("live.empty", name=label(field.name), accepted=told(accepted(field.name)))


def _note(plan: Plan) -> None:
    """Say so when variants differ in more than one thing, and which pairs do not."""
    several = things(plan.configs)
    if len(several) < 2:
        return
    st.warning(
        literal(t("compare.variants_several", names=", ".join(map(label, several)), pairs=_fair(plan))),
        icon=":material/balance:",
    )


def _fair(plan: Plan) -> str:
    """Return the pairs that differ in one thing only, in words."""
    both = list(combinations(zip(plan.names, plan.configs, strict=True), 2))
    pairs = [(a, b) for (a, one), (b, other) in both if len(things([one, other])) == 1]
    if not pairs:
        return t("compare.variants_no_pair")
    return t("compare.variants_pairs", pairs=", ".join(f"{a} – {b}" for a, b in pairs))
