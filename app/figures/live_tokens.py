"""What one step did to one completion: each token's probability before and after the update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.figures.base import Figure, Palette, Trace, axis, figure, note, rule, safe
from app.figures.live import colored, house, text_color
from app.token_table import visible
from app.words import t

HEIGHT = 300
MOST = 60  # tokens that are drawn; of a longer completion those around the chosen one


def probabilities(
    colors: Palette,
    texts: Sequence[str],
    before: Sequence[float],
    after: Sequence[float],
    reference: Sequence[float] | None,
    *,
    chosen: int,
    ends: Mapping[int, str] | None = None,
) -> Figure:
    """Return the probabilities of a completion's tokens as bars, with the chosen token in front of a band.

    `ends`: the last token of every step with what the step was paid, marked by a line and a number.
    """
    start = max(0, min(chosen - MOST // 2, len(texts) - MOST))
    places = list(range(start, start + len(texts[start : start + MOST])))
    part = slice(start, start + MOST)
    data = [
        _bars(places, before[part], colors.old, t("live.probability.before")),
        _bars(places, after[part], colors.current, t("live.probability.after")),
    ]
    if reference is not None:
        data.append(_marks(places, reference[part], colors))
    own = {end: paid for end, paid in (ends or {}).items() if end in places}
    shapes = ([_band(colors, chosen)] if texts else []) + [_end(colors, end) for end in own]
    notes = [_names(colors, reference is not None, bool(own)), *(_paid(colors, end, own[end]) for end in own)]
    return figure(data, _layout(colors, texts[part], places, shapes=shapes, annotations=notes, above=bool(own)))


def _layout(
    colors: Palette, texts: Sequence[str], places: Sequence[int], *, above: bool, **more: Any
) -> dict[str, Any]:
    """Return the layout; `above`: with room over the bars for what the steps were paid."""
    ticks = {"tickvals": list(places), "ticktext": [safe(visible(text), 12) for text in texts]}
    ends = [places[0] - 0.6, places[-1] + 0.6] if places else [-0.6, 0.6]
    return house(
        colors,
        height=HEIGHT,
        barmode="group",
        bargap=0.2,
        hovermode="x unified",
        margin={"l": 8, "r": 8, "t": 28, "b": 8},
        xaxis=axis(colors, t("live.axis.tokens"), **ticks, range=ends, showgrid=False, zeroline=False),
        yaxis=axis(
            colors, t("live.axis.probability"), range=[0, 1.15 if above else 1.03], zeroline=False,
            tickvals=[0, 0.25, 0.5, 0.75, 1],
        ),
        **more,
    )  # fmt: skip


def _names(colors: Palette, reference: bool, steps: bool) -> dict[str, Any]:
    """Return the line above the picture that says what its colours and marks are."""
    names = [
        colored(t("live.probability.before"), colors.muted),
        colored(t("live.probability.after"), text_color(colors, "current")),
    ]
    if reference:
        names.append(colored(t("live.probability.reference"), text_color(colors, "reference")))
    if steps:
        names.append(colored(t("live.probability.step"), colors.ink))
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 4}
    return note("  ·  ".join(names), 0, 1, colors.muted, size=13, **place)


def _bars(places: Sequence[int], values: Sequence[float], color: str, name: str) -> Trace:
    return {
        "type": "bar", "x": list(places), "y": list(values), "name": name, "marker": {"color": color},
        "hovertemplate": "%{y:.4f}",
    }  # fmt: skip


def _marks(places: Sequence[int], values: Sequence[float], colors: Palette) -> Trace:
    marks = {"symbol": "line-ew", "size": 12, "line": {"width": 2, "color": colors.reference}}
    bars = _bars(places, values, colors.reference, t("live.probability.reference"))
    return {**bars, "type": "scatter", "mode": "markers", "marker": marks}


def _band(colors: Palette, chosen: int) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": chosen - 0.5, "x1": chosen + 0.5, "y0": 0, "y1": 1,
        "layer": "below", "fillcolor": colors.grid, "opacity": 0.8, "line": {"width": 0},
    }  # fmt: skip


def _end(colors: Palette, end: int) -> dict[str, Any]:
    return rule(colors, xref="x", yref="paper", x0=end + 0.5, x1=end + 0.5, y0=0, y1=1)


def _paid(colors: Palette, end: int, paid: str) -> dict[str, Any]:
    return note(f"r {safe(paid)}", end + 0.45, 1.03, colors.ink, size=12, xanchor="right", yanchor="bottom")
