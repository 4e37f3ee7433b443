"""Pictures of the Reduction page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note, rule, safe, text_on
from app.lens import Parts
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
    ends = totals.sum(axis=1)
    place: dict = {"xanchor": "left", "xshift": 10, "bgcolor": colors.page}
    notes = [
        note(t("chart.loss", value=signed(loss)), float(end), name, colors.ink, size=14, **place)
        for name, end, loss in zip(rows, ends, losses, strict=True)
    ]
    return figure(
        [_segment(colors, rows, i, totals, advantages[i], chosen) for i in range(totals.shape[1])],
        layout(
            colors, height=110 + 66 * len(names), barmode="stack", bargap=0.3, annotations=notes,
            xaxis=axis(colors, t("axis.total_weight"), range=[0, 1.28 * float(max(ends.max(), 1e-9))]),
            yaxis=axis(colors, autorange="reversed", showgrid=False, ticksuffix="  ",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


def _segment(
    colors: Palette, rows: Sequence[str], index: int, totals: np.ndarray, advantage: float, chosen: int
) -> dict:
    """Return one completion's part of every bar, its number in it where it fits; the chosen rule is in full colour."""
    values, tint = totals[:, index], colors.sign(advantage)
    shares = [1.0 if r == chosen else 0.78 for r in range(len(rows))]
    widest = totals.sum(axis=1).max()
    return {
        "type": "bar", "orientation": "h", "y": list(rows), "x": floats(values),
        "text": [plain(v, 3) if v > 0.09 * widest else "" for v in values], "textposition": "inside",
        "insidetextanchor": "middle", "textangle": 0, "constraintext": "none",
        "textfont": {"size": 13, "color": [text_on(tint, share, page=colors.page) for share in shares]},
        "marker": {"color": tint, "opacity": shares,
                   "line": {"width": 2 if totals.shape[1] <= 16 else 0.5, "color": colors.page}},
        "customdata": [[index + 1, plain(v, 4)] for v in values], "hovertemplate": t("hover.total"),
    }  # fmt: skip


def parts(colors: Palette, names: Sequence[str], split: Parts, *, span: str) -> Figure:
    """Return each micro-batch's own token mean above, and below what one of its tokens weighs.

    Lines: the loss and the weight that the whole batch's token mean gives, and the loss under `span`.
    """
    count, places = len(names), list(range(len(names)))
    values = np.array([*split.local, *split.losses.values(), 0.0])
    low, high = float(values.min()), float(values.max())
    room = 0.24 * max(high - low, 0.1)
    weights, true = split.weights[span], max(split.weights["all"])
    lines, notes = _part_lines(colors, split, span, true)
    shapes = [
        rule(colors, x0=k * split.each - 0.5, x1=k * split.each - 0.5, y0=0, y1=1, xref="x", yref="paper")
        for k in range(1, split.ranks)
    ]
    few, size = count <= 10, 14 if count <= 4 else 12 if count <= 6 else 10
    digits = 3 if count <= 4 else 2
    bars = {"type": "bar", "x": places, "width": 0.6 if count <= 4 else 0.86, "textposition": "outside",
            "cliponaxis": False, "hoverinfo": "skip", "textfont": {"size": size, "color": colors.ink},
            "constraintext": "none", "textangle": 0}  # fmt: skip
    if split.ranks > 1:
        notes += [
            note(t("chart.rank", rank=k + 1), (k + 0.5) * split.each - 0.5, 1.0, colors.muted, yref="paper",
                 yanchor="bottom")
            for k in range(split.ranks)
        ]  # fmt: skip
    return figure(
        [
            {**bars, "y": floats(split.local), "marker": {"color": colors.old},
             "text": [signed(v, digits) for v in split.local] if few else None},
            {**bars, "y": floats(weights), "marker": {"color": colors.second}, "yaxis": "y2",
             "text": [plain(v, 4) for v in weights] if few else None, "textposition": "inside",
             "insidetextanchor": "start", "textfont": {"size": size, "color": "#101418"}},
        ],
        layout(
            colors,
            height=470,
            margin={"l": 8, "r": 190, "t": 26, "b": 8},
            shapes=[*shapes, *lines],
            annotations=notes,
            xaxis=axis(colors, t("axis.part"), showgrid=False, zeroline=False, range=[-0.5, count - 0.5], anchor="y2",
                       tickangle=0,
                       tickvals=places if count <= 16 else places[:: count // 12],
                       ticktext=list(names) if count <= 16 else list(names)[:: count // 12]),
            yaxis=axis(colors, t("axis.loss_mean"), domain=[0.52, 1.0], range=[low - room, high + room]),
            yaxis2=axis(colors, t("axis.token_weight"), domain=[0.0, 0.4], range=[0, 1.3 * max(*weights, true, 1e-9)]),
        ),
    )  # fmt: skip


def _part_lines(colors: Palette, split: Parts, span: str, true: float) -> tuple[list[dict], list[dict]]:
    """Return the lines over the bars, with their names to the right."""
    own, pooled = split.losses[span], split.pooled
    rows = [("y", pooled, "chart.pooled", signed(pooled), colors.ink, "solid", -9 if own >= pooled else 9)]
    if span != "all":
        key = "chart.mean_of_means" if span == "part" else "chart.mean_of_ranks"
        rows.insert(0, ("y", own, key, signed(own), colors.second, "solid", 9 if own >= pooled else -9))
    rows.append(("y2", true, "chart.true_weight", plain(true, 4), colors.ink, "solid", 0))
    lines = [
        {"type": "line", "xref": "paper", "yref": axis_, "x0": 0, "x1": 1, "y0": value, "y1": value,
         "line": {"color": tint, "width": 3, "dash": dash}}
        for axis_, value, _, _, tint, dash, _ in rows
    ]  # fmt: skip
    notes = [
        note(t(key, value=text), 1.015, value, tint if tint != colors.second else colors.up_text, size=14,
             xref="paper", yref=axis_, xanchor="left", yshift=shift)
        for axis_, value, key, text, tint, _, shift in rows
    ]  # fmt: skip
    return lines, notes
