"""The curves of the Live page: the main one, the small multiples beside it, and what stamps a command on them."""

from __future__ import annotations

import re
from typing import Any

import streamlit as st

from app import live_form
from app.figures import live as figures
from app.figures.live import Stamp
from app.live_plot import live_plot
from app.live_reader import Look
from app.numbers import plain, short
from app.widgets import colors, literal
from app.words import known, language, t

FULL = "full"


def charts(look: Look | None, by: str) -> None:
    """Draw the main curve and the small multiples."""
    left, right = st.columns([1, 1], gap="medium")
    palette = colors()
    version = (look.run.id, look.version) if look else None
    which = (palette.page, by, language())
    with left:
        figure = _once(look, ("progress", *which), lambda: progress(look, by, palette))
        live_plot(figure, key="live-progress", version=(version, which), alt=_progress_alt(look, by))
    with right:
        figure = _once(look, ("panels", *which), lambda: small_multiples(look, by, palette))
        live_plot(figure, key="live-panels", version=(version, which), alt=t("live.alt.panels"))
    if look is not None:
        every = " · " + t("live.point_means", every=look.every) if look.every > 1 else ""
        st.caption(literal(live_form.in_full(look.run.config)) + every)


def _once(look: Look | None, name: Any, make: Any) -> Any:
    return look.once(name, make) if look else make()


def progress(look: Look | None, by: str, palette: Any) -> Any:
    """Return the main curve of a run, or its empty axes."""
    return figures.progress(
        palette, look.curves if look else {}, look.evaluations if look else (), stamps(look, by), **_axis(look, by)
    )


def small_multiples(look: Look | None, by: str, palette: Any) -> Any:
    """Return the small panels of a run, or their empty axes."""
    return figures.panels(palette, look.curves if look else {}, stamps(look, by), **_axis(look, by))


def _axis(look: Look | None, by: str) -> dict[str, Any]:
    steps = look.run.steps if look else live_form.DEFAULT.steps
    total = float(steps) if by == "step" else None if look and look.step else 10.0
    return {"by": by, "total": total, "revision": f"{look.run.id if look else ''} {by}"}


def _progress_alt(look: Look | None, by: str) -> str:
    reward = look.last.get("reward") if look else None
    accuracy = look.evaluations[-1].get("accuracy") if look and look.evaluations else None
    return t("live.alt.progress", by=t(f"live.by.{by}"), reward=plain(reward), accuracy=plain(accuracy))


def stamps(look: Look | None, by: str) -> list[Stamp]:
    """Return the commands of a run where they took effect."""
    taken = [row for row in (look.commands if look else ()) if "refused" not in row]
    return [Stamp(float(row[by]), words) for row in taken for words in command_words(row)]


def command_words(row: dict[str, Any]) -> list[str]:
    """Return a command in a word or two, one for each setting it changed."""
    name, value = str(row.get("name")), row.get("value")
    if name == "set" and isinstance(value, dict):
        return [_set_words(setting, wish) for setting, wish in value.items()]
    return [t(f"live.cmd.{name}") if known(f"live.cmd.{name}") else re.sub(r"\W", " ", name)]


def _set_words(setting: str, wish: Any) -> str:
    if setting == "pace":
        return pace_label(pace_name(wish))
    name = t(f"live.cmd.{setting}") if known(f"live.cmd.{setting}") else setting
    return t("live.cmd.set", name=name, value=live_form.compact(float(wish)))


def pace_name(pace: float | None) -> str:
    """Return the name of a pace in steps a second, or of full speed."""
    return FULL if pace is None else short(pace)


def pace_label(name: str) -> str:
    """Return a pace in words, by its name."""
    if name == FULL:
        return t("live.pace_full")
    return t("live.pace_one") if name == "1" else t("live.pace_value", pace=name)
