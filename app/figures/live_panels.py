"""The small multiples of the Live page: one panel for each thing to keep an eye on, in sets of up to eight."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.figures.base import Figure, Palette, Trace, axis, figure, note, safe
from app.figures.live import (
    MAIN_HEIGHT,
    MOST_STAMPS,
    Column,
    Stamp,
    colored,
    curve,
    faded,
    house,
    stamp_line,
    text_color,
    tick_font,
    x_axis,
)
from app.words import t

HEIGHT = MAIN_HEIGHT - 56  # beside the main curve, under the choice of panels
MOST = 8  # panels in a set


@dataclass(frozen=True)
class Series:
    """One curve of a panel: its metric, the key of its name, and the palette's colour for what it means."""

    metric: str
    name: str
    color: str = "muted"
    stacked: bool = False


@dataclass(frozen=True)
class Panel:
    """One small panel; its title and help are labels under its name. Several curves are named, each in its colour.

    `wide`: it takes a row of its own. `least`: the axis reaches at least this far, so that next to nothing does not
    fill the panel. `also`: metrics that are not drawn but seen on it.
    """

    series: tuple[Series, ...]
    format: str = ""
    suffix: str = ""
    least: float = 0.0
    wide: bool = False
    also: tuple[str, ...] = ()

    def shows(self, metric: str) -> bool:
        """Return whether a metric is seen on this panel."""
        return metric in self.also or any(series.metric == metric for series in self.series)


def _one(metric: str, name: str, color: str = "muted", **more: Any) -> Panel:
    return Panel((Series(metric, name, color),), **more)


KINDS = (
    Series("groups/mixed", "mixed", "up", stacked=True),
    Series("groups/all-right", "all_right", "current", stacked=True),
    Series("groups/all-wrong", "all_wrong", "down", stacked=True),
    Series("groups/unscored", "unscored", "old", stacked=True),
)
SHARES_OF_TIME = (
    Series("time/sampling", "sampling", "current", stacked=True),
    Series("time/scoring", "scoring", "up", stacked=True),
    Series("time/reference", "reference", "reference", stacked=True),
    Series("time/update", "update", "muted", stacked=True),
    Series("time/probe", "probe", "old", stacked=True),
)
PANELS: Mapping[str, Panel] = {
    "length": _one("completions/mean_length", "length"),
    "lengths": Panel(
        (
            Series("completions/max_length", "longest", "old"),
            Series("completions/mean_length", "mean"),
            Series("completions/min_length", "shortest", "old"),
        )
    ),
    "truncated": _one("completions/clipped_ratio", "truncated", format="~%", least=0.04),
    "entropy": _one("entropy", "entropy", "entropy"),
    "kl": Panel((Series("kl", "to_reference", "reference"), Series("kl_old", "to_old", "old"))),
    "kl_reference": _one("kl", "to_reference", "reference"),
    "kl_old": _one("kl_old", "to_old", "old"),
    "groups": Panel(KINDS),
    "dead": _one("frac_reward_zero_std", "dead", "old", format="~%", least=0.04),
    "reward_std": Panel((Series("reward_std", "of_all", "old"), Series("reward_std_within", "within", "up"))),
    "advantage": Panel(
        (
            Series("advantages/max", "largest", "up"),
            Series("advantages/abs_mean", "mean_size"),
            Series("advantages/min", "smallest", "down"),
        )
    ),
    "parts": Panel(
        (Series("rewards/accuracy/mean", "right", "current"), Series("rewards/format/mean", "format", "second")),
        format="~%",
    ),
    "exact": _one("reward_exact", "exact", "current"),
    "reward_model": _one("reward_model/accuracy", "agreement", "up", format="~%"),
    "unscored": _one("completions/unscored_ratio", "unscored", "old", format="~%", least=0.04),
    "drawn": Panel((Series("groups/drawn", "drawn", "old"), Series("groups/trained_mixed", "trained_mixed", "up"))),
    "loss": _one("loss", "loss"),
    "grad_norm": _one("grad_norm", "grad_norm"),
    "clip": Panel(
        (Series("clip_ratio/low_mean", "clip_low", "down"), Series("clip_ratio/high_mean", "clip_high", "up")),
        format="~%",
        least=0.02,
        also=("clip_ratio/region_mean",),
    ),
    "saturated": _one("saturated_mean", "saturated", format="~%", least=0.02),
    "ratio": Panel((Series("ratio/max", "largest", "up"), Series("ratio/min", "smallest", "down"))),
    "outside": _one("ratio/outside_mean", "outside", format="~%", least=0.02),
    "learning_rate": _one("learning_rate", "learning_rate", format="~g"),
    "beta": _one("beta", "beta", "reference"),
    "time": Panel(SHARES_OF_TIME, format="~s", suffix="s", wide=True),
    "speed": _one("tokens_per_second", "speed", format="~s"),
    "step_tokens": _one("completion_tokens", "step_tokens", format="~s"),
    "tokens": _one("num_tokens", "tokens", format="~s"),
    "train_seconds": _one("train_seconds", "train_seconds", suffix="s"),
}
"""Every panel by its name."""
SETS: Mapping[str, tuple[str, ...]] = {
    "overview": ("length", "truncated", "entropy", "kl", "groups", "grad_norm", "clip", "speed"),
    "signal": ("groups", "dead", "reward_std", "advantage", "parts", "unscored", "drawn", "exact"),
    "policy": ("entropy", "kl_reference", "kl_old", "ratio", "outside", "truncated", "lengths", "reward_model"),
    "update": ("loss", "grad_norm", "clip", "saturated", "ratio", "kl_old", "learning_rate", "beta"),
    "cost": ("time", "speed", "step_tokens", "tokens", "train_seconds", "drawn"),
}
"""Which panels are shown together: two to a row, in reading order."""

