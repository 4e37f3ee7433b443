"""Pictures of the From PPO page: trust regions, preferences, where the KL enters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from app.figures.base import Figure, Palette, Trace, axis, figure, floats, layout, line, note, rule, safe
from app.figures.ppo import PAPER
from app.numbers import plain, short, signed
from app.words import t

if TYPE_CHECKING:
    from app.views.ppo.chain import Chain
    from app.views.ppo.dpo import Pair
    from app.views.ppo.optimum import Optimum
    from app.views.ppo.step import Steps
    from app.views.ppo.trust import Bound
    from app.views.ppo.where import Placed

SUFFIXES = ("", "2", "3", "4")  # of the axes of four rows
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])


def bound(colors: Palette, example: Bound) -> Figure:
    """Return the true objective and the surrogate against the move, with the band that the bound allows."""
    x, d = example.alphas, example.at
    both = np.concatenate([example.true, example.surrogate])
    room = max(float(np.ptp(both)), 1e-9)
    points = {
        "type": "scatter", "mode": "markers", "x": [example.alpha] * 2, "y": [d.new, d.surrogate], "hoverinfo": "skip",
        "marker": {"size": 13, "color": [colors.current, colors.muted], "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
    return figure(
        [
            _allowed(colors, example),
            line(x, example.surrogate, colors.muted, dash="dash", hovertemplate=t("hover.surrogate")),
            line(x, example.true, colors.current, width=3.5, hovertemplate=t("hover.true")),
            points,
        ],
        layout(
            colors, height=400, annotations=_bound_names(colors, example),
            shapes=[rule(colors, x0=example.alpha, x1=example.alpha, y0=0, y1=1, yref="paper")],
            xaxis=axis(colors, t("axis.alpha"), range=[0, float(x[-1])], zeroline=False),
            yaxis=axis(colors, t("axis.expected_reward"), zeroline=False,
                       range=[float(both.min()) - 0.55 * room, float(both.max()) + 0.45 * room]),
        ),
    )  # fmt: skip


def _allowed(colors: Palette, example: Bound) -> Trace:
    low, high = example.surrogate - example.bounds, example.surrogate + example.bounds
    return {
        "type": "scatter", "mode": "lines", "x": floats([*example.alphas, *example.alphas[::-1]]),
        "y": floats([*high, *low[::-1]]), "fill": "toself", "fillcolor": colors.band, "opacity": colors.band_opacity,
        "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip


def _bound_names(colors: Palette, example: Bound) -> list[dict[str, Any]]:
    end = int(0.96 * (len(example.alphas) - 1))
    x = float(example.alphas[end])
    return [
        note(t("chart.true"), x, float(example.true[end]), colors.current, size=14, xanchor="right", yanchor="bottom",
             yshift=6),
        note(t("chart.surrogate"), x, float(example.surrogate[end]), colors.muted, size=14, xanchor="right",
             yanchor="top", yshift=-8),
        note(t("chart.band"), 0, 1, colors.muted, xanchor="left", yanchor="top", xshift=10, **PAPER),
    ]  # fmt: skip


def simplex(colors: Palette, both: Steps) -> Figure:
    """Return the triangle of all policies over three answers, with two steps and the ring of one KL."""
    ring, triangle = both.ring @ CORNERS, CORNERS[[0, 1, 2, 0]]
    start, natural, plain_end = (p @ CORNERS for p in (both.old, both.natural, both.plain))
    region = {
        **line(ring[:, 0], ring[:, 1], colors.reference, width=2, hoverinfo="skip"),
        "fill": "toself", "fillcolor": _faint(colors.reference),
    }  # fmt: skip
    data = [
        line(triangle[:, 0], triangle[:, 1], colors.zero, width=1.5, hoverinfo="skip"),
        region,
        _dot(start, colors.old, 11, t("hover.policy"), both.old),
        _dot(natural, colors.current, 11, t("hover.policy"), both.natural),
        _dot(plain_end, colors.second, 11, t("hover.policy"), both.plain),
    ]
    arrows = [_arrow(start, natural, colors.current), _arrow(start, plain_end, colors.second)]
    return figure(
        data,
        layout(
            colors, height=440, annotations=[*_step_corners(colors, both), *arrows, *_step_names(colors, both)],
            margin={"l": 8, "r": 8, "t": 12, "b": 30},
            xaxis=axis(colors, range=[-0.55, 1.25], visible=False),
            yaxis=axis(colors, range=[-0.1, 0.97], visible=False, scaleanchor="x", scaleratio=1),
        ),
    )  # fmt: skip


def _step_corners(colors: Palette, both: Steps) -> list[dict[str, Any]]:
    sides = (("right", "top", 12, -6), ("left", "top", -12, -6), ("center", "bottom", 0, 6))
    return [
        note(t("chart.corner", name=name, reward=short(r), p=plain(p, 2)), float(c[0]), float(c[1]), colors.ink,
             size=13, xanchor=side, yanchor=above, xshift=right, yshift=up)
        for name, r, p, c, (side, above, right, up) in zip("ABC", both.rewards, both.old, CORNERS, sides, strict=True)
    ]  # fmt: skip


def _step_names(colors: Palette, both: Steps) -> list[dict[str, Any]]:
    legend = (
        (colors.old, "●", t("chart.old_policy")),
        (colors.current, "●", t("chart.natural", value=signed(both.gains[0]))),
        (colors.second, "●", t("chart.plain", value=signed(both.gains[1]))),
        (colors.reference, "○", t("chart.ring", value=plain(both.delta, 4))),
    )
    return [
        note(f'<span style="color:{color}">{mark}</span> {text}', 0, 1 - 0.062 * k, colors.ink, size=14, xanchor="left",
             yanchor="top", **PAPER)
        for k, (color, mark, text) in enumerate(legend)
    ]  # fmt: skip


def _faint(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def _dot(at: np.ndarray, color: str, size: int, hover: str, p: np.ndarray) -> Trace:
    return {
        "type": "scatter", "mode": "markers", "x": [float(at[0])], "y": [float(at[1])], "hovertemplate": hover,
        "customdata": [[plain(x) for x in p]], "marker": {"size": size, "color": color, "line": {"width": 0}},
    }  # fmt: skip


def _arrow(start: np.ndarray, end: np.ndarray, color: str) -> dict[str, Any]:
    return {
        "x": float(end[0]), "y": float(end[1]), "ax": float(start[0]), "ay": float(start[1]), "xref": "x", "yref": "y",
        "axref": "x", "ayref": "y", "showarrow": True, "arrowhead": 2, "arrowsize": 1, "arrowwidth": 2.5,
        "arrowcolor": color, "text": "", "standoff": 5,
    }  # fmt: skip


def pair(colors: Palette, one: Pair, curve: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Figure:
    """Return both implicit rewards above, and below loss and weight against the margin; `curve` = (z, loss, share)."""
    z, loss, share = curve
    at = [float(np.interp(one.margin, z, y)) for y in (loss, share)]
    points = {
        "type": "scatter", "mode": "markers", "x": [one.margin] * 2, "y": at, "hoverinfo": "skip",
        "marker": {"size": 13, "color": [colors.muted, colors.ink], "line": {"width": 2, "color": colors.page}},
    }  # fmt: skip
    span = max(*map(abs, one.rewards), 0.1)
    return figure(
        [
            _implicit(colors, one),
            line(z, loss, colors.muted, width=3, hovertemplate=t("hover.dpo_loss")),
            line(z, share, colors.ink, width=3, dash="dash", hovertemplate=t("hover.dpo_share")),
            points,
        ],
        layout(
            colors, height=460, annotations=_pair_names(colors, curve),
            shapes=[rule(colors, x0=one.margin, x1=one.margin, y0=0, y1=float(loss[0]), yref="y")],
            xaxis2=axis(colors, t("axis.implicit_reward"), anchor="y2", range=[-1.35 * span, 1.35 * span]),
            yaxis2=axis(colors, domain=[0.74, 1.0], anchor="x2", type="category", showgrid=False, ticksuffix="  ",
                        tickfont={"size": 13, "color": colors.ink}),
            xaxis=axis(colors, t("axis.margin"), range=[float(z[0]), float(z[-1])]),
            yaxis=axis(colors, t("axis.dpo"), domain=[0.0, 0.56], range=[0, 1.05 * float(loss[0])]),
        ),
    )  # fmt: skip


def _implicit(colors: Palette, one: Pair) -> Trace:
    won, lost = one.rewards
    return {
        "type": "bar", "orientation": "h", "x": [lost, won], "y": [t("axis.rejected"), t("axis.preferred")],
        "xaxis": "x2", "yaxis": "y2", "width": 0.55, "marker": {"color": [colors.sign(lost), colors.sign(won)]},
        "text": [signed(lost), signed(won)], "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 14, "color": colors.ink}, "hoverinfo": "skip",
    }  # fmt: skip


def _pair_names(colors: Palette, curve: tuple[np.ndarray, np.ndarray, np.ndarray]) -> list[dict[str, Any]]:
    z, loss, share = curve
    left = int(0.03 * len(z))
    return [
        note(t("chart.dpo_loss"), float(z[left]), float(loss[left]), colors.muted, size=14, xanchor="left", xshift=14,
             yshift=8),
        note(t("chart.dpo_share"), float(z[left]), float(share[left]), colors.ink, size=14, xanchor="left",
             yanchor="bottom", yshift=8),
    ]  # fmt: skip


def optimum(colors: Palette, one: Optimum, names: Sequence[str]) -> Figure:
    """Return reference and optimum above, and below each reward with the implicit one, all at one distance."""
    implicit = np.asarray(one.implicit)
    known = [None if np.isnan(v) else float(v) for v in implicit]
    ends = _named_points(names, known, [signed(v, 2) for v in implicit], "bottom center", colors.ink)
    ends["marker"] = {"size": 13, "color": colors.page, "line": {"width": 3, "color": colors.current}}
    rewards = _named_points(names, floats(one.rewards), [signed(r, 2) for r in one.rewards], "top center",
                            colors.up_text)  # fmt: skip
    rewards["marker"] = {"size": 13, "color": colors.up}
    top = 1.18 * float(max(one.policy.max(), one.reference.max()))
    return figure(
        [
            _column(names, one.reference, colors.reference, colors),
            _column(names, one.policy, colors.current, colors),
            _rods(list(names), known, floats(one.rewards), colors.old), rewards, ends,
        ],
        layout(
            colors, height=470, barmode="group", bargap=0.34, margin={"l": 8, "r": 12, "t": 34, "b": 8},
            annotations=_optimum_names(colors, one),
            xaxis=axis(colors, t("axis.answer"), type="category", showgrid=False, anchor="y2",
                       categoryarray=list(names), tickfont={"size": 14, "color": colors.ink}),
            yaxis=axis(colors, t("axis.probability"), domain=[0.6, 1.0], range=[0, top], nticks=5),
            yaxis2=axis(colors, t("axis.reward"), domain=[0.0, 0.46],
                        range=padded_both(np.concatenate([one.rewards, implicit]), 0.28)),
        ),
    )  # fmt: skip


def _named_points(
    names: Sequence[str], values: Sequence[float | None], texts: Sequence[str], where: str, ink: str
) -> Trace:
    return {
        "type": "scatter", "mode": "markers+text", "x": list(names), "y": list(values), "yaxis": "y2",
        "hoverinfo": "skip", "cliponaxis": False, "text": list(texts), "textposition": where,
        "textfont": {"size": 13, "color": ink},
    }  # fmt: skip


def _optimum_names(colors: Palette, one: Optimum) -> list[dict[str, Any]]:
    names = (("chart.reference_policy", colors.reference), ("chart.optimal_policy", colors.current))
    text = "   ".join(f'<span style="color:{color}">■</span> {t(key)}' for key, color in names)
    return [
        note(text, 0, 1, colors.ink, size=14, xanchor="left", yanchor="bottom", yshift=8, **PAPER),
        note(t("chart.distance", value=signed(one.level)), 0, 0.475, colors.muted, size=13, xanchor="left",
             yanchor="bottom", **PAPER),
    ]  # fmt: skip


def padded_both(values: np.ndarray, share: float) -> list[float]:
    """Return an axis range with room on both sides, whatever the signs."""
    known = values[np.isfinite(values)]
    room = share * max(float(np.ptp(known)), 0.1)
    return [float(known.min()) - room, float(known.max()) + room]


def _rods(x: list[str], low: Sequence[float | None], high: Sequence[float | None], color: str) -> Trace:
    xs: list[str | None] = []
    ys: list[float | None] = []
    for name, a, b in zip(x, low, high, strict=True):
        xs, ys = [*xs, name, name, None], [*ys, a, b, None]
    return {
        "type": "scatter", "mode": "lines", "x": xs, "y": ys, "yaxis": "y2", "hoverinfo": "skip",
        "line": {"color": color, "width": 2},
    }  # fmt: skip


def _column(names: Sequence[str], values: np.ndarray, color: str, colors: Palette) -> Trace:
    return {
        "type": "bar", "x": list(names), "y": floats(values), "marker": {"color": color}, "hoverinfo": "skip",
        "text": [plain(v) for v in values], "textposition": "outside", "cliponaxis": False,
        "textfont": {"size": 13, "color": colors.ink},
    }  # fmt: skip


def where(colors: Palette, one: Placed, *, shown: int, kl: str) -> Figure:
    """Return one completion's tokens: what PPO pays and expects at each, and what GRPO multiplies and adds."""
    size = min(len(one.tokens), shown)
    rows = [
        (t("axis.where_reward"), one.shaped), (t("axis.where_return"), one.to_come),
        (t("axis.where_advantage"), np.full(len(one.tokens), one.advantage)),
        (t("axis.where_penalty", kl=kl), -one.penalty),
    ]  # fmt: skip
    names, table = [name for name, _ in rows], np.stack([values[:size] for _, values in rows])
    shares = table / np.maximum(np.abs(table).max(axis=1, keepdims=True), 0.01)  # next to nothing stays pale
    heads = [
        note(t("chart.where_ppo"), 0, 1, colors.ink, size=14, xanchor="left", yanchor="bottom", yshift=30, **PAPER),
        note(t("chart.where_grpo"), 0, 0.46, colors.ink, size=14, xanchor="left", yanchor="bottom", yshift=3, **PAPER),
    ]
    axes = {
        f"yaxis{suffix}": axis(colors, domain=d, showgrid=False, zeroline=False, type="category", ticksuffix="  ",
                               tickfont={"size": 13, "color": colors.ink})
        for suffix, d in zip(SUFFIXES, ([0.79, 1.0], [0.56, 0.77], [0.23, 0.44], [0.0, 0.21]), strict=True)
    }  # fmt: skip
    return figure(
        [_heat(colors, share, name, suffix) for share, name, suffix in zip(shares, names, SUFFIXES, strict=True)],
        layout(
            colors, height=360, annotations=[*_cells(colors, table, shares, names), *heads],
            margin={"l": 8, "r": 8, "t": 62, "b": 8}, **axes,
            xaxis=axis(colors, tickvals=list(range(size)), ticktext=[safe(token, 10) for token in one.tokens[:size]],
                       side="top", showgrid=False, zeroline=False, anchor="y", range=[-0.5, size - 0.5],
                       tickangle=0 if size <= 8 else -40, tickfont={"size": 12, "color": colors.ink}),
        ),
    )  # fmt: skip


