"""Tokens sampled by an old policy: what a weight on each of them restores, and what detaching or capping it breaks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import streamlit as st

from app import snippets_kl, widgets
from app.explain import kl as explain
from app.explain.kl import OffPolicy
from app.figures import kl_gradients as figures
from app.lens import Lens, distributions
from app.numbers import latex, plain, short
from app.views.kl import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.kl_gradients import WEIGHTINGS


def draw(lens: Lens) -> None:
    """Draw what each weighting gives, and what belongs to it."""
    one = explain.off_policy(lens)
    if one is None:
        widgets.notice("kl", "positive")
        return
    columns = [
        figures.Column(
            t(f"chart.kl_w.{name}", cap=short(one.cap)), _angle(one.angle(name)), float(one.found[name].value),
            one.found[name].gradient, name == one.chosen,
        )
        for name in WEIGHTINGS
    ]  # fmt: skip
    figure = figures.off_policy(widgets.colors(), columns, exact=one.both.exact, true=one.gradient, name=one.estimator)
    widgets.picture(figure, "kl-off", alt=t("alt.kl_off"))
    own = one.own
    widgets.readouts(
        [
            Readout("exact", plain(one.both.exact, 4)),
            Readout("kl_found", plain(float(own.value), 4)),
            Readout("kl_spread", plain(float(own.std))),
            Readout("kl_own_angle", common.degrees(one.angle(one.chosen))),
            Readout("kl_most", plain(float(one.ratio.max()))),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("kl-off", lambda: question(one))
    widgets.take_away("kl-off", "kl-off", lambda: snippets_kl.off_policy(one), lambda: table(one))


def _angle(value: float) -> str:
    return t("chart.kl_no_angle") if math.isnan(value) else t("chart.kl_angle", value=plain(value, 1))


def settings(lens: Lens) -> None:
    """Draw the three distributions, the weight and its cap."""
    live = st.container()
    widgets.choice("kl_w")
    widgets.choice("kl")
    both, weights = explain.compared(lens), explain.old_weights(lens)
    old = widgets.weight_rows("kl_old", distributions(weights, weights).current, weights)
    with live:
        *pairs, events = common.rows(both)
        three = [row for k, row in enumerate(old) for row in (row, *pairs[2 * k : 2 * k + 2])]
        widgets.controls("kl-off", [slider("kl_cap"), *three, events])


def focus(one: OffPolicy) -> int:
    """Return the event with the largest weight."""
    return int(np.argmax(one.ratio))


def formula(one: OffPolicy) -> list[str]:
    """Return the chosen weight at one event, the mean value, and the mean gradient there."""
    k, kind = focus(one), one.estimator[1]
    name, p, old = explain.letters(len(one.old))[k], float(one.both.current[k]), float(one.old[k])
    ratio = rf"r_{name} = \frac{{p_{name}}}{{o_{name}}} = \frac{{{latex(p)}}}{{{latex(old)}}} = {latex(p / old)}"
    symbol = {
        "none": "1", "full": "r_x", "detached": r"\mathrm{sg}(r_x)", "clipped": rf"\min(r_x, {latex(one.cap, 2)})",
    }[one.chosen]  # fmt: skip
    weight = "" if one.chosen == "none" else rf"\,{symbol}"
    value = float(one.own.value)
    against = r"= \mathrm{KL}(p\,\|\,q)" if abs(value - one.both.exact) < 1e-12 else rf"\neq {latex(one.both.exact, 4)}"
    return [
        rf"w_x &= {symbol}, \qquad {ratio}",
        rf"\mathbb{{E}}_o[w\,k_{kind}] &= \sum_x o_x{weight}\,k_{kind}(x) = {latex(value, 4)} \;{against}",
        rf"\mathbb{{E}}_o[\partial_{name}(w\,k_{kind})] &="
        rf" {latex(one.own.gradient[k], sign=True)}, \qquad"
        rf" \partial_{name}\,\mathrm{{KL}}(p\,\|\,q) = {latex(one.gradient[k], sign=True)}",
    ]


def notice(one: OffPolicy) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "exact": plain(one.both.exact, 4), "value": plain(float(one.own.value), 4), "name": one.estimator,
        "angle": plain(one.angle(one.chosen), 1), "cap": short(one.cap), "most": plain(float(one.ratio.max()), 2),
        "spread": plain(float(one.own.std)), "before": plain(float(one.found["none"].std)),
    }  # fmt: skip
    if explain.same(one.both):
        return "trap-same", {}
    if one.estimator != "k3":
        return f"off-{one.estimator}", numbers
    if np.allclose(one.both.current, one.old) and one.chosen != "clipped":
        return ("off-fresh-full" if one.chosen == "full" else "off-fresh"), numbers
    if one.chosen == "clipped" and one.ratio.max() <= one.cap:
        return "off-uncapped", numbers
    return f"off-{one.chosen}", numbers


def question(one: OffPolicy) -> Question:
    """Ask for the weight of an event."""
    k = focus(one)
    name, p, old = explain.letters(len(one.old))[k], float(one.both.current[k]), float(one.old[k])
    numbers = {"event": name, "p": plain(p), "old": plain(old)}
    worked = prose("kl", "worked-off", answer=plain(float(one.ratio[k])), **numbers)
    return Question(prose("kl", "ask-off", **numbers), float(one.ratio[k]), worked)


def table(one: OffPolicy) -> Table:
    """Return the weightings as data: mean value, then the mean gradient event by event, and the truth."""
    names = explain.letters(len(one.old))
    rows = [(name, float(f.value), float(f.std), *map(float, f.gradient)) for name, f in one.found.items()]
    truth = ("exact", one.both.exact, 0.0, *map(float, one.gradient))
    return Table(("weight", "mean", "std", *(f"gradient {name}" for name in names)), [*rows, truth])
