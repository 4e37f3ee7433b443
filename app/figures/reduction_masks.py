"""The picture of a padded batch: what every cell of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note, rule, safe
from app.numbers import plain
from app.words import t

PROMPT = 3  # cells that stand for the prompt, however long it is
STATES = ("prompt", "padding", "dropped", "masked", "token", "eos")
TEXT_COLUMNS = 14  # token texts are written into the cells up to this many columns


@dataclass(frozen=True)
class Row:
    """One completion: its tokens' texts, which of them train, its advantage, why it ended, a token's weight."""

    tokens: Sequence[str]
    trains: np.ndarray
    advantage: float
    finish: str
    weight: float
    dropped: bool


def state_of(row: Row, position: int) -> str:
    """Return what one token's cell is."""
    if not row.trains[position]:
        return "dropped" if row.dropped else "masked"
    last = position == len(row.tokens) - 1
    return "eos" if last and row.finish == "eos" else "token"


def padded(colors: Palette, rows: Sequence[Row]) -> Figure:
    """Return the batch as a grid: a row for each completion, prompt cells first, then positions up to the longest."""
    widest = max(1, *(len(row.tokens) for row in rows)) if len(rows) > 1 else max(1, len(rows[0].tokens))
    z = np.zeros((len(rows), PROMPT + widest))
    text = [[""] * (PROMPT + widest) for _ in rows]
    hover = [[t("masks.prompt")] * PROMPT + [t("masks.padding")] * widest for _ in rows]
    few = widest <= TEXT_COLUMNS
    for i, row in enumerate(rows):
        z[i, PROMPT:] = 1
        for k, token in enumerate(row.tokens):
            state = state_of(row, k)
            z[i, PROMPT + k] = _code(state, row.advantage)
            text[i][PROMPT + k] = _cell(state, token, few)
            hover[i][PROMPT + k] = f"{safe(token)}<br>{t(f'masks.{state}')}"
    x = [k - PROMPT + 1 for k in range(PROMPT + widest)]
    gap = 2 if widest <= 30 else 1 if widest <= 60 else 0
    heat = {
        "type": "heatmap", "z": [floats(row) for row in z], "x": x, "y": list(range(len(rows))), "zmin": 0, "zmax": 7,
        "colorscale": _scale(colors), "showscale": False, "xgap": gap, "ygap": 4, "text": text,
        "texttemplate": "%{text}" if widest <= 30 else "", "textfont": {"size": 12}, "customdata": hover,
        "hovertemplate": t("hover.mask_cell"),
    }  # fmt: skip
    notes = [note(t("masks.prompt"), -1, -0.5, colors.muted, size=12, yanchor="bottom")]
    for i, row in enumerate(rows):
        notes.append(
            note(_beside(row), 1.012, i, colors.muted if row.dropped or not len(row.tokens) else colors.ink, size=13,
                 xref="paper", xanchor="left", align="left")
        )  # fmt: skip
    notes += _legend(colors, rows)
    ticks, height = _ticks(widest), 46 if len(rows) <= 8 else 24
    return figure(
        [heat],
        layout(
            colors, height=122 + height * len(rows), annotations=notes,
            shapes=[rule(colors, x0=0.5, x1=0.5, y0=0, y1=1, xref="x", yref="paper")],
            margin={"l": 8, "r": 210, "t": 34, "b": 8},
            xaxis=axis(colors, t("axis.position"), range=[-PROMPT + 0.5, widest + 0.5], showgrid=False, zeroline=False,
                       tickvals=ticks, ticktext=[str(v) for v in ticks]),
            yaxis=axis(colors, t("axis.completion"), range=[len(rows) - 0.5, -0.5 - 22 / height], showgrid=False,
                       zeroline=False, tickvals=list(range(len(rows))),
                       ticktext=[str(i + 1) for i in range(len(rows))]),
        ),
    )  # fmt: skip


def _ticks(widest: int) -> list[int]:
    step = max(1, round(widest / 12)) if widest <= 24 else max(5, 5 * round(widest / 50))
    return list(range(step if step > 1 else 1, widest + 1, step))


def _code(state: str, advantage: float) -> int:
    if state in ("dropped", "masked"):
        return 2 if state == "dropped" else 3
    return 4 if advantage < 0 else 6 if advantage > 0 else 5


def _scale(colors: Palette) -> list[list]:
    """Return one colour for each code: prompt, padding, dropped, masked, then tokens by the sign of the advantage."""
    fills = (colors.grid, colors.page, colors.panel, colors.panel, colors.down, colors.old, colors.up, colors.up)
    edges = [(code / 7 - 0.5 / 7, code / 7 + 0.5 / 7) for code in range(8)]
    return [[min(max(edge, 0.0), 1.0), fill] for pair, fill in zip(edges, fills, strict=True) for edge in pair]


def _cell(state: str, token: str, few: bool) -> str:
    if state == "eos":
        return "EOS"
    if state in ("dropped", "masked"):
        return "×"
    return safe(token, 7) if few else ""


def _beside(row: Row) -> str:
    count = int(np.sum(row.trains))
    if not len(row.tokens):
        return t("chart.empty_row")
    if row.dropped:
        return t("masks.row_dropped") if row.finish == "length" else t("masks.row_masked")
    total = plain(count * row.weight)
    text = t("chart.block", each=plain(row.weight, 4), count=count, total=total)
    return f"{text}<br>{t('masks.row_truncated')}" if row.finish == "length" else text


def _legend(colors: Palette, rows: Sequence[Row]) -> list[dict]:
    """Return the signs that the grid uses, in words, above it."""
    seen = {state_of(row, k) for row in rows for k in range(len(row.tokens))}
    words = [t(f"masks.legend_{state}") for state in ("eos", "dropped", "masked") if state in seen]
    words.append(t("masks.legend_padding"))
    return [
        note("   ".join(words), 1.0, 1.0, colors.muted, size=12, xref="paper", yref="paper", xanchor="right",
             yanchor="bottom", yshift=12)
    ]  # fmt: skip