def _heat(colors: Palette, row: np.ndarray, name: str, suffix: str) -> Trace:
    return {
        "type": "heatmap", "x": list(range(len(row))), "y": [name], "z": [floats(row)], "zmin": -1, "zmax": 1,
        "colorscale": colors.signed_scale, "showscale": False, "xgap": 3, "ygap": 3, "hoverinfo": "skip",
        "yaxis": f"y{suffix}",
    }  # fmt: skip


def _cells(colors: Palette, table: np.ndarray, shares: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the number in every cell of the heat picture."""
    size = table.shape[1]
    digits = 4 if size <= 8 else 2
    return [
        note(_rounded(table[i, k], digits), k, name, "#FFFFFF" if abs(shares[i, k]) > 0.62 else colors.ink,
             size=12 if size <= 10 else 10, yref=f"y{suffix}")
        for i, (name, suffix) in enumerate(zip(names, SUFFIXES, strict=True)) for k in range(size)
    ]  # fmt: skip


def _rounded(value: float, digits: int) -> str:
    """Return a signed number that is 0 where its decimals are: a cell has no room for powers of ten."""
    return signed(round(float(value), digits), digits) if abs(value) >= 0.5 * 10**-digits else "0"


def chain(colors: Palette, one: Chain) -> Figure:
    """Return, decision by decision: how often it is reached, the KL there, and their product."""
    size = len(one.current)
    x = list(range(size))
    p = one.parts
    rows = (
        (p.reach, colors.current, 2, t("axis.reach")),
        (p.conditional, _faint_bar(colors), 3, t("axis.kl_there")),
        (p.terms, colors.reference, 4, t("axis.kl_term")),
    )
    bars = [
        {"type": "bar", "x": x, "y": floats(values), "yaxis": f"y{'' if i == 0 else i + 1}", "width": 0.5,
         "marker": {"color": color}, "text": [plain(v, digits) for v in values], "textposition": "outside",
         "cliponaxis": False, "textfont": {"size": 13, "color": colors.ink}, "hoverinfo": "skip"}
        for i, (values, color, digits, _) in enumerate(rows)
    ]  # fmt: skip
    domains = ([0.74, 1.0], [0.38, 0.64], [0.0, 0.28])
    axes = {
        f"yaxis{'' if i == 0 else i + 1}": axis(colors, name, domain=d, nticks=3,
                                                range=[0, 1.35 * max(float(values.max()), 1e-6)])
        for i, ((values, _, _, name), d) in enumerate(zip(rows, domains, strict=True))
    }  # fmt: skip
    names = [t("axis.after_tokens", n=n) for n in x]
    return figure(
        bars,
        layout(
            colors, height=440, margin={"l": 8, "r": 12, "t": 18, "b": 8}, **axes,
            xaxis=axis(colors, t("axis.decision"), tickvals=x, ticktext=names, range=[-0.6, size - 0.4], showgrid=False,
                       zeroline=False, anchor="y3"),
        ),
    )  # fmt: skip


def _faint_bar(colors: Palette) -> str:
    red, green, blue = (int(colors.reference[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.55)"
