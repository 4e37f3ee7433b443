"""Pictures of the Ratio and clip page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.figures.base import Figure, Palette, axis, band, figure, floats, layout, line, note, rule, safe
from app.lens import Curve
from app.numbers import plain, short, signed
from app.words import t


@dataclass(frozen=True)
class Points:
    """Tokens as points on the curves: parallel lists, one entry a token."""

    ratio: np.ndarray
    objective: np.ndarray
    slope: np.ndarray
    advantage: np.ndarray
    saturated: np.ndarray
    names: Sequence[str]


@dataclass(frozen=True)
class Probe:
    """The point under the slider."""

    ratio: float
    objective: float
    slope: float
    advantage: float


def curves(
    colors: Palette, lines: Sequence[Curve], points: Points, probe: Probe, *, clip: Mapping[str, Any], high: float
) -> Figure:
    """Return objective (above) and slope (below) against the ratio, with the group's tokens on them."""
    data: list[dict] = []
    for curve in lines:
        own = curve.advantage == probe.advantage
        style = {"width": 3.5 if own else 1.5, "hoverinfo": "skip"}
        color = colors.sign(curve.advantage)
        data.append(line(curve.ratio, curve.objective, color, **style))
        data.append(line(curve.ratio, curve.slope, color, yaxis="y2", **style))
    data += [tokens(colors, points, points.objective, "y"), tokens(colors, points, points.slope, "y2")]
    data += [_probe(colors, probe, probe.objective, "y"), _probe(colors, probe, probe.slope, "y2")]
    low_edge, high_edge = 1 - clip["epsilon_low"], 1 + clip["epsilon_high"]
    return figure(
        data,
        layout(
            colors,
            height=470,
            margin={"l": 8, "r": 70, "t": 26, "b": 8},
            shapes=_clip_shapes(colors, low_edge, high_edge, clip["delta"], probe.ratio),
            annotations=[
                *_edges(colors, low_edge, high_edge, clip["delta"], high),
                *_curve_names(colors, lines, probe),
                _key(colors),
            ],
            xaxis=axis(colors, t("axis.ratio"), range=[0, high], zeroline=False, anchor="y2"),
            yaxis=axis(colors, t("axis.objective"), domain=[0.44, 1.0]),
            yaxis2=axis(colors, t("axis.slope"), domain=[0.0, 0.34]),
        ),
    )


def _curve_names(colors: Palette, lines: Sequence[Curve], probe: Probe) -> list[dict]:
    """Return the advantage beside the right end of the probe's curve, and of the outermost one with the other sign."""
    others = [curve for curve in lines if curve.advantage * probe.advantage < 0]
    own = [curve for curve in lines if curve.advantage == probe.advantage]
    place = {"xref": "paper", "xanchor": "left", "xshift": 4}
    return [
        note(f"A {signed(curve.advantage, 2)}", 1, float(curve.objective[-1]), colors.sign_text(curve.advantage),
             size=13, **place)
        for curve in [*own, *sorted(others, key=lambda curve: -abs(curve.advantage))[:1]]
    ]  # fmt: skip


