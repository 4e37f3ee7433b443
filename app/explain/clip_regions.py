"""What the clip does on each side of its interval, and what is lost when min is written as max."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import lens as lenses
from app.explain import clip as curve
from app.figures.clip import Points
from app.figures.clip_regions import Region, Row, Side
from app.lens import Curve, Lens
from app.numbers import bracketed, latex, plain, short
from grpo_core.clip_regions import SIGNS, ClipRegions, clip_regions, max_slope, max_surrogate

SIGN = {"up": 1.0, "down": -1.0}


def regions(lens: Lens) -> ClipRegions:
    """Return how many of the group's tokens lie in each region."""
    return clip_regions(lens.terms.ratio, _advantages(lens), lens.terms.mask, **lenses.clip_range(lens.values))


def _advantages(lens: Lens) -> np.ndarray:
    return np.asarray(lens.batch.advantages).reshape(len(lens.batch.mask), -1)


def rows(lens: Lens, found: ClipRegions, high: float) -> list[Row]:
    """Return both signs, each scaled to an advantage of +1 or -1, on which every token of that sign then lies."""
    points = curve.visible(curve.points(lens), high)
    ratio = float(lens.values["r"])
    return [
        Row(
            sign,
            lenses.clip_curve(SIGN[sign], lens.values, high=high),
            stretches(lens, sign, found, high),
            scaled(points, SIGN[sign]),
            lenses.at_ratio(ratio, SIGN[sign], lens.values),
        )
        for sign in SIGNS
    ]


def scaled(points: Points, sign: float) -> Points:
    """Return the tokens whose advantage has this sign, their numbers divided by its size."""
    keep = points.advantage * sign > 0
    size = np.abs(points.advantage[keep])
    names = [name for name, own in zip(points.names, keep, strict=True) if own]
    return Points(
        points.ratio[keep],
        points.objective[keep] / size,
        points.slope[keep] / size,
        points.advantage[keep],
        points.saturated[keep],
        names,
    )


def stretches(lens: Lens, sign: str, found: ClipRegions, high: float) -> list[Region]:
    """Return the stretches of the ratio axis: below, inside, above, and beyond delta if that makes a difference."""
    clip = lenses.clip_range(lens.values)
    low_edge, high_edge, delta = 1 - clip["epsilon_low"], 1 + clip["epsilon_high"], clip["delta"]
    counts, flat = found.counts, found.saturated
    below = Region(0.0, low_edge, "open" if sign == "up" else "flat", counts[sign, "below"])
    inside = Region(low_edge, high_edge, "inside", counts[sign, "inside"])
    if sign == "up":
        return [below, inside, Region(high_edge, high, "flat", counts[sign, "above"])]
    if delta is None or delta >= high:
        return [below, inside, Region(high_edge, high, "open", counts[sign, "above"])]
    beyond = Region(max(delta, high_edge), high, "flat", flat[sign, "above"])
    if delta <= high_edge:
        return [below, inside, beyond]
    return [below, inside, Region(high_edge, delta, "bounded", counts[sign, "above"] - flat[sign, "above"]), beyond]


def quadrant_lines(lens: Lens) -> list[str]:
    """Return the slope in the four quadrants: symbols, the bounds in numbers, the result per unit of advantage."""
    clip = lenses.clip_range(lens.values)
    low, high = latex(1 - clip["epsilon_low"], 2), latex(1 + clip["epsilon_high"], 2)
    slopes = {
        (sign, side): lenses.at_ratio(ratio, SIGN[sign], lens.values)[1] * SIGN[sign]
        for sign in SIGNS
        for side, ratio in (("low", (1 - clip["epsilon_low"]) / 2), ("high", (1 + clip["epsilon_high"]) * 1.001))
    }
    text = {key: r"A" if value else "0" for key, value in slopes.items()}
    delta = clip["delta"]
    beyond = "" if delta is None or delta <= 1 + clip["epsilon_high"] else rf",\quad 0\ (r > {latex(delta, 2)})"
    return [
        rf"A > 0:\quad \frac{{\partial J}}{{\partial r}} &= {text['up', 'low']}\ (r < {low}),"
        rf"\quad {text['up', 'high']}\ (r > {high})",
        rf"A < 0:\quad \frac{{\partial J}}{{\partial r}} &= {text['down', 'low']}\ (r < {low}),"
        rf"\quad {text['down', 'high']}\ (r > {high}){beyond}",
    ]


# min and max


def plain_range(lens: Lens) -> dict[str, Any]:
    """Return the clip range without delta, which the comparison leaves out."""
    clip = lenses.clip_range(lens.values)
    return {name: clip[name] for name in ("epsilon_low", "epsilon_high")}


def sides(lens: Lens, high: float) -> list[Side]:
    """Return min and max for the group's largest advantage of each sign."""
    values = {**lens.values, "delta": None}
    return [_side(curve.strongest(lens, up=up), values, plain_range(lens), high) for up in (True, False)]


def _side(advantage: float, values: dict[str, Any], clip: dict[str, Any], high: float) -> Side:
    right = lenses.clip_curve(advantage, values, high=high)
    a, at = np.full_like(right.ratio, advantage), np.array([float(values["r"])])
    wrong = Curve(advantage, right.ratio, max_surrogate(right.ratio, a, **clip), max_slope(right.ratio, a, **clip))
    own = (max_surrogate(at, a[:1], **clip), max_slope(at, a[:1], **clip))
    return Side(right, wrong, lenses.at_ratio(float(at[0]), advantage, values), (float(own[0][0]), float(own[1][0])))


def max_lines(lens: Lens, side: Side) -> list[str]:
    """Return both versions at the probe: symbols, numbers, results."""
    clip, r = plain_range(lens), float(lens.values["r"])
    a = side.right.advantage
    held = min(max(r, 1 - clip["epsilon_low"]), 1 + clip["epsilon_high"])
    inside = rf"{latex(r, 2)} \cdot {bracketed(a)},\; {latex(held, 2)} \cdot {bracketed(a)}"
    return [
        r"J &= \min\big(r A,\, \mathrm{clip}(r) A\big)",
        rf"&= \min({inside}) = {latex(side.at_right[0], sign=True)}",
        rf"\frac{{\partial J}}{{\partial r}} &= {latex(side.at_right[1], sign=True)}",
        r"J' &= \max\big(r A,\, \mathrm{clip}(r) A\big)",
        rf"&= \max({inside}) = {latex(side.at_wrong[0], sign=True)}",
        rf"\frac{{\partial J'}}{{\partial r}} &= {latex(side.at_wrong[1], sign=True)}",
    ]


def max_notice(lens: Lens, side: Side) -> tuple[str, dict[str, str]]:
    """Return what to notice about the mistake where the probe is."""
    clip, r = plain_range(lens), float(lens.values["r"])
    low, high = 1 - clip["epsilon_low"], 1 + clip["epsilon_high"]
    numbers = {"low": short(low), "high": short(high), "ratio": plain(r, 2)}
    where = "below" if r < low else "above" if r > high else "inside"
    up = side.right.advantage > 0
    return {
        ("below", True): "max-up-below", ("above", True): "max-up-above", ("below", False): "max-down-below",
        ("above", False): "max-down-above",
    }.get((where, up), "max-inside"), numbers  # fmt: skip
