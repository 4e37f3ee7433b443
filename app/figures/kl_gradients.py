"""Pictures of the KL page: gradients of both divergences and of their estimators, on the simplex and event by event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, line, note, rule, safe
from app.figures.gradients import Arrow, corner
from app.numbers import plain, signed
from app.words import t

Triangle = tuple[np.ndarray, Mapping[str, Arrow], Mapping[str, np.ndarray]]
"""The reference (3,), the arrows from the current policy, and the ways down each KL (steps, 3)."""


def trap(
    colors: Palette,
    forward: np.ndarray,
    reverse: np.ndarray,
    mean: np.ndarray,
    *,
    name: str,
    triangle: Triangle | None,
) -> Figure:
    """Return both KLs' gradients (K,) and the mean one of `name` as bars, beside the simplex if there is one."""
    tints = (colors.ink, colors.reference, _grey(colors))
    text_tints = (colors.ink, colors.reference_text, colors.muted)
    rows = (forward, reverse, mean)
    names = (t("chart.kl.forward"), t("chart.kl.reverse"), t("chart.kl.mean", name=name))
    events = [chr(ord("A") + i) for i in range(len(forward))]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "x": list(range(len(events))), "y": floats(values), "xaxis": "x", "yaxis": "y",
            "width": 0.22, "offset": -0.36 + 0.24 * k, "marker": {"color": tints[k]},
            "customdata": [signed(v, 4) for v in values], "hovertemplate": safe(names[k]) + t("hover.kl_gradient"),
        }
        for k, values in enumerate(rows)
    ]  # fmt: skip
    ticks = [
        f"{event}<br>" + "<br>".join(
            f"<span style='color:{tint}'>{signed(row[i])}</span>" for row, tint in zip(rows, text_tints, strict=True)
        )
        for i, event in enumerate(events)
    ]  # fmt: skip
    legend = "<br>".join(f"<span style='color:{tints[k]}'>■</span> {safe(text, 60)}" for k, text in enumerate(names))
    if triangle:
        legend += f"<br><span style='color:{colors.muted}'>{t('chart.kl.ways')}</span>"
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "align": "left"}
    notes = [note(legend, 0, 1, colors.ink, size=14, yanchor="top" if triangle else "bottom", **place)]
    shapes: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    if triangle:
        drawn, marks, shapes = _simplex(colors, triangle, tints)
        data, notes = [*data, *drawn], [*notes, *marks]
        more = {
            "xaxis2": axis(colors, visible=False, range=[-0.75, 1.1], anchor="y2"),
            "yaxis2": axis(
                colors,
                visible=False,
                range=[-0.09, 0.95],
                domain=[0.42, 1.0],
                scaleanchor="x2",
                scaleratio=1,
                anchor="x2",
            ),
        }
    reach = _reach(rows)
    return figure(
        data,
        layout(
            colors, height=600 if triangle else 420, barmode="overlay", annotations=notes, shapes=shapes,
            margin={"l": 8, "r": 10, "t": 8 if triangle else 74, "b": 8},
            xaxis=axis(colors, anchor="y", tickvals=list(range(len(events))), ticktext=ticks,
                       showgrid=False, zeroline=False, range=[-0.5, len(events) - 0.5],
                       tickfont={"size": 13, "color": colors.ink}),
            yaxis=axis(colors, t("axis.kl_gradient"), anchor="x", range=reach, nticks=6,
                       domain=[0.0, 0.36] if triangle else [0.0, 1.0]),
            **more,
        ),
    )  # fmt: skip


def _grey(colors: Palette) -> str:
    red, green, blue = (int(colors.old[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.75)"


def _reach(rows: Sequence[np.ndarray]) -> list[float]:
    values = np.concatenate([np.zeros(1), *rows])
    low, high = float(values.min()), float(values.max())
    pad = 0.12 * max(high - low, 1e-9)
    return [low - pad, high + pad]


def _simplex(
    colors: Palette, triangle: Triangle, tints: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return traces, annotations and shapes of the triangle, all on its own axes."""
    reference, arrows, ways = triangle
    on: dict[str, Any] = {"xaxis": "x2", "yaxis": "y2", "hoverinfo": "skip"}
    outline = [corner(p) for p in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0))]
    data = [line([p[0] for p in outline], [p[1] for p in outline], colors.zero, width=1.5, **on)]
    for key, tint in zip(("forward", "reverse"), tints, strict=False):
        way = [corner(p) for p in ways[key]]
        data.append(line([p[0] for p in way], [p[1] for p in way], tint, width=1.5, dash="dot", **on))
    here, goal = corner(arrows["forward"].start), corner(reference.tolist())
    for at, tint in ((goal, colors.reference), (here, colors.current)):
        data.append(
            {"type": "scatter", "mode": "markers", "x": [at[0]], "y": [at[1]], **on,
             "marker": {"size": 13, "color": tint, "line": {"width": 2, "color": colors.page}}}
        )  # fmt: skip
    mean = arrows["mean"]
    shapes = [_wide(mean, colors)] if _length(mean) > 1e-9 else [_ring(here, colors)]
    marks = [
        _arrow(arrows[key], tint) for key, tint in zip(("forward", "reverse"), tints, strict=False)
        if _length(arrows[key]) > 1e-9
    ]  # fmt: skip
    places = ((0.0, 0.0, "top", -6), (1.0, 0.0, "top", -6), (0.5, 3**0.5 / 2, "bottom", 6))
    own = {"xref": "x2", "yref": "y2"}
    marks += [
        note(name, x, y, colors.ink, size=14, xanchor="center", yanchor=side, yshift=shift, **own)
        for name, (x, y, side, shift) in zip("ABC", places, strict=True)
    ]
    apart = abs(here[0] - goal[0]) + abs(here[1] - goal[1]) > 1e-6
    words = [(here, t("chart.kl.here"), colors.current)] + ([(goal, t("chart.kl.goal"), colors.reference_text)] * apart)
    left_first = here[0] <= goal[0]
    for (at, text, tint), left in zip(words, (left_first, not left_first), strict=False):
        marks.append(
            note(
                text,
                *at,
                tint,
                size=14,
                xanchor="right" if left else "left",
                xshift=-20 if left else 20,
                bgcolor=colors.page,
                **own,
            )
        )
    return data, marks, shapes


def _length(arrow: Arrow) -> float:
    (x0, y0), (x1, y1) = corner(arrow.start), corner(arrow.end)
    return float(np.hypot(x1 - x0, y1 - y0))


def _wide(arrow: Arrow, colors: Palette) -> dict[str, Any]:
    """Return the estimator's way as a broad band under the arrow that it follows."""
    (x0, y0), (x1, y1) = corner(arrow.start), corner(arrow.end)
    return {
        "type": "line", "xref": "x2", "yref": "y2", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "layer": "below",
        "line": {"color": _grey(colors), "width": 15},
    }  # fmt: skip


def _ring(at: tuple[float, float], colors: Palette) -> dict[str, Any]:
    """Return a ring around the policy: the estimator leads nowhere."""
    return {
        "type": "circle", "xref": "x2", "yref": "y2", "x0": at[0] - 0.045, "x1": at[0] + 0.045, "y0": at[1] - 0.045,
        "y1": at[1] + 0.045, "layer": "below", "line": {"color": _grey(colors), "width": 6},
    }  # fmt: skip


def _arrow(arrow: Arrow, tint: str) -> dict[str, Any]:
    (x0, y0), (x1, y1) = corner(arrow.start), corner(arrow.end)
    return {
        "x": x1, "y": y1, "ax": x0, "ay": y0, "xref": "x2", "yref": "y2", "axref": "x2", "ayref": "y2", "text": "",
        "showarrow": True, "arrowhead": 2, "arrowsize": 1.1, "arrowwidth": 2.8, "arrowcolor": tint,
    }  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One weighting: its name, its angle to the truth as text, mean value, mean gradient (K,), in focus or not."""

    title: str
    angle: str
    value: float
    gradient: np.ndarray
    chosen: bool


def off_policy(colors: Palette, columns: Sequence[Column], *, exact: float, true: np.ndarray, name: str) -> Figure:
    """Return each weighting's mean value against the KL above, and below its mean gradient on the KL's (outlined)."""
    low, high = _value_range([exact, *(c.value for c in columns)])
    events = [chr(ord("A") + i) for i in range(len(true))]
    data: list[dict[str, Any]] = [
        {"type": "bar", "x": list(range(len(columns))), "y": [c.value for c in columns], "width": 0.4,
         "marker": {"color": colors.reference}, "hoverinfo": "skip"}
    ]  # fmt: skip
    notes, shapes = _exact(colors, exact, high)
    axes = _facet_axes(colors, len(columns), _reach([true, *(c.gradient for c in columns)]))
    for k, column in enumerate(columns):
        data += _facet(colors, events, true, column.gradient, str(k + 2))
        notes += _column_words(colors, column, (k + 0.5) / len(columns))
        if column.chosen:
            shapes.insert(0, _behind(colors, k / len(columns), (k + 1) / len(columns)))
    return figure(
        data,
        layout(
            colors, height=480, barmode="overlay", annotations=notes, shapes=shapes,
            margin={"l": 8, "r": 8, "t": 52, "b": 44},
            xaxis=axis(colors, visible=False, range=[-0.5, len(columns) - 0.5], domain=[0, 1], anchor="y"),
            yaxis=axis(colors, t("axis.kl_mean", name=name), domain=[0.54, 1.0], range=[low, high], nticks=5,
                       anchor="x"),
            **axes,
        ),
    )  # fmt: skip


def _value_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the mean values, 0 among it, with room for words above."""
    every = [*values, 0.0, 1e-9]
    room = 0.28 * (max(every) - min(every))
    return min(every) - (room if min(every) < 0 else 0.0), max(every) + room


def _exact(colors: Palette, exact: float, high: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the exact KL as a dashed line with its number, and what the outlines below are."""
    above = {"xref": "paper", "xanchor": "right", "yanchor": "top", "xshift": -6}
    below = {"xref": "paper", "yref": "paper", "yanchor": "top", "yshift": -24}
    style = {"color": colors.ink, "width": 1.5, "dash": "dash"}
    return [
        note("╌ " + t("chart.kl.exact", value=plain(exact, 4)), 1.0, high, colors.ink, size=13, **above),
        note(t("chart.kl.outline"), 0.5, 0, colors.muted, size=13, **below),
    ], [rule(colors, xref="paper", x0=0, x1=1, y0=exact, y1=exact, layer="above", line=style)]


def _facet_axes(colors: Palette, count: int, reach: list[float]) -> dict[str, Any]:
    """Return the axes of the gradients, one pair for each column; the first carries the name and the numbers."""
    axes: dict[str, Any] = {}
    for k in range(count):
        suffix, domain = str(k + 2), [k / count + 0.012, (k + 1) / count - 0.012]
        axes[f"xaxis{suffix}"] = axis(colors, domain=domain, anchor=f"y{suffix}", type="category", showgrid=False)
        axes[f"yaxis{suffix}"] = axis(
            colors, t("axis.kl_gradient") if k == 0 else "", domain=[0.0, 0.4], anchor=f"x{suffix}", range=reach,
            nticks=5, showticklabels=k == 0,
        )  # fmt: skip
    return axes


def _column_words(colors: Palette, column: Column, middle: float) -> list[dict[str, Any]]:
    """Return a weighting's name and mean value above the picture, and its angle above its gradient."""
    words = f"<b>{safe(column.title)}</b>" if column.chosen else safe(column.title)
    centre = {"xref": "paper", "yref": "paper", "xanchor": "center", "yanchor": "bottom"}
    return [
        note(f"{words}<br>{plain(column.value, 4)}", middle, 1.0, colors.ink, size=14, yshift=8, **centre),
        note(safe(column.angle), middle, 0.4, colors.muted, size=13, yshift=4, **centre),
    ]


def _behind(colors: Palette, start: float, end: float) -> dict[str, Any]:
    """Return the panel behind the chosen column."""
    return {
        "type": "rect", "xref": "paper", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 1, "layer": "below",
        "fillcolor": colors.panel, "line": {"width": 0},
    }  # fmt: skip


def _facet(
    colors: Palette, events: Sequence[str], true: np.ndarray, own: np.ndarray, suffix: str
) -> list[dict[str, Any]]:
    on = {"type": "bar", "x": list(events), "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    return [
        {
            **on, "y": floats(true), "width": 0.78, "customdata": [signed(v, 4) for v in true],
            "marker": {"color": "rgba(0,0,0,0)", "line": {"color": colors.ink, "width": 1.6}},
            "hovertemplate": t("hover.grad.true"),
        },
        {
            **on, "y": floats(own), "width": 0.5, "customdata": [signed(v, 4) for v in own],
            "marker": {"color": colors.reference}, "hovertemplate": t("hover.grad.expected"),
        },
    ]  # fmt: skip
