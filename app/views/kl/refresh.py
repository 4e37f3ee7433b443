"""Refreshing the reference every N steps against a smaller beta: three exact runs from one start."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import snippets_kl, widgets
from app.explain import kl as explain
from app.explain.kl import Refresh
from app.figures import kl_refresh as figures
from app.lens import Lens
from app.numbers import latex, plain, short
from app.views.kl import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t


def draw(lens: Lens) -> None:
    """Draw the three runs and what belongs to them."""
    one = explain.refresh(lens)
    widgets.picture(figures.refresh(widgets.colors(), one), "kl-refresh", alt=t("alt.kl_refresh"))
    ends = one.paths.from_start[:, -1]
    widgets.readouts(
        [
            Readout("kl_end_held", plain(float(ends[0]))),
            Readout("kl_end_refreshed", plain(float(ends[1]))),
            Readout("kl_end_smaller", plain(float(ends[2]))),
            Readout("kl_refreshes", str(len(one.refreshes))),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("kl-refresh", lambda: question(one))
    widgets.take_away("kl-refresh", "kl-refresh", lambda: snippets_kl.refresh(one), lambda: table(one))


def settings(lens: Lens) -> None:
    """Draw the runs' settings, and the policy they start from."""
    start = explain.refresh(lens).start
    names = explain.letters(len(start))
    weights = widgets.cell_rows("kl_p0", [t("control.kl_p0", event=n) for n in names], color=widgets.colors().reference)
    for row, p in zip(weights, start, strict=True):
        row["help"] = t("control.weight_help")
        row["unit"] = "" if abs(row["value"] - p) < 5e-4 else t("control.normalised", p=plain(p))
    rewards = widgets.cell_rows("kl_rw", [t("control.kl_rw", event=n) for n in names])
    for row in rewards:
        row["help"] = t("control.kl_rw.help")
    pairs = [row for pair in zip(weights, rewards, strict=False) for row in pair]
    own = [slider(name) for name in ("kl_n", "kl_b", "kl_bs", "kl_lr", "kl_steps")]
    own[0]["wide"] = True
    count = {**widgets.count_row(["kl_p0", "kl_rw"], t("control.kl_actions")), "help": t("control.kl_actions_help")}
    widgets.controls("kl-refresh", [*own, *pairs, count], two=True)
    common.elsewhere("rounds")


def formula(one: Refresh) -> list[str]:
    """Return the step, where it ends with a held reference, and where converged rounds end."""
    rounds = len(one.refreshes) + 1
    _, far = one.limit(one.beta)
    _, further = one.limit(one.beta / rounds)
    return [
        r"\theta_j &\leftarrow \theta_j + \eta\, p_j\big(s_j - \mathbb{E}_p[s]\big)",
        r"s_j &= R_j - \beta\log(p_j / p^{\mathrm{ref}}_j)",
        rf"\text{{held:}}\quad p &\to \tfrac1Z\, p^{{(0)}} e^{{R/{latex(one.beta, 2)}}},"
        rf"\quad \mathrm{{KL}}(p\,\|\,p^{{(0)}}) \to {latex(far)}",
        rf"\text{{if {rounds} rounds converge:}}\quad p &\to \tfrac1Z\, p^{{(0)}}"
        rf" e^{{{rounds} R/{latex(one.beta, 2)}}},"
        rf"\quad \mathrm{{KL}}(p\,\|\,p^{{(0)}}) \to {latex(further)}",
    ]


def notice(one: Refresh) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    ends, rounds = one.paths.from_start[:, -1], len(one.refreshes) + 1
    numbers = {
        "held": plain(float(ends[0]), 2), "refreshed": plain(float(ends[1]), 2), "smaller": plain(float(ends[2]), 2),
        "limit": plain(one.limit(one.beta)[1], 2), "small_limit": plain(one.limit(one.smaller)[1], 2),
        "every": str(one.every), "beta": short(one.beta), "small": short(one.smaller), "rounds": str(rounds),
        "count": str(rounds - 1), "same": short(round(one.beta / rounds, 4)),
        "peak": plain(float(one.paths.penalty[1].max()), 2),
    }  # fmt: skip
    if np.ptp(one.rewards) == 0:
        return "refresh-flat", {}
    if rounds == 1:
        return "refresh-never", numbers
    return ("refresh-always" if one.every == 1 else "refresh"), numbers


def question(one: Refresh) -> Question:
    """Ask which smaller beta converged rounds amount to."""
    value = one.beta / 4
    numbers = {"beta": short(one.beta), "rounds": "4"}
    return Question(
        prose("kl", "ask-refresh", **numbers), value, prose("kl", "worked-refresh", answer=short(value), **numbers)
    )


def table(one: Refresh) -> Table:
    """Return the runs step by step as data."""
    paths = one.paths
    columns = (paths.reward, paths.from_start, paths.penalty)
    rows = [
        (name, step, *(float(c[i, step]) for c in columns))
        for i, name in enumerate(explain.RUNS)
        for step in range(one.steps + 1)
    ]
    return Table(("run", "step", "expected reward", "KL to the first reference", "KL to the reference in force"), rows)
