"""The four quadrants: sign of the advantage by side of the interval, and the group's tokens in each."""

from __future__ import annotations

import streamlit as st

from app import lens as lenses
from app import snippets_clip, widgets
from app.explain import clip as curve
from app.explain import clip_regions as explain
from app.figures import clip_regions as figures
from app.lens import Lens
from app.numbers import plain, short
from app.views.clip import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.clip_regions import ClipRegions


def draw(lens: Lens) -> None:
    """Draw both signs with their regions."""
    found = explain.regions(lens)
    clip, ratio = lenses.clip_range(lens.values), float(lens.values["r"])
    high = curve.widest(lens, curve.probe(lens))
    figure = figures.quadrants(widgets.colors(), explain.rows(lens, found, high), clip=clip, ratio=ratio, high=high)
    widgets.picture(figure, "quadrants", alt=t("alt.quadrants"))
    keys = (("up", "below"), ("up", "above"), ("down", "below"), ("down", "above"))
    widgets.readouts([Readout(f"quadrant_{sign}_{side}", _counted(found, (sign, side))) for sign, side in keys])
    widgets.formula(explain.quadrant_lines(lens))
    section, numbers = notice(lens, found)
    widgets.notice("clip", section, **numbers)
    widgets.check_yourself("quadrants", lambda: question(lens))
    widgets.take_away("quadrants", "quadrants", lambda: snippets_clip.regions(lens), lambda: table(found))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    live = st.container()
    widgets.choice("level")
    with live:
        widgets.controls("clip-quadrants", [slider("r"), *common.clip_rows()])


def _counted(found: ClipRegions, key: tuple[str, str]) -> str:
    count, flat = found.counts[key], found.saturated[key]
    return t("clip.count", n=count, flat=flat)


def notice(lens: Lens, found: ClipRegions) -> tuple[str, dict[str, str]]:
    """Return what to notice, with the group's counts."""
    flat, total = sum(found.saturated.values()), sum(found.counts.values())
    outside = sum(n for (_, side), n in found.counts.items() if side != "inside")
    numbers = {"flat": str(flat), "outside": str(outside), "total": str(total), "silent": str(found.silent)}
    if total == 0:
        return "quadrants-silent", numbers
    if outside == 0:
        return "quadrants-inside", numbers
    return ("quadrants" if lens.values["delta"] is None else "quadrants-delta"), {
        **numbers, "delta": short(lens.values["delta"]),
    }  # fmt: skip


def question(lens: Lens) -> Question:
    """Ask for the slope on the side that looks clipped and is not."""
    _, slope = lenses.at_ratio(0.5, 2.0, lens.values)
    return Question(prose("clip", "ask-quadrants"), slope, prose("clip", "worked-quadrants", answer=plain(slope, 2)))


def table(found: ClipRegions) -> Table:
    """Return the counts as data."""
    rows = [(sign, side, n, found.saturated[sign, side]) for (sign, side), n in found.counts.items()]
    return Table(("advantage", "side of the interval", "tokens", "without gradient"), rows)
