"""Pictures of the Rewards page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.figures.base import Figure, Palette, axis, band, figure, floats, layout, line, note, rule, safe
from app.numbers import plain, signed
from app.words import t

if TYPE_CHECKING:
    from app.views.rewards.scores import Scores

GAP = 0.35  # columns between what verifiers say and what becomes of it


def scores(colors: Palette, bench: Scores) -> Figure:
    """Return the table of completions and verifiers, with reward and advantage at its right."""
    names = list(bench.reports[0].parts)
    parts = np.array([[_number(r.parts[n]) for n in names] for r in bench.reports])
    totals = np.array([_number(total) for total in bench.totals])
    columns = [*parts.T, totals, bench.advantages]
    x = [*range(len(names)), len(names) + GAP, len(names) + 1 + GAP]
    weights = bench.reports[0].weights
    heads = [
        *(t("chart.verifier", name=t(f"param.w_{n}.short"), weight=plain(weights[n], 2)) for n in names),
        f"<b>{t('chart.reward')}</b>", f"<b>{t('chart.advantage')}</b>",
    ]  # fmt: skip
    shapes, notes = [], []
    for place, values in zip(x, columns, strict=True):
        size = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-9)
        for row, value in enumerate(values):
            known = not np.isnan(value)
            shapes.append(_cell(colors, place, row, value / size if known else None))
            ink = colors.muted if not known else "#FFFFFF" if abs(value) / size > 0.7 else colors.ink
            text = signed(value, 2 if place < len(names) else 3) if known else t("chart.unscored")
            notes.append(note(text, place, row, ink, size=14 if known else 11))
    labels = [f"{i + 1}  {_tail(text)}" for i, text in enumerate(bench.bench.texts)]
    marks = [_mark(colors, row, ok) for row, ok in enumerate(bench.right) if ok is not None]
    return figure(
        [{"type": "scatter", "mode": "markers", "x": [x[0]], "y": [0], "marker": {"opacity": 0}, "hoverinfo": "skip"}],
        layout(
            colors, height=76 + 52 * len(labels), shapes=shapes, annotations=[*notes, *marks],
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis=axis(colors, tickvals=x, ticktext=heads, side="top", range=[-0.5, x[-1] + 0.72], showgrid=False,
                       zeroline=False, showline=False, tickfont={"size": 13, "color": colors.ink}),
            yaxis=axis(colors, tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.5, -0.5],
                       showgrid=False, zeroline=False, showline=False, ticksuffix="  ",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


def _tail(text: str, limit: int = 24) -> str:
    """Return the end of a completion, where its answer is, for a label."""
    flat = " ".join(text.split()) or t("chart.empty")
    return safe(flat if len(flat) <= limit else "…" + flat[1 - limit :])


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _cell(colors: Palette, x: float, row: int, share: float | None) -> dict:
    """Return one cell: its colour says sign and size; one that could not be scored is only outlined."""
    color = colors.panel if share is None else colors.sign(share)
    return {
        "type": "rect", "x0": x - 0.47, "x1": x + 0.47, "y0": row - 0.44, "y1": row + 0.44, "layer": "below",
        "fillcolor": color, "opacity": 0.5 if share is None else 0.08 + 0.92 * abs(share) if share else 0.12,
        "line": {"width": 1 if share is None else 0, "color": colors.zero, "dash": "dot"},
    }  # fmt: skip


def _mark(colors: Palette, row: int, right: bool) -> dict:
    """Return the mark behind a row: whether the completion itself says the right answer."""
    text, color = ("✓", colors.current) if right else ("✗", colors.muted)
    return note(text, 1, row, color, size=17, xref="paper", xanchor="right", xshift=2)


def overlong(
    colors: Palette, x: np.ndarray, y: np.ndarray, *, points: tuple[np.ndarray, np.ndarray], max_length: int, cache: int
) -> Figure:
    """Return the penalty against the length, with the completions on it; `points` = (lengths, penalties)."""
    own, values = points
    dots = {
        "type": "scatter", "mode": "markers+text", "x": floats(own), "y": floats(values), "cliponaxis": False,
        "text": [str(i + 1) for i in range(len(own))], "textposition": "top center",
        "hovertemplate": t("hover.overlong"),
        "textfont": {"size": 13, "color": colors.ink},
        "marker": {"size": 13, "color": [colors.sign(v) for v in values], "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
    return figure(
        [line(x, y, colors.down, width=3, hoverinfo="skip"), dots],
        layout(
            colors, height=380,
            annotations=[
                note(t("chart.cache"), max_length - cache / 2, 0, colors.muted, yref="paper", yanchor="bottom",
                     yshift=4),
                note(t("chart.limit", n=max_length), max_length, 1, colors.muted, yref="paper", yanchor="top",
                     xanchor="left", xshift=6),
            ],
            shapes=[
                band(max_length - cache, max_length, colors.band, colors.band_opacity),
                rule(colors, x0=max_length, x1=max_length, y0=0, y1=1, yref="paper"),
            ],
            xaxis=axis(colors, t("axis.tokens"), range=[0, float(x[-1])], zeroline=False),
            yaxis=axis(colors, t("axis.penalty"), range=[-1.15, 0.22], nticks=6),
        ),
    )  # fmt: skip
