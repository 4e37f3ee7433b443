"""Iterative GRPO (Algorithm 1) moment by moment: who is refreshed when."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from app import link, state, widgets
from app.figures import ppo as figures
from app.lens import Lens
from app.numbers import plain
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.iterations import Moment, iterative_schedule, replay_shares

SCENARIOS = ("stale_reward_model", "retrained_reward_model")
"""Scenarios of the live lab that show what this page counts."""


def schedule(lens: Lens) -> list[Moment]:
    """Return all moments of the run that the settings describe."""
    v = lens.values
    return iterative_schedule(iterations=v["it_i"], steps=v["it_m"], epochs=v["it_mu"])


def position(lens: Lens, moments: list[Moment]) -> int:
    """Return the moment in focus, from 0."""
    return min(int(lens.values["moment"]), len(moments)) - 1


def settings(lens: Lens) -> None:
    """Draw the controls."""
    moments = schedule(lens)
    at = position(lens, moments)
    live = st.container()
    back, ahead = st.columns(2)
    back.button(
        t("control.back"), icon=":material/chevron_left:", key="moment-back", width="stretch", disabled=at == 0,
        on_click=lambda: state.put({"moment": at}),
    )  # fmt: skip
    ahead.button(
        t("control.ahead"), icon=":material/chevron_right:", key="moment-ahead", width="stretch",
        disabled=at == len(moments) - 1, on_click=lambda: state.put({"moment": at + 2}),
    )  # fmt: skip
    moment = {**slider("moment"), "high": len(moments), "value": at + 1, "text": str(at + 1)}
    with live:
        widgets.controls("rounds", [moment, slider("it_i"), slider("it_m"), slider("it_mu"), slider("replay")])


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    moments = schedule(lens)
    at = position(lens, moments)
    now = moments[at]
    shares = mix(lens, moments, at)
    widgets.picture(figures.rounds(widgets.colors(), moments, at=at), "rounds", alt=t("alt.rounds"))
    if shares is not None:
        widgets.picture(figures.replay(widgets.colors(), shares), "replay", alt=t("alt.replay"))
    widgets.readouts(
        [
            Readout("policy_version", t("readout.version_n", n=now.current)),
            Readout("behind_old", t("readout.steps", n=now.behind_old)),
            Readout("behind_reference", t("readout.steps", n=now.behind_reference)),
            Readout("reward_version", t("readout.version_n", n=now.reward)),
        ]
    )
    widgets.formula(formula(now))
    widgets.notice("ppo", f"round-{now.action}", **notice(lens, now))
    live()
    widgets.check_yourself("rounds", lambda: question(lens, moments))
    widgets.take_away("ppo", "rounds", lambda: snippet(lens), lambda: table(moments))


def live() -> None:
    """Link to the scenarios in which a small model goes through these moments."""
    if widgets.hidden("notice") or state.locked():
        return
    for scenario in SCENARIOS:
        st.page_link(
            "../pages/live.py",
            label=t(f"rounds.live.{scenario}"),
            icon=":material/arrow_forward:",
            query_params={**link.to_query(state.view()), "part": "scenarios", "scenario": scenario},
        )


def mix(lens: Lens, moments: list[Moment], at: int) -> list[np.ndarray] | None:
    """Return the training data's shares at every retraining so far, or None before the first."""
    done = sum(moment.action == "reward" for moment in moments[: at + 1])
    return [replay_shares(i, replay=lens.values["replay"]) for i in range(1, done + 1)] or None


def formula(now: Moment) -> list[str]:
    """Return what happens at this moment."""
    version = rf"\theta_{{{now.current}}}"
    lines = {
        "reference": rf"\pi_{{\mathrm{{ref}}}} &\leftarrow \pi_\theta = \pi_{{{version}}}",
        "sample": rf"\pi_{{\mathrm{{old}}}} &\leftarrow \pi_\theta = \pi_{{{version}}},\qquad"
        r" o_1,\dots,o_G \sim \pi_{\mathrm{old}}(\cdot\,|\,q),\qquad A_i = (r_i - \bar r)/s",
        "update": rf"\theta_{{{now.current}}} &= \theta_{{{now.current - 1}}} + \eta\,\nabla J(\theta;\,"
        rf"\pi_{{\mathrm{{old}}}} = \pi_{{\theta_{{{now.old}}}}},\;"
        rf"\pi_{{\mathrm{{ref}}}} = \pi_{{\theta_{{{now.reference}}}}})",
        "reward": rf"r_{{\varphi_{{{now.reward}}}}} &\leftarrow r_{{\varphi_{{{now.reward - 1}}}}}"
        r"\text{ trained further on new and replayed data}",
    }
    return [lines[now.action]]


def notice(lens: Lens, now: Moment) -> dict[str, Any]:
    """Return the numbers of what to notice."""
    return {
        "iteration": now.iteration, "step": now.step, "epoch": now.epoch, "old": now.old, "current": now.current,
        "reference": now.reference, "behind": now.behind_reference, "stale": now.behind_old,
        "replay": plain(100 * lens.values["replay"], 0), "epochs": lens.values["it_mu"],
    }  # fmt: skip


def question(lens: Lens, moments: list[Moment]) -> Question:
    """Ask for the number of gradient steps in the whole run."""
    value = float(moments[-1].current)
    v = lens.values
    numbers = {"iterations": v["it_i"], "steps": v["it_m"], "epochs": v["it_mu"]}
    text = prose("ppo", "ask-rounds", **numbers)
    return Question(text, value, prose("ppo", "worked-rounds", answer=plain(value, 0), **numbers))


def snippet(lens: Lens) -> str:
    """Return Python that prints every moment."""
    v = lens.values
    return f"""from grpo_core.iterations import iterative_schedule, replay_shares

moments = iterative_schedule(iterations={v["it_i"]}, steps={v["it_m"]}, epochs={v["it_mu"]})
for number, m in enumerate(moments, start=1):
    print(number, m.action, "current", m.current, "old", m.old, "reference", m.reference, "reward model", m.reward)
print(replay_shares({v["it_i"]}, replay={v["replay"]!r}))"""


def table(moments: list[Moment]) -> Table:
    """Return the moments as data."""
    rows = [
        (i, m.action, m.iteration, m.step, m.epoch, m.current, m.old, m.reference, m.reward)
        for i, m in enumerate(moments, start=1)
    ]
    names = ("moment", "action", "iteration", "step", "epoch", "current", "old", "reference", "reward model")
    return Table(names, rows)
