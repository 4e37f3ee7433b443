"""Pictures of the From PPO page: critics, models in memory, rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, band, figure, floats, layout, line, note, rule
from app.numbers import plain, signed
from app.words import t

if TYPE_CHECKING:
    from app.views.ppo.critic import Trajectory
    from grpo_core.iterations import Moment

PAPER = {"xref": "paper", "yref": "paper"}


def critic(colors: Palette, path: Trajectory, *, ends: tuple[np.ndarray, np.ndarray]) -> Figure:
    """Return values and rewards above, and below them each token's GAE; it lies between `ends` = (td, measured)."""
    x, advantages = np.arange(1, path.size + 1), path.advantages
    bars = {
        **_bars(x, advantages, "", width=0.46, yaxis="y2", hover=t("hover.gae")),
        "marker": {"color": [colors.sign(a) for a in advantages]},
    }
    names = [f"{t('axis.token_n', n=k)}<br><b>{signed(a)}</b>" for k, a in zip(x, advantages, strict=True)]
    everything = np.concatenate([advantages, *ends, [path.group, 0.0]])
    group_line = rule(colors, xref="paper", x0=0, x1=1, yref="y2", y0=path.group, y1=path.group,
                      line={"color": colors.muted, "width": 2, "dash": "dash"})  # fmt: skip
    return figure(
        [*_predicted(colors, path, x), bars, *_ranges(colors, x, *ends)],
        layout(
            colors, height=450, annotations=_critic_names(colors, path), barmode="overlay",
            margin={"l": 8, "r": 12, "t": 34, "b": 8},
            shapes=[band(path.at + 0.55, path.at + 1.45, colors.old, 0.14), group_line],
            xaxis=axis(colors, tickvals=floats(x), ticktext=names, range=[0.35, path.size + 0.65], showgrid=False,
                       zeroline=False, anchor="y2", tickfont={"size": 13, "color": colors.ink}),
            yaxis=axis(colors, t("axis.value"), domain=[0.66, 1.0], nticks=4,
                       range=padded(np.concatenate([path.values, path.targets, path.rewards]), 0.14)),
            yaxis2=axis(colors, t("axis.advantage"), domain=[0.0, 0.54], range=padded(everything, 0.12)),
        ),
    )  # fmt: skip


def _predicted(colors: Palette, path: Trajectory, x: np.ndarray) -> list[Trace]:
    """Return each token's reward, the critic's value before each token, and what the critic is trained towards."""
    states = np.arange(path.size + 1) + 0.5
    values = {
        **line(states, path.values, colors.second, width=3), "mode": "lines+markers", "yaxis": "y",
        "marker": {"size": 11, "color": _filled(colors, path), "line": {"width": 3, "color": colors.second}},
        "cliponaxis": False, "hovertemplate": t("hover.value"),
    }  # fmt: skip
    return [
        _bars(x, path.rewards, colors.up, width=0.16, yaxis="y", hover=t("hover.token_reward")),
        values,
        _points(states[:-1], path.targets, "diamond-open", colors.ink, 10, "y", t("hover.target")),
    ]


def _critic_names(colors: Palette, path: Trajectory) -> list[dict[str, Any]]:
    return [
        _named(colors, t("chart.value"), 0, colors.ink, colors.second),
        _named(colors, t("chart.target"), 1, colors.ink, None),
        _named(colors, t("chart.token_reward"), 2, colors.up_text, None),
        note(t("chart.lambda_range"), 0, 0.555, colors.muted, xanchor="left", yanchor="bottom", **PAPER),
        note(t("chart.group_line", value=signed(path.group)), 1.0, path.group, colors.muted, xref="paper", yref="y2",
             xanchor="right", yanchor="bottom", size=13),
    ]  # fmt: skip


def _filled(colors: Palette, path: Trajectory) -> list[str]:
    """Return the fill of each value: solid, and hollow for the one after the last token, which nobody predicted."""
    return [colors.second] * path.size + [colors.page]


def _named(colors: Palette, text: str, place: int, ink: str, swatch: str | None) -> dict[str, Any]:
    mark = f'<span style="color:{swatch}">●</span> ' if swatch else ""
    shift = [0, 116, 300][place]
    return note(mark + text, 0, 1, ink, xanchor="left", yanchor="bottom", xshift=shift, yshift=6, **PAPER)


