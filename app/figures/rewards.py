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
    parts = [np.array([_number(report.parts[name]) for report in bench.reports]) for name in names]
    totals = np.array([_number(total) for total in bench.totals])
    x = [*range(len(names)), len(names) + GAP, len(names) + 1 + GAP]
    shapes, notes = [], []
    for place, values in zip(x, [*parts, totals, bench.advantages], strict=True):
        cells = _column(colors, place, values, digits=2 if place < len(names) else 3)
        shapes += cells[0]
        notes += cells[1]
    labels = [f"{i + 1}  {_tail(text)}" for i, text in enumerate(bench.bench.texts)]
    marks = [_mark(colors, row, ok) for row, ok in enumerate(bench.right) if ok is not None]
    ticks = {"showgrid": False, "zeroline": False, "showline": False, "tickfont": {"size": 13, "color": colors.ink}}
    return figure(
        [{"type": "scatter", "mode": "markers", "x": [x[0]], "y": [0], "marker": {"opacity": 0}, "hoverinfo": "skip"}],
        layout(
            colors, height=76 + 52 * len(labels), shapes=shapes, annotations=[*notes, *marks],
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis=axis(colors, tickvals=x, ticktext=_heads(bench, names), side="top", range=[-0.5, x[-1] + 0.72],
                       **ticks),
            yaxis=axis(colors, tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.5, -0.5],
                       ticksuffix="  ", **ticks),
        ),
    )  # fmt: skip


def _heads(bench: Scores, names: list[str]) -> list[str]:
    weights = bench.reports[0].weights
    verifiers = [t("chart.verifier", name=t(f"param.w_{n}.short"), weight=plain(weights[n], 2)) for n in names]
    return [*verifiers, f"<b>{t('chart.reward')}</b>", f"<b>{t('chart.advantage')}</b>"]


def _column(colors: Palette, x: float, values: np.ndarray, *, digits: int) -> tuple[list[dict], list[dict]]:
    """Return the cells of one column and the numbers in them; its largest number is the strongest colour."""
    size = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-9)
    shares = [None if np.isnan(value) else float(value) / size for value in values]
    cells = [_cell(colors, x, row, share) for row, share in enumerate(shares)]
    notes = []
    for row, (value, share) in enumerate(zip(values, shares, strict=True)):
        if share is None:
            notes.append(note(t("chart.unscored"), x, row, colors.muted, size=11))
        else:
            ink = "#FFFFFF" if abs(share) > 0.7 else colors.ink
            notes.append(note(signed(value, digits), x, row, ink, size=14))
    return cells, notes


def _tail(text: str, limit: int = 24) -> str:
    """Return the end of a completion, where its answer is, for a label; no word or tag is cut where a space is."""
    flat = " ".join(text.split()) or t("chart.empty")
    if len(flat) <= limit:
        return safe(flat)
    end = flat[1 - limit :]
    broken, _, whole = end.partition(" ")
    return safe("…" + (whole if whole and len(broken) < limit // 2 else end))


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
    start = max_length - cache
    return figure(
        [line(x, y, colors.down, width=3, hoverinfo="skip"), *_completions(colors, *points, end=float(x[-1]))],
        layout(
            colors, height=380,
            annotations=[
                note(t("chart.cache"), max_length - cache / 2, 0, colors.muted, yref="paper", yanchor="bottom",
                     yshift=4),
                note(t("chart.limit", n=max_length), max_length, 1, colors.muted, yref="paper", yanchor="top",
                     xanchor="left", xshift=6),
            ],
            shapes=[
                band(start, max_length, colors.band, colors.band_opacity),
                rule(colors, x0=max_length, x1=max_length, y0=0, y1=1, yref="paper"),
            ],
            xaxis=axis(colors, t("axis.tokens"), range=[0, float(x[-1])], zeroline=False),
            yaxis=axis(colors, t("axis.penalty"), range=[-1.15, 0.22], nticks=6),
        ),
    )  # fmt: skip


def _completions(colors: Palette, lengths: np.ndarray, values: np.ndarray, *, end: float) -> list[dict]:
    """Return a dot for each completion, and their numbers; where dots lie close together, one name lists them."""
    dots = {
        "type": "scatter", "mode": "markers", "x": floats(lengths), "y": floats(values), "cliponaxis": False,
        "text": [str(i + 1) for i in range(len(lengths))], "hovertemplate": t("hover.overlong"),
        "marker": {"size": 13, "color": [colors.sign(v) for v in values], "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
    near: list[list[int]] = []
    for i in np.lexsort((values, lengths)):
        last = near[-1] if near else []
        if last and lengths[i] - lengths[last[-1]] < 0.03 * end and abs(values[i] - values[last[-1]]) < 0.1:
            last.append(int(i))
        else:
            near.append([int(i)])
    names = {
        "type": "scatter", "mode": "text", "hoverinfo": "skip", "cliponaxis": False, "textposition": "top right",
        "x": [float(np.mean(lengths[own])) for own in near], "y": [float(values[own].max()) + 0.02 for own in near],
        "text": [", ".join(str(i + 1) for i in sorted(own)) for own in near],
        "textfont": {"size": 13, "color": colors.ink},
    }  # fmt: skip
    return [dots, names]
