"""Pictures of the Ratio and clip page: a token's pull against the length, and expectations under each ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, figure, floats, layout, line, note, rule
from app.numbers import plain, short
from app.words import t

if TYPE_CHECKING:
    from app.explain.clip_levels import Identity, Pulls

ROOM = "\N{EN SPACE}"  # before a number beside a bar, so that the dashed line does not cross it


def pulls(colors: Palette, own: Pulls) -> Figure:
    """Return the pull on one token against the completion's length, both logarithmic."""
    values = np.concatenate([*own.curves.values(), [y for _, y in own.own]])
    low, high = float(np.log10(values.min())) - 0.35, float(np.log10(values.max())) + 0.2
    longest = float(own.lengths[-1])
    return figure(
        [*_pull_curves(colors, own), _here(colors, own.length, own.at["gspo"], colors.current, "top right"),
         _here(colors, own.length, own.at["dr_grpo"], colors.ink, "bottom right")],
        layout(
            colors, height=420, margin={"l": 8, "r": 60, "t": 16, "b": 8},
            shapes=[rule(colors, x0=own.length, x1=own.length, yref="paper", y0=0, y1=1)],
            annotations=_pull_names(colors, own),
            xaxis=axis(colors, t("axis.tokens"), type="log", range=[-0.06, float(np.log10(longest)) + 0.06],
                       zeroline=False, **_powers(longest)),
            yaxis=axis(colors, t("axis.pull"), type="log", range=[low, high], zeroline=False, **_tens(low, high)),
        ),
    )  # fmt: skip


def _pull_curves(colors: Palette, own: Pulls) -> list[Trace]:
    """Return the pull under each objective, and the group's completions as diamonds."""
    styles = {"dr_grpo": (colors.ink, "solid"), "gspo": (colors.current, "solid"), "grpo": (colors.second, "dash")}
    data = [
        line(own.lengths, own.curves[name], tint, width=3, dash=dash, hoverinfo="skip")
        for name, (tint, dash) in styles.items()
    ]
    marker = {"size": 10, "symbol": "diamond", "color": colors.page, "line": {"width": 2, "color": colors.current}}
    diamonds = {
        "type": "scatter", "mode": "markers", "x": floats(n for n, _ in own.own), "y": floats(y for _, y in own.own),
        "marker": marker, "hovertemplate": t("hover.pull"), "cliponaxis": False,
    }  # fmt: skip
    return [*data, diamonds]


def _pull_names(colors: Palette, own: Pulls) -> list[dict[str, Any]]:
    """Return the curves' names; the constant's stands at the end where the slider's point is not."""
    start, flat = (float(np.log10(own.curves[name][0])) for name in ("gspo", "dr_grpo"))
    left = own.length > 16
    end = 0.0 if left else float(np.log10(own.lengths[-1]))
    return [
        note(t("chart.pull_gspo"), 0, start, colors.current, size=14, xanchor="left", xshift=46, yshift=4,
             bgcolor=colors.page),
        note(t("chart.pull_dr_grpo"), end, flat, colors.ink, size=14, xanchor="left" if left else "right",
             xshift=8 if left else -8, yshift=-14),
    ]  # fmt: skip


def _tens(low: float, high: float) -> dict[str, Any]:
    """Return a tick at every power of ten of a logarithmic axis, written as a decimal."""
    values = [10.0**k for k in range(int(np.ceil(low)), int(np.floor(high)) + 1)]
    return {"tickvals": values, "ticktext": [short(v) for v in values]}


def _powers(longest: float) -> dict[str, Any]:
    values = [v for v in (1, 2, 5, 10, 20, 50, 100, 200, 500) if v <= 1.2 * longest]
    return {"tickvals": values, "ticktext": [str(v) for v in values]}


def _here(colors: Palette, x: float, y: float, color: str, place: str) -> Trace:
    return {
        "type": "scatter", "mode": "markers+text", "x": [float(x)], "y": [float(y)], "hoverinfo": "skip",
        "marker": {"size": 14, "color": color, "line": {"width": 3, "color": colors.page}},
        "text": [plain(y, 4)], "textposition": place, "textfont": {"size": 14, "color": colors.ink},
        "cliponaxis": False,
    }  # fmt: skip


def identity(colors: Palette, one: Identity) -> Figure:
    """Return the expected reward under both policies, and under the old one with each ratio as the weight."""
    names = ("old", "token", "sequence", "trajectory", "new")
    tints = {"old": colors.old, "new": colors.current}
    values = [one.values[name] for name in names]
    exact = one.values["new"]
    data: list[Trace] = [
        {
            "type": "bar", "orientation": "h", "x": floats(values), "y": [t(f"chart.expect_{name}") for name in names],
            "width": 0.62, "marker": {
                "color": [tints.get(name, colors.page) for name in names],
                "line": {"width": 2.5, "color": [tints.get(name, colors.old) for name in names]},
            },
            "text": [f"{ROOM}{plain(v)}" for v in values], "textposition": "outside", "cliponaxis": False,
            "textfont": {"size": 14, "color": colors.ink}, "hoverinfo": "skip",
        }
    ]  # fmt: skip
    return figure(
        data,
        layout(
            colors,
            height=330,
            margin={"l": 8, "r": 40, "t": 10, "b": 8},
            shapes=[rule(colors, x0=exact, x1=exact, yref="paper", y0=0, y1=1,
                         line={"color": colors.current, "width": 2, "dash": "dash"})],
            xaxis=axis(colors, t("axis.expected_reward"), range=[0, 1.15 * max(*values, 1e-6)], zeroline=False),
            yaxis=axis(colors, autorange="reversed", type="category", showgrid=False, ticksuffix="  ",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip
