"""Where the KL enters: inside every token's reward (PPO), or beside the advantage in the loss (GRPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from app import widgets
from app.editing import with_reward
from app.figures import ppo_policy as figures
from app.lens import Lens
from app.numbers import bracketed, latex, plain, short, signed
from app.views.ppo import chain
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import Group, kl_estimate
from grpo_core.credit import returns_to_go
from grpo_core.kl_placement import shaped_rewards

SHOWN = 16


@dataclass(frozen=True)
class Placed:
    """One completion of T tokens with the KL in both places. All (T,) but the numbers."""

    index: int
    tokens: tuple[str, ...]
    log_ratio: np.ndarray  # old minus reference: the policy that sampled
    shaped: np.ndarray
    to_come: np.ndarray
    advantage: float
    shaped_advantage: float
    penalty: np.ndarray
    beta: float
    reward: float
    logp: np.ndarray
    ref_logp: np.ndarray
    old_logp: np.ndarray


def placed(lens: Lens) -> Placed | None:
    """Return the chosen completion, or None without a reference, a score or a token."""
    group = lens.group
    index = min(int(lens.values["comp"]), group.size) - 1
    reward = group.rewards[index]
    if group.ref_logp is None or reward is None or not group.tokens[index]:
        return None
    beta = float(lens.values["beta"])
    logp, old, ref = (np.asarray(rows[index]) for rows in (group.logp, group.old_logp or group.logp, group.ref_logp))
    shaped = shaped_rewards(reward, old, ref, beta=beta)
    return Placed(
        index, group.tokens[index], old - ref, shaped, returns_to_go(shaped), float(lens.advantages[index]),
        float(shaped_group(group, beta).advantages(lens.spec, greedy_reward=lens.values["greedy"]).advantages[index]),
        beta * kl_estimate(logp, ref, estimator=lens.values["kl"]), beta, float(reward), logp, ref, old,
    )  # fmt: skip


def shaped_group(group: Group, beta: float) -> Group:
    """Return the group with the KL of every completion inside its reward."""
    for i, reward in enumerate(group.rewards):
        if reward is not None and group.tokens[i] and group.ref_logp is not None:
            old = (group.old_logp or group.logp)[i]
            group = with_reward(group, i, float(shaped_rewards(reward, old, group.ref_logp[i], beta=beta).sum()))
    return group


def settings(lens: Lens) -> None:
    """Draw the controls."""
    widgets.choice("where_view", hide_label=True)
    if lens.values["where_view"] == "chain":
        chain.settings(lens)
        return
    index = min(int(lens.values["comp"]), lens.group.size)
    which = {**slider("comp"), "high": lens.group.size, "value": index, "text": str(index)}
    live = [which, slider("beta")]
    reward = widgets.reward_rows()[index - 1]
    widgets.controls("where-tokens", [*live, reward])
    widgets.choice("kl")


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    if lens.values["where_view"] == "chain":
        chain.draw(lens)
        return
    one = placed(lens)
    if one is None:
        widgets.notice("ppo", "where-nothing")
        return
    widgets.picture(
        figures.where(widgets.colors(), one, shown=SHOWN, kl=lens.values["kl"]), "where", alt=t("alt.where")
    )
    widgets.readouts(
        [
            Readout("plain_advantage", signed(one.advantage)),
            Readout("shaped_advantage", signed(one.shaped_advantage)),
            Readout("kl_paid", signed(float(one.shaped.sum()) - one.reward)),
            Readout("kl_added", plain(float(one.penalty.sum()))),
        ]
    )
    widgets.formula(formula(one, lens.values["kl"]))
    section, numbers = notice(one)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("where", lambda: question(one))
    widgets.take_away("ppo", "where", lambda: snippet(one, lens.values["kl"]), lambda: table(one))


def focus(one: Placed) -> int:
    """Return the token that the two policies see most differently."""
    return int(np.argmax(np.abs(one.log_ratio)))


def formula(one: Placed, kl: str) -> list[str]:
    """Return the token's shaped reward, and its loss term, with numbers."""
    i = focus(one)
    last = i == len(one.tokens) - 1
    paid = rf"{latex(one.reward, 2)} - " if last else "-"
    difference = rf"\big[{latex(one.old_logp[i], 2)} - {bracketed(one.ref_logp[i], 2)}\big]"
    return [
        rf"\text{{PPO:}}\quad r_{{{i + 1}}} &= {'R ' if last else ''}-\beta\,(\log\pi_{{\mathrm{{old}}}} -"
        rf" \log\pi_{{\mathrm{{ref}}}})",
        rf"&= {paid}{latex(one.beta, 2)}\,{difference} = {latex(one.shaped[i], sign=True)}",
        rf"\text{{GRPO:}}\quad J_{{{i + 1}}} &= A - \beta\, k_{kl[1]}\qquad\text{{(at ratio 1)}}",
        rf"&= {latex(one.advantage, sign=True)} - {bracketed(one.penalty[i])} ="
        rf" {latex(one.advantage - one.penalty[i], sign=True)}",
    ]


def notice(one: Placed) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "first": signed(one.to_come[0], 2), "reward": plain(one.reward, 2), "plain": signed(one.advantage, 2),
        "shaped": signed(one.shaped_advantage, 2), "beta": short(one.beta),
    }  # fmt: skip
    if one.beta == 0:
        return "where-off", numbers
    if one.advantage == 0 and one.shaped_advantage != 0:
        return "where-drift", numbers
    if one.advantage * one.shaped_advantage < 0:
        return "where-flip", numbers
    return ("where-same" if numbers["plain"] == numbers["shaped"] else "where"), numbers


def question(one: Placed) -> Question:
    """Ask for the sum of the token rewards."""
    value = float(one.shaped.sum())
    drift = float(one.log_ratio.sum())
    numbers = {"reward": plain(one.reward, 2), "beta": short(one.beta), "drift": signed(drift)}
    text = prose("ppo", "ask-where", **numbers)
    return Question(text, value, prose("ppo", "worked-where", answer=signed(value), **numbers))


def snippet(one: Placed, kl: str) -> str:
    """Return Python for the completion with the KL in both places."""
    return f"""import numpy as np
from grpo_core import kl_estimate
from grpo_core.credit import returns_to_go
from grpo_core.kl_placement import shaped_rewards

logp = np.array({one.logp.tolist()})
old_logp = np.array({one.old_logp.tolist()})
ref_logp = np.array({one.ref_logp.tolist()})
shaped = shaped_rewards({one.reward!r}, old_logp, ref_logp, beta={one.beta!r})
print("PPO, reward of each token", shaped)
print("PPO, still to come", returns_to_go(shaped))
print("GRPO, beta KL in the loss", {one.beta!r} * kl_estimate(logp, ref_logp, estimator={kl!r}))"""


def table(one: Placed) -> Table:
    """Return the tokens as data."""
    columns = (one.log_ratio, one.shaped, one.to_come, one.penalty)
    rows = [(token, *(float(c[i]) for c in columns), one.advantage) for i, token in enumerate(one.tokens)]
    return Table(("token", "log ratio", "reward with KL", "return with KL", "beta KL in the loss", "advantage"), rows)
