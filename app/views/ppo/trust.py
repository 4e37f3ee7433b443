"""How far one update may go: TRPO's bound on the surrogate's error, and its step on a softmax policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from app import widgets
from app.figures import ppo_policy as figures
from app.lens import Lens
from app.numbers import latex, plain, short, signed
from app.views.ppo import step
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.policies import Outcomes, sequence_outcomes
from grpo_core.trust_region import PerformanceDifference, performance_difference, surrogate_error_bound

STAY = 0.5  # the old policy's probability of writing one more token
LONG = 1000


@lru_cache(maxsize=256)
def policy(go_on: float, horizon: int) -> Outcomes:
    """Return the policy that writes one more token with probability `go_on`, at most `horizon` in all."""
    logits = np.log([go_on, 1.0 - go_on])
    return sequence_outcomes(logits, tokens=["a", "EOS"], max_length=horizon, sharing="everywhere")


@lru_cache(maxsize=512)
def moved(alpha: float, horizon: int, a_max: float) -> PerformanceDifference:
    """Return what moving by `alpha` does when every token pays the same, scaled to the largest advantage `a_max`."""
    old, new = policy(STAY, horizon), policy(STAY + min(alpha, 0.5 - 1e-9), horizon)
    lengths = old.lengths.astype(float)
    unit = performance_difference(old, new, lengths).a_max
    return performance_difference(old, new, lengths * (a_max / unit if unit else 1.0))


@dataclass(frozen=True)
class Bound:
    """The example at one move, and along all of them: `alphas`, true and surrogate objective, bound."""

    at: PerformanceDifference
    alpha: float
    alphas: np.ndarray
    true: np.ndarray
    surrogate: np.ndarray
    bounds: np.ndarray


def bound(lens: Lens) -> Bound:
    """Return the example that the settings describe."""
    v = lens.values
    alpha, horizon, a_max = float(v["alpha"]), int(v["horizon"]), float(v["a_max"])
    alphas = np.linspace(0.0, max(0.2, min(1.25 * alpha, 0.5)), 41)
    steps = [moved(float(a), horizon, a_max) for a in alphas]
    limits = [surrogate_error_bound(float(a), a_max, horizon=horizon) for a in alphas]
    curves = (np.array([s.new for s in steps]), np.array([s.surrogate for s in steps]), np.array(limits))
    return Bound(moved(alpha, horizon, a_max), alpha, alphas, *curves)


def settings(lens: Lens) -> None:
    """Draw the controls."""
    widgets.choice("trust_view", hide_label=True)
    if lens.values["trust_view"] == "step":
        step.settings(lens)
    else:
        widgets.controls("trust-bound", [slider("alpha"), slider("horizon"), slider("a_max")])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    if lens.values["trust_view"] == "step":
        step.draw(lens)
        return
    example = bound(lens)
    widgets.picture(figures.bound(widgets.colors(), example), "bound", alt=t("alt.bound"))
    d = example.at
    limit = limit_of(lens)
    widgets.readouts(
        [
            Readout("true_gain", signed(d.new - d.old)),
            Readout("surrogate_gain", signed(d.surrogate - d.old)),
            Readout("surrogate_error", plain(d.error)),
            Readout("error_bound", plain(limit)),
        ]
    )
    widgets.formula(formula(lens, d, limit))
    section, numbers = notice(lens, d, limit)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("bound", lambda: question(lens))
    widgets.take_away("ppo", "bound", lambda: snippet(lens), lambda: table(example))


def limit_of(lens: Lens, **changes: Any) -> float:
    """Return the bound under the settings, some of them changed."""
    v = {**lens.values, **changes}
    return surrogate_error_bound(v["alpha"], v["a_max"], horizon=v["horizon"])


def formula(lens: Lens, d: PerformanceDifference, limit: float) -> list[str]:
    """Return the identity, the surrogate and the bound with numbers."""
    v = lens.values
    horizon = int(v["horizon"])
    return [
        r"J(\pi) - J(\pi_{\mathrm{old}}) &= \mathbb{E}_{\pi}\Big[\sum_t A_{\mathrm{old}}(s_t, a_t)\Big]"
        rf" = {latex(d.identity, sign=True)}",
        r"L(\pi) - J(\pi_{\mathrm{old}}) &= \mathbb{E}_{\mathrm{old}}\Big[\sum_t r_t\, A_{\mathrm{old}}(s_t, a_t)\Big]"
        rf" = {latex(d.surrogate - d.old, sign=True)}",
        r"|J - L| &\le 2 A_{\max}\, T(T-1)\, \alpha^2",
        rf"&= 2 \cdot {latex(v['a_max'], 2)} \cdot {horizon} \cdot {horizon - 1} \cdot {latex(v['alpha'], 3)}^2"
        rf" = {latex(limit)}",
    ]


def notice(lens: Lens, d: PerformanceDifference, limit: float) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    if int(lens.values["horizon"]) == 1:
        return "bound-one", {}
    numbers = {
        "error": plain(d.error), "bound": plain(limit), "double": plain(limit_of(lens, alpha=lens.values["alpha"] / 2)),
        "long": plain(limit_of(lens, horizon=LONG), 0), "times": plain(limit / d.error, 0) if d.error else "∞",
    }  # fmt: skip
    return ("bound" if lens.values["alpha"] > 0 else "bound-zero"), numbers


def question(lens: Lens) -> Question:
    """Ask for the bound at twice the move."""
    alpha = min(2 * float(lens.values["alpha"]), 1.0) or 0.1
    value = limit_of(lens, alpha=alpha)
    return Question(
        prose("ppo", "ask-bound", alpha=short(alpha)), value, prose("ppo", "worked-bound", answer=plain(value))
    )


def snippet(lens: Lens) -> str:
    """Return Python for the bound, and for the example's true error."""
    v = lens.values
    alpha, a_max, horizon = float(v["alpha"]), float(v["a_max"]), int(v["horizon"])
    return f"""import numpy as np
from grpo_core.policies import sequence_outcomes
from grpo_core.trust_region import performance_difference, surrogate_error_bound

print(surrogate_error_bound({alpha!r}, {a_max!r}, horizon={horizon}))

def policy(go_on):  # writes one more token with this probability
    logits = np.log([go_on, 1 - go_on])
    return sequence_outcomes(logits, tokens=["a", "EOS"], max_length={horizon}, sharing="everywhere")

old, new = policy({STAY}), policy({STAY} + {min(alpha, 0.5 - 1e-9)!r})
rewards = old.lengths * 1.0  # each token pays the same
unit = performance_difference(old, new, rewards).a_max or 1.0
move = performance_difference(old, new, rewards * {a_max!r} / unit)
print(move.new - move.old, move.identity, move.surrogate - move.old, move.error)"""


def table(example: Bound) -> Table:
    """Return the curves as data."""
    rows = [
        tuple(map(float, row))
        for row in zip(example.alphas, example.true, example.surrogate, example.bounds, strict=True)
    ]
    return Table(("alpha", "true objective", "surrogate", "bound on the error"), rows)
