"""Pictures of the KL page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, line, note, rule, safe
from app.numbers import plain, signed
from app.words import t

TALLEST = 12.0  # nats: beyond it the curves leave the picture, and the slider's point waits at the edge
DASHES = {"k1": "dash", "k2": "dot", "k3": "solid"}


def curves(
    colors: Palette,
    d: np.ndarray,
    values: Mapping[str, np.ndarray],
    *,
    chosen: str,
    at: tuple[float, Mapping[str, float]],
    tokens: tuple[np.ndarray, np.ndarray, Sequence[str]],
) -> Figure:
    """Return k1, k2 and k3 against the log-ratio; `at`: the slider's point, `tokens`: (d, chosen estimate, names)."""
    bottom, top = _height(values, at[1], tokens[1])
    reach = float(abs(d).max())
    x, y = float(np.clip(at[0], -0.985 * reach, 0.985 * reach)), float(np.clip(at[1][chosen], bottom, 0.96 * top))
    outside = x != at[0] or y != at[1][chosen]
    names = [_name(colors, name, d, y_, top, bold=name == chosen) for name, y_ in values.items()]
    key = [_points_key(colors, top)] if len(tokens[0]) else []
    return figure(
        [*_estimates(colors, d, values, chosen), _tokens(colors, *tokens), _probe(colors, x, y, outside=outside)],
        layout(
            colors, height=400, annotations=[*names, *key, _value(colors, x, y, at[1][chosen])],
            shapes=[rule(colors, x0=x, x1=x, y0=0, y1=1, yref="paper")],
            xaxis=axis(colors, t("axis.log_ratio"), range=[-reach, reach]),
            yaxis=axis(colors, t("axis.kl"), range=[bottom, top]),
        ),
    )  # fmt: skip


def _height(values: Mapping[str, np.ndarray], at: Mapping[str, float], tokens: np.ndarray) -> tuple[float, float]:
    """Return the range of the estimates: the slider's and the tokens', as far as a picture has room for them."""
    top = max(2.2, *(1.15 * v for v in at.values() if np.isfinite(v)), *(1.1 * v for v in tokens))
    top = min(top, 1.05 * float(np.max(values["k3"])), TALLEST)
    return min(-0.6, -0.45 * top), top


def _estimates(colors: Palette, d: np.ndarray, values: Mapping[str, np.ndarray], chosen: str) -> list[dict]:
    """Return the three curves, the chosen one strong."""
    return [
        line(d, y, colors.reference, width=4 if name == chosen else 2, dash=DASHES[name],
             opacity=1 if name == chosen else 0.7, hoverinfo="skip")
        for name, y in values.items()
    ]  # fmt: skip


def _points_key(colors: Palette, top: float) -> dict:
    """Return what the points are, at the top to the right of the axis, where no curve runs."""
    return note(t("chart.kl.points"), 0, top, colors.muted, size=13, xanchor="left", yanchor="top", xshift=8)


def _name(colors: Palette, name: str, d: np.ndarray, y: np.ndarray, top: float, *, bold: bool) -> dict:
    """Return a curve's name at the left end, where the three are furthest apart, or where it leaves the picture."""
    inside = np.flatnonzero(y <= 0.93 * top)
    k = int(inside[0])
    shift = {"k1": 14, "k2": 10, "k3": -26}[name]
    text = f"<b>{name}</b>" if bold else name
    return note(text, float(d[k]), float(y[k]), colors.reference_text, size=14, xanchor="left", xshift=10, yshift=shift)


def _tokens(colors: Palette, d: np.ndarray, y: np.ndarray, names: Sequence[str]) -> dict:
    return {
        "type": "scatter", "mode": "markers", "x": floats(d), "y": floats(y),
        "marker": {"size": 8, "color": colors.page, "line": {"width": 2, "color": colors.reference}},
        "customdata": [[safe(n), signed(x), plain(v)] for n, x, v in zip(names, d, y, strict=True)],
        "hovertemplate": t("hover.kl_token"),
    }  # fmt: skip


def _probe(colors: Palette, x: float, y: float, *, outside: bool) -> dict:
    """Return the slider's point; a triangle at the edge says that it lies further out."""
    symbol = "triangle-up" if outside else "circle"
    return {
        "type": "scatter", "mode": "markers", "x": [x], "y": [y], "hoverinfo": "skip", "cliponaxis": False,
        "marker": {"size": 15, "symbol": symbol, "color": colors.reference, "line": {"width": 3, "color": colors.ink}},
    }  # fmt: skip


