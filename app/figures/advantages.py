"""Pictures of the Advantages page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, line, note, rule, text_on
from app.numbers import MISSING, plain, signed
from app.words import t


def bars(
    colors: Palette, rewards: np.ndarray, advantages: np.ndarray, *, mean: float, std: float, scaled: bool
) -> Figure:
    """Return rewards above (with mean and one std to each side) and advantages below, completion by completion.

    `rewards` (G,) with nan for unscored, `advantages` (G,).
    """
    at = np.arange(1, len(rewards) + 1)
    scored = ~np.isnan(rewards)
    unit = t("axis.advantage_std") if scaled else t("axis.advantage")
    data = [_stems(colors, at, rewards, mean), _dots(colors, at, rewards, advantages)]
    data += [_bars(colors, at, advantages, scored)]
    reach = _padded(np.append(rewards[scored], [0.0, 1.0]), 0.12)
    shapes, notes = _mean_band(colors, mean, std) if scored.any() else ([], [])
    return figure(
        data,
        layout(
            colors, height=430, shapes=shapes, annotations=[*notes, *_unscored(colors, at, scored)],
            margin={"l": 8, "r": 100, "t": 10, "b": 8},
            xaxis=_completions(colors, at, anchor="y2"),
            yaxis=axis(colors, t("axis.reward"), domain=[0.66, 1.0], range=reach, zeroline=False, nticks=4),
            yaxis2=axis(colors, unit, domain=[0.0, 0.54],
                        range=_padded(np.append(advantages, [0.0]), 0.16, least=0.5)),
        ),
    )  # fmt: skip


def _unscored(colors: Palette, at: np.ndarray, scored: np.ndarray) -> list[dict]:
    """Return the word for every completion without a score, upright where there are many."""
    turned: dict = {"textangle": -90, "yshift": 30} if len(at) > 12 else {"yshift": 10}
    return [
        note(t("chart.unscored"), int(at[i]), 0, colors.muted, yref="y2", **turned) for i in np.flatnonzero(~scored)
    ]


def _stems(colors: Palette, at: np.ndarray, rewards: np.ndarray, mean: float) -> dict:
    x: list[float | None] = []
    y: list[float | None] = []
    for position, reward in zip(at, rewards, strict=True):
        if not np.isnan(reward):
            x += [float(position), float(position), None]
            y += [float(mean), float(reward), None]
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": colors.old, "width": 2},
        "hoverinfo": "skip",
    }  # fmt: skip


def _dots(colors: Palette, at: np.ndarray, rewards: np.ndarray, advantages: np.ndarray) -> dict:
    keep = np.flatnonzero(~np.isnan(rewards))
    return {
        "type": "scatter", "mode": "markers", "x": floats(at[keep]), "y": floats(rewards[keep]),
        "marker": {"size": 11, "color": [colors.sign(advantages[i]) for i in keep]},
        "customdata": [plain(rewards[i]) for i in keep],
        "hovertemplate": t("hover.reward"),
    }  # fmt: skip


def _bars(colors: Palette, at: np.ndarray, advantages: np.ndarray, scored: np.ndarray) -> dict:
    few = len(at) <= 16
    text = [signed(a, 3 if len(at) <= 10 else 2) if ok else "" for a, ok in zip(advantages, scored, strict=True)]
    return {
        "type": "bar", "x": floats(at), "y": floats(advantages), "yaxis": "y2",
        "marker": {"color": [colors.sign(a) for a in advantages]},
        "text": text if few else None, "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 14, "color": colors.ink},
        "customdata": [signed(a) if ok else MISSING for a, ok in zip(advantages, scored, strict=True)],
        "hovertemplate": t("hover.advantage"),
    }  # fmt: skip


def _mean_band(colors: Palette, mean: float, std: float) -> tuple[list, list]:
    base = {"xref": "paper", "x0": 0, "x1": 1, "yref": "y"}
    shapes = [
        {"type": "rect", **base, "y0": mean - std, "y1": mean + std, "fillcolor": colors.old, "opacity": 0.16,
         "line": {"width": 0}, "layer": "below"},
        rule(colors, **base, y0=mean, y1=mean),
    ]  # fmt: skip
    place = {"xref": "paper", "xanchor": "left", "yref": "y", "align": "left"}
    text = f"{t('chart.mean', value=plain(mean))}<br>{t('chart.std', value=plain(std))}"
    return shapes, [note(text, 1.01, mean, colors.muted, **place)]


def _completions(colors: Palette, at: np.ndarray, **more: object) -> dict:
    """Return an axis with one place for each completion. Positions are numbers: Plotly would read a name "3" as one."""
    shown = at if len(at) <= 24 else at[:: len(at) // 16 + 1]
    ticks = {"tickvals": floats(shown), "ticktext": [str(k) for k in shown], "range": [0.4, len(at) + 0.6]}
    return axis(colors, t("axis.completion"), showgrid=False, zeroline=False, **ticks, **more)


def _padded(values: np.ndarray, share: float, *, least: float = 0.0) -> list[float]:
    low, high = float(values.min()), float(values.max())
    low, high = min(low, -least), max(high, least)
    room = share * max(high - low, 1e-9)
    return [low - room, high + room]


def estimators(colors: Palette, names: Sequence[str], table: np.ndarray) -> Figure:
    """Return the same group under several estimators: one row each, `table` (estimators, G)."""
    columns, rows = np.arange(1, table.shape[1] + 1), list(range(len(names)))
    few = len(columns) <= 16
    return figure(
        [_heat(colors, columns, names, table, few)],
        layout(
            colors, height=70 + (62 if len(names) <= 5 else 46) * len(names),
            annotations=_cells(colors, columns, table) if few else [],
            xaxis=_completions(colors, columns, side="top"),
            yaxis=axis(colors, range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False, tickvals=rows,
                       ticktext=list(names)),
        ),
    )  # fmt: skip


def _heat(colors: Palette, columns: np.ndarray, names: Sequence[str], table: np.ndarray, few: bool) -> dict:
    """Return the table as colours; numbers that do not fit into the cells are told on hover."""
    size, gap = max(float(np.abs(table).max()), 1e-9), 3 if few else 1
    said = [[f"{name}<br>{signed(v)}" for v in row] for name, row in zip(names, table, strict=True)]
    hover = {"hoverinfo": "skip"} if few else {"customdata": said, "hovertemplate": "%{customdata}<extra></extra>"}
    return {
        "type": "heatmap", "z": [floats(row) for row in table], "x": floats(columns), "y": list(range(len(names))),
        "zmin": -size, "zmax": size, "colorscale": colors.signed_scale, "showscale": False, "xgap": gap, "ygap": 3,
        **hover,
    }  # fmt: skip


def _cells(colors: Palette, columns: np.ndarray, table: np.ndarray) -> list[dict]:
    """Return the numbers of the cells, in as many decimals as there is room for."""
    size, digits = max(float(np.abs(table).max()), 1e-9), 3 if len(columns) <= 8 else 1
    return [
        note(
            signed(value, digits), int(columns[j]), i, _on(colors, value / size), size=14 if len(columns) <= 12 else 11
        )
        for i, row in enumerate(table)
        for j, value in enumerate(row)
    ]


def _on(colors: Palette, share: float) -> str:
    """Return a text colour that is readable on a signed heat cell."""
    return text_on(colors.sign(share), abs(share), page=colors.page) if abs(share) > 0.3 else colors.ink


def rates(
    colors: Palette, q: np.ndarray, success: np.ndarray, failure: np.ndarray, *, at: tuple[float, float, float]
) -> Figure:
    """Return the advantage of a success and of a failure against the success rate, `at` = (q, success, failure)."""
    data = [
        line(q, success, colors.up, hovertemplate=t("hover.success")),
        line(q, failure, colors.down, hovertemplate=t("hover.failure")),
        _marks(colors, [at[0], at[0]], [at[1], at[2]], [colors.up, colors.down]),
    ]
    return figure(
        data,
        layout(
            colors, height=400,
            annotations=[*_rate_names(colors, q, success, failure, at[0]), *_rate_values(colors, at)],
            shapes=[rule(colors, x0=at[0], x1=at[0], y0=0, y1=1, yref="paper")],
            xaxis=axis(colors, t("axis.success_rate"), range=[0, 1], zeroline=False),
            yaxis=axis(colors, t("axis.advantage_std"), range=[-5, 5]),
        ),
    )  # fmt: skip


def _rate_names(colors: Palette, q: np.ndarray, success: np.ndarray, failure: np.ndarray, at: float) -> list[dict]:
    """Return each curve's name beside it, on the side where the slider's point is not."""
    k = int(np.argmin(np.abs(q - (0.75 if at < 0.55 else 0.25))))
    above: dict = {"size": 14, "yshift": 14, "xanchor": "left"}
    below: dict = {"size": 14, "yshift": -14, "xanchor": "right"}
    return [
        note(t("chart.success"), float(q[k]), float(success[k]), colors.up_text, **above),
        note(t("chart.failure"), float(q[k]), float(failure[k]), colors.down_text, **below),
    ]


def _rate_values(colors: Palette, at: tuple[float, float, float]) -> list[dict]:
    """Return both advantages as numbers: the curves fall, so there is room above right and below left."""
    q, success, failure = at
    right, left = {"xanchor": "left", "xshift": 10}, {"xanchor": "right", "xshift": -10}
    places = ((success, 12, right if q < 0.88 else left), (failure, -14, left if q > 0.12 else right))
    return [
        note(signed(value), q, value, colors.sign_text(value), size=14, yshift=shift, **side)
        for value, shift, side in places
        if abs(value) < 5
    ]


def mixed(
    colors: Palette, p: np.ndarray, curves: Sequence[tuple[int, np.ndarray]], *, at: tuple[float, float], size: int
) -> Figure:
    """Return the probability of a mixed group against p for several group sizes; `size` is the one in focus."""
    others = [(g, values) for g, values in curves if g != size]
    data = [
        line(p, values, colors.up if g == size else colors.old, width=3.5 if g == size else 1.5, hoverinfo="skip")
        for g, values in curves
    ]
    data.append(_marks(colors, [at[0]], [at[1]], [colors.up]))
    names = [_curve_name(colors, g, p, values, rank=k) for k, (g, values) in enumerate(others)]
    return figure(
        data,
        layout(
            colors, height=400, annotations=[*names, _mixed_value(colors, at, size)],
            shapes=[rule(colors, x0=at[0], x1=at[0], y0=0, y1=1, yref="paper")],
            xaxis=axis(colors, t("axis.p"), range=[0, 1], zeroline=False),
            yaxis=axis(colors, t("axis.mixed"), range=[0, 1.06], zeroline=False),
        ),
    )  # fmt: skip


def _mixed_value(colors: Palette, at: tuple[float, float], size: int) -> dict:
    """Return the probability at the slider's point, on the side with more room."""
    side, shift = ("left", 12) if at[0] < 0.6 else ("right", -12)
    return note(
        f"G = {size}: {plain(at[1])}", at[0], at[1], colors.up_text, size=14, xanchor=side, xshift=shift,
        yshift=-14 if at[1] > 0.15 else 16, bgcolor=colors.page,
    )  # fmt: skip


def _curve_name(colors: Palette, size: int, p: np.ndarray, values: np.ndarray, *, rank: int) -> dict:
    """Return a curve's name on its top, or on its right shoulder where the tops lie on each other."""
    k = len(p) // 2
    if values[k] > 0.95:
        k += int(np.argmin(values[k:] >= 0.5 + 0.09 * rank)) - 1
    return note(f"G = {size}", float(p[k]), float(values[k]), colors.muted, bgcolor=colors.page)


def _marks(colors: Palette, x: Sequence[float], y: Sequence[float], fill: Sequence[str]) -> dict:
    return {
        "type": "scatter", "mode": "markers", "x": floats(x), "y": floats(y), "hoverinfo": "skip",
        "marker": {"size": 12, "color": list(fill), "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
