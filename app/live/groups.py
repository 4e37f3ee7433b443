"""The groups of one step of a live run: the strip, the chosen group as a table, its ratios, its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app import state
from app.components import component
from app.figures import live as figures
from app.live import microscope
from app.live.changes import settings_at
from app.live.heat import step_ends
from app.live_plot import live_plot
from app.live_reader import Look, Reader
from app.numbers import plain, short
from app.widgets import colors, literal
from app.words import known, language, t, told
from grpo_core.live.config import RunConfig
from grpo_core.live.groups import event_group
from grpo_core.live.store import RunStoreError

FOLLOW, STEP, NEWEST, GROUP, STRIP = "live-follow", "live-at-step", "live-newest", "live-group", "live-strip"
ROW_HEIGHT = 35
MOST_ROWS = 12  # rows of the table that show without scrolling
RATIOS_HEIGHT = 300
SHORT_TEXT = 36


def section(source: Reader, run_id: str | None) -> None:
    """Draw the groups of the chosen step; while the run is active and followed, of the newest one."""
    try:
        look = source.look(run_id) if run_id else None
        if look is None or not look.step:
            _heading(look)
            st.caption(t("live.no_groups_yet"))
            return
        step = _heading(look)
        found = source.groups(look.run.id, step)
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(told(error))}", icon=":material/error:")
        return
    if not found["groups"]:
        st.warning(t("live.no_groups_at", step=step), icon=":material/history_toggle_off:")
        return
    index = _strip(found["groups"], step)
    _group(settings_at(look, step), found, index)


def follow_newest() -> None:
    """Show the newest step again."""
    st.session_state[FOLLOW] = True


# Which step, which group


def _heading(look: Look | None) -> int:
    """Draw the heading with the way back to earlier steps; return the step to show."""
    newest = look.step if look else 0
    following = st.session_state.setdefault(FOLLOW, True)
    at = newest if following else min(max(1, int(st.session_state.get(STEP) or 1)), max(newest, 1))
    title, back, number, on, follow = st.columns([5.2, 0.6, 1.5, 0.6, 1.3], vertical_alignment="center", gap="small")
    title.subheader(t("live.groups_of", step=at) if newest else t("live.groups"), anchor=False)
    _walk_button(back, "earlier", "chevron_left", at - 1, possible=at > 1)
    with number:
        _step_input(at, following=following)
    _walk_button(on, "later", "chevron_right", at + 1, possible=at < newest)
    follow.toggle(t("live.follow"), key=FOLLOW, help=t("live.follow_help"), on_change=_hold_at, args=(at,))
    return at


def _walk_button(column: Any, name: str, icon: str, step: int, *, possible: bool) -> None:
    more: dict[str, Any] = {"help": t(f"live.{name}"), "icon": f":material/{icon}:", "width": "stretch"}
    column.button("", key=f"live-{name}", on_click=_walk, args=(step,), disabled=not possible, **more)


def _step_input(at: int, *, following: bool) -> None:
    """Draw the field for the step. While the newest is followed it only shows: a browser that is one step behind would
    otherwise seem to have typed an earlier one."""
    if following:
        st.session_state[NEWEST] = str(at)
        st.text_input(t("live.at_step"), key=NEWEST, label_visibility="collapsed", disabled=True)
        return
    st.session_state[STEP] = at
    st.number_input(t("live.at_step"), min_value=1, step=1, key=STEP, label_visibility="collapsed")


def _walk(step: int) -> None:
    st.session_state[STEP] = step
    st.session_state[FOLLOW] = False


def _hold_at(step: int) -> None:
    """Stay at the step that was shown when the toggle was turned off."""
    st.session_state[STEP] = step


def _strip(groups: Sequence[Mapping[str, Any]], step: int) -> int:
    """Draw the groups side by side, kind and right answers on each; return the chosen one."""
    chosen = st.session_state.setdefault(GROUP, 0)
    chosen = chosen if chosen < len(groups) else 0
    chips = [chip(index, group) for index, group in enumerate(groups)]
    data = {"step": step, "chosen": chosen, "label": t("live.group"), "groups": chips}
    mount = component("live_strip", '<div class="strip" role="group"></div>')
    mount(key=STRIP, data=data, on_pick_change=_pick)
    return int(chosen)


def _pick() -> None:
    """Show the group that was pressed, and stay at its step."""
    pick = st.session_state[STRIP].get("pick")
    if isinstance(pick, dict) and isinstance(pick.get("step"), int) and isinstance(pick.get("index"), int):
        st.session_state[GROUP] = max(0, pick["index"])
        _walk(pick["step"])


def chip(index: int, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group as the strip shows it: its number, its kind, and how many of its completions are right."""
    rewards = group["rewards"]
    right = sum(reward is not None and reward >= 1.0 for reward in rewards)
    kind, scored = t(f"kind.{group['kind']}"), group["kind"] != "unscored"
    text = t("live.group_label", kind=kind, right=right, size=len(rewards)) if scored else kind
    return {"name": str(index + 1), "kind": group["kind"], "text": text, "share": right / max(1, len(rewards))}


