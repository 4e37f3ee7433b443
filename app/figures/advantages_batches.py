"""Pictures of several prompts in one batch, of several reward functions in one group, and of the kinds of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.figures.base import Figure, Palette, axis, figure, floats, layout, note, rule, safe
from app.numbers import plain, short, signed
from app.words import t

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
    end = groups * (size + 1)
    data, notes, shapes, axes = [], [], [], {}
    every = np.concatenate([[0.0], *(panel.advantages.ravel() for panel in panels)])
    room = 0.16 * max(float(np.ptp(every)), 1.0)
    reach = [float(every.min()) - room, float(every.max()) + room]
    for i, panel in enumerate(panels):
        suffix, top = "" if i == 0 else str(i + 1), 1.0 - i / len(panels)
        domain = [top - 0.86 / len(panels), top - 0.13 / len(panels)]
        axes[f"yaxis{suffix}"] = axis(colors, t("axis.advantage_short"), domain=domain, range=reach, nticks=5)
        data.append(_advantage_bars(colors, at, panel, rewards, suffix))
        notes.append(
            note(f"<b>{panel.title}</b>", 0, domain[1], colors.ink, size=14, xref="paper", yref="paper", yshift=3,
                 xanchor="left", yanchor="bottom")
        )  # fmt: skip
        for k, start in enumerate(starts):
            mean = float(panel.advantages[k].mean())
            shapes.append(
                {"type": "line", "xref": "x", "yref": f"y{suffix}", "x0": start + 0.6, "x1": start + size + 0.4,
                 "y0": mean, "y1": mean, "line": {"color": colors.ink, "width": 2.5, "dash": "dash"}}
            )  # fmt: skip
            notes.append(
                note(t("chart.prompt_mean", value=signed(mean, 2)), start + (size + 1) / 2, reach[1], colors.ink,
                     size=13, yref=f"y{suffix}", yanchor="top", bgcolor=colors.page)
            )  # fmt: skip
    for start in starts[1:]:
        shapes.append(rule(colors, x0=start + 0.5, x1=start + 0.5, y0=0, y1=1, xref="x", yref="paper"))
    titles = [
        t("chart.prompt", name=name, right=int(row.sum()), total=size) for name, row in zip(names, rewards, strict=True)
    ]
    middles = [start + (size + 1) / 2 for start in starts]
    return figure(
        data,
        layout(
            colors, height=60 + 196 * len(panels), bargap=0.2, shapes=shapes, annotations=notes,
            xaxis=axis(colors, t("axis.prompt"), range=[0, end + 0.0], showgrid=False, zeroline=False, tickvals=middles,
                       ticktext=titles, anchor=f"y{len(panels)}"),
            **axes,
        ),
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

    `parts` (G, functions), `stds` of each function; each panel's advantages are (1, G).
    """
    count = len(parts)
    data, notes, axes = [_reward_table(colors, names, parts, weights)], [], {}
    notes += [
        note(short(parts[i, f]), i + 1, f, colors.ink if weights[f] else colors.muted, size=14, yref="y")
        for i in range(count)
        for f in range(len(names))
    ]
    every = np.concatenate([[0.0], *(panel.advantages.ravel() for panel in panels)])
    room = 0.3 * max(float(np.ptp(every)), 1.0)
    table = 0.1 + 0.07 * len(names)
    each = (1.0 - table) / len(panels)
    for i, panel in enumerate(panels):
        suffix, top = str(i + 2), 1.0 - table - i * each
        domain = [top - 0.9 * each, top - 0.22 * each]
        axes[f"yaxis{suffix}"] = axis(
            colors, t("axis.advantage_short"), domain=domain, nticks=4,
            range=[float(every.min()) - room, float(every.max()) + room],
        )  # fmt: skip
        data.append(_part_bars(colors, panel, suffix))
        notes.append(
            note(f"<b>{panel.title}</b>", 0, domain[1], colors.ink, size=14, xref="paper", yref="paper", yshift=4,
                 xanchor="left", yanchor="bottom")
        )  # fmt: skip
    labels = [
        t("chart.function", name=safe(name), weight=short(weight), std=plain(std, 2))
        if weight
        else t("chart.function_off", name=safe(name))
        for name, weight, std in zip(names, weights, stds, strict=True)
    ]
    return figure(
        data,
        layout(
            colors, height=470, annotations=notes,
            xaxis=axis(colors, t("axis.completion"), range=[0.5, count + 0.5], showgrid=False, zeroline=False,
                       tickvals=list(range(1, count + 1)), anchor=f"y{len(panels) + 1}"),
            yaxis=axis(colors, domain=[1.0 - table + 0.02, 1.0], range=[len(names) - 0.5, -0.5], showgrid=False,
                       zeroline=False, tickvals=list(range(len(names))), ticktext=labels),
            **axes,
        ),
    )  # fmt: skip


def _reward_table(colors: Palette, names: Sequence[str], parts: np.ndarray, weights: Sequence[float]) -> dict:
    """Return the rewards as cells, each function's largest size in full colour; a function that is off has none."""
    size = np.abs(parts).max(axis=0)
    shares = np.where(size > 0, parts / np.where(size > 0, size, 1.0), 0.0) * (np.asarray(weights) != 0)
    return {
        "type": "heatmap", "z": [floats(0.55 * row) for row in shares.T], "x": list(range(1, len(parts) + 1)),
        "y": list(range(len(names))), "zmin": -1, "zmax": 1, "colorscale": colors.signed_scale, "showscale": False,
        "xgap": 3, "ygap": 3, "hoverinfo": "skip", "yaxis": "y",
    }  # fmt: skip


def _part_bars(colors: Palette, panel: Panel, suffix: str) -> dict:
    values = panel.advantages.ravel()
    return {
        "type": "bar", "x": list(range(1, len(values) + 1)), "y": floats(values), "xaxis": "x", "yaxis": f"y{suffix}",
        "marker": {"color": [colors.sign(v) for v in values]}, "width": 0.6, "text": [signed(v) for v in values],
        "textposition": "outside", "cliponaxis": False, "textfont": {"size": 14, "color": colors.ink},
        "customdata": [signed(v) for v in values], "hovertemplate": t("hover.advantage"),
    }  # fmt: skip
