"""Pictures of the Sampling page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, figure, floats, layout, line, note, rule
from app.numbers import plain
from app.words import t

if TYPE_CHECKING:
    from app.views.sampling.dynamic import Batch
    from grpo_core.sampling import BudgetSplit, DynamicSampling

PAPER = {"xref": "paper", "yref": "paper"}
SUFFIXES = ("", "2", "3")  # of the axes of three rows


def dynamic(colors: Palette, batch: Batch, names: Sequence[str]) -> Figure:
    """Return, prompt by prompt: how often its group is mixed, its share of what trains, and the factor on its pull."""
    cost = batch.result
    ticks = [f"{name}<br>p = {plain(p, 2)}" for name, p in zip(names, batch.rates, strict=True)]
    finite = np.where(np.isfinite(cost.factor) & (cost.mixed > 0), cost.factor, np.nan)
    top = 1.35 * max(float(np.nanmax([1.0, *finite])), 1.0)
    rows = (
        Row(cost.mixed, colors.up, t("axis.mixed_share"), 1.3, 3),
        Row(cost.share, colors.current, t("axis.trained_share"), 1.35 * max(float(cost.share.max()), 0.05), 3),
        Row(finite, colors.old, t("axis.factor"), top, 2),
    )
    marks = [
        rule(colors, xref="paper", x0=0, x1=1, yref="y2", y0=1 / len(ticks), y1=1 / len(ticks)),
        rule(colors, xref="paper", x0=0, x1=1, yref="y3", y0=1, y1=1),
    ]
    axes = {
        f"yaxis{suffix}": axis(colors, row.title, domain=d, range=[0, row.top], nticks=3)
        for row, suffix, d in zip(rows, SUFFIXES, ([0.74, 1.0], [0.37, 0.63], [0.0, 0.26]), strict=True)
    }
    return figure(
        [_bars(ticks, row.values, row.color, f"y{suffix}", row.texts, colors)
         for row, suffix in zip(rows, SUFFIXES, strict=True)],
        layout(
            colors, height=430, annotations=_endless(colors, ticks, cost, 0.5 * top), shapes=marks,
            margin={"l": 8, "r": 12, "t": 14, "b": 8}, **axes,
            xaxis=axis(colors, type="category", showgrid=False, anchor="y3",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of bars: its values (N,), colour and axis, the top of the axis, the decimals of its numbers."""

    values: np.ndarray
    color: str
    title: str
    top: float
    digits: int

    @property
    def texts(self) -> list[str]:
        """What stands above each bar."""
        return [plain(v, self.digits) for v in self.values]


def _endless(colors: Palette, ticks: Sequence[str], cost: DynamicSampling, height: float) -> list[dict[str, Any]]:
    """Return a mark for each prompt whose factor is infinite."""
    return [
        note("∞", tick, height, colors.ink, size=20, yref="y3")
        for tick, factor, share in zip(ticks, cost.factor, cost.share, strict=True)
        if np.isinf(factor) and share > 0
    ]


def _bars(x: Sequence[str], y: np.ndarray, color: str, yaxis: str, text: Sequence[str], colors: Palette) -> Trace:
    return {
        "type": "bar", "x": list(x), "y": [None if np.isnan(v) else float(v) for v in y], "yaxis": yaxis, "width": 0.5,
        "marker": {"color": color}, "text": list(text), "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 13, "color": colors.ink}, "hoverinfo": "skip",
    }  # fmt: skip


def fill(colors: Palette, draws: np.ndarray, chances: np.ndarray, *, mean: float) -> Figure:
    """Return the probability that so many draws fill the batch."""
    curve = line(draws, chances, colors.up, width=3, hovertemplate=t("hover.fill"))
    return figure(
        [{**curve, "line": {**curve["line"], "shape": "spline", "smoothing": 0.6}}],
        layout(
            colors, height=200,
            annotations=[
                note(t("chart.mean_draws", value=plain(mean, 0)), mean, 1.0, colors.muted, xanchor="left", xshift=6,
                     yanchor="top"),
            ],
            shapes=[rule(colors, x0=mean, x1=mean, y0=0, y1=1, yref="paper")],
            xaxis=axis(colors, t("axis.draws"), zeroline=False),
            yaxis=axis(colors, t("axis.full"), range=[0, 1.05], nticks=4),
        ),
    )  # fmt: skip