_Places = list[tuple[int, int]]  # row and column of each panel
_COLUMNS = ((0.0, 0.435), (0.565, 1.0), (0.0, 1.0))  # left, right, and a wide panel
_AXES = ("x", "x2", "x3")
_TITLE = 0.06  # height of a panel's title, as a share of the picture
_GAP = 0.03
_HELP_WIDTH = 46  # letters in a line of a panel's help
WIDE = 0x2E80  # from here on letters are as wide as they are high


def watching(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the panels on which these metrics are seen, in their order, and after them those of the overview."""
    wanted = [name for metric in metrics for name in PANELS if PANELS[name].shows(metric)]
    return tuple(dict.fromkeys([*_first_of_a_kind(wanted, metrics), *SETS["overview"]]))[:MOST]


def _first_of_a_kind(names: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Return for each metric the one panel that shows it with the fewest others."""
    found = []
    for metric in metrics:
        fitting = [name for name in names if PANELS[name].shows(metric)]
        found += [min(fitting, key=lambda name: len(PANELS[name].series))] if fitting else []
    return found


def filled(names: Sequence[str], curves: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the panels that have something to show; all of them before the first step."""
    some = [name for name in names if any(curves.get(series.metric) for series in PANELS[name].series)]
    return tuple(some) or tuple(names)


def panels(
    colors: Palette,
    names: Sequence[str],
    curves: Mapping[str, Column],
    stamps: Sequence[Stamp],
    *,
    by: str,
    total: float | None,
    revision: str,
    marks: Mapping[str, str] | None = None,
) -> Figure:
    """Return the small multiples on the same axis as the main curve, two columns sharing one axis each.

    `marks`: panels that a finding is about, with the palette's colour of their sign.
    """
    places, x = _places(names), curves.get(by, [])
    data = [
        _curve(colors, series, x, curves, PANELS[name], index, column)
        for index, (name, (_, column)) in enumerate(zip(names, places, strict=True))
        for series in PANELS[name].series
    ]
    drawn = stamps[-MOST_STAMPS:]
    lines = [_stamp(colors, stamp, i, column) for stamp in drawn for i, (_, column) in enumerate(places)]
    more = {"shapes": lines, "uirevision": f"{revision} {','.join(names)}", "hoversubplots": "axis", "hovermode": "x"}
    axes = {**_y_axes(colors, names, places, curves), **_x_axes(colors, places, by, total)}
    notes = _titles(colors, names, places, curves, marks or {})
    margin = {"l": 40, "r": 8, "t": 4, "b": 8}
    return figure(data, house(colors, height=HEIGHT, margin=margin, dragmode="zoom", annotations=notes, **more, **axes))


def _y_axes(colors: Palette, names: Sequence[str], places: _Places, curves: Mapping[str, Column]) -> dict[str, Any]:
    rows = 1 + max(row for row, _ in places)
    return {
        f"yaxis{index + 1}": _axis(colors, PANELS[name], column, _row(row, rows), curves)
        for index, (name, (row, column)) in enumerate(zip(names, places, strict=True))
    }


def _x_axes(colors: Palette, places: _Places, by: str, total: float | None) -> dict[str, Any]:
    """Return one axis for each column, under its last panel; that of a wide panel has no numbers of its own."""
    axes = {}
    for column in sorted({0, *(column for _, column in places)}):
        last = max((i for i, place in enumerate(places) if place[1] == column), default=0)
        more: dict[str, Any] = {"domain": list(_COLUMNS[column]), "anchor": f"y{last + 1}", "nticks": 5}
        more |= {"matches": "x"} if column else {}
        more |= {"showticklabels": False, "title": None} if column == 2 and len(places) > 1 else {}
        axes[f"xaxis{column + 1}"] = {**x_axis(colors, by, total, fixedrange=False), **more}
    return axes


def _titles(
    colors: Palette, names: Sequence[str], places: _Places, curves: Mapping[str, Column], marks: Mapping[str, str]
) -> list[dict[str, Any]]:
    rows = 1 + max(row for row, _ in places)
    return [
        _title(colors, name, curves, _COLUMNS[column][0], _row(row, rows)[1], mark=marks.get(name))
        for name, (row, column) in zip(names, places, strict=True)
    ]


def _places(names: Sequence[str]) -> _Places:
    """Return row and column of each panel: two to a row, a wide one alone."""
    places, row, column = [], 0, 0
    for name in names:
        if PANELS[name].wide:
            row += column > 0
            places.append((row, 2))
            row, column = row + 1, 0
        else:
            places.append((row, column))
            row, column = row + column, 1 - column
    return places


def _row(row: int, rows: int) -> tuple[float, float]:
    """Return bottom and top of a row of panels, as shares of the picture."""
    height = 1.0 / rows
    top = 1.0 - row * height - _TITLE
    return max(0.0, 1.0 - (row + 1) * height + (_GAP if row < rows - 1 else 0.0)), top


def _axis(
    colors: Palette, panel: Panel, column: int, domain: tuple[float, float], curves: Mapping[str, Column]
) -> dict[str, Any]:
    values = [v for s in panel.series for v in curves.get(s.metric, ()) if v is not None]
    more: dict[str, Any] = {} if values else {"range": [0, 1], "showticklabels": False}
    if values and min(values) >= 0 and max(values) <= panel.least:
        more = {"range": [0, panel.least]}
    return axis(
        colors,
        domain=list(domain),
        anchor=_AXES[column],
        nticks=4,
        rangemode="tozero",
        zeroline=bool(values) and min(values) < 0,
        tickformat=panel.format,
        ticksuffix=panel.suffix,
        automargin=False,
        tickfont=tick_font(colors, 11),
        **more,
    )


def _title(
    colors: Palette, name: str, curves: Mapping[str, Column], left: float, top: float, *, mark: str | None
) -> dict[str, Any]:
    panel = PANELS[name]
    text = f"<b>{t(f'live.panel.{name}')}</b>"
    if mark is not None:
        text = f"{colored('▲', text_color(colors, mark))} {text}"
    if len(panel.series) > 1:
        shown = [s for s in panel.series if s.name != "unscored" or any(curves.get(s.metric, ()))]
        names = [colored(t(f"live.series.{s.name}"), text_color(colors, s.color)) for s in shown]
        text += "  " + " · ".join(names)
    return note(
        text, left, top, colors.ink, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=1,
        hovertext=_wrapped(t(f"live.panel.{name}.help")), hoverlabel={"bgcolor": colors.panel},
    )  # fmt: skip


def _wrapped(text: str) -> str:
    """Return a help text in lines; Chinese has no spaces to break at, and its letters are wider."""
    wide = any(ord(letter) >= WIDE for letter in text)
    lines = [text[i : i + 24] for i in range(0, len(text), 24)] if wide else textwrap.wrap(text, _HELP_WIDTH)
    return "<br>".join(safe(line, 200) for line in lines)


def _curve(
    colors: Palette, series: Series, x: Column, curves: Mapping[str, Column], panel: Panel, index: int, column: int
) -> Trace:
    y = curves.get(series.metric, [])
    color = getattr(colors, series.color)
    trace = curve(x, y, color, t(f"live.series.{series.name}"), width=1.8)
    hover = ".2%" if panel.format.endswith("%") else ".4~g"
    trace["hovertemplate"] = f"{safe(t(f'live.series.{series.name}'))} %{{y:{hover}}}{panel.suffix}<extra></extra>"
    trace |= {"xaxis": _AXES[column], "yaxis": f"y{index + 1}"}
    if series.stacked:
        fill = {"color": color, "width": 0.8}
        trace |= {"stackgroup": f"stack{index}", "fillcolor": faded(color), "line": fill}
    return trace


def _stamp(colors: Palette, stamp: Stamp, index: int, column: int) -> dict[str, Any]:
    return stamp_line(colors, stamp, xref=_AXES[column], yref=f"y{index + 1 if index else ''} domain")
