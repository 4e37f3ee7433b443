"""Pictures of the Live page: the main curve, and the histogram of a step's ratios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.figures.base import FONT, Figure, Palette, Trace, axis, band, figure, layout, note, rule, safe
from app.numbers import plain, short
from app.words import t

Column = Sequence[float | None]

MAIN_HEIGHT = 500
MOST_DOTS = 60  # evaluations that are drawn as dots
MOST_STAMPS, MOST_NAMES = 24, 12  # commands marked on a chart, and named
LETTERS = 56  # letters that fit side by side above the main curve
REWARD, ACCURACY = "reward", "accuracy"


@dataclass(frozen=True)
class Stamp:
    """A command to mark on the charts: where (a step or a second), and what was asked for."""

    x: float
    text: str


# The curves


def progress(
    colors: Palette,
    curves: Mapping[str, Column],
    evaluations: Sequence[Mapping[str, Any]],
    stamps: Sequence[Stamp],
    *,
    by: str,
    total: float | None,
    revision: str,
) -> Figure:
    """Return sampled reward and held-out accuracy against `by` ("step" or "seconds").

    `total`: the right end of the axis, None for as far as the data go. A new `revision` forgets the reader's zoom.
    """
    reward = curves.get(REWARD, [])
    data = [
        curve(curves.get(by, []), reward, colors.up, t("live.sampled_reward"), width=2.8),
        _dots([e.get(by) for e in evaluations], [e.get(ACCURACY) for e in evaluations], colors),
    ]
    return figure(
        data,
        house(
            colors,
            height=MAIN_HEIGHT,
            margin={"l": 8, "r": 10, "t": 54, "b": 8},
            hovermode="x unified",
            dragmode="zoom",
            uirevision=revision,
            shapes=[stamp_line(colors, stamp) for stamp in stamps[-MOST_STAMPS:]],
            annotations=[_progress_title(colors, reward, evaluations), *_stamp_names(colors, stamps, total)],
            xaxis=x_axis(colors, by, total, fixedrange=False),
            yaxis=axis(colors, range=_reach(reward), zeroline=False, nticks=7),
        ),
    )


def _reach(reward: Column) -> list[float]:
    """Return the ends of the main axis: 0 to 1, and as far beyond as the rewards go."""
    values = [value for value in reward if value is not None]
    bottom, top = min([0.0, *values]), max([1.0, *values])
    return [bottom - 0.02 * top, 1.04 * top]


def _progress_title(colors: Palette, reward: Column, evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    newest = next((value for value in reversed(reward) if value is not None), None)
    accuracy = evaluations[-1].get(ACCURACY) if evaluations else None
    parts = ((t("live.sampled_reward"), newest, colors.up_text), (t("live.accuracy"), accuracy, colors.current))
    texts = [colored(f"{name} <b>{plain(value, 2)}</b>", color) for name, value, color in parts]
    return note("  ·  ".join(texts), 0, 1, colors.muted, size=16, xref="paper", yref="paper",
                xanchor="left", yanchor="bottom", yshift=24)  # fmt: skip


def _dots(x: Sequence[Any], y: Sequence[Any], colors: Palette) -> Trace:
    mode = "lines+markers" if len(x) <= MOST_DOTS else "lines"
    return {
        "type": "scatter", "mode": mode, "x": list(x), "y": list(y), "name": t("live.accuracy"),
        "line": {"color": colors.current, "width": 2, "dash": "dot"}, "marker": {"size": 7, "color": colors.current},
        "hovertemplate": "%{y:.3f}",
    }  # fmt: skip


def curve(x: Column, y: Column, color: str, name: str, *, width: float) -> Trace:
    """Return one curve; `name` is what hovering says."""
    return {
        "type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "name": name,
        "line": {"color": color, "width": width}, "hovertemplate": "%{y:.3f}",
    }  # fmt: skip


def x_axis(colors: Palette, by: str, total: float | None, **more: Any) -> dict[str, Any]:
    """Return the axis of steps or seconds; `total` is its right end, None for as far as the data go."""
    reach = {"range": [0, total]} if total else {"rangemode": "tozero"}
    return axis(colors, t(f"live.axis.{by}"), showgrid=False, zeroline=False, **reach, **more)


# Commands on the charts


def stamp_line(colors: Palette, stamp: Stamp, **where: Any) -> dict[str, Any]:
    """Return the line that marks a command."""
    return rule(colors, x0=stamp.x, x1=stamp.x, y0=0, y1=1, **{"xref": "x", "yref": "paper", **where})


def _stamp_names(colors: Palette, stamps: Sequence[Stamp], total: float | None) -> list[dict[str, Any]]:
    """Return the commands' names above the chart, one after the other; one that would not fit keeps its line only."""
    reach = total or max([stamp.x for stamp in stamps], default=1.0) or 1.0
    notes, free = [], 0.0
    for x, text in _together(stamps[-MOST_NAMES:], within=0.06 * reach):
        size = len(text) + 2
        start = min(x / reach * LETTERS, LETTERS - size)
        if start >= free:
            place = start / LETTERS * reach
            notes.append(note(safe(text), place, 1, colors.muted, yref="paper", yanchor="bottom", xanchor="left"))
            free = start + size
    return notes


