"""Critic and GAE on one trajectory, against the one number that its group gives it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app import widgets
from app.editing import with_reward
from app.figures import ppo as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, short, signed
from app.views.ppo import vine
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import gae
from grpo_core.credit import n_step_advantages, n_step_weights, td_errors
from grpo_core.critic import lambda_returns, value_loss


@dataclass(frozen=True)
class Trajectory:
    """One completion of T tokens: rewards (T,), values (T + 1,), how they become advantages. `at`: a token, from 0."""

    rewards: np.ndarray
    values: np.ndarray
    gamma: float
    lam: float
    at: int
    terminal: bool
    group: float

    @property
    def size(self) -> int:
        """The number of tokens, T."""
        return len(self.rewards)

    @cached_property
    def errors(self) -> np.ndarray:
        """The one-step errors delta (T,)."""
        return td_errors(self.rewards, self.values, gamma=self.gamma)

    @cached_property
    def advantages(self) -> np.ndarray:
        """The GAE of each token (T,)."""
        return self.under(self.lam)

    @cached_property
    def targets(self) -> np.ndarray:
        """What the critic is trained towards (T,)."""
        return lambda_returns(self.rewards, self.values, gamma=self.gamma, lam=self.lam)

    @property
    def loss(self) -> float:
        """The critic's loss on this trajectory."""
        return float(value_loss(self.values[:-1], self.targets))

    @cached_property
    def n_step(self) -> np.ndarray:
        """All n-step estimates of the token in focus."""
        return n_step_advantages(self.rewards, self.values, t=self.at, gamma=self.gamma)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight that GAE gives each of them."""
        return n_step_weights(len(self.n_step), lam=self.lam)

    def under(self, lam: float) -> np.ndarray:
        """Return the GAE of each token at another lambda, (T,)."""
        return gae(self.rewards, self.values, gamma=self.gamma, lam=lam)


def trajectory(lens: Lens) -> Trajectory:
    """Return the trajectory that the settings describe; missing values repeat the last one."""
    v = lens.values
    rewards = np.asarray(v["tr"])
    inner = (v["tv"] + v["tv"][-1:] * len(rewards))[: len(rewards)]
    end = 0.0 if v["boot"] is None else float(v["boot"])
    changed = with_reward(lens.group, 0, float(rewards.sum()))
    whole = changed.advantages(lens.spec, greedy_reward=v["greedy"])
    at = min(int(v["at_t"]), len(rewards)) - 1
    return Trajectory(
        rewards, np.append(inner, end), v["gamma"], v["lam"], at, v["boot"] is None, float(whole.advantages[0])
    )


def settings(lens: Lens) -> None:
    """Draw the controls."""
    widgets.choice("critic_view", hide_label=True)
    if lens.values["critic_view"] == "vine":
        vine.settings(lens)
        return
    path = trajectory(lens)
    widgets.numbers_line("tr")
    titles = [t("control.value", number=i + 1) for i in range(path.size)]
    values = widgets.cell_rows("tv", titles, color=widgets.colors().second)
    focus = {**slider("at_t"), "high": path.size, "value": path.at + 1, "text": str(path.at + 1)}
    widgets.controls("critic", [slider("lam"), slider("gamma"), focus, slider("boot", value=0.8), *values])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    if lens.values["critic_view"] == "vine":
        vine.draw(lens)
        return
    path = trajectory(lens)
    colors = widgets.colors()
    ends = path.under(0.0), path.under(1.0)
    widgets.picture(figures.critic(colors, path, ends=ends), "critic", alt=t("alt.critic"))
    widgets.picture(figures.n_step(colors, path), "n-step", alt=t("alt.n_step"))
    widgets.readouts(
        [
            Readout("gae", signed(path.advantages[path.at])),
            Readout("group_baseline", signed(path.group)),
            Readout("tail", plain(path.weights[-1])),
            Readout("value_loss", plain(path.loss)),
        ]
    )
    widgets.formula(formula(path))
    section, numbers = notice(path)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("critic", lambda: question(path))
    widgets.take_away("ppo", "critic", lambda: snippet(path), lambda: table(path))


def formula(path: Trajectory) -> list[str]:
    """Return the token's one-step error, its GAE as a sum of errors, and as a mean of n-step estimates."""
    i, n = path.at, path.at + 1
    r, v, after = path.rewards[i], path.values[i], path.values[i + 1]
    decay = [(path.gamma * path.lam) ** k for k in range(path.size - i)]
    errors = _sum(decay, path.errors[i:])
    steps = _sum(path.weights, path.n_step)
    result = latex(path.advantages[i], sign=True)
    return [
        rf"\delta_{{{n}}} &= r_{{{n}}} + \gamma V_{{{n + 1}}} - V_{{{n}}} = {latex(r, 2)} + {latex(path.gamma, 2)}"
        rf"\cdot {bracketed(after, 2)} - {bracketed(v, 2)} = {latex(path.errors[i], sign=True)}",
        rf"A_{{{n}}} &= \sum_\ell (\gamma\lambda)^\ell\, \delta_{{{n}+\ell}} = \sum_m w_m\, A_{{{n}}}^{{(m)}}",
        rf"&= {errors} = {result}",
        rf"&= {steps} = {result}",
    ]