def _ranges(colors: Palette, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[Trace]:
    """Return each token's line from the one-step estimate (ring) to the measured one (dot)."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for k, a, b in zip(x, low, high, strict=True):
        xs += [float(k) + 0.34, float(k) + 0.34, None]
        ys += [float(a), float(b), None]
    bar = {"type": "scatter", "mode": "lines", "x": xs, "y": ys, "yaxis": "y2", "hoverinfo": "skip",
           "line": {"color": colors.muted, "width": 2}}  # fmt: skip
    return [
        bar,
        _points(x + 0.34, low, "circle-open", colors.ink, 9, "y2", t("hover.td")),
        _points(x + 0.34, high, "circle", colors.ink, 9, "y2", t("hover.measured")),
    ]


def _points(x: Any, y: Any, symbol: str, color: str, size: int, yaxis: str, hover: str) -> Trace:
    return {
        "type": "scatter", "mode": "markers", "x": floats(x), "y": floats(y), "yaxis": yaxis, "hovertemplate": hover,
        "marker": {"symbol": symbol, "size": size, "color": color, "line": {"width": 2, "color": color}},
    }  # fmt: skip


def _bars(x: Any, y: Any, color: str, *, width: float, yaxis: str, hover: str) -> Trace:
    return {
        "type": "bar", "x": floats(x), "y": floats(y), "width": width, "yaxis": yaxis, "marker": {"color": color},
        "hovertemplate": hover,
    }  # fmt: skip


def padded(values: np.ndarray, share: float, *, least: float = 0.0) -> list[float]:
    """Return an axis range with room above and below; zero and `least` to both sides are always inside."""
    known = values[np.isfinite(values)]
    low, high = min(float(known.min(initial=0.0)), -least), max(float(known.max(initial=0.0)), least)
    room = share * max(high - low, 1e-9)
    return [low - (room if low < 0 else 0.02 * (high - low)), high + room]


def n_step(colors: Palette, path: Trajectory) -> Figure:
    """Return the n-step estimates of the token in focus; a dot's area is its weight, the last one holds the tail."""
    estimates, weights = path.n_step, path.weights
    x, last = np.arange(1, len(estimates) + 1), len(estimates) - 1
    names = [
        f"n = {n}<br>{t('chart.weight', value=plain(w))}" + (t("chart.tail") if n == last + 1 and last else "")
        for n, w in zip(x, weights, strict=True)
    ]
    mean = float(path.advantages[path.at])
    dots = {
        "type": "scatter", "mode": "lines+markers+text", "x": floats(x), "y": floats(estimates),
        "text": [signed(a, 2) for a in estimates], "textposition": "top center", "hoverinfo": "skip",
        "cliponaxis": False,
        "textfont": {"size": 13, "color": colors.ink}, "line": {"color": colors.old, "width": 1.5, "dash": "dot"},
        "marker": {"size": floats(6 + 30 * np.sqrt(weights)), "color": [colors.sign(a) for a in estimates],
                   "opacity": 0.9, "line": {"width": 0}},
    }  # fmt: skip
    text = t("chart.weighted_mean", token=path.at + 1, value=signed(mean))
    return figure(
        [dots],
        layout(
            colors, height=230, margin={"l": 8, "r": 12, "t": 30, "b": 8},
            annotations=[note(text, 0, 1, colors.ink, xanchor="left", yanchor="bottom", yshift=6, size=13, **PAPER)],
            shapes=[rule(colors, xref="paper", x0=0, x1=1, y0=mean, y1=mean)],
            xaxis=axis(colors, tickvals=floats(x), ticktext=names, range=[0.5, len(x) + 0.5], showgrid=False,
                       zeroline=False),
            yaxis=axis(colors, t("axis.n_step"), range=padded(np.append(estimates, 0.0), 0.42), nticks=4),
        ),
    )  # fmt: skip


def vine(colors: Palette, values: np.ndarray, errors: np.ndarray, advantages: np.ndarray, *, reward: float) -> Figure:
    """Return the value measured before each step with its standard error, and below it what each step changed."""
    steps = np.arange(1, len(values) + 1)
    known = np.nan_to_num(errors, nan=0.0)
    bars = {
        **_bars(steps, advantages, "", width=0.5, yaxis="y2", hover=t("hover.step_advantage")),
        "marker": {"color": [colors.sign(a) for a in advantages]},
    }
    names = [f"{t('axis.step_n', n=k)}<br><b>{signed(a)}</b>" for k, a in zip(steps, advantages, strict=True)]
    top = np.concatenate([values + known, values - known, [reward, 1.0]])
    final = note(t("chart.final_reward", value=signed(reward, 2)), len(steps) + 0.5, reward, colors.up_text,
                 xanchor="left", xshift=12, size=13)  # fmt: skip
    return figure(
        [_measured(colors, values, known, reward), bars],
        layout(
            colors, height=430, margin={"l": 8, "r": 96, "t": 34, "b": 8},
            annotations=[_named(colors, t("chart.measured_value"), 0, colors.ink, colors.second), final],
            xaxis=axis(colors, tickvals=floats(steps), ticktext=names, range=[0.35, len(steps) + 0.65], showgrid=False,
                       zeroline=False, anchor="y2", tickfont={"size": 13, "color": colors.ink}),
            yaxis=axis(colors, t("axis.success_value"), domain=[0.56, 1.0], nticks=5, range=padded(top, 0.08)),
            yaxis2=axis(colors, t("axis.step_advantage"), domain=[0.0, 0.44],
                        range=padded(np.append(advantages, 0.0), 0.12, least=0.1)),
        ),
    )  # fmt: skip


def _measured(colors: Palette, values: np.ndarray, errors: np.ndarray, reward: float) -> Trace:
    """Return the value before each step with its standard error, and the reward at the end."""
    tints = [colors.second] * len(values) + [colors.up]
    return {
        **line(np.arange(len(values) + 1) + 0.5, np.append(values, reward), colors.second, width=3),
        "mode": "lines+markers", "hovertemplate": t("hover.measured_value"),
        "marker": {"size": 11, "color": tints, "line": {"width": 3, "color": tints}},
        "error_y": {"type": "data", "array": floats(np.append(errors, 0.0)), "color": colors.second, "thickness": 2,
                    "width": 6},
    }  # fmt: skip


def roles(colors: Palette) -> dict[str, str]:
    """Return the colour of each model."""
    return {
        "policy": colors.current, "reference": colors.reference, "reward": colors.up, "value": colors.second,
    }  # fmt: skip


def memory(colors: Palette, names: Sequence[str], parts: Sequence[Sequence[tuple[str, str, float]]]) -> Figure:
    """Return one bar for each method from `parts`: (role, part, gigabytes) from left to right."""
    shade = {"weights": 1.0, "gradients": 0.62, "optimizer": 0.34}
    traces, notes, palette = [], [], roles(colors)
    totals = [sum(size for _, _, size in row) for row in parts]
    for name, row, total in zip(names, parts, totals, strict=True):
        for role, part, size in row:
            traces.append(
                {"type": "bar", "orientation": "h", "y": [name], "x": [size], "width": 0.56, "opacity": shade[part],
                 "marker": {"color": palette[role], "line": {"width": 1, "color": colors.page}},
                 "customdata": [[t(f"role.{role}"), t(f"part.{part}"), _gb(size)]], "hovertemplate": t("hover.memory")}
            )  # fmt: skip
        notes.append(note(f"<b>{_gb(total)}</b>", total, name, colors.ink, size=15, xanchor="left", xshift=8))
    notes.append(note(_legend(palette), 0, 1, colors.ink, size=13, xanchor="left", yanchor="bottom", yshift=8, **PAPER))
    return figure(
        traces,
        layout(
            colors, height=90 + 58 * len(names), barmode="stack", annotations=notes,
            margin={"l": 8, "r": 80, "t": 40, "b": 8},
            xaxis=axis(colors, t("axis.memory"), range=[0, 1.02 * max(totals)], zeroline=False),
            yaxis=axis(colors, autorange="reversed", showgrid=False, ticksuffix="  ", type="category",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


def _gb(size: float) -> str:
    return t("unit.gb", value=plain(size, 0 if size >= 100 else 1))


def _legend(palette: dict[str, str]) -> str:
    return "   ".join(f'<span style="color:{color}">■</span> {t(f"role.{role}")}' for role, color in palette.items())


ROWS = ("current", "old", "reference", "reward")


def rounds(colors: Palette, moments: Sequence[Moment], *, at: int) -> Figure:
    """Return who holds which version when: a bar for each version of each copy, the moment in focus marked."""
    rows = {row: _stretches([getattr(moment, row) for moment in moments]) for row in ROWS}
    numbers = [name for row in ROWS for name in _version_names(colors, row, rows[row], at, len(moments))]
    now = at + 1
    early, late = at < 0.3 * len(moments), at > 0.7 * len(moments)
    action = note(t(f"chart.action_{moments[at].action}"), now, 1, colors.ink, size=14, yref="paper", yanchor="bottom",
                  yshift=6, xanchor="left" if early else "right" if late else "center")  # fmt: skip
    frame = {"type": "rect", "xref": "x", "yref": "paper", "x0": now - 0.5, "x1": now + 0.5, "y0": 0, "y1": 1,
             "line": {"color": colors.ink, "width": 2}, "fillcolor": "rgba(0,0,0,0)"}  # fmt: skip
    later = {"type": "rect", "xref": "x", "yref": "paper", "x0": now + 0.5, "x1": len(moments) + 0.5, "y0": 0, "y1": 1,
             "line": {"width": 0}, "fillcolor": colors.page, "opacity": 0.62}  # fmt: skip
    return figure(
        [bar for row, stretches in rows.items() for bar in _versions(colors, row, stretches)],
        layout(
            colors, height=290, barmode="overlay", shapes=[later, frame], margin={"l": 8, "r": 12, "t": 36, "b": 8},
            annotations=[*numbers, action],
            xaxis=axis(colors, t("axis.moment"), range=[0.4, len(moments) + 0.6], showgrid=False, zeroline=False),
            yaxis=axis(colors, autorange="reversed", showgrid=False, ticksuffix="  ", type="category",
                       categoryarray=[t(f"row.{row}") for row in ROWS], tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip


def _versions(colors: Palette, row: str, stretches: Sequence[tuple[int, int, int]]) -> list[Trace]:
    """Return a bar for every version of one copy, strong and pale in turn."""
    palette = {"current": colors.current, "old": colors.old, "reference": colors.reference, "reward": colors.up}
    return [
        {"type": "bar", "orientation": "h", "base": [start + 0.5], "x": [end - start], "y": [t(f"row.{row}")],
         "width": 0.62, "hovertemplate": t("hover.version", version=version),
         "marker": {"color": palette[row], "opacity": 1.0 if k % 2 else 0.4,
                    "line": {"width": 1, "color": colors.page}}}
        for k, (start, end, version) in enumerate(stretches)
    ]  # fmt: skip


def _version_names(
    colors: Palette, row: str, stretches: Sequence[tuple[int, int, int]], at: int, size: int
) -> list[dict[str, Any]]:
    """Return each version's number on its bar, where there is room; the frame around a moment never crosses one."""
    notes = []
    for k, (start, end, version) in enumerate(stretches):
        if (end - start) / size <= 0.028:
            continue
        ink = colors.muted if start > at else "#FFFFFF" if k % 2 and row != "old" else colors.ink
        notes.append(note(str(version), _beside_frame((start + end) / 2 + 0.5, at, end), t(f"row.{row}"), ink, size=13))
    return notes


def _beside_frame(x: float, at: int, end: int) -> float:
    """Return where a bar's number stands: in its middle, or half a moment off the frame's edge that runs through it."""
    for edge in (at + 0.5, at + 1.5):
        if abs(x - edge) < 0.3:
            return edge + 0.5 if edge + 1.0 <= end + 0.5 else edge - 0.5
    return x


def _stretches(versions: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (first, end, version) for every stretch of moments in which a copy stays the same."""
    starts = [i for i, v in enumerate(versions) if i == 0 or v != versions[i - 1]]
    return [(a, b, versions[a]) for a, b in zip(starts, [*starts[1:], len(versions)], strict=True)]


def replay(colors: Palette, shares: Sequence[np.ndarray]) -> Figure:
    """Return what the reward model was trained on each time: newest data strong, replayed data faint."""
    names = [t("axis.training_n", n=i + 1) for i in range(len(shares))]
    traces = [
        {"type": "bar", "orientation": "h", "y": [name], "x": [float(share)], "width": 0.6,
         "opacity": 1.0 if k == len(row) - 1 else 0.4, "hoverinfo": "skip",
         "marker": {"color": colors.up, "line": {"width": 1, "color": colors.page}}}
        for name, row in zip(names, shares, strict=True) for k, share in enumerate(row)
    ]  # fmt: skip
    texts = [
        note(t("chart.replayed", new=plain(100 * row[-1], 0), old=plain(100 * (1 - row[-1]), 0)), 1, name, colors.ink,
             xanchor="left", xshift=8, size=13)
        for name, row in zip(names, shares, strict=True)
    ]  # fmt: skip
    return figure(
        traces,
        layout(
            colors, height=64 + 34 * len(shares), barmode="stack", annotations=texts,
            margin={"l": 8, "r": 190, "t": 8, "b": 8},
            xaxis=axis(colors, range=[0, 1], tickformat=".0%", zeroline=False, nticks=5),
            yaxis=axis(colors, autorange="reversed", showgrid=False, ticksuffix="  ", type="category",
                       tickfont={"size": 13, "color": colors.ink}),
        ),
    )  # fmt: skip
