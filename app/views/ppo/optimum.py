"""The policy that is optimal under a KL, and why its partition function cancels between two answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from app import widgets
from app.figures import ppo_policy as figures
from app.lens import Lens, distributions
from app.numbers import latex, plain, short, signed
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import categorical_kl
from grpo_core.preference import implicit_reward, kl_optimal_policy, log_partition, regularised_value


@dataclass(frozen=True)
class Optimum:
    """Reference (K,), rewards (K,) and beta, with what follows from them."""

    reference: np.ndarray
    rewards: np.ndarray
    beta: float

    @property
    def policy(self) -> np.ndarray:
        """The optimal policy (K,)."""
        return kl_optimal_policy(self.reference, self.rewards, beta=self.beta)

    @property
    def level(self) -> float:
        """beta log Z: what the implicit reward leaves out."""
        return self.beta * float(log_partition(self.reference, self.rewards, beta=self.beta))

    @property
    def implicit(self) -> np.ndarray:
        """beta log(policy / reference) (K,), nan where the reference is 0."""
        seen = (self.reference > 0) & (self.policy > 0)
        logs = [np.log(np.where(seen, p, 1.0)) for p in (self.policy, self.reference)]
        return np.where(seen, implicit_reward(*logs, beta=self.beta), np.nan)

    @property
    def gain(self) -> float:
        """The expected reward at the optimum."""
        return float(self.policy @ self.rewards)

    @property
    def kl(self) -> float:
        """The KL of the optimum to the reference."""
        return float(categorical_kl(self.policy, self.reference))

    @property
    def value(self) -> float:
        """What the regularised objective reaches: expected reward less beta KL."""
        return float(regularised_value(self.policy, self.reference, self.rewards, beta=self.beta))


def best(lens: Lens) -> Optimum:
    """Return what the settings describe; a missing reward repeats the last one."""
    v = lens.values
    reference = distributions(v["opt_ref"], v["opt_ref"]).current
    rewards = np.asarray((v["opt_r"] + v["opt_r"][-1:] * len(reference))[: len(reference)])
    return Optimum(reference, rewards, float(v["opt_beta"]))


def names(size: int) -> list[str]:
    """Return the answers' names."""
    return [chr(ord("A") + i) for i in range(size)]


def settings(lens: Lens) -> None:
    """Draw the controls."""
    one = best(lens)
    answers = names(len(one.reference))
    chances = widgets.cell_rows(
        "opt_ref", [t("control.answer_ref", name=a) for a in answers], color=_color("reference")
    )
    for row, p in zip(chances, one.reference, strict=False):
        row["unit"] = "" if abs(row["value"] - p) < 5e-4 else t("control.normalised", p=f"{p:.3f}")
    rewards = widgets.cell_rows("opt_r", [t("control.answer_reward", name=a) for a in answers], color=_color("up_text"))
    pairs = [row for both in zip(chances, rewards, strict=False) for row in both]
    size = widgets.count_row(["opt_ref", "opt_r"], t("control.answers"))
    widgets.controls("dpo-optimum", [{**slider("opt_beta"), "wide": True}, *pairs, size], two=True)


def _color(name: str) -> str:
    return getattr(widgets.colors(), name)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    one = best(lens)
    widgets.picture(figures.optimum(widgets.colors(), one, names(len(one.reference))), "optimum", alt=t("alt.optimum"))
    widgets.readouts(
        [
            Readout("expected_reward", signed(one.gain)),
            Readout("kl_to_reference", plain(one.kl, 4)),
            Readout("regularised", signed(one.value)),
            Readout("beta_log_z", signed(one.level)),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("optimum", lambda: question(one))
    widgets.take_away("ppo", "optimum", lambda: snippet(one), lambda: table(one))


def focus(one: Optimum) -> tuple[int, int]:
    """Return the best and the worst answer that the reference can give."""
    order = [i for i in np.argsort(one.rewards) if np.isfinite(one.implicit[i])]
    return (int(order[-1]), int(order[0])) if len(order) > 1 else (0, 0)


def formula(one: Optimum) -> list[str]:
    """Return the optimum of the best answer, and the difference in which Z is gone."""
    i, j = focus(one)
    a, b = names(len(one.reference))[i], names(len(one.reference))[j]
    z = float(np.exp(one.level / one.beta)) if abs(one.level / one.beta) < 300 else float("inf")
    r, s = one.implicit[i], one.implicit[j]
    bracket = rf"({latex(s, sign=True)})" if s < 0 else latex(s, sign=True)
    return [
        rf"\pi^*({a}) &= \frac{{\pi_{{\mathrm{{ref}}}}({a})\, e^{{R({a})/\beta}}}}{{Z}} ="
        rf" \frac{{{latex(one.reference[i], 3)}\; e^{{{latex(one.rewards[i], 2)}/{latex(one.beta, 2)}}}}}"
        rf"{{{latex(z, 2)}}} = {latex(one.policy[i])}",
        rf"R({a}) &= \beta\log\tfrac{{\pi^*({a})}}{{\pi_{{\mathrm{{ref}}}}({a})}} + \beta\log Z ="
        rf" {latex(r, sign=True)} + {_plus(one.level)} = {latex(one.rewards[i], sign=True)}",
        rf"R({a}) - R({b}) &= {latex(r, sign=True)} - {bracket} = {latex(r - s, sign=True)}",
    ]


def _plus(value: float) -> str:
    return rf"({latex(value)})" if value < 0 else latex(value)


def notice(one: Optimum) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {"level": signed(one.level, 3), "beta": short(one.beta), "kl": plain(one.kl, 2), "gain": signed(one.gain)}
    if np.any(one.reference == 0):
        return "optimum-unseen", numbers
    if one.policy.max() > 0.99:
        return "optimum-greedy", numbers
    return ("optimum-still" if one.kl < 0.02 else "optimum"), numbers


def question(one: Optimum) -> Question:
    """Ask how many times as likely an answer becomes that is one point better, all else equal."""
    both = kl_optimal_policy(np.array([0.5, 0.5]), np.array([1.0, 0.0]), beta=one.beta)
    value = float(both[0] / both[1]) if both[1] > 0 else float("inf")
    text = prose("ppo", "ask-optimum", beta=short(one.beta))
    return Question(text, value, prose("ppo", "worked-optimum", beta=short(one.beta), answer=plain(value, 3)))


def snippet(one: Optimum) -> str:
    """Return Python for the optimum."""
    return f"""import numpy as np
from grpo_core.preference import kl_optimal_policy, log_partition, regularised_value

reference, rewards, beta = np.array({one.reference.tolist()}), np.array({one.rewards.tolist()}), {one.beta!r}
policy = kl_optimal_policy(reference, rewards, beta=beta)
print(policy, policy @ rewards)
print(regularised_value(policy, reference, rewards, beta=beta))
print(beta * log_partition(reference, rewards, beta=beta))  # the same number"""


def table(one: Optimum) -> Table:
    """Return the answers as data."""
    columns = (one.reference, one.rewards, one.policy, one.implicit)
    rows = [(name, *(float(c[i]) for c in columns), one.level) for i, name in enumerate(names(len(one.reference)))]
    return Table(("answer", "reference", "reward", "optimum", "beta log ratio", "beta log Z"), rows)