def budget(colors: Palette, ways: Sequence[BudgetSplit], *, at: int) -> Figure:
    """Return, for each group size: all groups and the mixed ones, and below the completions that carry a signal."""
    x = list(range(len(ways)))
    mixed, signal = np.array([w.mixed_groups for w in ways]), np.array([w.signal_completions for w in ways])
    own = [1.0 if i == at else 0.45 for i in x]
    bars = {
        "type": "bar", "x": x, "width": 0.62, "hoverinfo": "skip", "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 12, "color": colors.ink},
    }  # fmt: skip
    above = {"y": floats(mixed), "text": [plain(v, 1) for v in mixed]}
    below = {"y": floats(signal), "text": [plain(v, 0) for v in signal], "yaxis": "y2"}
    return figure(
        [
            {**bars, **above, "marker": {"color": colors.up, "opacity": own}},
            {**bars, **below, "marker": {"color": colors.current, "opacity": own}},
        ],
        layout(
            colors, height=430, margin={"l": 8, "r": 12, "t": 14, "b": 8},
            annotations=[
                note(t("chart.of_groups", n=int(way.prompts)), k, 0, colors.muted, yref="y", yanchor="top", yshift=-2)
                for k, way in enumerate(ways)
            ],
            xaxis=axis(colors, t("axis.group_size"), tickvals=x, ticktext=[str(way.group_size) for way in ways],
                       showgrid=False, anchor="y2", zeroline=False, range=[-0.6, len(x) - 0.4],
                       tickfont={"size": 13, "color": colors.ink}),
            yaxis=axis(colors, t("axis.mixed_groups"), domain=[0.56, 1.0], nticks=4,
                       range=[0, 1.2 * float(mixed.max(initial=1e-6))]),
            yaxis2=axis(colors, t("axis.signal"), domain=[0.0, 0.44], nticks=4,
                        range=[0, 1.2 * max(float(signal.max(initial=0.0)), 1e-6)]),
        ),
    )  # fmt: skip


def mismatch(
    colors: Palette, trained: np.ndarray, sampled: np.ndarray, ratio: np.ndarray, names: Sequence[str]
) -> Figure:
    """Return what tokens are trained as and what they are drawn with, and below the ratio of the two."""
    shown = np.where(sampled > 0, ratio, np.nan)
    top = 1.25 * max(float(np.nanmax([1.0, *shown])), 1.0)
    pair = [
        {**_pair(names, values, color, colors), "offsetgroup": str(k)}
        for k, (values, color) in enumerate(((trained, colors.current), (sampled, colors.old)))
    ]
    high = 1.2 * float(max(trained.max(), sampled.max()))
    return figure(
        [*pair, _ratio_bars(colors, names, shown)],
        layout(
            colors, height=400, barmode="group", bargap=0.32, margin={"l": 8, "r": 12, "t": 34, "b": 8},
            annotations=[*_pair_names(colors), *_never_drawn(colors, names, sampled, 0.06 * top)],
            shapes=[rule(colors, xref="paper", x0=0, x1=1, yref="y2", y0=1, y1=1)],
            xaxis=axis(colors, t("axis.next_token"), type="category", showgrid=False, anchor="y2",
                       categoryarray=list(names), tickfont={"size": 14, "color": colors.ink}),
            yaxis=axis(colors, t("axis.probability"), domain=[0.48, 1.0], range=[0, high], nticks=5),
            yaxis2=axis(colors, t("axis.ratio"), domain=[0.0, 0.36], range=[0, top], nticks=4),
        ),
    )  # fmt: skip


def _ratio_bars(colors: Palette, names: Sequence[str], shown: np.ndarray) -> Trace:
    tints = [colors.sign(v - 1.0) if abs(v - 1.0) > 1e-9 else colors.old for v in shown]
    return {
        **_bars(names, shown, "", "y2", [plain(v) for v in shown], colors),
        "offsetgroup": "2", "offset": -0.2, "width": 0.4, "marker": {"color": tints},
    }  # fmt: skip


def _pair_names(colors: Palette) -> list[dict[str, Any]]:
    names = (("chart.trained", colors.current), ("chart.sampled", colors.old))
    text = "   ".join(f'<span style="color:{color}">■</span> {t(key)}' for key, color in names)
    return [note(text, 0, 1, colors.ink, size=13, xanchor="left", yanchor="bottom", yshift=8, **PAPER)]


