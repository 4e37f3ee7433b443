"""What the KL page says about the current group and about the editable distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import lens as lenses
from app.lens import Distributions, Lens
from app.numbers import plain, signed
from app.widgets import Question, Table
from app.words import prose
from grpo_core import batch_statistics, categorical_kl, kl_estimate

REACH = 6.0  # the picture's widest log-ratio: a point beyond it is shown at the edge
HUGE = 15.0


def token_points(lens: Lens) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the group's tokens: log-ratio to the reference, chosen estimate, name. Empty without a reference."""
    if lens.batch.ref_logp is None:
        return np.array([]), np.array([]), []
    rows, columns = np.nonzero(lens.batch.mask)
    logp, ref = lens.batch.logp[rows, columns], lens.batch.ref_logp[rows, columns]
    names = [lens.group.tokens[i][k] for i, k in zip(rows, columns, strict=True)]
    return ref - logp, kl_estimate(logp, ref, estimator=lens.values["kl"]), names


def curves(lens: Lens) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return log-ratios, wide enough for slider and tokens, and the three estimators there."""
    d, _, _ = token_points(lens)
    wanted = max(1.5, 1.15 * abs(float(lens.values["d"])), *(1.05 * abs(d)))
    grid = np.linspace(-1.0, 1.0, 161) * min(wanted, REACH)
    return grid, lenses.kl_at(grid)


def at(lens: Lens) -> tuple[float, dict[str, float]]:
    """Return the slider's log-ratio and the estimators there."""
    d = float(lens.values["d"])
    return d, {name: float(values[0]) for name, values in lenses.kl_at(d).items()}


def group_mean(lens: Lens) -> float | None:
    """Return the group's mean estimate as a trainer logs it, or None without a reference."""
    return batch_statistics(lens.batch, lens.terms, lens.objective).get("kl")


def notice(lens: Lens) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    d, values = at(lens)
    numbers = {"d": signed(d, 2), **{name: plain(value) for name, value in values.items()}}
    if lens.group.ref_logp is None:
        return "no-reference", {}
    if abs(d) > HUGE:
        return ("huge-above" if d > 0 else "huge-below"), numbers
    if abs(d) < 0.1:
        return "near", numbers
    return ("above" if d > 0 else "below"), numbers


def question(lens: Lens) -> Question:
    """Ask for k3 where the reference gives a token twice the probability."""
    value = float(lenses.kl_at(np.log(2.0))["k3"][0])
    return Question(prose("kl", "ask"), value, prose("kl", "worked", answer=plain(value)))


def table(lens: Lens) -> Table:
    """Return every token with its log-ratio to the reference and all three estimates."""
    d, _, names = token_points(lens)
    values = lenses.kl_at(d) if len(d) else dict.fromkeys(("k1", "k2", "k3"), d)
    rows = [
        (name, float(x), *(float(values[k][i]) for k in ("k1", "k2", "k3")))
        for i, (name, x) in enumerate(zip(names, d, strict=True))
    ]
    return Table(("token", "ref_logp - logp (nats)", "k1", "k2", "k3"), rows)


def compared(lens: Lens) -> Distributions:
    """Return the two editable distributions, compared."""
    return lenses.distributions(lens.values["cur"], lens.values["ref"])


def distribution_notice(both: Distributions) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "exact": plain(both.exact, 4), "reverse": plain(both.reverse, 4),
        **{name: plain(value, 4) for name, value in both.expected.items()},
    }  # fmt: skip
    if np.allclose(both.current, both.reference):
        return "same", {}
    if not np.isfinite(both.exact):
        return "infinite", {}
    if np.any(both.current == 0):
        return "unseen", numbers
    return "expectation", numbers


def distribution_question() -> Question:
    """Ask for an exact divergence of two events."""
    value = float(categorical_kl(np.array([0.5, 0.5]), np.array([0.9, 0.1])))
    return Question(prose("kl", "ask-distribution"), value, prose("kl", "worked-distribution", answer=plain(value)))


def distribution_table(both: Distributions) -> Table:
    """Return both distributions and the estimates event by event."""
    rows = [
        (chr(ord("A") + i), float(p), float(q), *(float(both.estimates[k][i]) for k in ("k1", "k2", "k3")))
        for i, (p, q) in enumerate(zip(both.current, both.reference, strict=True))
    ]
    return Table(("event", "current", "reference", "k1", "k2", "k3"), rows)