def _together(stamps: Sequence[Stamp], *, within: float) -> list[tuple[float, str]]:
    """Return places and names; commands close to each other are named together, equal ones counted."""
    places: list[tuple[float, list[str]]] = []
    for stamp in stamps:
        if places and stamp.x - places[-1][0] < within:
            places[-1][1].append(stamp.text)
        else:
            places.append((stamp.x, [stamp.text]))
    return [(x, ", ".join(f"{s} ×{n}" if n > 1 else s for s, n in Counter(texts).items())[:38]) for x, texts in places]


# Ratios


def ratios(
    colors: Palette, edges: Sequence[float], counts: Sequence[float], *, low: float, high: float, height: int
) -> Figure:
    """Return how many tokens have which ratio, with the clip range [low, high] as a band behind it."""
    centres = [(a + b) / 2 for a, b in pairwise(edges)]
    bars = {
        "type": "bar", "x": centres, "y": [n or None for n in counts], "width": [b - a for a, b in pairwise(edges)],
        "marker": {"color": colors.current, "line": {"width": 0}},
        "hovertemplate": t("live.ratio_hover") + "<extra></extra>",
    }  # fmt: skip
    ends = [edges[0], edges[-1]] if edges else [0.5, 1.5]
    name = t("live.clip_range", low=short(low), high=short(high))
    shapes = [
        band(max(low, ends[0]), min(high, ends[1]), colors.band, colors.band_opacity),
        rule(colors, xref="x", yref="paper", x0=1, x1=1, y0=0, y1=1),
    ]
    return figure(
        [bars],
        house(
            colors,
            height=max(height, 220),
            bargap=0,
            margin={"l": 8, "r": 12, "t": 22, "b": 8},
            shapes=shapes,
            annotations=[note(name, 1, 1, colors.muted, yref="paper", yanchor="bottom")],
            xaxis=axis(colors, t("live.axis.ratio"), range=ends, showgrid=False, zeroline=False),
            yaxis=axis(colors, t("live.axis.tokens_log"), type="log", dtick=1, range=[-0.3, 3.3]),
        ),
    )


# Small things


def house(colors: Palette, *, height: int, **more: Any) -> dict[str, Any]:
    """Return the house layout, with a toolbar and hover boxes that are easy to read."""
    bar = {"bgcolor": "rgba(0,0,0,0)", "color": colors.muted, "activecolor": colors.ink}
    hover = {
        "bgcolor": colors.panel,
        "bordercolor": colors.zero,
        "font": {"family": FONT, "size": 13, "color": colors.ink},
    }
    return layout(colors, height=height, modebar=bar, hoverlabel=hover, **more)


def tick_font(colors: Palette, size: int) -> dict[str, Any]:
    """Return the font of an axis."""
    return {"size": size, "color": colors.muted}


def colored(text: str, color: str) -> str:
    """Return text for a label in a colour."""
    return f'<span style="color:{color}">{text}</span>'


def text_color(colors: Palette, name: str) -> str:
    """Return the form of a palette's colour that is dark enough for text."""
    return getattr(colors, f"{name}_text", getattr(colors, name))


def faded(color: str) -> str:
    """Return a colour for filling an area."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.55)"
