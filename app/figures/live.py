"""Pictures of the Live page: the main curve, the small multiples, the ratio histogram, and a group's tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.figures.base import FONT, Figure, Palette, Trace, axis, band, figure, layout, note, rule, safe
from app.numbers import MISSING, plain, short, signed
from app.words import t

Column = Sequence[float | None]

MAIN_HEIGHT = 500
MOST_DOTS = 60  # evaluations that are drawn as dots
MOST_STAMPS, MOST_NAMES = 24, 12  # commands marked on a chart, and named
LETTERS = 56  # letters that fit side by side above the main curve
REWARD, ACCURACY = "reward", "accuracy"


@dataclass(frozen=True)
class Stamp:
    """A command to mark on the charts: where (a step or a second), and what was asked for."""

    x: float
    text: str


@dataclass(frozen=True)
class Series:
    """One curve of a small panel: its metric, the key of its name, and the palette's colour for what it means."""

    metric: str
    name: str
    color: str
    stacked: bool = False


@dataclass(frozen=True)
class Panel:
    """One small panel. `title` is a label key; a panel with several curves names each in its colour."""

    title: str
    series: tuple[Series, ...]
    format: str = ""
    least: float = 0.0  # the axis reaches at least this far, so that next to nothing does not fill the panel


PANELS = (
    Panel("length", (Series("completions/mean_length", "length", "muted"),)),
    Panel("truncated", (Series("completions/clipped_ratio", "truncated", "muted"),), format="~%", least=0.04),
    Panel("entropy", (Series("entropy", "entropy", "entropy"),)),
    Panel("kl", (Series("kl", "to_reference", "reference"), Series("kl_old", "to_old", "old"))),
    Panel(
        "groups",
        (
            Series("groups/mixed", "mixed", "up", stacked=True),
            Series("groups/all-right", "all_right", "current", stacked=True),
            Series("groups/all-wrong", "all_wrong", "down", stacked=True),
            Series("groups/unscored", "unscored", "old", stacked=True),
        ),
    ),
    Panel("grad_norm", (Series("grad_norm", "grad_norm", "muted"),)),
    Panel(
        "clip",
        (Series("clip_ratio/low_mean", "clip_low", "down"), Series("clip_ratio/high_mean", "clip_high", "up")),
        format="~%",
        least=0.02,
    ),
    Panel("speed", (Series("tokens_per_second", "speed", "muted"),), format="~s"),
)
"""The small multiples, in reading order: two to a row."""

_COLUMNS = ((0.0, 0.435), (0.565, 1.0))
_TITLE = 0.06  # height of a panel's title, as a share of the picture
_GAP = 0.03


# The curves


def progress(
    colors: Palette,
    curves: Mapping[str, Column],
    evaluations: Sequence[Mapping[str, Any]],
    stamps: Sequence[Stamp],
    *,
    by: str,
    total: float | None,
    revision: str,
) -> Figure:
    """Return sampled reward and held-out accuracy against `by` ("step" or "seconds").

    `total`: the right end of the axis, None for as far as the data go. A new `revision` forgets the reader's zoom.
    """
    reward = curves.get(REWARD, [])
    data = [
        _curve(curves.get(by, []), reward, colors.up, t("live.sampled_reward"), width=2.8),
        _dots([e.get(by) for e in evaluations], [e.get(ACCURACY) for e in evaluations], colors),
    ]
    top = max([1.0, *(value for value in reward if value is not None)])
    bottom = min([0.0, *(value for value in reward if value is not None)])
    return figure(
        data,
        _layout(
            colors,
            height=MAIN_HEIGHT,
            margin={"l": 8, "r": 10, "t": 54, "b": 8},
            hovermode="x unified",
            dragmode="zoom",
            uirevision=revision,
            shapes=[_stamp_line(colors, stamp) for stamp in stamps[-MOST_STAMPS:]],
            annotations=[_progress_title(colors, reward, evaluations), *_stamp_names(colors, stamps, total)],
            xaxis=_x_axis(colors, by, total, fixedrange=False),
            yaxis=axis(colors, range=[bottom - 0.02 * top, 1.04 * top], zeroline=False, nticks=7),
        ),
    )


