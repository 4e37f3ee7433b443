"""Completions of different lengths: what dividing by the length does to the expected gradient."""

from __future__ import annotations

import streamlit as st

from app import snippets_gradients, widgets
from app.explain import gradients as explain
from app.explain.gradients import Chain
from app.lens import Lens
from app.numbers import latex, plain, signed
from app.views.gradients import common
from app.widgets import Question, Readout, Row, Table, slider
from app.words import prose, t
from grpo_core.policies import expected_reward, score_mean, sequence_outcomes


def draw(lens: Lens) -> None:
    """Draw one estimator's expected gradient under each reduction."""
    problem, own = explain.chain(lens), lens.values["gest"]
    if common.too_many(problem.groups, explain.largest_size(len(problem.stop) + 1)):
        return
    reports = explain.reduced(own, problem)
    figure = common.by_position({t(f"grad.reduce.{mode}"): found for mode, found in reports.items()}, lens)
    widgets.picture(figure, "lengths", alt=t("alt.grad.lengths"))
    outcomes = problem.outcomes
    widgets.readouts(
        [
            Readout("grad_reward", plain(expected_reward(outcomes, problem.core_rewards))),
            Readout("grad_mean_length", plain(float(outcomes.probs @ outcomes.lengths), 2)),
            Readout("grad_cosine_sum", plain(reports["sequence_sum"].cosine, 4)),
            Readout("grad_cosine_mean", plain(reports["sequence_mean"].cosine, 4)),
        ]
    )
    widgets.formula(lines(problem))
    section, numbers = notice(problem, own)
    widgets.notice("gradients", section, **numbers)
    widgets.check_yourself("gradients-lengths", question)
    widgets.take_away(
        "gradients-lengths", "lengths", lambda: snippets_gradients.lengths(own, problem), lambda: table(own, problem)
    )


def settings(lens: Lens) -> None:
    """Draw the policy, its rewards, and the estimator."""
    problem = explain.chain(lens)
    steps = len(problem.stop)
    live = st.container()
    widgets.select("gest")
    widgets.choice("gunit")
    positions = [{"position": k + 1} for k in range(steps)]
    stops = common.cell_rows("stop", "stop", positions, color=widgets.colors().current)
    rewards = common.cell_rows("srw", "srw", positions)
    with live:
        rows: list[Row] = [slider("gg"), *stops, *rewards, slider("rcut")]
        rows.append(widgets.count_row(["stop", "srw", "paya", "pays"], t("control.grad.steps")))
        widgets.controls("grad-lengths", rows)


def lines(problem: Chain) -> list[str]:
    """Return what a baseline costs when it is divided by the length."""
    free = explain.ending(score_mean(problem.outcomes))[0]
    bound = explain.ending(score_mean(problem.outcomes, aggregation="sequence_mean"))[0]
    return [
        r"\mathbb{E}\Big[\sum_t \nabla\log\pi(y_t)\Big] &= 0"
        rf" \qquad\text{{(ending at 1: }} {{{latex(free)}}}\text{{)}}",
        r"\mathbb{E}\Big[\frac{1}{L}\sum_t \nabla\log\pi(y_t)\Big] &= \nabla\, \mathbb{E}\Big[\frac1L\Big] \neq 0"
        rf" \qquad\text{{(ending at 1: }} {{{latex(bound, sign=True)}}}\text{{)}}",
    ]


def notice(problem: Chain, own: str) -> tuple[str, dict[str, str]]:
    """Return what to notice, and the numbers in it."""
    reports = explain.reduced(own, problem)
    mean = explain.ending(reports["sequence_mean"].expected)
    first = signed(mean[0])
    if len(set(problem.rewards)) == 1:
        if abs(mean).max() < 1e-12:
            return "lengths-equal-safe", {"estimator": explain.title(own)}
        way = t("grad.shorter" if mean[0] > 0 else "grad.longer")
        return "lengths-equal", {"first": first, "way": way, "estimator": explain.title(own)}
    if explain.alone(own, problem.size):
        return "single", {}
    numbers = {"sum": plain(reports["sequence_sum"].cosine, 4), "mean": plain(reports["sequence_mean"].cosine, 4)}
    if explain.turned(reports["sequence_sum"]):
        return "lengths-both-turned", {**numbers, "estimator": explain.title(own)}
    return ("lengths-turned" if explain.turned(reports["sequence_mean"]) else "lengths-straight"), numbers


def question() -> Question:
    """Ask for the mean of 1/L of a policy that ends after one token or two."""
    outcomes = sequence_outcomes([[0.0, 0.0], [0.0, 0.0]], tokens=["a", "EOS"], max_length=2, sharing="position")
    value = float(outcomes.probs @ (1.0 / outcomes.lengths))
    return Question(prose("gradients", "ask-lengths"), value, prose("gradients", "worked-lengths", answer=plain(value)))


def table(own: str, problem: Chain) -> Table:
    """Return the expected gradient by position and reduction."""
    reports = explain.reduced(own, problem)
    true = explain.ending(reports["sequence_sum"].true)
    rows = [
        (k + 1, float(true[k]), *(float(explain.ending(found.expected)[k]) for found in reports.values()))
        for k in range(len(problem.stop))
    ]
    return Table(("position", "true gradient", *reports), rows)
