"""Pictures of the Loss page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note, safe
from app.numbers import signed
from app.words import t


def totals(colors: Palette, policy: np.ndarray, kl: np.ndarray, up: np.ndarray, down: np.ndarray) -> Figure:
    """Return what each completion adds to the loss, above, and how hard its tokens are pulled up and down, below.

    All (G,). What is added cancels between completions; what is pulled does not.
    """
    names = [str(i + 1) for i in range(len(policy))]
    added = policy + kl
    data = [
        _bar(names, policy, [colors.sign(-v) for v in policy], "y", t("hover.loss.policy")),
        _bar(names, kl, [colors.reference] * len(names), "y", t("hover.loss.kl")),
        _bar(names, up, [colors.up] * len(names), "y2", t("hover.loss.up")),
        _bar(names, down, [colors.down] * len(names), "y2", t("hover.loss.down")),
    ]
    places = range(len(names)) if len(names) <= 12 else ()
    notes = [_above(colors, i, policy[i], kl[i], added[i]) for i in places]
    notes += [_mark(colors, i, side[i]) for i in places for side in (up, down) if abs(side[i]) > 5e-4]
    return figure(
        data,
        layout(
            colors,
            height=330,
            barmode="relative",
            annotations=notes,
            xaxis=axis(colors, t("axis.completion"), type="category", showgrid=False, anchor="y2"),
            yaxis=axis(colors, t("axis.loss.added"), domain=[0.57, 1.0], range=_room(policy, kl, added), nticks=4),
            yaxis2=axis(colors, t("axis.loss.pull"), domain=[0.0, 0.43], range=_room(up, down), nticks=4),
        ),
    )


def _bar(names: Sequence[str], values: np.ndarray, tint: Sequence[str], where: str, hover: str) -> dict[str, Any]:
    return {
        "type": "bar", "x": list(names), "y": floats(values), "yaxis": where, "marker": {"color": list(tint)},
        "customdata": [signed(v, 4) for v in values], "hovertemplate": hover,
    }  # fmt: skip


def _above(colors: Palette, place: int, policy: float, kl: float, added: float) -> dict[str, Any]:
    top = max(0.0, policy) + max(0.0, kl)
    bottom = min(0.0, policy) + min(0.0, kl)
    up = added >= 0
    return note(
        signed(added), place, float(top if up else bottom), colors.ink, size=13, yshift=9 if up else -9, yref="y"
    )


def _mark(colors: Palette, place: int, value: float) -> dict[str, Any]:
    return note(signed(value), place, float(value), colors.ink, size=13, yshift=9 if value > 0 else -9, yref="y2")


def _room(*series: np.ndarray) -> list[float]:
    values = np.concatenate([np.zeros(1), *series])
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    pad = 0.28 * max(high - low, 1e-12)
    return [low - pad, high + pad]


@dataclass(frozen=True)
class Change:
    """A token whose pull differs between two losses: where it stands, its text, both pulls."""

    completion: int
    position: int
    text: str
    first: float
    second: float

    @property
    def name(self) -> str:
        """What stands beside it in a picture."""
        return t("loss.token_name", completion=self.completion + 1, position=self.position + 1)


def changes(colors: Palette, rows: Sequence[Change], *, first: str, second: str, share: bool) -> Figure:
    """Return a dumbbell for each token: from its pull under the first loss (open) to that under the second (filled)."""
    factor = 100.0 if share else 1.0
    names = [f"{safe(row.text, 14)}  <span style='color:{colors.muted}'>{row.name}</span>" for row in rows]
    y = list(range(len(rows)))
    values = [(factor * row.first, factor * row.second) for row in rows]
    rods_x: list[float | None] = []
    rods_y: list[float | None] = []
    for k, (a, b) in enumerate(values):
        rods_x += [a, b, None]
        rods_y += [k, k, None]
    unit = " %" if share else ""
    facts = [f"{signed(a, 4)}{unit} → {signed(b, 4)}{unit}" for a, b in values]
    data = [
        {"type": "scatter", "mode": "lines", "x": rods_x, "y": rods_y, "line": {"color": colors.old, "width": 3},
         "hoverinfo": "skip"},
        _dots(colors, [a for a, _ in values], y, facts, filled=False),
        _dots(colors, [b for _, b in values], y, facts, filled=True),
    ]  # fmt: skip
    span = max([abs(v) for pair in values for v in pair], default=0.0) or 1.0
    return figure(
        data,
        layout(
            colors,
            height=88 + 30 * max(len(rows), 1),
            margin={"l": 8, "r": 12, "t": 34, "b": 8},
            annotations=_key(colors, first, second),
            xaxis=axis(colors, t("axis.loss.share" if share else "axis.loss.pull"), range=[-1.12 * span, 1.12 * span]),
            yaxis=axis(
                colors, tickvals=y, ticktext=names, range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False,
                tickfont={"size": 13, "color": colors.ink},
            ),
        ),
    )  # fmt: skip


def _dots(
    colors: Palette, x: Sequence[float], y: Sequence[int], facts: Sequence[str], *, filled: bool
) -> dict[str, Any]:
    tint = [colors.sign(v) for v in x]
    inner = tint if filled else [colors.page] * len(tint)
    return {
        "type": "scatter", "mode": "markers", "x": list(x), "y": list(y), "cliponaxis": False,
        "marker": {"size": 12, "color": inner, "line": {"width": 2.5, "color": tint}},
        "customdata": list(facts), "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip


def _key(colors: Palette, first: str, second: str) -> list[dict[str, Any]]:
    place = {"xref": "paper", "yref": "paper", "yanchor": "bottom", "y": 1.0, "yshift": 8}
    text = t("loss.key", first=safe(first), second=safe(second))
    return [note(text, 0.0, place.pop("y"), colors.muted, size=13, xanchor="left", **place)]


def ranking(
    colors: Palette, names: Sequence[str], moved: Sequence[float], *, chosen: int | None, factor: Sequence[bool]
) -> Figure:
    """Return a bar for each alternative: the share of all pull that it moves to other tokens, largest first.

    `factor`: where nothing moves but every pull is multiplied by one number.
    """
    y = list(range(len(names)))
    tint = [colors.up if k == chosen else colors.old for k in y]
    text = [_moved_text(value, scaled) for value, scaled in zip(moved, factor, strict=True)]
    bar = {
        "type": "bar", "orientation": "h", "x": [100 * v for v in moved], "y": y, "marker": {"color": tint},
        "text": text, "textposition": "outside", "cliponaxis": False, "textfont": {"size": 12, "color": colors.ink},
        "hoverinfo": "skip",
    }  # fmt: skip
    widest = max(5.0, 108 * max(moved, default=0.0))
    labels = [f"<b>{safe(name, 34)}</b>" if k == chosen else safe(name, 34) for k, name in enumerate(names)]
    return figure(
        [bar],
        layout(
            colors,
            height=56 + 22 * len(names),
            bargap=0.3,
            margin={"l": 8, "r": 84, "t": 6, "b": 8},
            xaxis=axis(colors, t("axis.loss.moved"), range=[0, widest], zeroline=False),
            yaxis=axis(
                colors, tickvals=y, ticktext=labels, range=[len(names) - 0.4, -0.6], showgrid=False, zeroline=False,
                tickfont={"size": 12, "color": colors.ink},
            ),
        ),
    )  # fmt: skip


def _moved_text(value: float, scaled: bool) -> str:
    if value < 5e-4:
        return t("loss.only_factor") if scaled else t("loss.no_change")
    return f"{100 * value:.1f} %"