def _progress_title(colors: Palette, reward: Column, evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    newest = next((value for value in reversed(reward) if value is not None), None)
    accuracy = evaluations[-1].get(ACCURACY) if evaluations else None
    parts = ((t("live.sampled_reward"), newest, colors.up_text), (t("live.accuracy"), accuracy, colors.current))
    texts = [_colored(f"{name} <b>{plain(value, 2)}</b>", color) for name, value, color in parts]
    return note("  ·  ".join(texts), 0, 1, colors.muted, size=16, xref="paper", yref="paper",
                xanchor="left", yanchor="bottom", yshift=24)  # fmt: skip


def _dots(x: Sequence[Any], y: Sequence[Any], colors: Palette) -> Trace:
    mode = "lines+markers" if len(x) <= MOST_DOTS else "lines"
    return {
        "type": "scatter", "mode": mode, "x": list(x), "y": list(y), "name": t("live.accuracy"),
        "line": {"color": colors.current, "width": 2, "dash": "dot"}, "marker": {"size": 7, "color": colors.current},
        "hovertemplate": "%{y:.3f}",
    }  # fmt: skip


def panels(
    colors: Palette,
    curves: Mapping[str, Column],
    stamps: Sequence[Stamp],
    *,
    by: str,
    total: float | None,
    revision: str,
) -> Figure:
    """Return the small multiples on the same axis as the main curve, two columns sharing one axis each."""
    data: list[Trace] = []
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    x = curves.get(by, [])
    for index, panel in enumerate(PANELS):
        column, (bottom, top) = index % 2, _row(index // 2)
        highest = max((v for s in panel.series for v in curves.get(s.metric, ()) if v is not None), default=None)
        axes[f"yaxis{index + 1}"] = _panel_axis(colors, panel, column, (bottom, top), highest=highest)
        notes.append(_panel_title(colors, panel, curves, _COLUMNS[column][0], top))
        data += [_panel_curve(colors, s, x, curves, panel.format, index) for s in panel.series]
    for column, domain in enumerate(_COLUMNS):
        more: dict[str, Any] = {"domain": list(domain), "anchor": f"y{len(PANELS) - 1 + column}", "nticks": 5}
        more |= {"matches": "x"} if column else {}
        axes[f"xaxis{column + 1}"] = _x_axis(colors, by, total, fixedrange=False, **more)
    lines = [_panel_stamp(colors, stamp, index) for stamp in stamps[-MOST_STAMPS:] for index in range(len(PANELS))]
    return figure(
        data,
        _layout(
            colors,
            height=MAIN_HEIGHT,
            margin={"l": 40, "r": 8, "t": 4, "b": 8},
            hovermode="x",
            hoversubplots="axis",
            dragmode="zoom",
            uirevision=revision,
            shapes=lines,
            annotations=notes,
            **axes,
        ),
    )


def _row(row: int) -> tuple[float, float]:
    """Return bottom and top of a row of panels, as shares of the picture."""
    rows = len(PANELS) // 2
    height = 1.0 / rows
    top = 1.0 - row * height - _TITLE
    return max(0.0, 1.0 - (row + 1) * height + (_GAP if row < rows - 1 else 0.0)), top


def _panel_axis(
    colors: Palette, panel: Panel, column: int, domain: tuple[float, float], *, highest: float | None
) -> dict[str, Any]:
    more: dict[str, Any] = {"range": [0, 1], "showticklabels": False} if highest is None else {}
    if highest is not None and highest <= panel.least:
        more = {"range": [0, panel.least]}
    return axis(
        colors,
        domain=list(domain),
        anchor="x" if column == 0 else "x2",
        nticks=4,
        rangemode="tozero",
        zeroline=False,
        tickformat=panel.format,
        automargin=False,
        tickfont=_font(colors, 11),
        **more,
    )


def _panel_title(
    colors: Palette, panel: Panel, curves: Mapping[str, Column], left: float, top: float
) -> dict[str, Any]:
    text = f"<b>{t(f'live.panel.{panel.title}')}</b>"
    if len(panel.series) > 1:
        shown = [s for s in panel.series if s.name != "unscored" or any(curves.get(s.metric, ()))]
        names = [_colored(t(f"live.series.{s.name}"), _text_color(colors, s.color)) for s in shown]
        text += "  " + " · ".join(names)
    return note(text, left, top, colors.ink, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=1)


def _panel_curve(
    colors: Palette, series: Series, x: Column, curves: Mapping[str, Column], form: str, index: int
) -> Trace:
    y = curves.get(series.metric, [])
    color = getattr(colors, series.color)
    trace = _curve(x, y, color, t(f"live.series.{series.name}"), width=1.8)
    hover = ".2%" if form.endswith("%") else ".4~g"
    trace["hovertemplate"] = f"{safe(t(f'live.series.{series.name}'))} %{{y:{hover}}}<extra></extra>"
    trace |= {"xaxis": "x2" if index % 2 else "x", "yaxis": f"y{index + 1}"}
    if series.stacked:
        trace |= {"stackgroup": "kinds", "fillcolor": _faded(color), "line": {"color": color, "width": 0.8}}
    return trace


def _curve(x: Column, y: Column, color: str, name: str, *, width: float) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "name": name,
        "line": {"color": color, "width": width}, "hovertemplate": "%{y:.3f}",
    }  # fmt: skip


def _x_axis(colors: Palette, by: str, total: float | None, **more: Any) -> dict[str, Any]:
    reach = {"range": [0, total]} if total else {"rangemode": "tozero"}
    return axis(colors, t(f"live.axis.{by}"), showgrid=False, zeroline=False, **reach, **more)


# Commands on the charts


def _stamp_line(colors: Palette, stamp: Stamp, **where: Any) -> dict[str, Any]:
    return rule(colors, x0=stamp.x, x1=stamp.x, y0=0, y1=1, **{"xref": "x", "yref": "paper", **where})


def _panel_stamp(colors: Palette, stamp: Stamp, index: int) -> dict[str, Any]:
    return _stamp_line(colors, stamp, xref="x2" if index % 2 else "x", yref=f"y{index + 1 if index else ''} domain")


def _stamp_names(colors: Palette, stamps: Sequence[Stamp], total: float | None) -> list[dict[str, Any]]:
    """Return the commands' names above the chart, one after the other; one that would not fit keeps its line only."""
    reach = total or max([stamp.x for stamp in stamps], default=1.0) or 1.0
    notes, free = [], 0.0
    for x, text in _together(stamps[-MOST_NAMES:], within=0.06 * reach):
        size = len(text) + 2
        start = min(x / reach * LETTERS, LETTERS - size)
        if start >= free:
            place = start / LETTERS * reach
            notes.append(note(safe(text), place, 1, colors.muted, yref="paper", yanchor="bottom", xanchor="left"))
            free = start + size
    return notes


def _together(stamps: Sequence[Stamp], *, within: float) -> list[tuple[float, str]]:
    """Return places and names; commands close to each other are named together, equal ones counted."""
    places: list[tuple[float, list[str]]] = []
    for stamp in stamps:
        if places and stamp.x - places[-1][0] < within:
            places[-1][1].append(stamp.text)
        else:
            places.append((stamp.x, [stamp.text]))
    return [(x, ", ".join(f"{s} ×{n}" if n > 1 else s for s, n in Counter(texts).items())[:38]) for x, texts in places]


# Ratios


def ratios(
    colors: Palette, edges: Sequence[float], counts: Sequence[float], *, low: float, high: float, height: int
) -> Figure:
    """Return how many tokens have which ratio, with the clip range [low, high] as a band behind it."""
    centres = [(a + b) / 2 for a, b in pairwise(edges)]
    bars = {
        "type": "bar", "x": centres, "y": [n or None for n in counts], "width": [b - a for a, b in pairwise(edges)],
        "marker": {"color": colors.current, "line": {"width": 0}},
        "hovertemplate": t("live.ratio_hover") + "<extra></extra>",
    }  # fmt: skip
    ends = [edges[0], edges[-1]] if edges else [0.5, 1.5]
    name = t("live.clip_range", low=short(low), high=short(high))
    shapes = [
        band(max(low, ends[0]), min(high, ends[1]), colors.band, colors.band_opacity),
        rule(colors, xref="x", yref="paper", x0=1, x1=1, y0=0, y1=1),
    ]
    return figure(
        [bars],
        _layout(
            colors,
            height=max(height, 220),
            bargap=0,
            margin={"l": 8, "r": 12, "t": 22, "b": 8},
            shapes=shapes,
            annotations=[note(name, 1, 1, colors.muted, yref="paper", yanchor="bottom")],
            xaxis=axis(colors, t("live.axis.ratio"), range=ends, showgrid=False, zeroline=False),
            yaxis=axis(colors, t("live.axis.tokens_log"), type="log", dtick=1, range=[-0.3, 3.3]),
        ),
    )


# A group's tokens


@dataclass(frozen=True)
class Token:
    """One token of a completion: its text, the value that colours it, and what is said about it in full."""

    text: str
    value: float
    facts: tuple[str, ...]
    clipped: bool = False


def tokens(colors: Palette, rows: Sequence[Sequence[Token]], names: Sequence[str], *, width: int) -> Figure:
    """Return completions as rows of cells as wide as their texts, coloured around zero; a long row wraps at `width`.

    `names`: what stands before each row.
    """
    cells, places, lines = _flow(rows, width)
    reach = max([abs(token.value) for row in rows for token in row], default=0.0) or 1.0
    trace = {
        "type": "bar", "orientation": "h",
        "x": [cell[2] for cell in cells], "base": [cell[1] for cell in cells], "y": [cell[0] for cell in cells],
        "text": [_visible(cell[3].text) for cell in cells], "textposition": "inside", "insidetextanchor": "middle",
        "textangle": 0, "constraintext": "inside",
        "insidetextfont": {"size": 13, "color": [_on(colors, cell[3].value / reach) for cell in cells]},
        "marker": {
            "color": [cell[3].value for cell in cells],
            "cmin": -reach, "cmax": reach, "colorscale": colors.signed_scale,
            "line": {"width": [2.5 if cell[3].clipped else 1 for cell in cells],
                     "color": [colors.entropy if cell[3].clipped else colors.grid for cell in cells]},
        },
        "customdata": ["<br>".join(cell[3].facts) for cell in cells],
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    return figure(
        [trace],
        _layout(
            colors,
            height=30 * lines + 16,
            margin={"l": 8, "r": 8, "t": 4, "b": 4},
            bargap=0.12,
            xaxis=axis(colors, range=[0, width], visible=False),
            yaxis=axis(
                colors, range=[lines - 0.5, -0.5], tickvals=places, ticktext=list(names),
                showgrid=False, zeroline=False, ticks="", tickfont=_font(colors, 13),
            ),
        ),
    )  # fmt: skip


def _flow(rows: Sequence[Sequence[Token]], width: int) -> tuple[list[tuple[int, float, float, Token]], list[int], int]:
    """Lay tokens out like words on lines: (line, left, width, token) each, the first line of each row, all lines."""
    cells: list[tuple[int, float, float, Token]] = []
    places: list[int] = []
    line = 0
    for row in rows:
        places.append(line)
        left = 0.0
        for token in row:
            size = token_width(token.text)
            if left and left + size > width:
                line, left = line + 1, 0.0
            cells.append((line, left, size, token))
            left += size
        line += 1
    return cells, places, line


def token_width(text: str) -> float:
    """Return the width of a token's cell, in letters."""
    return max(2.6, min(len(text), 24) + 1.4)


def _visible(text: str) -> str:
    return safe(text.replace(" ", "␣"), 24)


# Small things


def _layout(colors: Palette, *, height: int, **more: Any) -> dict[str, Any]:
    """Return the house layout, with a toolbar and hover boxes that are easy to read."""
    bar = {"bgcolor": "rgba(0,0,0,0)", "color": colors.muted, "activecolor": colors.ink}
    hover = {
        "bgcolor": colors.panel,
        "bordercolor": colors.zero,
        "font": {"family": FONT, "size": 13, "color": colors.ink},
    }
    return layout(colors, height=height, modebar=bar, hoverlabel=hover, **more)


def _on(colors: Palette, share: float) -> str:
    """Return the colour of text on a cell of that strength."""
    return "#FFFFFF" if abs(share) > 0.5 else colors.ink


def _font(colors: Palette, size: int) -> dict[str, Any]:
    return {"size": size, "color": colors.muted}


def _colored(text: str, color: str) -> str:
    return f'<span style="color:{color}">{text}</span>'


def _text_color(colors: Palette, name: str) -> str:
    return getattr(colors, f"{name}_text", getattr(colors, name))


def _faded(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.55)"


def facts(token: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what hovering over a token says, one line each: exact values, and a dash for what was not measured."""
    lines = [f"<b>{_visible(token['text'])}</b>"]
    for name in ("pull", "advantage", "weight", "logp_old", "logp_new", "ratio", "logp_ref", "kl", "entropy"):
        value = token.get(name)
        form = signed if name in ("pull", "advantage") else plain
        text = MISSING if value is None else form(value, 6 if name in ("pull", "weight") else 4)
        lines.append(f"{t(f'live.token.{name}')}: {text}")
    if token.get("clipped"):
        lines.append(t("live.token.clipped"))
    return tuple(lines)
