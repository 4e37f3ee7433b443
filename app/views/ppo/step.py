"""TRPO's natural-gradient step on a softmax policy over three answers, beside the plain gradient's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from app import widgets
from app.figures import ppo_policy as figures
from app.lens import Lens
from app.numbers import latex, plain, signed
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import categorical_kl
from grpo_core.policies import log_softmax, softmax_outcomes, true_gradient
from grpo_core.trust_region import natural_gradient_step, softmax_fisher, step_kl

ANSWERS = ("A", "B", "C")
LEAST = 1e-3  # no answer may vanish: its logit would be -infinity


@dataclass(frozen=True)
class Steps:
    """One policy over three answers and two steps of the same model KL: along the natural and the plain gradient.

    `old`, `natural`, `plain` (3,): probabilities; `gradient` (3,), `advantages` (3,): in the logits, and r - J.
    `exact`: each step's true KL. `ring`: the policies at exactly that KL (N, 3). `gains`: of expected reward.
    """

    rewards: np.ndarray
    old: np.ndarray
    gradient: np.ndarray
    step: np.ndarray
    natural: np.ndarray
    plain: np.ndarray
    exact: tuple[float, float]
    gains: tuple[float, float]
    ring: np.ndarray
    delta: float

    @property
    def advantages(self) -> np.ndarray:
        """How much better than expected each answer is."""
        return self.rewards - float(self.old @ self.rewards)


def steps(lens: Lens) -> Steps | None:
    """Return both steps, or None where all rewards are equal: no direction leads up."""
    v = lens.values
    weights = np.maximum(np.asarray((v["nat_p"] + v["nat_p"][-1:] * 3)[:3]), LEAST)
    rewards, delta = np.asarray((v["nat_r"] + v["nat_r"][-1:] * 3)[:3]), float(v["nat_d"])
    if rewards.max() == rewards.min():
        return None
    logits = np.log(weights / weights.sum())
    gradient = true_gradient(softmax_outcomes(logits), rewards)
    natural = natural_gradient_step(gradient, softmax_fisher(np.exp(logits)), delta=delta)
    plain_step = gradient * np.sqrt(delta / float(step_kl(logits, gradient).quadratic))
    moves = step_kl(logits, natural), step_kl(logits, plain_step)
    gains = tuple(float((move.new - move.old) @ rewards) for move in moves)
    exact = tuple(float(move.exact) for move in moves)
    old, new, other = moves[0].old, moves[0].new, moves[1].new
    return Steps(rewards, old, gradient, natural, new, other, exact, gains, ring(logits, delta), delta)


def ring(logits: np.ndarray, delta: float, *, points: int = 90) -> np.ndarray:
    """Return policies all around at exactly KL(old, new) = delta, (points + 1, 3), found by bisection."""
    angle = np.linspace(0, 2 * np.pi, points + 1)
    flat = np.array([[1, -1, 0], [1, 1, -2]]) / np.array([[2**0.5], [6**0.5]])
    ways = np.cos(angle)[:, None] * flat[0] + np.sin(angle)[:, None] * flat[1]
    old = np.exp(log_softmax(logits))
    low, high = np.zeros(len(angle)), np.full(len(angle), 60.0)
    for _ in range(40):
        middle = (low + high) / 2
        new = np.exp(log_softmax(logits + middle[:, None] * ways))
        inside = categorical_kl(np.broadcast_to(old, new.shape), new) < delta
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.exp(log_softmax(logits + low[:, None] * ways))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    v = lens.values
    weights = np.maximum(np.asarray((v["nat_p"] + v["nat_p"][-1:] * 3)[:3]), LEAST)
    chances = widgets.cell_rows("nat_p", [t("control.answer_weight", name=a) for a in ANSWERS])
    for row, p in zip(chances, weights / weights.sum(), strict=False):
        row["unit"] = "" if abs(row["value"] - p) < 5e-4 else t("control.normalised", p=f"{p:.3f}")
    rewards = widgets.cell_rows(
        "nat_r", [t("control.answer_reward", name=a) for a in ANSWERS], color=widgets.colors().up_text
    )
    widgets.controls("trust-step", [slider("nat_d"), *chances, *rewards])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    both = steps(lens)
    if both is None:
        widgets.notice("ppo", "step-none")
        return
    widgets.picture(figures.simplex(widgets.colors(), both), "natural-step", alt=t("alt.step"))
    widgets.readouts(
        [
            Readout("natural_gain", signed(both.gains[0])),
            Readout("plain_gain", signed(both.gains[1])),
            Readout("model_kl", plain(both.delta, 4)),
            Readout("exact_kl", plain(both.exact[0], 4)),
        ]
    )
    widgets.formula(formula(both))
    section, numbers = notice(both)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("step", lambda: question(both))
    widgets.take_away("ppo", "natural-step", lambda: snippet(both), lambda: table(both))


def _vector(values: np.ndarray, digits: int = 3) -> str:
    return "(" + ",\\; ".join(latex(x, digits) for x in values) + ")"


def formula(both: Steps) -> list[str]:
    """Return the gradient, the natural direction and the step with its numbers."""
    return [
        rf"g &= p \odot (r - J) = {_vector(both.gradient)}",
        rf"F^{{+}} g &= r - J + \mathrm{{const}},\qquad r - J = {_vector(both.advantages)}",
        rf"\Delta &= \sqrt{{\tfrac{{2\delta}}{{g^\top F^{{+}} g}}}}\; F^{{+}} g = {_vector(both.step)}",
        rf"\tfrac12 \Delta^\top F \Delta &= \delta = {latex(both.delta, 4)},\qquad"
        rf" \mathrm{{KL}}(\pi_{{\mathrm{{old}}}}\,\|\,\pi) = {latex(both.exact[0], 4)}",
    ]


def notice(both: Steps) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    rare = int(np.argmin(both.old))
    numbers = {
        "natural": signed(both.gains[0]), "plain": signed(both.gains[1]), "name": ANSWERS[rare],
        "p": plain(both.old[rare], 2), "model": plain(both.delta, 4), "exact": plain(both.exact[0], 4),
    }  # fmt: skip
    if both.delta > 0.1 and both.exact[0] > both.delta:
        return "step-large", numbers
    return ("step-same" if np.abs(both.natural - both.plain).max() < 1e-6 else "step"), numbers


def question(both: Steps) -> Question:
    """Ask for one entry of the plain gradient."""
    best = int(np.argmax(both.rewards))
    value = float(both.gradient[best])
    numbers = {
        "p": plain(both.old[best]), "reward": plain(both.rewards[best], 2), "mean": plain(both.old @ both.rewards),
        "answer": signed(value),
    }  # fmt: skip
    text = prose("ppo", "ask-step", name=ANSWERS[best])
    return Question(text, value, prose("ppo", "worked-step", **numbers), tolerance=0.005)


def snippet(both: Steps) -> str:
    """Return Python for the step."""
    return f"""import numpy as np
from grpo_core.policies import softmax_outcomes, true_gradient
from grpo_core.trust_region import natural_gradient_step, softmax_fisher, step_kl

p, rewards = np.array({both.old.tolist()}), np.array({both.rewards.tolist()})
gradient = true_gradient(softmax_outcomes(np.log(p)), rewards)
step = natural_gradient_step(gradient, softmax_fisher(p), delta={both.delta!r})
moved = step_kl(np.log(p), step)
print(step, moved.new)
print("gain", (moved.new - moved.old) @ rewards, "model KL", moved.quadratic, "exact KL", moved.exact)"""


def table(both: Steps) -> Table:
    """Return the policies as data."""
    columns = (both.rewards, both.old, both.gradient, both.step, both.natural, both.plain)
    rows = [(name, *(float(c[i]) for c in columns)) for i, name in enumerate(ANSWERS)]
    return Table(("answer", "reward", "old", "gradient", "natural step", "after natural", "after plain"), rows)
