"""Pictures of the held-out evaluation: accuracies with their intervals, and accuracy by difficulty and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.figures.base import Figure, Palette, Trace, axis, figure, note, rule, safe
from app.figures.live import colored, faded, house, text_color, x_axis
from app.words import t

HEIGHT = 340
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measure:
    """One accuracy: its key in an evaluation, with its interval under _low and _high, and the colour of its curve."""

    metric: str
    color: str
    name: str

    def value(self, row: Row) -> float | None:
        """Return the share of right answers, None where it was not measured."""
        value = row.get(self.metric)
        return float(value) if isinstance(value, int | float) else None

    def interval(self, row: Row) -> tuple[float, float] | None:
        """Return the ends of the 95 % interval, None where there is none."""
        ends = row.get(f"{self.metric}_low"), row.get(f"{self.metric}_high")
        return (float(ends[0]), float(ends[1])) if ends[0] is not None and ends[1] is not None else None


MEASURES = (
    Measure("accuracy", "current", "greedy"),
    Measure("sampled_accuracy", "up", "single"),
    Measure("pass_at_k", "ink", "best"),
)
"""Greedy, a single sample, and the best of k samples: the best is drawn as points, as it is measured now and then."""


def accuracies(
    colors: Palette, rows: Sequence[Row], *, by: str, total: float | None, samples: int, revision: str
) -> Figure:
    """Return the accuracies of the evaluations `rows` against `by`, each with its interval and its level at the start.

    `samples`: of how many the best was taken.
    """
    data: list[Trace] = []
    shapes = []
    for measure in MEASURES:
        own = [row for row in rows if measure.value(row) is not None and row.get(by) is not None]
        data += _dots(colors, measure, own, by, samples) if measure.name == "best" else _line(colors, measure, own, by)
        if own:
            level, color = measure.value(own[0]), getattr(colors, measure.color)
            shapes.append({**rule(colors, xref="paper", yref="y", x0=0, x1=1, y0=level, y1=level), "opacity": 0.7})
            shapes[-1]["line"] = {"color": color, "width": 1, "dash": "dot"}
    names = [colored(_name(m, samples), text_color(colors, m.color)) for m in MEASURES]
    return figure(
        data,
        house(
            colors,
            height=HEIGHT,
            margin={"l": 8, "r": 10, "t": 30, "b": 8},
            hovermode="x unified",
            uirevision=revision,
            shapes=shapes,
            annotations=[_heading(colors, "  ·  ".join(names))],
            xaxis=x_axis(colors, by, total),
            yaxis=axis(colors, t("live.axis.accuracy"), range=[-0.02, 1.04], tickformat="~%", zeroline=False, nticks=6),
        ),
    )


def _name(measure: Measure, samples: int) -> str:
    return t(f"live.eval.{measure.name}", samples=samples) if measure.name == "best" else t(f"live.eval.{measure.name}")


def _heading(colors: Palette, text: str) -> dict[str, Any]:
    return note(
        text, 0, 1, colors.muted, size=13, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=6
    )


def _line(colors: Palette, measure: Measure, rows: Sequence[Row], by: str) -> list[Trace]:
    """Return a curve and the band of its intervals."""
    color, x = getattr(colors, measure.color), [row[by] for row in rows]
    bounds = [measure.interval(row) or (measure.value(row),) * 2 for row in rows]
    band = {
        "type": "scatter", "mode": "lines", "x": [*x, *reversed(x)], "fill": "toself", "hoverinfo": "skip",
        "y": [*[high for _, high in bounds], *reversed([low for low, _ in bounds])],
        "line": {"width": 0}, "fillcolor": faded(color), "opacity": 0.35,
    }  # fmt: skip
    line = {
        "type": "scatter", "mode": "lines", "x": x, "y": [measure.value(row) for row in rows],
        "name": _name(measure, 0), "line": {"color": color, "width": 2.4},
        "customdata": [_interval_text(bound) for bound in bounds], "hovertemplate": "%{y:.1%} %{customdata}",
    }  # fmt: skip
    return [band, line] if rows else [line]


def _dots(colors: Palette, measure: Measure, rows: Sequence[Row], by: str, samples: int) -> list[Trace]:
    """Return points with the bars of their intervals."""
    color = getattr(colors, measure.color)
    values = [measure.value(row) or 0.0 for row in rows]
    bounds = [measure.interval(row) or (value, value) for row, value in zip(rows, values, strict=True)]
    return [
        {
            "type": "scatter", "mode": "markers", "x": [row[by] for row in rows], "y": values,
            "name": _name(measure, samples), "marker": {"color": color, "size": 7, "symbol": "diamond"},
            "error_y": _errors(values, bounds, color),
            "customdata": [_interval_text(bound) for bound in bounds], "hovertemplate": "%{y:.1%} %{customdata}",
        }
    ]  # fmt: skip


def _errors(values: Sequence[float], bounds: Sequence[tuple[float, float]], color: str) -> dict[str, Any]:
    return {
        "type": "data", "symmetric": False, "color": color, "thickness": 1.2, "width": 3,
        "array": [high - value for value, (_, high) in zip(values, bounds, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, bounds, strict=True)],
    }  # fmt: skip


def _interval_text(bounds: tuple[float | None, float | None]) -> str:
    low, high = bounds
    return "" if low is None or high is None or low == high else f"[{low:.1%}, {high:.1%}]"


def strata(colors: Palette, before: Sequence[Row], now: Sequence[Row], *, by: str) -> Figure:
    """Return accuracy within parts of the held-out answers, before training and now, with 95 % intervals.

    `by`: what the parts differ in, "level", "moves", "swaps" or "length".
    """
    order = list(dict.fromkeys(str(row["value"]) for row in sorted([*before, *now], key=_position)))
    data = [
        _bars(colors, order, rows, color, t(f"live.eval.{name}"))
        for rows, color, name in ((before, colors.old, "before"), (now, colors.current, "now"))
        if rows
    ]
    names = [colored(t("live.eval.before"), colors.muted), colored(t("live.eval.now"), colors.current)]
    return figure(
        data,
        house(
            colors,
            height=HEIGHT,
            barmode="group",
            bargap=0.25,
            margin={"l": 8, "r": 10, "t": 30, "b": 8},
            annotations=[_heading(colors, "  ·  ".join(names))],
            xaxis=axis(
                colors,
                t(f"live.axis.{by}"),
                type="category",
                categoryorder="array",
                categoryarray=list(map(safe, order)),
            ),
            yaxis=axis(colors, t("live.axis.accuracy"), range=[0, 1.04], tickformat="~%", zeroline=False, nticks=6),
        ),
    )


def _position(row: Row) -> int:
    """Return the first number of a part's name, to put "5-8" before "9-16"."""
    digits = str(row["value"]).split("-")[0].rstrip("+")
    return int(digits) if digits.isdecimal() else 0


def _bars(colors: Palette, order: Sequence[str], rows: Sequence[Row], color: str, name: str) -> Trace:
    own = sorted(rows, key=lambda row: order.index(str(row["value"])))
    values = [float(row["accuracy"]) for row in own]
    bounds = [(float(row["accuracy_low"]), float(row["accuracy_high"])) for row in own]
    return {
        "type": "bar", "x": [safe(row["value"]) for row in own], "y": values, "name": safe(name),
        "marker": {"color": color}, "error_y": _errors(values, bounds, colors.ink),
        "customdata": [[row["answers"], _interval_text(bound)] for row, bound in zip(own, bounds, strict=True)],
        "hovertemplate": t("hover.evaluation") + "<extra></extra>",
    }  # fmt: skip
