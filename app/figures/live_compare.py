"""Curves of several runs on one set of axes, each run in its own colour and dash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.figures.base import Figure, Palette, Trace, axis, figure, note, rule, safe
from app.figures.live import house, tick_font
from app.words import t
from grpo_core.live.experiments import Track

HEIGHT = 650
MOST_DOTS = 40  # evaluations that are drawn as dots


@dataclass(frozen=True)
class Style:
    """How one run is drawn: its colours on a light and on a dark page, its dash, and the shape of its dots."""

    light: str
    dark: str
    dash: str
    symbol: str

    def color(self, colors: Palette) -> str:
        """Return the colour on this page."""
        return self.light if int(colors.page[1:3], 16) > 127 else self.dark


STYLES = (
    Style("#1B1F24", "#E6EAEE", "solid", "circle"),
    Style("#56B4E9", "#56B4E9", "dash", "square"),
    Style("#7A7A12", "#C2BE4C", "dot", "diamond"),
    Style("#6A3FB5", "#7E52D8", "dashdot", "triangle-up"),
)
"""None of these is a colour with a meaning, the second is the house's "second run". They differ in lightness too."""


@dataclass(frozen=True)
class Drawn:
    """A run on the picture: what it is called there, and its curves."""

    name: str
    track: Track


@dataclass(frozen=True)
class Panel:
    """One panel: its metric, the key of its title, its place (left, right, bottom, top) and how numbers are written."""

    metric: str
    title: str
    place: tuple[float, float, float, float]
    format: str = ""
    evaluated: bool = False
    least: float = 0.0


_WIDE, _SMALL = ((0.0, 0.475), (0.525, 1.0)), ((0.0, 0.205), (0.265, 0.47), (0.53, 0.735), (0.795, 1.0))
_TOP, _BOTTOM = (0.46, 0.945), (0.0, 0.325)
PANELS = (
    Panel("reward", "reward", (*_WIDE[0], *_TOP)),
    Panel("accuracy", "accuracy", (*_WIDE[1], *_TOP), evaluated=True),
    Panel("kl", "kl", (*_SMALL[0], *_BOTTOM)),
    Panel("entropy", "entropy", (*_SMALL[1], *_BOTTOM)),
    Panel("completions/mean_length", "length", (*_SMALL[2], *_BOTTOM)),
    Panel("clip_ratio/region_mean", "clip", (*_SMALL[3], *_BOTTOM), format="~%", least=0.02),
)


def overlay(colors: Palette, runs: Sequence[Drawn], *, by: str, equal: float, revision: str) -> Figure:
    """Return the curves of all runs against `by` ("step", "seconds" or "tokens"), with a line at the cost `equal`.

    A new `revision` forgets the reader's zoom.
    """
    panels = [("" if index == 0 else str(index + 1), panel) for index, panel in enumerate(PANELS)]
    data = [
        _curve(colors, style, run, panel, by, number)
        for number, panel in panels
        for style, run in zip(STYLES, runs, strict=False)
    ]
    axes = {f"xaxis{number}": _x_axis(colors, by, panel, number) for number, panel in panels}
    axes |= {f"yaxis{number}": _y_axis(colors, panel, number, runs) for number, panel in panels}
    notes, lines = [_title(colors, panel) for panel in PANELS], []
    if equal > 0 and len(runs) > 1:
        lines = [_line(colors, number, equal) for number, _ in panels]
        notes.append(_equal_words(colors, equal, most=max(run.track.end(by) for run in runs)))
    margin = {"l": 40, "r": 10, "t": 12, "b": 46}
    more = {"uirevision": revision, "showlegend": True, "legend": _legend(colors), "annotations": notes}
    return figure(
        data,
        house(
            colors, height=HEIGHT, margin=margin, hovermode="closest", dragmode="zoom", shapes=lines, **more, **axes,
        ),
    )  # fmt: skip