def _key(colors: Palette) -> dict:
    """Return what filled and hollow points are, in the gap between the two pictures."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "middle", "bgcolor": colors.page}
    return note(t("chart.hollow"), 0, 0.39, colors.muted, **place)


def _clip_shapes(colors: Palette, low: float, high: float, delta: float | None, at: float) -> list[dict]:
    upright = {"yref": "paper", "y0": 0, "y1": 1}
    shapes = [band(low, high, colors.band, colors.band_opacity), rule(colors, x0=at, x1=at, **upright)]
    if delta is not None:
        shapes.append(rule(colors, x0=delta, x1=delta, **upright))
    return shapes


def _edges(colors: Palette, low: float, high: float, delta: float | None, end: float) -> list[dict]:
    place = {"yref": "paper", "yanchor": "bottom"}
    narrow = high - low < 0.16 * end
    notes = [
        note(short(low), low, 1.0, colors.muted, xanchor="right" if narrow else "center", **place),
        note(short(high), high, 1.0, colors.muted, xanchor="left" if narrow else "center", **place),
    ]
    if delta is not None and delta > high:
        notes.append(note(t("chart.delta", value=short(delta)), delta, 1.0, colors.muted, **place))
    return notes


def tokens(colors: Palette, points: Points, y: np.ndarray, yaxis: str) -> dict:
    """Return the group's tokens as points: filled where they have a gradient, hollow where they are saturated."""
    fill = [colors.page if s else colors.sign(a) for s, a in zip(points.saturated, points.advantage, strict=True)]
    edge = [colors.sign(a) for a in points.advantage]
    return {
        "type": "scatter", "mode": "markers", "x": floats(points.ratio), "y": floats(y), "yaxis": yaxis,
        "marker": {"size": 9, "color": fill, "line": {"width": 2, "color": edge}, "opacity": 0.95},
        "customdata": [[safe(n), plain(r), signed(a)] for n, r, a in
                       zip(points.names, points.ratio, points.advantage, strict=True)],
        "hovertemplate": t("hover.point"), "cliponaxis": False,
    }  # fmt: skip


def _probe(colors: Palette, probe: Probe, y: float, yaxis: str) -> dict:
    return {
        "type": "scatter", "mode": "markers+text", "x": [float(probe.ratio)], "y": [float(y)], "yaxis": yaxis,
        "marker": {"size": 15, "color": colors.sign(probe.advantage), "line": {"width": 3, "color": colors.ink}},
        "text": [signed(y)], "textposition": "top center", "textfont": {"size": 15, "color": colors.ink},
        "hoverinfo": "skip", "cliponaxis": False,
    }  # fmt: skip


def levels(colors: Palette, rows: Sequence[Mapping[str, Any]], *, clip: Mapping[str, Any], level: str) -> Figure:
    """Return each completion's token, sequence and trajectory ratios on one logarithmic line.

    `rows`: {"name", "advantage", "token": values, "sequence": value, "trajectory": value}, one for each completion.
    """
    data = [_ratios(colors, rows, kind, chosen=kind == level) for kind in ("token", "sequence", "trajectory")]
    values = [x for trace in data for x in trace["x"]]
    lowest, highest = min([0.5, *values]), max([2.0, *values])
    edges = (max(1 - clip["epsilon_low"], lowest * 0.8), 1 + clip["epsilon_high"])
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return figure(
        data,
        layout(
            colors, height=130 + (34 if len(rows) <= 12 else 18) * len(rows),
            margin={"l": 8, "r": 12, "t": 30, "b": 8},
            annotations=[note(t("chart.symbols"), 0, 1, colors.muted, size=13, **place)],
            shapes=[band(*edges, colors.band, colors.band_opacity)],
            xaxis=axis(colors, t("axis.ratio_log"), type="log", zeroline=False,
                       range=[float(np.log10(lowest * 0.85)), float(np.log10(highest * 1.18))],
                       **_labels(lowest, highest)),
            yaxis=axis(colors, t("axis.completion"), type="category", autorange="reversed"),
        ),
    )  # fmt: skip


SYMBOLS = {"token": ("circle", 8), "sequence": ("diamond", 15), "trajectory": ("square", 12)}


def _ratios(colors: Palette, rows: Sequence[Mapping[str, Any]], kind: str, *, chosen: bool) -> dict:
    """Return the completions' ratios of one kind; those that the objective reads stand out."""
    symbol, size = SYMBOLS[kind]
    many = [(row, float(v)) for row in rows for v in np.atleast_1d(row[kind])]
    return {
        "type": "scatter", "mode": "markers", "x": [v for _, v in many], "y": [row["name"] for row, _ in many],
        "hovertemplate": t(f"hover.{kind}"),
        "marker": {
            "size": size, "symbol": symbol, "color": [colors.sign(row["advantage"]) for row, _ in many],
            "opacity": 1.0 if chosen else 0.45, "line": {"width": 2 if chosen else 0, "color": colors.ink},
        },
    }  # fmt: skip


