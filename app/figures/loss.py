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
    least = 0.01 * float(np.max(np.abs([up, down]), initial=0.0))  # next to the others not to be seen
    notes += [_mark(colors, i, side[i]) for i in places for side in (up, down) if abs(side[i]) > least]
    return figure(
        data,
        layout(
            colors,
            height=330,
            barmode="relative",
            annotations=notes,
            xaxis=axis(colors, t("axis.completion"), type="category", showgrid=False, anchor="y2"),
            yaxis=axis(colors, t("axis.loss.added"), domain=[0.57, 1.0], range=_room(policy, kl, added), nticks=4,
                       exponentformat="power"),
            yaxis2=axis(colors, t("axis.loss.pull"), domain=[0.0, 0.43], range=_room(up, down), nticks=4,
                        exponentformat="power"),
        ),
    )  # fmt: skip


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
    if high - low < 1e-12:  # nothing but zeros: an axis of their rounding errors would say otherwise
        return [-1.0, 1.0]
    pad = 0.28 * (high - low)
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
    factor, unit = (100.0, " %") if share else (1.0, "")
    values = [(factor * row.first, factor * row.second) for row in rows]
    y = list(range(len(rows)))
    facts = [f"{signed(a, 4)}{unit} → {signed(b, 4)}{unit}" for a, b in values]
    span = max([abs(v) for pair in values for v in pair], default=0.0) or 1.0
    return figure(
        [
            _between(colors, values),
            _dots(colors, [a for a, _ in values], y, facts, filled=False),
            _dots(colors, [b for _, b in values], y, facts, filled=True),
        ],
        layout(
            colors, height=88 + 30 * max(len(rows), 1), margin={"l": 8, "r": 12, "t": 34, "b": 8},
            annotations=_key(colors, first, second),
            xaxis=axis(colors, t("axis.loss.share" if share else "axis.loss.pull"), range=[-1.12 * span, 1.12 * span],
                       exponentformat="power"),
            yaxis=axis(colors, tickvals=y, ticktext=[_token(colors, row) for row in rows],
                       range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False,
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


def _token(colors: Palette, row: Change) -> str:
    return f"{safe(row.text, 14)}  <span style='color:{colors.muted}'>{row.name}</span>"


def _between(colors: Palette, values: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the rods from each first pull to the second."""
    x = [part for pair in values for part in (*pair, None)]
    y = [part for k in range(len(values)) for part in (k, k, None)]
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": colors.old, "width": 3},
        "hoverinfo": "skip",
    }  # fmt: skip


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
        "width": 0.36, "text": text, "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 12, "color": colors.ink}, "hoverinfo": "skip",
    }  # fmt: skip
    widest = max(5.0, 108 * max(moved, default=0.0))
    return figure(
        [bar],
        layout(
            colors, height=56 + 36 * len(names), margin={"l": 8, "r": 84, "t": 6, "b": 8},
            annotations=[_above_bar(colors, name, k, chosen=k == chosen) for k, name in enumerate(names)],
            xaxis=axis(colors, t("axis.loss.moved"), range=[0, widest], zeroline=False),
            yaxis=axis(colors, visible=False, range=[len(names) - 0.5, -0.8]),
        ),
    )  # fmt: skip


def _above_bar(colors: Palette, name: str, place: int, *, chosen: bool) -> dict[str, Any]:
    """Return a bar's name above it: beside it, it would leave no room for the bar."""
    text = f"<b>{safe(name, 44)}</b>" if chosen else safe(name, 44)
    return note(text, 0, place - 0.2, colors.ink, size=12, xref="paper", xanchor="left", yanchor="bottom")


def _moved_text(value: float, scaled: bool) -> str:
    if value < 5e-4:
        return t("loss.only_factor") if scaled else t("loss.no_change")
    return f"{100 * value:.1f} %"