def _title(colors: Palette, panel: Panel) -> dict[str, Any]:
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 2}
    return note(f"<b>{t(f'compare.panel.{panel.title}')}</b>", panel.place[0], panel.place[3], colors.ink, **place)


def _line(colors: Palette, number: str, equal: float) -> dict[str, Any]:
    return rule(colors, xref=f"x{number}", yref=f"y{number} domain", x0=equal, x1=equal, y0=0, y1=1)


def _equal_words(colors: Palette, equal: float, *, most: float) -> dict[str, Any]:
    """Return what the line at equal cost means, on the side of it that has more room."""
    side = "right" if equal > 0.5 * most else "left"
    place = {"xref": "x", "yref": "y domain", "xanchor": side, "yanchor": "bottom", "yshift": 4}
    return note(t("compare.equal"), equal, 0, colors.muted, **place)


def _legend(colors: Palette) -> dict[str, Any]:
    return {
        "orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "itemwidth": 40,
        "font": {"size": 14, "color": colors.ink}, "bgcolor": "rgba(0,0,0,0)", "traceorder": "normal",
    }  # fmt: skip


def _curve(colors: Palette, style: Style, run: Drawn, panel: Panel, by: str, number: str) -> Trace:
    name, color = safe(run.name, 60), style.color(colors)
    x, y = run.track.scores(by, panel.metric) if panel.evaluated else _points(run.track, by, panel.metric)
    form = ".2%" if panel.format.endswith("%") else ".4~g"
    dots = panel.evaluated and len(x) <= MOST_DOTS
    return {
        "type": "scatter", "mode": "lines+markers" if dots else "lines", "x": x, "y": y, "name": name,
        "legendgroup": name, "showlegend": panel is PANELS[0], "xaxis": f"x{number}", "yaxis": f"y{number}",
        "line": {"color": color, "width": 2.2 if panel.place[1] - panel.place[0] > 0.3 else 1.8, "dash": style.dash},
        "marker": {"color": color, "size": 7, "symbol": style.symbol},
        "hovertemplate": f"{name}<br>{t(f'compare.axis.{by}')} %{{x:.6~g}}<br>%{{y:{form}}}<extra></extra>",
    }  # fmt: skip


def _points(track: Track, by: str, metric: str) -> tuple[list[float | None], list[float | None]]:
    """Return cost and value of each point of a curve; a value that is missing leaves a gap."""
    cost, values = track.cost(by), track.curves.get(metric, ())
    return (list(cost), list(values)) if len(cost) == len(values) else ([], [])


def _x_axis(colors: Palette, by: str, panel: Panel, number: str) -> dict[str, Any]:
    left, right, _, _ = panel.place
    wide = right - left > 0.3
    more: dict[str, Any] = {"matches": "x"} if number else {}
    return axis(
        colors, t(f"compare.axis.{by}"), domain=[left, right], anchor=f"y{number}", showgrid=False, zeroline=False,
        rangemode="tozero", nticks=7 if wide else 4, fixedrange=False, tickformat="~s" if by == "tokens" else "",
        automargin=False, tickfont=tick_font(colors, 11), **more,
    )  # fmt: skip


def _y_axis(colors: Palette, panel: Panel, number: str, runs: Sequence[Drawn]) -> dict[str, Any]:
    _, _, bottom, top = panel.place
    more: dict[str, Any] = {"range": [-0.02, 1.04]} if panel.evaluated else {"rangemode": "tozero"}
    seen = [v for run in runs for v in run.track.curves.get(panel.metric, ()) if v is not None]
    if not panel.evaluated and max(seen, default=0.0) <= panel.least:
        more = {"range": [0, panel.least or 1.0]}
    return axis(
        colors, domain=[bottom, top], anchor=f"x{number}", zeroline=False, nticks=6 if top > 0.5 else 4,
        tickformat=panel.format, automargin=False, tickfont=tick_font(colors, 11), **more,
    )  # fmt: skip