def _never_drawn(colors: Palette, names: Sequence[str], sampled: np.ndarray, height: float) -> list[dict[str, Any]]:
    return [
        note(t("chart.never_drawn"), name, height, colors.muted, yref="y2", size=12, yanchor="bottom")
        for name, chance in zip(names, sampled, strict=True)
        if chance <= 0
    ]


def _pair(names: Sequence[str], values: np.ndarray, color: str, colors: Palette) -> Trace:
    return {
        "type": "bar", "x": list(names), "y": floats(values), "marker": {"color": color}, "hoverinfo": "skip",
        "text": [plain(v) for v in values], "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 12, "color": colors.ink},
    }  # fmt: skip


def sequence(colors: Palette, lengths: np.ndarray, ratios: np.ndarray, *, at: tuple[int, float], text: str) -> Figure:
    """Return the typical ratio of a completion against its length, on a logarithmic axis; `text` is the ratio `at`."""
    logs = np.log10(np.maximum(ratios, 1e-300))
    low = min(float(logs.min()), -0.7)
    steps = max(1, round(-low / 4))
    ticks = [0.2, 0.5, 1.0] if low > -1.2 else [10.0**-k for k in range(0, int(-low) + 1, steps)]
    return figure(
        [
            line(lengths, np.maximum(ratios, 1e-300), colors.entropy, width=3, hovertemplate=t("hover.sequence_ratio")),
            {"type": "scatter", "mode": "markers", "x": [at[0]], "y": [max(at[1], 1e-300)], "hoverinfo": "skip",
             "marker": {"size": 13, "color": colors.entropy, "line": {"width": 2, "color": colors.page}}},
        ],
        layout(
            colors, height=220,
            annotations=[
                note(t("chart.sequence_ratio", n=at[0], value=text), 1, 1, colors.ink, size=14, xanchor="right",
                     yanchor="top", **PAPER),
            ],
            xaxis=axis(colors, t("axis.tokens"), zeroline=False, range=[0, 1.03 * float(lengths[-1])]),
            yaxis=axis(colors, t("axis.completion_ratio"), type="log", range=[1.15 * low, -0.25 * low],
                       tickvals=ticks, ticktext=[_power(v) for v in ticks]),
        ),
    )  # fmt: skip


def _power(value: float) -> str:
    exponent = int(np.floor(np.log10(value) + 1e-9))
    return f"{value:g}" if exponent >= -2 else f"10<sup>−{-exponent}</sup>"


def pass_at_k(
    colors: Palette, xs: np.ndarray, exact: np.ndarray, bootstrap: np.ndarray, *, at: tuple[int, float, float]
) -> Figure:
    """Return pass@k and the bootstrap's best@k against k; `at` = (k, pass@k, best@k)."""
    k, value, drawn = at
    gap = {
        "type": "scatter", "mode": "lines", "x": floats([*xs, *xs[::-1]]), "y": floats([*exact, *bootstrap[::-1]]),
        "fill": "toself", "fillcolor": colors.old, "opacity": 0.14, "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip
    points = {
        "type": "scatter", "mode": "markers", "x": [k, k], "y": [value, drawn], "hoverinfo": "skip",
        "marker": {"size": 13, "color": [colors.current, colors.second], "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
    return figure(
        [
            gap,
            line(xs, bootstrap, colors.second, width=3, hovertemplate=t("hover.bootstrap")),
            line(xs, exact, colors.current, width=3.5, hovertemplate=t("hover.pass")),
            points,
        ],
        layout(
            colors, height=400, annotations=_pass_names(colors, value, drawn),
            shapes=[rule(colors, x0=k, x1=k, y0=0, y1=1, yref="y")],
            xaxis=axis(colors, t("axis.k"), zeroline=False, range=[0, 1.04 * float(xs[-1])]),
            yaxis=axis(colors, t("axis.solved"), range=[0, 1.28], tickvals=[0, 0.25, 0.5, 0.75, 1.0]),
        ),
    )  # fmt: skip


def _pass_names(colors: Palette, value: float, drawn: float) -> list[dict[str, Any]]:
    rows = (("chart.pass", colors.current, value), ("chart.bootstrap", colors.second, drawn))
    return [
        note(f'<span style="color:{color}">●</span> {t(key)} <b>{plain(number)}</b>', 0, 1, colors.ink, size=14,
             xanchor="left", yanchor="top", xshift=12, yshift=-24 * k, **PAPER)
        for k, (key, color, number) in enumerate(rows)
    ]  # fmt: skip
