"""Pictures of several prompts in one batch, of several reward functions in one group, and of the kinds of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note, rule, safe
from app.numbers import MISSING, plain, short, signed
from app.words import t

MOST_NUMBERS = 16  # completions: with more, numbers do not fit beside each other and are told on hover
KIND_COLORS = {"mixed": "up", "all-right": "current", "all-wrong": "down", "unscored": "old"}


def kinds(colors: Palette, chances: Mapping[str, float]) -> Figure:
    """Return how likely each kind of group is, as one stacked bar."""
    data, notes, start, last = [], [], 0.0, -1.0
    for kind, chance in chances.items():
        text = t("chart.kind", kind=t(f"kind.{kind}"), value=plain(100 * chance, 1))
        data.append(
            {
                "type": "bar", "orientation": "h", "x": [float(chance)], "y": [""], "hoverinfo": "text",
                "hovertext": text, "marker": {"color": getattr(colors, KIND_COLORS[kind]),
                                              "line": {"width": 2, "color": colors.page}},
            }
        )  # fmt: skip
        if chance > 5e-4:
            at = max(start + chance / 2, last + 0.24)
            notes.append(note(text, min(at, 1.0), 0.5, colors.ink, size=13, yshift=0, xanchor=_anchor(at)))
            last = at
        start += chance
    return figure(
        data,
        layout(
            colors, height=112, barmode="stack", bargap=0.45, annotations=notes,
            margin={"l": 8, "r": 12, "t": 20, "b": 8},
            xaxis=axis(colors, t("axis.kinds"), range=[0, 1], showgrid=False, zeroline=False, nticks=6),
            yaxis=axis(colors, range=[-0.5, 0.75], showticklabels=False, showgrid=False, zeroline=False),
        ),
    )  # fmt: skip


def _anchor(at: float) -> str:
    return "left" if at < 0.1 else "right" if at > 0.9 else "center"


@dataclass(frozen=True)
class Panel:
    """One definition of the advantage: its title, and the advantage of every completion (prompts, G)."""

    title: str
    advantages: np.ndarray


def prompts(colors: Palette, panels: Sequence[Panel], rewards: np.ndarray, names: Sequence[str]) -> Figure:
    """Return every completion's advantage, prompt by prompt, under several definitions; `rewards` (prompts, G)."""
    groups, size = rewards.shape
    starts = [k * (size + 1) for k in range(groups)]
    at = np.array([start + j + 1 for start in starts for j in range(size)], dtype=float)
    reach = _reach(panels, 0.16)
    axes, domains = _stacked(colors, panels, reach)
    shapes = [
        rule(colors, x0=start + 0.5, x1=start + 0.5, y0=domains[-1][0], y1=1, xref="x", yref="paper")
        for start in starts[1:]
    ]
    notes = []
    for i, (panel, domain) in enumerate(zip(panels, domains, strict=True)):
        lines, words = _means(colors, panel, starts, _suffix(i), reach[1])
        shapes, notes = [*shapes, *lines], [*notes, _panel_title(colors, panel, domain, 3), *words]
    return figure(
        [_advantage_bars(colors, at, panel, rewards, _suffix(i)) for i, panel in enumerate(panels)],
        layout(
            colors, height=60 + 196 * len(panels), bargap=0.2, shapes=shapes, annotations=notes,
            xaxis=_prompt_axis(colors, rewards, names, starts, anchor=f"y{len(panels)}"), **axes,
        ),
    )  # fmt: skip


def _suffix(index: int) -> str:
    """Return what Plotly calls the axis of the panel at `index`: "", "2", "3" and so on."""
    return "" if index == 0 else str(index + 1)


def _reach(panels: Sequence[Panel], share: float) -> list[float]:
    """Return one range for all panels, 0 among it, with room for a `share` of it on both sides."""
    every = np.concatenate([[0.0], *(panel.advantages.ravel() for panel in panels)])
    room = share * max(float(np.ptp(every)), 1.0)
    return [float(every.min()) - room, float(every.max()) + room]


