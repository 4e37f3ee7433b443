"""What the Ratio and clip page says about the current group."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import lens as lenses
from app.figures.clip import Points, Probe
from app.lens import Curve, Lens
from app.numbers import plain, short, signed
from app.widgets import Question, Table
from app.words import prose, t
from grpo_core import batch_statistics, clip_saturated, clipped_slope, clipped_surrogate

MAX_CURVES = 8
WIDEST = 10.0  # the picture ends at this ratio unless the slider goes further


def probe(lens: Lens) -> Probe:
    """Return the point under the slider, on the curve of the group's largest advantage of the chosen sign."""
    advantage = strongest(lens, up=lens.values["sign"] == "up")
    ratio = float(lens.values["r"])
    return Probe(ratio, *lenses.at_ratio(ratio, advantage, lens.values), advantage)


def strongest(lens: Lens, *, up: bool) -> float:
    """Return the group's largest or most negative advantage, +1 or -1 if it has none of that sign."""
    own = [a for a in lens.advantages.tolist() if (a > 0) == up and a != 0]
    return (max(own) if up else min(own)) if own else (1.0 if up else -1.0)


def curves(lens: Lens, at: Probe, high: float) -> list[Curve]:
    """Return one curve for each advantage of the group, the probe's last so that it lies on top."""
    own = sorted({float(a) for a in lens.advantages if a != 0} - {at.advantage})
    if len(own) > MAX_CURVES:
        own = [own[i] for i in np.unique(np.linspace(0, len(own) - 1, MAX_CURVES).astype(int))]
    return [lenses.clip_curve(a, lens.values, high=high) for a in (*own, at.advantage)]


def widest(lens: Lens, at: Probe) -> float:
    """Return where the ratio axis ends."""
    clip = lenses.clip_range(lens.values)
    seen = lens.terms.ratio[lens.terms.mask]
    wanted = [2.0, 1.3 * (1 + clip["epsilon_high"]), 1.15 * (clip["delta"] or 0.0)]
    wanted += [min(1.06 * float(seen.max()), WIDEST)] if seen.size else []
    return max(*wanted, 1.06 * at.ratio)


def points(lens: Lens) -> Points:
    """Return the group's tokens as points; at sequence and trajectory level they share their completion's ratio."""
    rows, columns = np.nonzero(lens.terms.mask)
    ratio, advantage = lens.terms.ratio[rows, columns], lens.advantages[rows]
    clip = lenses.clip_range(lens.values)
    names = [lens.group.tokens[i][k] for i, k in zip(rows, columns, strict=True)]
    return Points(
        ratio,
        clipped_surrogate(ratio, advantage, **clip),
        clipped_slope(ratio, advantage, **clip),
        advantage,
        clip_saturated(ratio, advantage, **clip),
        names,
    )


def visible(points_: Points, high: float) -> Points:
    """Return the points that the picture shows."""
    keep = points_.ratio <= high
    names = [n for n, k in zip(points_.names, keep, strict=True) if k]
    fields = (points_.ratio, points_.objective, points_.slope, points_.advantage, points_.saturated)
    return Points(*(values[keep] for values in fields), names)


def clipped(lens: Lens) -> tuple[str, str]:
    """Return the share of clipped tokens below and above, as text."""
    stats = batch_statistics(lens.batch, lens.terms, lens.objective)
    return tuple(f"{100 * stats[f'clip_ratio/{side}_mean']:.0f} %" for side in ("low", "high"))  # type: ignore[return-value]