def _sum(weights: Any, terms: Any) -> str:
    """Return a weighted sum with its numbers, at most three terms of it."""
    parts = [rf"{latex(w, 2)}\cdot {bracketed(x, 2)}" for w, x in zip(weights, terms, strict=True)]
    return " + ".join(parts if len(parts) <= 3 else [*parts[:2], r"\dots", parts[-1]])


def notice(path: Trajectory) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "group": signed(path.group, 2), "first": signed(path.advantages[0], 2), "last": signed(path.advantages[-1], 2),
        "lam": short(path.lam), "tail": plain(path.weights[-1], 2), "token": str(path.at + 1),
    }  # fmt: skip
    if not path.terminal:
        ended = Trajectory(
            path.rewards, np.append(path.values[:-1], 0.0), path.gamma, path.lam, path.at, True, path.group
        )
        return "gae-cut", {**numbers, "boot": plain(path.values[-1], 2), "ended": signed(ended.advantages[-1], 2)}
    if path.lam == 0:
        return "gae-td", numbers
    if path.lam == 1:
        return "gae-measured", numbers
    step, measured = (float(path.under(lam)[path.at]) for lam in (0.0, 1.0))
    if step * measured < 0:
        return "gae-flip", {**numbers, "td": signed(step, 2), "measured": signed(measured, 2)}
    return "gae", numbers


def question(path: Trajectory) -> Question:
    """Ask for the advantage of the token in focus at the other end of lambda."""
    lam = 1.0 if path.lam < 0.5 else 0.0
    value = float(path.under(lam)[path.at])
    section = "measured" if lam == 1.0 else "td"
    i = path.at
    numbers = {
        "answer": signed(value), "value": plain(path.values[i], 2), "reward": plain(path.rewards[i], 2),
        "next": plain(path.values[i + 1], 2), "gamma": short(path.gamma), "total": plain(value + path.values[i], 3),
    }  # fmt: skip
    return Question(prose("ppo", f"ask-{section}", token=i + 1), value, prose("ppo", f"worked-{section}", **numbers))


def snippet(path: Trajectory) -> str:
    """Return Python for the advantages, and the weights of the token in focus."""
    return f"""from grpo_core import gae
from grpo_core.credit import n_step_advantages, n_step_weights
from grpo_core.critic import lambda_returns, value_loss

rewards = {path.rewards.tolist()}
values = {path.values.tolist()}  # the last one: 0 after a terminal token, a bootstrap value after a cut
how = dict(gamma={path.gamma!r}, lam={path.lam!r})
print(gae(rewards, values, **how))
estimates = n_step_advantages(rewards, values, t={path.at}, gamma={path.gamma!r})
weights = n_step_weights(len(estimates), lam={path.lam!r})
print(estimates, weights, float(weights @ estimates))
print(float(value_loss(values[:-1], lambda_returns(rewards, values, **how))))"""


def table(path: Trajectory) -> Table:
    """Return the trajectory token by token."""
    ends = path.under(0.0), path.under(1.0)
    columns = (path.rewards, path.values[:-1], path.errors, path.advantages, *ends, path.targets)
    rows = [(i + 1, *(float(c[i]) for c in columns), path.group) for i in range(path.size)]
    header = ("token", "reward", "value", "td error", "gae", "gae lambda 0", "gae lambda 1", "value target", "group")
    return Table(header, rows)