def _stacked(colors: Palette, panels: Sequence[Panel], reach: list[float]) -> tuple[dict, list[list[float]]]:
    """Return one axis for each panel, from the top down, and which part of the height it takes."""
    tops = [1.0 - i / len(panels) for i in range(len(panels))]
    domains = [[top - 0.86 / len(panels), top - 0.13 / len(panels)] for top in tops]
    return {
        f"yaxis{_suffix(i)}": axis(colors, t("axis.advantage_short"), domain=domain, range=reach, nticks=5)
        for i, domain in enumerate(domains)
    }, domains


def _panel_title(colors: Palette, panel: Panel, domain: Sequence[float], shift: int) -> dict:
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return note(f"<b>{panel.title}</b>", 0, domain[1], colors.ink, size=14, yshift=shift, **place)


def _means(
    colors: Palette, panel: Panel, starts: Sequence[int], suffix: str, top: float
) -> tuple[list[dict], list[dict]]:
    """Return a dashed line at each prompt's mean advantage, and the mean in words above."""
    size, lines, words = panel.advantages.shape[1], [], []
    for start, row in zip(starts, panel.advantages, strict=True):
        mean = float(row.mean())
        lines.append(
            {"type": "line", "xref": "x", "yref": f"y{suffix}", "x0": start + 0.6, "x1": start + size + 0.4,
             "y0": mean, "y1": mean, "line": {"color": colors.ink, "width": 2.5, "dash": "dash"}}
        )  # fmt: skip
        text = t("chart.prompt_mean", value=signed(mean, 2)) if len(starts) <= 4 else signed(mean, 2)
        words.append(
            note(text, start + (size + 1) / 2, top, colors.ink, size=13, yref=f"y{suffix}", yanchor="top",
                 bgcolor=colors.page)
        )  # fmt: skip
    return lines, words


def _prompt_axis(
    colors: Palette, rewards: np.ndarray, names: Sequence[str], starts: Sequence[int], **more: str
) -> dict:
    """Return an axis with one place for each completion, and each prompt's name under its own."""
    size = rewards.shape[1]
    key = "chart.prompt" if len(names) <= 3 else "chart.prompt_narrow"
    titles = [t(key, name=name, right=int(row.sum()), total=size) for name, row in zip(names, rewards, strict=True)]
    return axis(
        colors, t("axis.prompt"), range=[0, len(starts) * (size + 1)], showgrid=False, zeroline=False, tickangle=0,
        tickvals=[start + (size + 1) / 2 for start in starts], ticktext=titles, **more,
    )  # fmt: skip


def _advantage_bars(colors: Palette, at: np.ndarray, panel: Panel, rewards: np.ndarray, suffix: str) -> dict:
    values = panel.advantages.ravel()
    words = [t("word.right") if reward else t("word.wrong") for reward in rewards.ravel()]
    return {
        "type": "bar", "x": floats(at), "y": floats(values), "xaxis": "x", "yaxis": f"y{suffix}", "width": 0.82,
        "marker": {"color": [colors.sign(v) for v in values]},
        "customdata": [[word, signed(v)] for word, v in zip(words, values, strict=True)],
        "hovertemplate": t("hover.prompt_completion"),
    }  # fmt: skip


