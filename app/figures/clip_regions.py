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
        data.append(_probe(colors, ratio, row, yaxis))
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


def _probe(colors: Palette, ratio: float, row: Row, yaxis: str) -> Trace:
    value, slope = row.probe
    said = "chart.slope_none" if slope == 0 else "chart.slope_up" if slope > 0 else "chart.slope_down"
    return {
        "type": "scatter", "mode": "markers+text", "x": [float(ratio)], "y": [float(value)], "yaxis": yaxis,
        "marker": {"size": 14, "color": colors.page if slope == 0 else colors.sign(slope),
                   "line": {"width": 3, "color": colors.ink}},
        "text": [t(said)], "textposition": "bottom center",
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
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    shapes = []
    for k, side in enumerate(sides):
        x, top, low = ("x", "y", "y3") if k == 0 else ("x2", "y2", "y4")
        color = colors.sign(side.right.advantage)
        domain = [0.0, 0.46] if k == 0 else [0.54, 1.0]
        for curve, style, tint in ((side.right, "solid", color), (side.wrong, "dash", colors.muted)):
            width = 3.5 if style == "solid" else 2.5
            more: dict[str, Any] = {"dash": style, "width": width, "xaxis": x, "hoverinfo": "skip"}
            data.append(line(curve.ratio, curve.objective, tint, yaxis=top, **more))
            data.append(line(curve.ratio, curve.slope, tint, yaxis=low, **more))
        data += _marks(colors, side, color, ratio, (x, top, low))
        notes.append(
            note(f"<b>A = {signed(side.right.advantage, 2)}</b>", domain[0], 1, colors.sign_text(side.right.advantage),
                 size=14, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=6)
        )  # fmt: skip
        shapes += [
            {**band(1 - clip["epsilon_low"], 1 + clip["epsilon_high"], colors.band, colors.band_opacity), "xref": x},
            rule(colors, xref=x, yref="paper", x0=ratio, x1=ratio, y0=0, y1=1),
        ]
        tail = "" if k == 0 else "2"
        axes[f"xaxis{tail}"] = axis(colors, t("axis.ratio"), range=[0, high], domain=domain, anchor=low, zeroline=False)
        names = (t("axis.objective"), t("axis.slope")) if k == 0 else ("", "")
        axes[f"yaxis{tail}"] = axis(colors, names[0], domain=[0.46, 1.0], anchor=x, range=_both(side, "objective"))
        axes["yaxis3" if k == 0 else "yaxis4"] = axis(
            colors, names[1], domain=[0.0, 0.36], anchor=x, range=_both(side, "slope")
        )
    said = f"━━ {t('chart.min_right')}    ╍╍ {t('chart.max_wrong')}"
    notes.append(
        note(
            said, 1, 1, colors.muted, size=13, xref="paper", yref="paper", xanchor="right", yanchor="bottom", yshift=26
        )
    )
    margin = {"l": 8, "r": 12, "t": 52, "b": 8}
    return figure(data, layout(colors, height=510, margin=margin, shapes=shapes, annotations=notes, **axes))


def _both(side: Side, name: str) -> list[float]:
    values = np.concatenate([getattr(side.right, name), getattr(side.wrong, name), [0.0]])
    low, high = float(values.min()), float(values.max())
    pad = 0.22 * max(high - low, 0.1)
    return [low - pad, high + pad]


def _marks(colors: Palette, side: Side, color: str, ratio: float, axes: tuple[str, str, str]) -> list[Trace]:
    """Return both versions at the probe's ratio; where they agree only the right one is written out."""
    x, top, low = axes
    marks = []
    for k, yaxis in ((0, top), (1, low)):
        right, wrong = side.at_right[k], side.at_wrong[k]
        agree = abs(right - wrong) < 1e-12
        for value, tint, place in ((wrong, colors.page, wrong > right), (right, color, wrong <= right)):
            text = "" if agree and value is wrong and tint == colors.page else signed(value, 2)
            marks.append(
                {"type": "scatter", "mode": "markers+text", "x": [float(ratio)], "y": floats([value]), "xaxis": x,
                 "yaxis": yaxis, "marker": {"size": 12, "color": tint, "line": {"width": 2.5, "color": colors.ink}},
                 "text": [text], "textposition": "top center" if place else "bottom center",
                 "textfont": {"size": 13, "color": colors.ink}, "hoverinfo": "skip", "cliponaxis": False}
            )  # fmt: skip
    return marks
