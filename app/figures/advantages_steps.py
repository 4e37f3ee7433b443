"""The picture of process supervision: one advantage for each token, beside the one of outcome supervision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note
from app.numbers import plain, short, signed
from app.words import t

ROOM = 30  # letters that fit beside each other over a completion's steps


@dataclass(frozen=True)
class Stairs:
    """One completion: the advantage of every token (T,), that of outcome supervision, its steps' ends and rewards."""

    tokens: np.ndarray
    outcome: float
    ends: Sequence[int]  # each step's last token, counted from 1
    rewards: Sequence[float]


def staircases(colors: Palette, rows: Sequence[Stairs], *, chosen: int) -> Figure:
    """Return a row for each completion: its tokens' advantages as stairs, outcome supervision as a dashed line."""
    count, widest = len(rows), max(len(row.tokens) for row in rows)
    reach = _reach(rows)
    data, notes, shapes, axes = [], [], [], {}
    for i, row in enumerate(rows):
        suffix = "" if i == 0 else str(i + 1)
        top = 1.0 - i / count
        domain = [top - 0.82 / count, top - 0.14 / count]
        axes[f"yaxis{suffix}"] = axis(
            colors, t("axis.advantage_short") if count <= 5 else "", domain=domain, range=reach, nticks=4, anchor="x"
        )
        data.append(_stairs(colors, row, suffix))
        shapes += _marks(colors, row, suffix, domain)
        notes += [*_step_names(colors, row, domain[1], widest), *_beside(colors, i, row, suffix, chosen == i, count)]
    return figure(
        data,
        layout(
            colors, height=62 + (126 if count <= 4 else 88) * count, bargap=0, shapes=shapes, annotations=notes,
            margin={"l": 8, "r": 176, "t": 8, "b": 8},
            xaxis=axis(colors, t("axis.position"), range=[0.5, widest + 0.5], showgrid=False, zeroline=False,
                       anchor=f"y{count if count > 1 else ''}", tickvals=_ticks(widest)),
            **axes,
        ),
    )  # fmt: skip


def _ticks(widest: int) -> list[int]:
    step = 1 if widest <= 16 else max(2, round(widest / 12))
    return list(range(step, widest + 1, step))


def _reach(rows: Sequence[Stairs]) -> list[float]:
    values = np.concatenate([[0.0], *(np.append(row.tokens, row.outcome) for row in rows)])
    low, high = float(values.min()), float(values.max())
    room = 0.12 * max(high - low, 1.0)
    return [low - room, high + room]


def _stairs(colors: Palette, row: Stairs, suffix: str) -> dict:
    return {
        "type": "bar", "x": list(range(1, len(row.tokens) + 1)), "y": floats(row.tokens), "width": 1,
        "xaxis": "x", "yaxis": f"y{suffix}", "customdata": [signed(a) for a in row.tokens],
        "marker": {"color": [colors.sign(a) for a in row.tokens], "line": {"width": 0}}, "opacity": 0.85,
        "hovertemplate": t("hover.step_token"),
    }  # fmt: skip


def _marks(colors: Palette, row: Stairs, suffix: str, domain: Sequence[float]) -> list[dict]:
    """Return the line of outcome supervision, and one where each step ends."""
    base = {"type": "line", "xref": "x"}
    ends = [
        {**base, "yref": "paper", "x0": end + 0.5, "x1": end + 0.5, "y0": domain[0], "y1": domain[1],
         "line": {"color": colors.zero, "width": 1, "dash": "dot"}}
        for end in row.ends
    ]  # fmt: skip
    outcome = {
        **base, "yref": f"y{suffix}", "x0": 0.5, "x1": len(row.tokens) + 0.5, "y0": row.outcome, "y1": row.outcome,
        "line": {"color": colors.ink, "width": 2, "dash": "dash"},
    }  # fmt: skip
    return [*ends, outcome]


def _step_names(colors: Palette, row: Stairs, top: float, widest: int) -> list[dict]:
    """Return each step's number and reward over it, as far as there is room."""
    notes, start = [], 1
    for k, (end, reward) in enumerate(zip(row.ends, row.rewards, strict=True)):
        text = t("chart.step", number=k + 1, reward=short(reward))
        if (end - start + 1) / widest * 6 * ROOM < len(text) * 3:
            text = str(k + 1)
        notes.append(note(text, (start + end) / 2, top, colors.muted, yref="paper", yanchor="bottom"))
        start = end + 1
    return notes


def _beside(colors: Palette, index: int, row: Stairs, suffix: str, chosen: bool, count: int) -> list[dict]:
    name = t("control.completion", number=index + 1)
    first = signed(row.tokens[0]) if len(row.tokens) else plain(None)
    lines = [
        f"<b>{name}</b>" if chosen else name,
        t("chart.step_first", value=first),
        t("chart.step_outcome", value=signed(row.outcome)),
    ]
    place = {"xref": "paper", "yref": f"y{suffix} domain", "xanchor": "left", "align": "left", "yanchor": "middle"}
    return [note("<br>".join(lines), 1.012, 0.5, colors.ink, size=13 if count <= 5 else 11, **place)]
