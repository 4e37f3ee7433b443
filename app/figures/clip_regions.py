"""Pictures of the Ratio and clip page: the clip's four quadrants, and min beside max."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, band, figure, floats, layout, line, note, rule
from app.figures.clip import Points, tokens
from app.lens import Curve
from app.numbers import short, signed
from app.words import t


@dataclass(frozen=True)
class Region:
    """One stretch of the ratio axis for one sign of the advantage: where, open or flat, and how many tokens."""

    start: float
    end: float
    kind: str  # "open", "bounded" (open, but not without an end), "flat" or "inside"
    count: int


@dataclass(frozen=True)
class Row:
    """One sign of the advantage: the curve for A = +1 or -1, its regions, tokens scaled to it, the probe."""

    sign: str
    curve: Curve
    regions: Sequence[Region]
    points: Points
    probe: tuple[float, float]  # objective and slope at the probe's ratio


def quadrants(colors: Palette, rows: Sequence[Row], *, clip: dict[str, Any], ratio: float, high: float) -> Figure:
    """Return A > 0 above and A < 0 below, each side of the interval named with what it does and the tokens in it."""
    data: list[Trace] = []
    notes: list[dict[str, Any]] = []
    low_edge, high_edge = 1 - clip["epsilon_low"], 1 + clip["epsilon_high"]
    for row, yaxis in zip(rows, ("y", "y2"), strict=True):
        color = colors.sign(row.curve.advantage)
        data.append(line(row.curve.ratio, row.curve.objective, color, width=3.5, yaxis=yaxis, hoverinfo="skip"))
        data += [_flat(colors, row, region, yaxis) for region in row.regions if region.kind == "flat"]
        data.append(tokens(colors, row.points, row.points.objective, yaxis))
        data.append(_probe(colors, ratio, row, yaxis, high))
        notes += [_said(colors, row, region, yaxis) for region in row.regions]
    upright = {"yref": "paper", "y0": 0, "y1": 1}
    return figure(
        data,
        layout(
            colors,
            height=500,
            margin={"l": 8, "r": 16, "t": 26, "b": 8},
            shapes=[band(low_edge, high_edge, colors.band, colors.band_opacity),
                    rule(colors, x0=ratio, x1=ratio, **upright)],
            annotations=[*notes, *_edges(colors, low_edge, high_edge, high)],
            xaxis=axis(colors, t("axis.ratio"), range=[0, high], zeroline=False, anchor="y2"),
            yaxis=axis(colors, t("axis.per_advantage_up"), domain=[0.53, 1.0], range=_range(rows[0], high)),
            yaxis2=axis(colors, t("axis.per_advantage_down"), domain=[0.0, 0.47], range=_range(rows[1], high)),
        ),
    )  # fmt: skip


def _range(row: Row, high: float) -> list[float]:
    """Return a range with room for the words: above the rising curve, below nothing is drawn."""
    values = row.curve.objective
    low, top = float(values.min()), float(values.max())
    size = max(top - low, 0.1)
    return [low - 0.12 * size, max(top, 0.0) + 0.46 * size]


def _flat(colors: Palette, row: Row, region: Region, yaxis: str) -> Trace:
    inside = (row.curve.ratio >= region.start) & (row.curve.ratio <= region.end)
    own = row.curve.ratio[inside], row.curve.objective[inside]
    return line(*own, colors.old, width=6, yaxis=yaxis, hoverinfo="skip")


def _probe(colors: Palette, ratio: float, row: Row, yaxis: str, high: float) -> Trace:
    """Return the slider's point with its slope in words below it, on the side that the curve does not run to."""
    value, slope = row.probe
    left = ratio > 0.8 * high if row.sign == "up" else ratio > 0.2 * high
    said = "chart.slope_none" if slope == 0 else "chart.slope_up" if slope > 0 else "chart.slope_down"
    return {
        "type": "scatter", "mode": "markers+text", "x": [float(ratio)], "y": [float(value)], "yaxis": yaxis,
        "marker": {"size": 14, "color": colors.page if slope == 0 else colors.sign(slope),
                   "line": {"width": 3, "color": colors.ink}},
        "text": [t(said)], "textposition": "bottom left" if left else "bottom right",
        "textfont": {"size": 13, "color": colors.ink}, "hoverinfo": "skip", "cliponaxis": False,
    }  # fmt: skip


def _said(colors: Palette, row: Row, region: Region, yaxis: str) -> dict[str, Any]:
    ink = colors.sign_text(row.curve.advantage) if region.kind in ("open", "bounded") else colors.muted
    key = f"chart.region_{region.kind}" if region.kind == "inside" else f"chart.region_{row.sign}_{region.kind}"
    tokens_ = t("chart.tokens_one" if region.count == 1 else "chart.tokens_many", n=region.count)
    text = f"{t(key)}<br>{tokens_}"
    middle = (region.start + region.end) / 2
    return note(text, middle, 1, ink, size=12, yref=f"{yaxis} domain", yanchor="top", yshift=-4)


def _edges(colors: Palette, low: float, high: float, end: float) -> list[dict[str, Any]]:
    place = {"yref": "paper", "yanchor": "bottom"}
    narrow = high - low < 0.16 * end
    return [
        note(short(low), low, 1.0, colors.muted, xanchor="right" if narrow else "center", **place),
        note(short(high), high, 1.0, colors.muted, xanchor="left" if narrow else "center", **place),
    ]


