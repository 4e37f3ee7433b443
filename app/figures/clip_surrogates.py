"""Pictures of the Ratio and clip page: any surrogate and its gradient against the ratio, one or two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, figure, layout, line, note, rule, safe
from app.figures.clip import Points, tokens
from app.numbers import signed
from app.words import t
from grpo_core.surrogate_curves import SurrogateCurve

if TYPE_CHECKING:
    from app.explain.clip_surrogates import Drawn

PAPER = {"xref": "paper", "yref": "paper"}


def surrogates(
    colors: Palette,
    first: Drawn,
    second: Drawn | None,
    others: tuple[np.ndarray, Sequence[tuple[np.ndarray, np.ndarray]]],
    points: Points,
    *,
    reads: str,
    high: float,
) -> Figure:
    """Return value (above) and weight of the gradient (below) against the ratio that the surrogate reads.

    Faint lines: the group's other advantages. Dotted, below: the slope of the value, where that is not the gradient;
    of the first surrogate if both have one.
    """
    own = colors.sign(first.at.advantage)
    grid, rows = others
    data: list[Trace] = []
    for value, gradient in rows:
        data.append(line(grid, value, own, width=1.2, hoverinfo="skip"))
        data.append(line(grid, gradient, own, width=1.2, yaxis="y2", hoverinfo="skip"))
    if second is not None:
        alone = second.parted and not first.parted
        data += _curves(colors, second, colors.second, dash="dash", width=3, dotted=alone)
    data += _curves(colors, first, own, dash="solid", width=3.5, dotted=first.parted)
    data += [tokens(colors, points, points.objective, "y"), tokens(colors, points, points.slope, "y2")]
    if second is not None:
        data += _probes(colors, second, colors.second, "bottom center")
    data += _probes(colors, first, own, "top center")
    upright = {"yref": "paper", "y0": 0, "y1": 1}
    return figure(
        data,
        layout(
            colors,
            height=520,
            margin={"l": 8, "r": 16, "t": 46 if second is not None else 28, "b": 8},
            shapes=[rule(colors, x0=x, x1=x, **upright) for x in (1.0, first.at.ratio)],
            annotations=_names(colors, first, second, own),
            xaxis=axis(colors, t(f"axis.reads_{reads}"), range=[0, high], zeroline=False, anchor="y2"),
            yaxis=axis(colors, t("axis.objective"), domain=[0.52, 1.0], range=_reach(first, second, points.objective)),
            yaxis2=axis(colors, t("axis.gradient_weight"), domain=[0.0, 0.4], range=_depth(first, second, points)),
        ),
    )


def _curves(colors: Palette, one: Drawn, color: str, *, dash: str, width: float, dotted: bool) -> list[Trace]:
    style: dict[str, Any] = {"width": width, "dash": dash, "hoverinfo": "skip"}
    data = [
        line(one.curve.ratio, one.curve.objective, color, **style),
        line(one.curve.ratio, one.curve.gradient, color, yaxis="y2", **style),
    ]
    if dotted:
        faint = {"width": 1.8, "dash": "dot", "hoverinfo": "skip", "opacity": 0.9}
        data.append(line(one.curve.ratio, one.curve.value_slope, colors.muted, yaxis="y2", **faint))
    if one.branch is not None:
        data += _branch(one.branch, color)
    return data


def _branch(branch: SurrogateCurve, color: str) -> list[Trace]:
    """Return what a surrogate does with the tokens that it singles out."""
    style: dict[str, Any] = {"width": 2, "dash": "dashdot", "hoverinfo": "skip", "opacity": 0.75}
    return [
        line(branch.ratio, branch.objective, color, **style),
        line(branch.ratio, branch.gradient, color, yaxis="y2", **style),
    ]


def _probes(colors: Palette, one: Drawn, color: str, place: str) -> list[Trace]:
    return [
        {
            "type": "scatter", "mode": "markers+text", "x": [one.at.ratio], "y": [y], "yaxis": yaxis,
            "marker": {"size": 14, "color": color, "line": {"width": 3, "color": colors.ink}},
            "text": [signed(y)], "textposition": place, "textfont": {"size": 14, "color": colors.ink},
            "hoverinfo": "skip", "cliponaxis": False,
        }
        for y, yaxis in ((one.at.objective, "y"), (one.at.gradient, "y2"))
    ]  # fmt: skip


def _names(colors: Palette, first: Drawn, second: Drawn | None, own: str) -> list[dict[str, Any]]:
    shown = [(first, own, "━━"), *([(second, colors.second, "╍╍")] if second is not None else [])]
    notes = [
        note(
            f'<span style="color:{color}">{dash}</span>  {safe(one.title, 60)}', 0, 1, colors.ink, size=14,
            xanchor="left", yanchor="bottom", yshift=4 + 20 * (len(shown) - 1 - k), **PAPER,
        )
        for k, (one, color, dash) in enumerate(shown)
    ]  # fmt: skip
    notes.append(
        note(t("chart.for_advantage", value=signed(first.at.advantage, 2)), 1, 1, colors.muted, xanchor="right",
             yanchor="bottom", yshift=4, **PAPER)
    )  # fmt: skip
    said = []
    if any(one is not None and one.parted for one in (first, second)):
        said.append(t("chart.value_slope"))
    if any(one is not None and one.branch is not None for one in (first, second)):
        said.append(t("chart.singled_out"))
    notes.append(
        note("   ".join(said), 0, 0.4, colors.muted, xanchor="left", yanchor="bottom", yshift=3, bgcolor=colors.page,
             **PAPER)
    )  # fmt: skip
    return notes


def _reach(first: Drawn, second: Drawn | None, points: np.ndarray) -> list[float]:
    """Return the range of the values; what a second surrogate without a bound does far out may leave it."""
    own = [first.curve.objective, np.array([first.at.objective, 0.0]), points]
    if second is not None:
        own.append(np.array([second.at.objective]))
        own.append(np.clip(second.curve.objective, *_within(first, second)))
    return _padded(np.concatenate(own))


def _within(first: Drawn, second: Drawn) -> tuple[float, float]:
    size = 1.5 * max(float(np.abs(first.curve.objective).max()), abs(second.at.objective), abs(first.at.advantage))
    return -size, size


def _depth(first: Drawn, second: Drawn | None, points: Points) -> list[float]:
    """Return the range of the gradients; the slope of the value counts up to twice the gradient's size."""
    both = [one for one in (first, second) if one is not None]
    own = [np.array([0.0]), points.slope, *(one.curve.gradient for one in both)]
    size = 1.2 * max(float(np.abs(x).max()) for x in own if x.size)
    own += [np.clip(one.curve.value_slope, -size, size) for one in both if one.parted]
    return _padded(np.concatenate(own))


def _padded(values: np.ndarray) -> list[float]:
    low, high = float(values.min()), float(values.max())
    pad = 0.14 * max(high - low, 1e-6)
    return [low - pad, high + pad]