def several(
    colors: Palette,
    names: Sequence[str],
    parts: np.ndarray,
    weights: Sequence[float],
    panels: Sequence[Panel],
    *,
    stds: Sequence[float],
) -> Figure:
    """Return each reward function's rewards as a table, and below it the advantages of the ways to put them together.

    `parts` (G, functions), nan where a function could not score; `stds` of each function; each panel's advantages are
    (1, G).
    """
    count, table = len(parts), min(0.1 + 0.07 * len(names), 0.5)
    each, reach = (1.0 - table) / len(panels), _reach(panels, 0.4)
    axes, notes = {}, _table_numbers(colors, parts, weights)
    for i, panel in enumerate(panels):
        top = 1.0 - table - i * each
        domain = [top - 0.9 * each, top - 0.22 * each]
        axes[f"yaxis{i + 2}"] = axis(colors, t("axis.advantage_short"), domain=domain, nticks=4, range=reach)
        notes.append(_panel_title(colors, panel, domain, 4))
    ticks = list(range(1, count + 1)) if count <= 24 else list(range(1, count + 1, count // 16 + 1))
    bars = [_part_bars(colors, panel, str(i + 2)) for i, panel in enumerate(panels)]
    return figure(
        [_reward_table(colors, names, parts, weights), *bars],
        layout(
            colors, height=470 + 24 * max(len(names) - 3, 0), annotations=notes,
            xaxis=axis(colors, t("axis.completion"), range=[0.5, count + 0.5], showgrid=False, zeroline=False,
                       tickvals=ticks, anchor=f"y{len(panels) + 1}"),
            yaxis=axis(colors, domain=[1.0 - table + 0.02, 1.0], range=[len(names) - 0.5, -0.5], showgrid=False,
                       zeroline=False, tickvals=list(range(len(names))), ticktext=_labels(names, weights, stds)),
            **axes,
        ),
    )  # fmt: skip


def _labels(names: Sequence[str], weights: Sequence[float], stds: Sequence[float]) -> list[str]:
    """Return each function's name with its weight and spread, or that it is off."""
    return [
        t("chart.function", name=safe(name, 20), weight=short(weight), std=plain(std, 2))
        if weight
        else t("chart.function_off", name=safe(name, 20))
        for name, weight, std in zip(names, weights, stds, strict=True)
    ]


def _table_numbers(colors: Palette, parts: np.ndarray, weights: Sequence[float]) -> list[dict]:
    """Return the rewards as words in the table's cells, as long as there is room for them."""
    count = len(parts)
    return [
        note(MISSING if np.isnan(value) else short(round(float(value), 3)), i + 1, f,
             colors.ink if weights[f] else colors.muted, size=14 if count <= 8 else 11, yref="y")
        for i, row in enumerate(parts if count <= MOST_NUMBERS else ())
        for f, value in enumerate(row)
    ]  # fmt: skip


def _reward_table(colors: Palette, names: Sequence[str], parts: np.ndarray, weights: Sequence[float]) -> dict:
    """Return the rewards as cells, each function's largest size in full colour; a function that is off has none."""
    filled = np.nan_to_num(parts)
    size = np.abs(filled).max(axis=0)
    shares = np.where(size > 0, filled / np.where(size > 0, size, 1.0), 0.0) * (np.asarray(weights) != 0)
    said = [[f"{safe(n)}<br>{plain(v)}" for v in column] for n, column in zip(names, parts.T, strict=True)]
    few = len(parts) <= MOST_NUMBERS
    hover = {"hoverinfo": "skip"} if few else {"customdata": said, "hovertemplate": "%{customdata}<extra></extra>"}
    return {
        "type": "heatmap", "z": [floats(0.55 * row) for row in shares.T], "x": list(range(1, len(parts) + 1)),
        "y": list(range(len(names))), "zmin": -1, "zmax": 1, "colorscale": colors.signed_scale, "showscale": False,
        "xgap": 3 if few else 1, "ygap": 3, "yaxis": "y", **hover,
    }  # fmt: skip


def _part_bars(colors: Palette, panel: Panel, suffix: str) -> dict:
    values = panel.advantages.ravel()
    return {
        "type": "bar", "x": list(range(1, len(values) + 1)), "y": floats(values), "xaxis": "x", "yaxis": f"y{suffix}",
        "marker": {"color": [colors.sign(v) for v in values]}, "width": 0.6 if len(values) <= 8 else 0.82,
        "text": [signed(v, 3 if len(values) <= 8 else 1) for v in values] if len(values) <= MOST_NUMBERS else None,
        "textposition": "outside", "cliponaxis": False, "constraintext": "none", "textangle": 0,
        "textfont": {"size": 14 if len(values) <= 8 else 11, "color": colors.ink},
        "customdata": [signed(v) for v in values], "hovertemplate": t("hover.advantage"),
    }  # fmt: skip