def notice(lens: Lens, at: Probe) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    clip = lenses.clip_range(lens.values)
    low, high = 1 - clip["epsilon_low"], 1 + clip["epsilon_high"]
    numbers = {"low": short(low), "high": short(high), "ratio": plain(at.ratio, 2), "slope": signed(at.slope, 2)}
    if lens.objective.surrogate == "policy_gradient":
        return "no-ratio", {}
    if lens.objective.surrogate != "clip":
        return "other-surrogate", {"surrogate": t(f"param.surrogate.{lens.objective.surrogate}")}
    if clip["epsilon_low"] == 0 and clip["epsilon_high"] == 0:
        return "no-room", {}
    flat = at.slope == 0
    if at.ratio == (high if at.advantage > 0 else low) and not flat:
        return "kink", {**numbers, "edge": short(at.ratio)}
    if at.advantage > 0:
        bounded = clip["delta"] is not None and clip["delta"] < high
        closed = ("delta-low", {**numbers, "delta": short(clip["delta"])}) if bounded else ("up-saturated", numbers)
        return closed if flat else ("up-free" if at.ratio < low else "inside", numbers)
    if flat and at.ratio >= low:
        return "down-delta", {**numbers, "delta": short(clip["delta"])}
    return ("down-saturated" if flat else "down-free" if at.ratio > high else "inside"), numbers


def question(lens: Lens) -> Question:
    """Ask for the objective on the side that is not clipped."""
    ratio = 2.0
    value, _ = lenses.at_ratio(ratio, -1.0, lens.values)
    worked = prose("clip", "worked", answer=signed(value), high=short(1 + lens.values["eps_high"]))
    return Question(prose("clip", "ask"), value, worked)


def table(lens: Lens) -> Table:
    """Return every token with its ratio, objective and slope."""
    rows, columns = np.nonzero(lens.terms.mask)
    p = points(lens)
    data = [
        (int(i) + 1, int(k) + 1, name, float(r), float(a), float(v), float(s), bool(flat))
        for i, k, name, r, a, v, s, flat in zip(
            rows, columns, p.names, p.ratio, p.advantage, p.objective, p.slope, p.saturated, strict=True
        )
    ]
    header = ("completion", "position", "token", "ratio", "advantage", "objective", "slope", "saturated")
    return Table(header, data)


def level_rows(lens: Lens) -> list[dict[str, Any]]:
    """Return each completion's ratios at every level; an empty completion has none."""
    ratios, rows = lenses.levels(lens.group), []
    for i, mask in enumerate(lens.batch.mask):
        if not mask.any():
            continue
        rows.append(
            {
                "name": str(i + 1),
                "advantage": float(lens.advantages[i]),
                "token": ratios["token"][i][mask],
                "sequence": float(ratios["sequence"][i, 0]),
                "trajectory": float(ratios["trajectory"][i, 0]),
            }
        )
    return rows


def level_table(lens: Lens) -> Table:
    """Return each completion's sequence and trajectory ratio."""
    rows = [(row["name"], row["sequence"], row["trajectory"]) for row in level_rows(lens)]
    return Table(("completion", "sequence ratio", "trajectory ratio"), rows)


def drift_question(lens: Lens) -> Question:
    """Ask for the trajectory ratio of a short completion."""
    value = lenses.drift(1.1, 10)["trajectory"]
    return Question(prose("clip", "ask-levels"), value, prose("clip", "worked-levels", answer=plain(value, 2)))


def graph_curve(lens: Lens, advantage: float) -> tuple[np.ndarray, np.ndarray]:
    """Return changes of logp and the objective with a frozen old policy."""
    clip = lenses.clip_range(lens.values)
    kinks = [np.log(k) for k in (1 - clip["epsilon_low"], 1 + clip["epsilon_high"]) if np.exp(-0.5) < k < np.exp(0.5)]
    change = np.unique(np.concatenate([np.linspace(-0.5, 0.5, 101), kinks]))
    return change, np.array([lenses.at_ratio(float(r), advantage, lens.values)[0] for r in np.exp(change)])


def graph_question(lens: Lens) -> Question:
    """Ask for the slope at ratio 1 when old and current share the graph."""
    value = lenses.graph_slopes(2.0, lens.values)["shared"]
    return Question(prose("clip", "ask-graph"), value, prose("clip", "worked-graph", answer=plain(value, 0)))


def graph_table(lens: Lens, at: Probe) -> Table:
    """Return the frozen curve as data."""
    change, frozen = graph_curve(lens, at.advantage)
    rows = [(float(x), float(y), at.advantage) for x, y in zip(change, frozen, strict=True)]
    return Table(("change of logp (nats)", "objective, old policy frozen", "objective, shared graph"), rows)
