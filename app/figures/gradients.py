"""Pictures of the Gradients page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, line, note, rule, safe
from app.numbers import plain, signed
from app.words import t

HIGH = math.sqrt(3.0) / 2.0
COLUMNS = 2  # of small charts


@dataclass(frozen=True)
class Facet:
    """One estimator beside the true gradient: its name, a line of numbers, the expected gradient by coordinate."""

    title: str
    facts: str
    expected: np.ndarray


def facets(colors: Palette, true: np.ndarray, rows: Sequence[Facet], names: Sequence[str], *, scaled: bool) -> Figure:
    """Return one small chart for each estimator: its expected gradient (filled) on the true one (outlined).

    `scaled`: every expected gradient is brought to the true one's length, so that only directions are compared.
    """
    lines = math.ceil(len(rows) / COLUMNS)
    size = float(np.linalg.norm(true))
    values = [_scaled(row.expected, size) if scaled else row.expected for row in rows]
    reach = _reach([true, *values])
    data: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for k, (row, own) in enumerate(zip(rows, values, strict=True)):
        suffix, x, y = _place(k, lines)
        axes |= _facet_axes(colors, row, names, suffix, x, y, reach)
        data += [_outlined(colors, names, true, suffix), _filled(colors, names, own, row, suffix)]
        notes += _heading(colors, row, x[0], y[1])
    return figure(
        data,
        layout(
            colors, height=246 * lines + 16, barmode="overlay", bargap=0.25, annotations=notes,
            margin={"l": 8, "r": 8, "t": 6, "b": 4}, **axes,
        ),
    )  # fmt: skip


def _place(k: int, lines: int) -> tuple[str, list[float], list[float]]:
    """Return the suffix of a facet's axes and where it stands, from left to right and from bottom to top."""
    left, bottom = 0.54 * (k % COLUMNS), 1.0 - (k // COLUMNS + 1) / lines
    return "" if k == 0 else str(k + 1), [left, left + 0.46], [bottom + 0.19 / lines, bottom + 0.72 / lines]


def _facet_axes(
    colors: Palette, row: Facet, names: Sequence[str], suffix: str, x: list[float], y: list[float], reach: list[float]
) -> dict[str, Any]:
    ticks = {"tickvals": list(range(len(names))), "ticktext": _ticks(names, row.expected)}
    return {
        f"xaxis{suffix}": axis(colors, domain=x, anchor=f"y{suffix}", type="category", showgrid=False,
                               tickfont={"size": 13, "color": colors.ink}, **ticks),
        f"yaxis{suffix}": axis(colors, t("axis.grad.component") if x[0] == 0 else "", domain=y, anchor=f"x{suffix}",
                               range=reach, nticks=4, showticklabels=x[0] == 0, exponentformat="power"),
    }  # fmt: skip


def _heading(colors: Palette, row: Facet, x: float, y: float) -> list[dict[str, Any]]:
    place = {"xref": "paper", "yref": "paper", "x": x, "y": y, "xanchor": "left", "yanchor": "bottom", "align": "left"}
    title = {**note(f"<b>{safe(row.title, 60)}</b>", 0, 0, colors.ink, size=14), **place, "yshift": 40}
    facts = safe(row.facts, 80).replace("⏎", "<br>")
    return [title, {**note(facts, 0, 0, colors.muted, size=12), **place, "yshift": 5}]


def _scaled(values: np.ndarray, size: float) -> np.ndarray:
    own = float(np.linalg.norm(values))
    return values * (size / own) if own > 1e-12 else values


def _reach(series: Sequence[np.ndarray]) -> list[float]:
    values = np.concatenate([np.zeros(1), *series])
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:  # nothing but zeros: an axis of their rounding errors would say otherwise
        return [-1.0, 1.0]
    pad = 0.2 * (high - low)
    return [low - pad, high + pad]


def _outlined(colors: Palette, names: Sequence[str], values: np.ndarray, suffix: str) -> dict[str, Any]:
    return {
        "type": "bar", "x": list(names), "y": floats(values), "xaxis": f"x{suffix}", "yaxis": f"y{suffix}",
        "marker": {"color": "rgba(0,0,0,0)", "line": {"color": colors.ink, "width": 1.6}}, "width": 0.78,
        "customdata": [signed(v, 4) for v in values], "hovertemplate": t("hover.grad.true"),
    }  # fmt: skip


def _filled(colors: Palette, names: Sequence[str], values: np.ndarray, row: Facet, suffix: str) -> dict[str, Any]:
    return {
        "type": "bar", "x": list(names), "y": floats(values), "xaxis": f"x{suffix}", "yaxis": f"y{suffix}",
        "marker": {"color": [colors.sign(v) for v in values]}, "width": 0.5,
        "customdata": [signed(v, 4) for v in row.expected], "hovertemplate": t("hover.grad.expected"),
    }  # fmt: skip


def _ticks(names: Sequence[str], values: np.ndarray) -> list[str]:
    """Return what stands under each bar: the coordinate's name, and its value where there is room."""
    if len(names) > 4:
        return [safe(name) for name in names]
    return [f"{safe(name)}<br><b>{signed(value)}</b>" for name, value in zip(names, values, strict=True)]


def corner(probs: Sequence[float]) -> tuple[float, float]:
    """Return where a distribution over three actions lies in the triangle: A left, B right, C on top."""
    return probs[1] + probs[2] / 2.0, probs[2] * HIGH


@dataclass(frozen=True)
class Arrow:
    """A direction on the simplex: from one distribution to another, both over three actions."""

    start: tuple[float, ...]
    end: tuple[float, ...]


def simplex(
    colors: Palette,
    *,
    corners: Sequence[str],
    field: Sequence[tuple[Arrow, Arrow]],
    paths: tuple[np.ndarray, np.ndarray],
    here: tuple[Arrow, Arrow],
    name: str,
) -> Figure:
    """Return the triangle of all policies over three actions, with two ways of climbing in it.

    Everything comes in pairs: what the true gradient does, and what the estimator does on average. `field`: arrows all
    over the triangle; `paths`: (steps, 3) each, from the current policy on; `here`: the arrows at the current policy.
    """
    tints = (colors.ink, colors.up_text)
    outline = [corner(p) for p in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0))]
    shapes = [_shaft(arrow, tint, 1.4, 0.55) for pair in field for arrow, tint in zip(pair, tints, strict=True)]
    notes = [_big(arrow, tint) for arrow, tint in zip(here, tints, strict=True) if arrow.start != arrow.end]
    notes += [*_corner_notes(colors, corners), *_ways(tints, (t("chart.grad.true"), safe(name, 44)))]
    data = [line([p[0] for p in outline], [p[1] for p in outline], colors.zero, width=1.5, hoverinfo="skip")]
    data += [_heads([pair[k] for pair in field], tint) for k, tint in enumerate(tints) if field]
    data += [_climb(path, *style) for path, *style in zip(paths, tints, ("solid", "dot"), strict=True)]
    return figure(
        [*data, _policy(colors, here[0].start)],
        layout(
            colors, height=500, shapes=shapes, annotations=notes, margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis=axis(colors, visible=False, range=[-0.1, 1.1]),
            yaxis=axis(colors, visible=False, range=[-0.08, 0.94], scaleanchor="x", scaleratio=1),
        ),
    )  # fmt: skip


