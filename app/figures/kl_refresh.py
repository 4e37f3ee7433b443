"""The picture of the KL page's refresh: reward, distance from the start, and penalty in force, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, layout, line, note, rule, safe
from app.numbers import short
from app.words import t

if TYPE_CHECKING:
    from app.explain.kl import Refresh

LOWEST = 0.045  # where the lowest panel ends, as a part of the height
MOST_RULES = 40  # refreshes that are marked: more would be a grey wall


def refresh(colors: Palette, one: Refresh) -> Figure:
    """Return three panels over the steps: expected reward, KL to the first reference, KL to the reference in force."""
    tints, dashes = (colors.current, colors.reference, colors.second), ("solid", "solid", "dash")
    names = (
        t("chart.kl.held", beta=short(one.beta)),
        t("chart.kl.refreshed", every=one.every),
        t("chart.kl.smaller", beta=short(one.smaller)),
    )
    panels = (
        (one.paths.reward, t("axis.expected_reward")),
        (one.paths.from_start, t("axis.kl_from_start")),
        (one.paths.penalty, t("axis.kl_in_force")),
    )
    x = list(range(one.steps + 1))
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    shapes = _refreshes(colors, one)
    for k, (values, title) in enumerate(panels):
        suffix = "" if k == 0 else str(k + 1)
        domain = [1 - (k + 1) / 3 + LOWEST, 1 - k / 3 - 0.02]
        shown = np.round(values, 6)
        axes[f"yaxis{suffix}"] = axis(colors, title, domain=domain, nticks=4, range=_range(shown, k > 0))
        for own, tint, dash, name in zip(shown.tolist(), tints, dashes, names, strict=True):
            data.append(
                {**line([], [], tint, width=2.5, dash=dash), "x": x, "y": own, "yaxis": f"y{suffix}",
                 "hovertemplate": safe(name) + t("hover.kl_refresh")}
            )  # fmt: skip
        if k < 2:
            for beta, tint in ((one.beta, tints[0]), (one.smaller, tints[2])):
                level = one.limit(beta)[k]
                shapes.append(
                    rule(colors, xref="paper", x0=0, x1=1, yref=f"y{suffix}", y0=level, y1=level,
                         line={"color": tint, "width": 1.2, "dash": "dot"})
                )  # fmt: skip
    marks = "  ".join(
        f"<span style='color:{tint}'>{'╍╍' if dash == 'dash' else '━━'}</span> {safe(name)}  "
        for tint, dash, name in zip(tints, dashes, names, strict=True)
    )
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 6}
    return figure(
        data,
        layout(
            colors, height=556, shapes=shapes, margin={"l": 8, "r": 12, "t": 54, "b": 8},
            annotations=[note(f"{marks}<br>{_small(colors)}", 0, 1, colors.ink, size=14, align="left", **place)],
            xaxis=axis(colors, t("axis.kl_step"), anchor="y3", range=[0, one.steps], zeroline=False),
            **axes,
        ),
    )  # fmt: skip


def _small(colors: Palette) -> str:
    """Return what the thin lines are."""
    return f"<span style='color:{colors.muted}'>{t('chart.kl.refreshes')}</span>"


def _range(values: np.ndarray, from_zero: bool) -> list[float]:
    low, high = (0.0 if from_zero else float(values.min())), float(values.max())
    pad = 0.12 * max(high - low, 1e-6)
    return [low if from_zero else low - pad, high + pad]


def _refreshes(colors: Palette, one: Refresh) -> list[dict[str, Any]]:
    steps = one.refreshes if len(one.refreshes) <= MOST_RULES else []
    return [rule(colors, x0=step, x1=step, yref="paper", y0=LOWEST, y1=1) for step in steps]