def _value(colors: Palette, x: float, y: float, value: float) -> dict:
    side, shift = ("left", 12) if x < 0 else ("right", -12)
    return note(signed(value), x, y, colors.ink, size=15, xanchor=side, xshift=shift, yshift=14)


def distribution(
    colors: Palette, current: np.ndarray, reference: np.ndarray, estimate: np.ndarray, *, name: str
) -> Figure:
    """Return both distributions event by event, and below them one estimator's value at each event."""
    events = [chr(ord("A") + i) for i in range(len(current))]
    shown = np.where(np.isfinite(estimate), estimate, np.nan)
    low, high = min(0.0, float(np.nanmin([0.0, *shown]))), float(np.nanmax([1e-3, *shown]))
    room = 0.2 * (high - low)
    return figure(
        [
            {**_bars(events, current, colors.current, "y", _decimals(current), colors), "offset": -0.36},
            {**_bars(events, reference, colors.reference, "y", _decimals(reference), colors), "offset": 0.02},
            {
                **_bars(events, shown, colors.reference, "y2", [signed(v) for v in estimate], colors),
                "offset": -0.2, "width": 0.4,
            },
        ],
        layout(
            colors,
            height=430,
            margin={"l": 8, "r": 12, "t": 30, "b": 8},
            barmode="overlay",
            annotations=[_names(colors)],
            xaxis=axis(colors, t("axis.event"), type="category", showgrid=False, anchor="y2"),
            yaxis=axis(colors, t("axis.probability"), domain=[0.5, 1.0], rangemode="tozero", zeroline=True,
                       range=[0, 1.18 * float(max(current.max(), reference.max()))]),
            yaxis2=axis(colors, t("axis.estimate", name=name), domain=[0.0, 0.38],
                        range=[low - room if low < 0 else 0.0, high + room]),
        ),
    )  # fmt: skip


def _bars(events: Sequence[str], y: np.ndarray, color: str, yaxis: str, text: Sequence[str], colors: Palette) -> dict:
    return {
        "type": "bar", "x": list(events), "y": [None if np.isnan(v) else float(v) for v in y], "yaxis": yaxis,
        "width": 0.34, "marker": {"color": color}, "text": list(text), "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 13, "color": colors.ink}, "hoverinfo": "skip",
    }  # fmt: skip


def _decimals(values: np.ndarray) -> list[str]:
    return [plain(v, 2) for v in values]


def _names(colors: Palette) -> dict:
    """Return both distributions' names above the picture, each in its colour."""
    named = ((colors.current, t("chart.current")), (colors.reference_text, t("chart.reference")))
    text = "   ".join(f'<span style="color:{color}">{name}</span>' for color, name in named)
    return note(text, 0, 1, colors.ink, size=14, xref="paper", yref="paper", xanchor="left", yanchor="bottom")


def sums(colors: Palette, ratio: np.ndarray, log: np.ndarray, k3: np.ndarray) -> Figure:
    """Return three sums event by event, each with its total on the right: p r, p (-log r) and p (r - 1 - log r)."""
    events = [chr(ord("A") + i) for i in range(len(ratio))]
    rows = ((ratio, t("axis.kl_ratio")), (log, t("axis.kl_log")), (k3, t("axis.kl_k3")))
    data: list[dict] = []
    axes = {}
    for k, (terms, title) in enumerate(rows):
        suffix = "" if k == 0 else str(k + 1)
        bottom, top = 1 - (k + 1) / 3 + 0.045, 1 - k / 3 - 0.035
        total = float(terms.sum())
        shown = [v if np.isfinite(v) else np.nan for v in [*terms, total]]
        low, high = min(0.0, float(np.nanmin([0.0, *shown]))), float(np.nanmax([1e-9, *shown]))
        room = 0.25 * (high - low)
        axes[f"yaxis{suffix}"] = axis(
            colors, title, domain=[bottom, top], nticks=4, range=[low - room if low < 0 else 0.0, high + room]
        )
        tints = [*[colors.reference] * len(terms), colors.ink]
        text = [signed(v) if k == 1 else plain(v) for v in [*terms, total]]
        bars = _bars([*events, t("axis.kl_sum")], np.array(shown), "", f"y{suffix}", text, colors)
        data.append({**bars, "marker": {"color": tints}, "width": 0.5})
    return figure(
        data,
        layout(
            colors,
            height=480,
            shapes=[rule(colors, xref="paper", x0=0, x1=1, yref="y", y0=1, y1=1)],
            xaxis=axis(colors, t("axis.event"), type="category", showgrid=False, anchor="y3"),
            **axes,
        ),
    )