def _climb(path: np.ndarray, tint: str, dash: str) -> dict[str, Any]:
    points = [corner(p) for p in path]
    return line([p[0] for p in points], [p[1] for p in points], tint, width=2.5, dash=dash, hoverinfo="skip")


def _policy(colors: Palette, probs: Sequence[float]) -> dict[str, Any]:
    x, y = corner(probs)
    return {
        "type": "scatter", "mode": "markers", "x": [x], "y": [y], "hoverinfo": "skip",
        "marker": {"size": 13, "color": colors.current, "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip


def _ways(tints: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what both colours stand for, one under the other."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "left"}
    return [
        note(f"<b>{name}</b>", 0.0, y, tint, size=14, **place)
        for name, tint, y in zip(names, tints, (0.98, 0.93), strict=True)
    ]


def _shaft(arrow: Arrow, tint: str, width: float, opacity: float) -> dict[str, Any]:
    (x0, y0), (x1, y1) = corner(arrow.start), corner(arrow.end)
    return {
        "type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "opacity": opacity,
        "line": {"color": tint, "width": width},
    }  # fmt: skip


def _heads(arrows: Sequence[Arrow], tint: str) -> dict[str, Any]:
    ends = [corner(a.end) for a in arrows]
    starts = [corner(a.start) for a in arrows]
    turn = [math.degrees(math.atan2(x1 - x0, y1 - y0)) for (x0, y0), (x1, y1) in zip(starts, ends, strict=True)]
    return {
        "type": "scatter", "mode": "markers", "x": [p[0] for p in ends], "y": [p[1] for p in ends], "hoverinfo": "skip",
        "marker": {"symbol": "triangle-up", "size": 7, "angle": turn, "color": tint, "opacity": 0.7},
    }  # fmt: skip


def _big(arrow: Arrow, tint: str) -> dict[str, Any]:
    (x0, y0), (x1, y1) = corner(arrow.start), corner(arrow.end)
    return {
        "x": x1, "y": y1, "ax": x0, "ay": y0, "xref": "x", "yref": "y", "axref": "x", "ayref": "y", "text": "",
        "showarrow": True, "arrowhead": 2, "arrowsize": 1.1, "arrowwidth": 3.2, "arrowcolor": tint,
    }  # fmt: skip


def _corner_notes(colors: Palette, corners: Sequence[str]) -> list[dict[str, Any]]:
    places = ((0.0, 0.0, "top", -6), (1.0, 0.0, "top", -6), (0.5, HIGH, "bottom", 6))
    return [
        note(safe(text, 40), x, y, colors.ink, size=14, xanchor="center", yanchor=above, yshift=shift)
        for text, (x, y, above, shift) in zip(corners, places, strict=True)
    ]


@dataclass(frozen=True)
class Curve:
    """One estimator over group sizes: its name, and three series over `sizes`."""

    name: str
    color: str
    dash: str
    scale: Sequence[float]
    cosine: Sequence[float]
    variance: Sequence[float]


def sizes(colors: Palette, steps: Sequence[int], rows: Sequence[Curve], *, at: int) -> Figure:
    """Return three panels over the group size: the factor on the true gradient, the cosine, the variance."""
    panels = ("scale", "cosine", "variance")
    data, axes, shapes = [], {}, []
    for p, field in enumerate(panels):
        suffix, domain = "" if p == 0 else str(p + 1), [1 - (p + 1) / 3 + 0.045, 1 - p / 3 - 0.04]
        values = [v for row in rows for v in getattr(row, field) if math.isfinite(v)]
        axes[f"yaxis{suffix}"] = axis(
            colors, t(f"axis.grad.{field}"), domain=domain, range=_reach([np.array(values or [0.0])]), nticks=4
        )
        shapes.append(rule(colors, x0=at, x1=at, y0=domain[0], y1=domain[1], yref="paper"))
        data += [_series(row, steps, getattr(row, field), suffix) for row in rows]
    return figure(
        data,
        layout(
            colors, height=560, annotations=_curve_names(colors, rows), shapes=shapes,
            margin={"l": 8, "r": 12, "t": 72, "b": 8},
            xaxis=axis(colors, t("axis.grad.size"), anchor="y3", range=[0.5, steps[-1] + 0.5], zeroline=False, dtick=1),
            **axes,
        ),
    )  # fmt: skip


def _curve_names(colors: Palette, rows: Sequence[Curve]) -> list[dict[str, Any]]:
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    names = [f"<span style='color:{row.color}'>●</span> {safe(row.name, 40)}" for row in rows]
    return [note(name, 0.0, 1.0, colors.ink, size=13, yshift=4 + 21 * k, **place) for k, name in enumerate(names[::-1])]


def _series(row: Curve, steps: Sequence[int], exact: Sequence[float], suffix: str) -> dict[str, Any]:
    y = [v if math.isfinite(v) else None for v in exact]
    return {
        "type": "scatter", "mode": "lines+markers", "x": list(steps), "y": list(y), "yaxis": f"y{suffix}",
        "line": {"color": row.color, "width": 2.5, "dash": row.dash}, "marker": {"size": 7, "color": row.color},
        "customdata": [plain(v, 4) for v in exact], "hovertemplate": safe(row.name) + t("hover.grad.size"),
    }  # fmt: skip


def baseline(
    colors: Palette,
    b: np.ndarray,
    variance: np.ndarray,
    *,
    marks: Sequence[tuple[str, float, float]],
    at: tuple[float, float],
) -> Figure:
    """Return the variance of (r - b) grad log p against b; `marks` (name, b, variance), `at` (b, variance)."""
    points = {
        "type": "scatter", "mode": "markers", "x": [m[1] for m in marks], "y": [m[2] for m in marks],
        "marker": {"size": 9, "color": colors.ink}, "hoverinfo": "skip",
    }  # fmt: skip
    own = {
        "type": "scatter", "mode": "markers", "x": [at[0]], "y": [at[1]], "hoverinfo": "skip",
        "marker": {"size": 14, "color": colors.up, "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
    curve = line(b, variance, colors.muted, width=3, hovertemplate=t("hover.grad.baseline"))
    return figure(
        [{**curve, "line": {**curve["line"], "shape": "spline"}}, points, own],
        layout(
            colors, height=400, annotations=_baseline_names(colors, marks),
            xaxis=axis(colors, t("axis.grad.baseline"), range=[float(b[0]), float(b[-1])], zeroline=False),
            yaxis=axis(colors, t("axis.grad.variance"), range=[0, max(1.12 * float(np.max(variance)), 1e-9)],
                       zeroline=False),
        ),
    )  # fmt: skip


def _baseline_names(colors: Palette, marks: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Return a name inside the bowl for each mark, at heights of their own; marks at one baseline share it."""
    places: dict[tuple[float, float], list[str]] = {}
    for name, x, y in sorted(marks, key=lambda mark: mark[1]):
        places.setdefault((round(float(x), 9), float(y)), []).append(safe(name))
    lowest = min((y, x) for x, y in places)[1]
    return [
        {"text": f"{', '.join(names)}<br>b = {plain(x)}", "x": x, "y": y, "showarrow": True, "arrowhead": 0,
         "arrowcolor": colors.muted, "ax": 56 if x < lowest else -56 if x > lowest else 0, "ay": -56 - 44 * (k % 2),
         "font": {"size": 13, "color": colors.ink}}
        for k, ((x, y), names) in enumerate(places.items())
    ]  # fmt: skip