def _labels(low: float, high: float) -> dict[str, Any]:
    values = _ticks(low, high)
    return {"tickvals": values, "ticktext": [short(v) for v in values]}


def _ticks(low: float, high: float) -> list[float]:
    if high / low < 50:
        return [v for v in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if low * 0.8 <= v <= high * 1.2]
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    return [10.0**k for k in range(first, last + 1, max(1, (last - first) // 6))]


def drift(
    colors: Palette, lengths: np.ndarray, trajectory: np.ndarray, *, token: float, at: tuple[int, float]
) -> Figure:
    """Return how a small ratio at every token adds up: the trajectory ratio against the length."""
    low, high = min(float(trajectory.min()), token, 0.8), max(float(trajectory.max()), token, 1.25)
    room = max(0.2, 0.12 * float(np.log10(high / low)))
    here = {"size": 13, "color": colors.ink, "line": {"width": 2, "color": colors.page}}
    return figure(
        [
            line(lengths, trajectory, colors.ink, width=3, hovertemplate=t("hover.drift")),
            line(lengths, np.full(len(lengths), token), colors.old, width=3, hoverinfo="skip"),
            {"type": "scatter", "mode": "markers", "x": [at[0]], "y": [float(at[1])], "hoverinfo": "skip",
             "cliponaxis": False, "marker": here},
        ],
        layout(
            colors, height=250, annotations=_drift_names(colors, lengths, token, at),
            xaxis=axis(colors, t("axis.tokens"), rangemode="tozero", zeroline=False),
            yaxis=axis(colors, t("axis.ratio_log"), type="log", **_labels(low, high),
                       range=[float(np.log10(low)) - room, float(np.log10(high)) + room]),
        ),
    )  # fmt: skip


def _drift_names(colors: Palette, lengths: np.ndarray, token: float, at: tuple[int, float]) -> list[dict]:
    """Return the product at the slider's length, and the ratio of every token, which is also the geometric mean."""
    side, shift = ("right", -12) if at[0] > 0.5 * lengths[-1] else ("left", 12)
    falling = at[1] < 1
    return [
        note(t("chart.trajectory", value=plain(at[1], 2)), at[0], float(np.log10(at[1])), colors.ink, size=14,
             xanchor=side, xshift=shift, yshift=-12 if falling else 12),
        note(t("chart.sequence", value=short(token)), float(lengths[-1]), float(np.log10(token)), colors.muted, size=13,
             xanchor="right", yshift=12),
    ]  # fmt: skip


def graph(colors: Palette, change: np.ndarray, frozen: np.ndarray, *, advantage: float) -> Figure:
    """Return the objective against a change of logp, with a frozen old policy and with one that moves along."""
    color, text = colors.sign(advantage), colors.sign_text(advantage)
    here = {"size": 13, "color": colors.ink}
    return figure(
        [
            line(change, np.full(len(change), advantage), colors.old, width=3, hoverinfo="skip"),
            line(change, frozen, color, width=3.5, hoverinfo="skip"),
            {"type": "scatter", "mode": "markers", "x": [0.0], "y": [float(advantage)], "marker": here,
             "hoverinfo": "skip"},
        ],
        layout(
            colors,
            height=380,
            annotations=[
                note(t("chart.frozen"), change[-1], frozen[-1], text, size=14, xanchor="right", yshift=14),
                note(t("chart.shared"), float(change[0]), advantage, colors.muted, size=14, xanchor="left", yshift=14),
            ],
            xaxis=axis(colors, t("axis.change"), zeroline=True),
            yaxis=axis(colors, t("axis.objective"), zeroline=False),
        ),
    )  # fmt: skip
