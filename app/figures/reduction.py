"""Pictures of the Reduction page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note, rule, safe
from app.numbers import plain, signed
from app.words import t

TEXT_COLUMNS = 12  # token texts are written under the blocks up to this many tokens


@dataclass(frozen=True)
class Row:
    """One completion as a strip: its tokens' texts, weights, whether each trains, and its advantage."""

    name: str
    tokens: Sequence[str]
    weights: np.ndarray
    trains: np.ndarray
    advantage: float


def blocks(colors: Palette, rows: Sequence[Row]) -> Figure:
    """Return every token as a block as tall as its weight: a completion's area is its share of the loss."""
    tallest = max((float(row.weights.max()) for row in rows if row.weights.size), default=0.0) or 1.0
    widest = max(1, *(len(row.tokens) for row in rows))
    data = [_strip(colors, i, row, tallest, widest) for i, row in enumerate(rows)]
    notes = [n for i, row in enumerate(rows) for n in _row_notes(colors, i, row, widest)]
    notes.append(
        note(t("chart.weights_head"), 1.015, 0.95, colors.muted, size=12, xref="paper", xanchor="left", yanchor="top")
    )
    base = [rule(colors, x0=0, x1=widest, y0=-i, y1=-i, xref="x", yref="y") for i in range(len(rows))]
    return figure(
        data,
        layout(
            colors,
            height=110 + (84 if len(rows) <= 4 else 58) * len(rows),
            margin={"l": 8, "r": 190, "t": 12, "b": 8},
            bargap=0,
            barmode="overlay",
            shapes=base,
            annotations=notes,
            xaxis=axis(
                colors, t("axis.position"), range=[0, widest + 0.02], showgrid=False, zeroline=False,
                tickvals=_positions(widest), ticktext=[str(int(v + 0.5)) for v in _positions(widest)],
            ),
            yaxis=axis(
                colors, t("axis.completion"), range=[-len(rows) + 0.6, 0.95], showgrid=False, zeroline=False,
                tickvals=[-i for i in range(len(rows))], ticktext=[row.name for row in rows],
            ),
        ),
    )  # fmt: skip


def _positions(widest: int) -> list[float]:
    step = max(1, round(widest / 12)) if widest <= 24 else max(5, 5 * round(widest / 50))
    return [k - 0.5 for k in range(step if step > 1 else 1, widest + 1, step)]


def _strip(colors: Palette, index: int, row: Row, tallest: float, widest: int) -> dict:
    positions = np.arange(len(row.tokens)) + 0.5
    fill = [colors.sign(row.advantage) if m else colors.grid for m in row.trains]
    edge = {"width": 2 if widest <= 24 else 0.4, "color": colors.page}
    return {
        "type": "bar", "x": floats(positions), "y": floats(0.72 * row.weights / tallest), "base": -index, "width": 1,
        "marker": {"color": fill, "line": edge}, "hovertemplate": t("hover.block"),
        "customdata": [[safe(token), plain(w, 4)] for token, w in zip(row.tokens, row.weights, strict=True)],
    }  # fmt: skip


def _row_notes(colors: Palette, index: int, row: Row, widest: int) -> list[dict]:
    place = {"xref": "paper", "xanchor": "left", "yanchor": "bottom", "align": "left"}
    count = int(row.trains.sum())
    if not len(row.tokens):
        text, tint = t("chart.empty_row"), colors.muted
    else:
        each = float(row.weights[row.trains].max()) if count else 0.0
        total = plain(float(row.weights.sum()))
        text, tint = t("chart.block", each=plain(each, 4), count=count, total=total), colors.ink
    notes = [note(text, 1.015, -index, tint, size=13, **place)]
    if widest <= TEXT_COLUMNS:
        notes += [
            note(safe(token, 7), k + 0.5, -index, colors.muted, size=11, yanchor="top", yshift=-1)
            for k, token in enumerate(row.tokens)
        ]
    return notes


def rules(
    colors: Palette,
    names: Sequence[str],
    totals: np.ndarray,
    losses: Sequence[float],
    advantages: np.ndarray,
    chosen: int,
) -> Figure:
    """Return each rule as a bar of the completions' total weights; `totals` (rules, G), `losses` one for each rule."""
    rows = [f"<b>{name}</b>" if r == chosen else name for r, name in enumerate(names)]
    data = []
    for i in range(totals.shape[1]):
        labels = [plain(v, 3) if v > 0.09 * totals.sum(axis=1).max() else "" for v in totals[:, i]]
        data.append(
            {
                "type": "bar", "orientation": "h", "y": rows, "x": floats(totals[:, i]), "text": labels,
                "textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "none",
                "textfont": {"size": 13, "color": "#FFFFFF"},
                "marker": {"color": colors.sign(advantages[i]), "line": {"width": 2, "color": colors.page},
                           "opacity": [1.0 if r == chosen else 0.78 for r in range(len(names))]},
                "customdata": [[i + 1, plain(v, 4)] for v in totals[:, i]], "hovertemplate": t("hover.total"),
            }
        )  # fmt: skip
    ends = totals.sum(axis=1)
    notes = [
        note(
            t("chart.loss", value=signed(loss)),
            float(end),
            name,
            colors.ink,
            size=14,
            xanchor="left",
            xshift=10,
            bgcolor=colors.page,
        )
        for name, end, loss in zip(rows, ends, losses, strict=True)
    ]
    return figure(
        data,
        layout(
            colors,
            height=110 + 66 * len(names),
            barmode="stack",
            bargap=0.3,
            annotations=notes,
            xaxis=axis(colors, t("axis.total_weight"), range=[0, 1.28 * float(max(ends.max(), 1e-9))]),
            yaxis=axis(colors, autorange="reversed", showgrid=False, ticksuffix="  ",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


def parts(
    colors: Palette, names: Sequence[str], local: Sequence[float], *, mean_of_means: float, pooled: float
) -> Figure:
    """Return each micro-batch's own token mean, their mean, and the token mean of the whole batch."""
    values = np.array([*local, mean_of_means, pooled, 0.0])
    low, high = float(values.min()), float(values.max())
    room = 0.22 * max(high - low, 0.1)
    lines, notes = [], []
    for value, key, tint, above in (
        (mean_of_means, "chart.mean_of_means", colors.second, mean_of_means >= pooled),
        (pooled, "chart.pooled", colors.ink, pooled > mean_of_means),
    ):
        lines.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value,
                      "line": {"color": tint, "width": 3}})  # fmt: skip
        notes.append(
            note(t(key, value=signed(value)), 1.015, value, tint, size=14, xref="paper", xanchor="left",
                 yshift=9 if above else -9)
        )  # fmt: skip
    return figure(
        [
            {
                "type": "bar", "x": list(names), "y": floats(local), "width": 0.5, "marker": {"color": colors.old},
                "text": [signed(v) for v in local], "textposition": "outside", "cliponaxis": False, "hoverinfo": "skip",
                "textfont": {"size": 14, "color": colors.ink},
            }
        ],
        layout(
            colors,
            height=400,
            margin={"l": 8, "r": 190, "t": 14, "b": 8},
            shapes=lines,
            annotations=notes,
            xaxis=axis(colors, type="category", showgrid=False),
            yaxis=axis(colors, t("axis.loss_mean"), range=[low - room, high + room]),
        ),
    )  # fmt: skip
