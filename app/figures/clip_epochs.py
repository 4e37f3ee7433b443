"""Pictures of the Ratio and clip page: ratios and KL over several updates on one batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, figure, floats, layout, line, note, rule
from app.numbers import plain, short, signed
from app.words import t

if TYPE_CHECKING:
    from app.explain.clip_epochs import Epochs

MOST_LINES = 8
PAPER = {"xref": "paper", "yref": "paper"}


def epochs(colors: Palette, both: Epochs, lines: Sequence[tuple[int, int]]) -> Figure:
    """Return each sample's ratio after every update (above) and KL(old, current) below; dotted: without a clip."""
    x = np.arange(both.updates + 1)
    shown = lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES // 2], *lines[-MOST_LINES // 2 :]]
    data: list[Trace] = []
    for i, count in shown:
        color = colors.sign(float(both.advantages[i]))
        data.append(line(x, both.free.ratios[:, i], color, width=1.8, dash="dot", hoverinfo="skip"))
        data.append(_path(colors, both, i, count, x, color))
    data.append(line(x, both.free.kl, colors.reference, width=1.8, dash="dot", yaxis="y2", hoverinfo="skip"))
    data.append(
        {**line(x, both.clipped.kl, colors.reference, width=3, yaxis="y2"), "hovertemplate": t("hover.epoch_kl")}
    )
    span = _span(both, [i for i, _ in shown])
    return figure(
        data,
        layout(
            colors,
            height=520,
            margin={"l": 8, "r": 96, "t": 30, "b": 8},
            shapes=[_band(colors, both, span), rule(colors, xref="paper", x0=0, x1=1, yref="y", y0=1, y1=1)],
            annotations=[*_ends(colors, both, shown, span), *_notes(colors, both)],
            xaxis=axis(colors, t("axis.updates"), range=[-0.15, both.updates + 0.15], zeroline=False, anchor="y2",
                       tickformat="d", dtick=max(1, round(both.updates / 8))),
            yaxis=axis(colors, t("axis.sample_ratio"), domain=[0.36, 1.0], type="log", range=floats(np.log10(span)),
                       **_ticks(span)),
            yaxis2=axis(colors, t("axis.kl_old"), domain=[0.0, 0.25], rangemode="tozero", nticks=4),
        ),
    )  # fmt: skip


def _path(colors: Palette, both: Epochs, i: int, count: int, x: np.ndarray, color: str) -> Trace:
    """Return one sample's ratios; hollow where the update that follows has no gradient for it."""
    flat = [*both.clipped.saturated[:, i].tolist(), bool(both.outside[i])]
    said = [t("chart.no_gradient") if f else t("chart.has_gradient") for f in flat[:-1]]
    return {
        **line(x, both.clipped.ratios[:, i], color, width=3),
        "mode": "lines+markers",
        "marker": {"size": 10, "color": [colors.page if f else color for f in flat],
                   "line": {"width": 2.5, "color": color}},
        "customdata": [[signed(float(both.advantages[i])), str(count), word] for word in (*said, "")],
        "hovertemplate": t("hover.epoch"),
        "cliponaxis": False,
    }  # fmt: skip


def _span(both: Epochs, shown: Sequence[int]) -> tuple[float, float]:
    """Return the ratios that the picture shows: those with a clip, and those without as far as is telling."""
    own = both.clipped.ratios[:, shown]
    free = np.clip(both.free.ratios[:, shown], float(own.min()) / 3, float(own.max()) * 3)
    bounds = both.low if both.low > 0.2 else 0.7, both.high if both.high < 4 else 1.4  # a wide range is no picture
    low = max(min(float(own.min()), float(free.min()), bounds[0], 0.7), 1e-4)
    high = max(float(own.max()), float(free.max()), bounds[1], 1.4)
    return low / 1.08, high * 1.08


def _ticks(span: tuple[float, float]) -> dict[str, Any]:
    if span[1] / span[0] > 1000:
        powers = range(int(np.floor(np.log10(span[0]))), int(np.ceil(np.log10(span[1]))) + 1)
        values = [10.0**k for k in powers]
    else:
        steps = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3, 5, 7, 10, 20, 50, 100)
        values = [v for v in steps if span[0] <= v <= span[1]]
        if len(values) > 9:
            values = [v for v in values if v in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)]
    return {"tickvals": values, "ticktext": [short(v) for v in values]}


def _band(colors: Palette, both: Epochs, span: tuple[float, float]) -> dict[str, Any]:
    """Return the clip range as a horizontal band."""
    return {
        "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": max(both.low, span[0]),
        "y1": min(both.high, span[1]),
        "layer": "below", "fillcolor": colors.band, "opacity": colors.band_opacity, "line": {"width": 0},
    }  # fmt: skip


def _ends(
    colors: Palette, both: Epochs, shown: Sequence[tuple[int, int]], span: tuple[float, float]
) -> list[dict[str, Any]]:
    """Return each line's name at its right end: advantage, how many samples it stands for, its last ratio."""
    size = float(np.log10(span[1] / span[0]))
    heights = [float(np.log10(np.clip(both.clipped.ratios[-1, i], *span))) for i, _ in shown]
    notes = []
    for (i, count), y in zip(shown, _apart(heights, 0.095 * size), strict=True):
        a = float(both.advantages[i])
        text = f"A {signed(a, 2)}" + (f" ×{count}" if count > 1 else "")
        text += f"<br>r {plain(float(both.clipped.ratios[-1, i]), 2)}"
        notes.append(
            note(text, 1, y, colors.sign_text(a), size=12, xref="paper", xanchor="left", xshift=10, align="left")
        )
    return notes


def _apart(heights: Sequence[float], least: float) -> list[float]:
    """Return heights that differ by at least `least`, in the same order (from above) and close to the given ones."""
    order = sorted(range(len(heights)), key=lambda k: -heights[k])
    placed = list(heights)
    for before, k in pairwise(order):
        placed[k] = min(placed[k], placed[before] - least)
    shift = sum(h - p for h, p in zip(heights, placed, strict=True)) / max(len(heights), 1)
    return [p + shift for p in placed]


def _notes(colors: Palette, both: Epochs) -> list[dict[str, Any]]:
    place = {"xanchor": "left", "yanchor": "bottom", **PAPER}
    last = float(both.clipped.kl[-1])
    return [
        note(t("chart.epochs"), 0, 1, colors.muted, yshift=5, **place),
        note(t("chart.epochs_kl"), 0, 0.25, colors.muted, yshift=4, **place),
        note(plain(last), 1, last, colors.reference_text, xref="paper", yref="y2", xanchor="left", xshift=10),
    ]