@dataclass(frozen=True)
class Side:
    """One advantage under min (right) and under max (wrong): curves, and both at the probe's ratio."""

    right: Curve
    wrong: Curve
    at_right: tuple[float, float]  # objective, slope
    at_wrong: tuple[float, float]


def min_and_max(colors: Palette, sides: Sequence[Side], *, clip: dict[str, Any], ratio: float, high: float) -> Figure:
    """Return two columns, A > 0 and A < 0: objective above, slope below; min solid, max dashed."""
    data: list[Trace] = []
    notes: list[dict[str, Any]] = [_versions(colors)]
    shapes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for side, column in zip(sides, COLUMNS, strict=True):
        data += [*_versions_of(colors, side, column), *_marks(colors, side, column, ratio, high)]
        notes.append(_sign(colors, side, column))
        shapes += [
            {**band(1 - clip["epsilon_low"], 1 + clip["epsilon_high"], colors.band, colors.band_opacity),
             "xref": column.x},
            rule(colors, xref=column.x, yref="paper", x0=ratio, x1=ratio, y0=0, y1=1),
        ]  # fmt: skip
        axes |= _column_axes(colors, side, column, high)
    margin = {"l": 8, "r": 12, "t": 52, "b": 8}
    return figure(data, layout(colors, height=510, margin=margin, shapes=shapes, annotations=notes, **axes))


@dataclass(frozen=True)
class Column:
    """Where one sign of the advantage is drawn: Plotly's names of its axes, and its part of the width."""

    x: str
    top: str
    low: str
    domain: tuple[float, float]


COLUMNS = (Column("x", "y", "y3", (0.0, 0.46)), Column("x2", "y2", "y4", (0.54, 1.0)))


def _versions(colors: Palette) -> dict[str, Any]:
    """Return which line is which version."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "right", "yanchor": "bottom", "yshift": 26}
    return note(f"━━ {t('chart.min_right')}    ╍╍ {t('chart.max_wrong')}", 1, 1, colors.muted, size=13, **place)


def _sign(colors: Palette, side: Side, column: Column) -> dict[str, Any]:
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 6}
    text = f"<b>A = {signed(side.right.advantage, 2)}</b>"
    return note(text, column.domain[0], 1, colors.sign_text(side.right.advantage), size=14, **place)


def _versions_of(colors: Palette, side: Side, column: Column) -> list[Trace]:
    """Return objective and slope of both versions."""
    data: list[Trace] = []
    versions = ((side.right, "solid", colors.sign(side.right.advantage), 3.5), (side.wrong, "dash", colors.muted, 2.5))
    for curve, style, tint, width in versions:
        more: dict[str, Any] = {"dash": style, "width": width, "xaxis": column.x, "hoverinfo": "skip"}
        data.append(line(curve.ratio, curve.objective, tint, yaxis=column.top, **more))
        data.append(line(curve.ratio, curve.slope, tint, yaxis=column.low, **more))
    return data


def _column_axes(colors: Palette, side: Side, column: Column, high: float) -> dict[str, Any]:
    """Return the column's axes; only the left one's are named, the right one's are the same quantities."""
    objective, slope = (t("axis.objective"), t("axis.slope")) if column.x == "x" else ("", "")
    upper = {"domain": [0.46, 1.0], "anchor": column.x, "range": _both(side, "objective")}
    lower = {"domain": [0.0, 0.36], "anchor": column.x, "range": _both(side, "slope")}
    across = {"range": [0, high], "domain": list(column.domain), "anchor": column.low, "zeroline": False}
    return {
        f"{column.x[0]}axis{column.x[1:]}": axis(colors, t("axis.ratio"), **across),
        f"yaxis{column.top[1:]}": axis(colors, objective, **upper),
        f"yaxis{column.low[1:]}": axis(colors, slope, **lower),
    }


def _both(side: Side, name: str) -> list[float]:
    values = np.concatenate([getattr(side.right, name), getattr(side.wrong, name), [0.0]])
    low, high = float(values.min()), float(values.max())
    pad = 0.22 * max(high - low, 0.1)
    return [low - pad, high + pad]


def _marks(colors: Palette, side: Side, column: Column, ratio: float, high: float) -> list[Trace]:
    """Return both versions at the probe's ratio; where they agree only the right one is written out."""
    marks = []
    for k, yaxis in ((0, column.top), (1, column.low)):
        right, wrong = side.at_right[k], side.at_wrong[k]
        agree = abs(right - wrong) < 1e-12
        tint = colors.sign(side.right.advantage)
        for value, fill, above in ((wrong, colors.page, wrong > right), (right, tint, wrong <= right)):
            text = "" if agree and fill == colors.page else signed(value, 2)
            place = f"{'top' if above else 'bottom'} {_free_side(side, above, ratio / high)}"
            marks.append(
                {"type": "scatter", "mode": "markers+text", "x": [float(ratio)], "y": floats([value]),
                 "xaxis": column.x, "yaxis": yaxis, "text": [text], "textposition": place,
                 "marker": {"size": 12, "color": fill, "line": {"width": 2.5, "color": colors.ink}},
                 "textfont": {"size": 13, "color": colors.ink}, "hoverinfo": "skip", "cliponaxis": False}
            )  # fmt: skip
    return marks


def _free_side(side: Side, above: bool, share: float) -> str:
    """Return the side of a point where no curve runs: a rising curve leaves room above on the left, below on the right.

    `share`: how far across the picture the point lies; at its edges there is room on one side only.
    """
    if not 0.15 < share < 0.85:
        return "right" if share < 0.5 else "left"
    return "left" if above == (side.right.advantage > 0) else "right"
