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
    panels = (
        (one.paths.reward, t("axis.expected_reward")),
        (one.paths.from_start, t("axis.kl_from_start")),
        (one.paths.penalty, t("axis.kl_in_force")),
    )
    runs = _runs(colors, one)
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for k, (values, title) in enumerate(panels):
        suffix = "" if k == 0 else str(k + 1)
        domain = [1 - (k + 1) / 3 + LOWEST, 1 - k / 3 - 0.02]
        shown = np.round(values, 6)
        axes[f"yaxis{suffix}"] = axis(colors, title, domain=domain, nticks=4, range=_range(shown, k > 0))
        data += [_path(run, own, suffix) for run, own in zip(runs, shown.tolist(), strict=True)]
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 6}
    return figure(
        data,
        layout(
            colors, height=556, shapes=[*_refreshes(colors, one), *_limits(colors, one)],
            annotations=[note(_legend(colors, runs), 0, 1, colors.ink, size=14, align="left", **place)],
            margin={"l": 8, "r": 12, "t": 54, "b": 8},
            xaxis=axis(colors, t("axis.kl_step"), anchor="y3", range=[0, one.steps], zeroline=False),
            **axes,
        ),
    )  # fmt: skip


Run = tuple[str, str, str]
"""A run's name, colour and dash."""


def _runs(colors: Palette, one: Refresh) -> list[Run]:
    """Return the three runs: a held reference, a refreshed one, a held one under the smaller beta."""
    return [
        (t("chart.kl.held", beta=short(one.beta)), colors.current, "solid"),
        (t("chart.kl.refreshed", every=one.every), colors.reference, "solid"),
        (t("chart.kl.smaller", beta=short(one.smaller)), colors.second, "dash"),
    ]


def _path(run: Run, values: list[float], suffix: str) -> dict[str, Any]:
    name, tint, dash = run
    return {
        **line([], [], tint, width=2.5, dash=dash), "x": list(range(len(values))), "y": values,
        "yaxis": f"y{suffix}", "hovertemplate": safe(name) + t("hover.kl_refresh"),
    }  # fmt: skip


def _limits(colors: Palette, one: Refresh) -> list[dict[str, Any]]:
    """Return where reward and KL end under a held reference, for both betas."""
    return [
        rule(colors, xref="paper", x0=0, x1=1, yref=f"y{suffix}", y0=one.limit(beta)[k], y1=one.limit(beta)[k],
             line={"color": tint, "width": 1.2, "dash": "dot"})
        for k, suffix in ((0, ""), (1, "2"))
        for beta, tint in ((one.beta, colors.current), (one.smaller, colors.second))
    ]  # fmt: skip


def _legend(colors: Palette, runs: list[Run]) -> str:
    marks = "  ".join(
        f"<span style='color:{tint}'>{'╍╍' if dash == 'dash' else '━━'}</span> {safe(name)}  "
        for name, tint, dash in runs
    )
    return f"{marks}<br>{_small(colors)}"


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