# The group


def _group(config: RunConfig, found: Mapping[str, Any], index: int) -> None:
    group = found["groups"][index]
    _facts(group)
    _table(group)
    choice, out = st.columns([3.2, 1], vertical_alignment="bottom", gap="medium")
    with choice:
        heat = microscope.choice()
    words: dict[str, Any] = {"help": t("live.open_help"), "icon": ":material/open_in_new:", "width": "stretch"}
    if out.button(t("live.open"), key="live-open", **words):
        open_in_explorer(config, group)
    try:
        step = microscope.loss_of(config, found)
    except ValueError as error:
        st.caption(literal(t("live.no_tokens", reason=told(error))))
        _ratios(config, found)
        return
    tokens, ratios = st.columns([2.1, 1], gap="medium")
    with tokens:
        place = microscope.table(step, config, found, index, heat, hold=lambda: _walk(found["step"]))
    with ratios:
        _ratios(config, found)
    if place is not None:
        microscope.one(step, found, index, place)


def _facts(group: Mapping[str, Any]) -> None:
    prompt, answer, mean, std = st.columns([3, 1.5, 1, 1], gap="medium")
    for column, name, text in ((prompt, "prompt", group["prompt"]), (answer, "answer", group.get("answer") or "")):
        if len(text) <= SHORT_TEXT and "\n" not in text:
            column.metric(t(f"live.{name}"), text)
        else:
            column.caption(t(f"live.{name}"))
            column.code(text, language=None, wrap_lines=True)
    mean.metric(t("live.mean"), plain(group["mean"]))
    std.metric(t("live.std"), plain(group["std"]))


def _table(group: Mapping[str, Any]) -> None:
    frame = table(group)
    height = ROW_HEIGHT * (min(len(frame), MOST_ROWS) + 1) + 3
    more: dict[str, Any] = {"height": height, "row_height": ROW_HEIGHT, "column_config": _columns(group)}
    st.dataframe(frame, key="live-table", hide_index=True, **more)


def table(group: Mapping[str, Any]) -> pd.DataFrame:
    """Return a group's completions as a table, one row each; texts stay texts."""
    parts = group["reward_parts"]
    return pd.DataFrame(
        {
            "number": range(1, len(group["completions"]) + 1),
            "completion": group["completions"],
            "reward": [t("live.unscored") if r is None else short(r) for r in group["rewards"]],
            **{f"part-{name}": [short(value) for value in values] for name, values in parts.items()},
            "advantage": group["advantages"],
            **_step_rewards(group),
            "tokens": group["lengths"],
            "end": [t(f"live.end.{reason}") for reason in group["finish"]],
        }
    )


def _step_rewards(group: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the column of what each step of a completion was paid; none where they were not judged in steps."""
    rows = [" ".join(ends.values()) for ends in step_ends(group)]
    return {"steps": rows} if rows else {}


def _columns(group: Mapping[str, Any]) -> dict[str, Any]:
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    return {
        "number": number(t("live.column.number"), width=40),
        "completion": text(t("live.column.completion"), width=270 if step_ends(group) else "large"),
        "reward": text(t("live.column.reward"), width=84, alignment="right"),
        **{f"part-{name}": text(_part(name), width=84, alignment="right") for name in group["reward_parts"]},
        "advantage": number(t("live.column.advantage"), format="%+.3f", width=92),
        "steps": text(t("live.column.steps"), width=120),
        "tokens": number(t("live.column.tokens"), width=72),
        "end": text(t("live.column.end"), width=92),
    }


def _part(name: str) -> str:
    return t(f"live.column.{name}") if known(f"live.column.{name}") else name


# The ratios of the step


def _ratios(config: RunConfig, found: Mapping[str, Any]) -> None:
    st.caption(t("live.ratios"))
    histogram = found.get("ratio_histogram")
    if not histogram:
        return
    palette = colors()
    low, high = 1 - config.epsilon_low, 1 + config.epsilon_high
    figure = figures.ratios(palette, histogram["edges"], histogram["counts"], low=low, high=high, height=RATIOS_HEIGHT)
    version = (found["step"], palette.page, language())
    live_plot(figure, key="live-ratios", version=version, alt=t("live.alt.ratios"))


# To the explorer


def open_in_explorer(config: RunConfig, group: Mapping[str, Any]) -> None:
    """Show the group on the formula pages, under the run's own recipe, beta and clip range."""
    try:
        take_up(config, group)
    except ValueError as error:
        st.error(literal(told(error)), icon=":material/block:")
        return
    st.switch_page("../pages/advantages.py")


def take_up(config: RunConfig, group: Mapping[str, Any]) -> None:
    """Make the group and its run's settings those of the explorer. ValueError if the group is too large for it."""
    state.open_group(event_group(group))
    state.put({"recipe": config.recipe})
    own: dict[str, Any] = {"beta": config.beta, "eps_low": config.epsilon_low, "eps_high": config.epsilon_high}
    if config.scale_rewards != "recipe":
        own["scale"] = config.scale_rewards
    state.put(own)
