"""DPO: the loss of one preference pair, and the optimum from which it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from app import widgets
from app.figures import ppo_policy as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, short, signed
from app.views.ppo import optimum
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.preference import dpo_loss, dpo_margin, dpo_weight, implicit_reward, preference_probability


@dataclass(frozen=True)
class Pair:
    """A preferred (w) and a rejected (l) completion: log-probabilities in nats, and what DPO makes of them."""

    logp_w: float
    ref_w: float
    logp_l: float
    ref_l: float
    beta: float

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The four log-probabilities in the order of the core's functions, each (1,)."""
        return tuple(np.array([x]) for x in (self.logp_w, self.ref_w, self.logp_l, self.ref_l))

    @property
    def rewards(self) -> tuple[float, float]:
        """The implicit rewards of both."""
        w, ref_w, lose, ref_l = self.arrays
        won, lost = (implicit_reward(a, b, beta=self.beta) for a, b in ((w, ref_w), (lose, ref_l)))
        return float(won[0]), float(lost[0])

    @property
    def margin(self) -> float:
        """By how much the preferred one wins, z."""
        return float(dpo_margin(*self.arrays, beta=self.beta)[0])

    @property
    def loss(self) -> float:
        """The loss."""
        return float(dpo_loss(*self.arrays, beta=self.beta)[0])

    @property
    def weight(self) -> float:
        """How hard the pair pulls."""
        return float(dpo_weight(*self.arrays, beta=self.beta)[0])

    @property
    def probability(self) -> float:
        """How likely the implicit rewards say that the preferred one is preferred."""
        won, lost = self.rewards
        return float(preference_probability(np.array([won]), np.array([lost]))[0])


def pair(lens: Lens) -> Pair:
    """Return the pair that the settings describe."""
    v = lens.values
    return Pair(*(float(v[name]) for name in ("dpo_w", "dpo_wr", "dpo_l", "dpo_lr", "dpo_beta")))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    widgets.choice("dpo_view", hide_label=True)
    if lens.values["dpo_view"] == "optimum":
        optimum.settings(lens)
        return
    colors = widgets.colors()
    own = {"dpo_w": colors.current, "dpo_wr": colors.reference, "dpo_l": colors.current, "dpo_lr": colors.reference}
    rows = [{**slider(name), "color": color} for name, color in own.items()]
    widgets.controls("dpo-pair", [*rows, slider("dpo_beta")])


def curve(one: Pair) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return margins, the loss there and the weight as a share of beta."""
    reach = max(4.0, 1.2 * abs(one.margin))
    z = np.linspace(-reach, reach, 121)
    zero = np.zeros_like(z)
    return z, dpo_loss(z, zero, zero, zero, beta=1.0), dpo_weight(z, zero, zero, zero, beta=1.0)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    if lens.values["dpo_view"] == "optimum":
        optimum.draw(lens)
        return
    one = pair(lens)
    widgets.picture(figures.pair(widgets.colors(), one, curve(one)), "dpo", alt=t("alt.dpo"))
    widgets.readouts(
        [
            Readout("margin", signed(one.margin)),
            Readout("preferred", plain(one.probability)),
            Readout("dpo_loss", plain(one.loss, 4)),
            Readout("dpo_weight", plain(one.weight, 4)),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("dpo", lambda: question(one))
    widgets.take_away("ppo", "dpo", lambda: snippet(one), lambda: table(one))


def formula(one: Pair) -> list[str]:
    """Return margin, loss and weight with numbers."""
    z = latex(one.margin, sign=True)
    return [
        r"z &= \beta\Big[\log\tfrac{\pi(y_w)}{\pi_{\mathrm{ref}}(y_w)} -"
        r" \log\tfrac{\pi(y_l)}{\pi_{\mathrm{ref}}(y_l)}\Big]",
        rf"&= {latex(one.beta, 2)}\,\big[({latex(one.logp_w, 1)} - {bracketed(one.ref_w, 1)}) -"
        rf" ({latex(one.logp_l, 1)} - {bracketed(one.ref_l, 1)})\big] = {z}",
        rf"\ell &= -\log\sigma(z) = -\log {latex(one.probability)} = {latex(one.loss, 4)}",
        rf"\beta\,\sigma(-z) &= {latex(one.beta, 2)} \cdot {latex(1 - one.probability)} = {latex(one.weight, 4)}",
    ]


def notice(one: Pair) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    won, lost = one.rewards
    numbers = {
        "loss": plain(one.loss, 3), "weight": plain(one.weight, 4), "won": signed(won, 2), "lost": signed(lost, 2),
        "beta": short(one.beta), "share": plain(100 * one.weight / one.beta, 0), "margin": signed(one.margin, 2),
    }  # fmt: skip
    if one.margin == 0:
        return "dpo-start", numbers
    if won < 0 and lost < 0 < one.margin:
        return "dpo-both-fall", numbers
    return ("dpo-right" if one.margin > 0 else "dpo-wrong"), numbers


def question(one: Pair) -> Question:
    """Ask for the loss at the reference policy."""
    value = Pair(-10.0, -10.0, -15.0, -15.0, one.beta).loss
    return Question(prose("ppo", "ask-dpo"), value, prose("ppo", "worked-dpo", answer=plain(value, 4)))


def snippet(one: Pair) -> str:
    """Return Python for the pair."""
    return f"""import numpy as np
from grpo_core.preference import dpo_loss, dpo_margin, dpo_weight

logp_w, ref_logp_w = np.array([{one.logp_w!r}]), np.array([{one.ref_w!r}])  # the preferred completion
logp_l, ref_logp_l = np.array([{one.logp_l!r}]), np.array([{one.ref_l!r}])  # the rejected one
for formula in (dpo_margin, dpo_loss, dpo_weight):
    print(formula.__name__, formula(logp_w, ref_logp_w, logp_l, ref_logp_l, beta={one.beta!r})[0])"""


def table(one: Pair) -> Table:
    """Return the curves as data."""
    rows = [tuple(map(float, row)) for row in zip(*curve(one), strict=True)]
    return Table(("margin z", "loss", "weight / beta"), rows)
