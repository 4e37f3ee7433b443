"""Why r - 1 - log r: three sums over the reader's distribution, event by event."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import snippets_kl, widgets
from app.explain import kl as explain
from app.explain.kl import Sums
from app.figures import kl as figures
from app.lens import Distributions, Lens
from app.numbers import bracketed, latex, plain
from app.views.kl import common
from app.widgets import Question, Readout, Table
from app.words import prose, t


def draw(lens: Lens) -> None:
    """Draw the three sums and what belongs to them."""
    both = explain.compared(lens)
    own = explain.sums(both)
    widgets.picture(
        figures.sums(widgets.colors(), own.ratio, own.k1.terms, own.k3.terms), "kl-sums", alt=t("alt.kl_sums")
    )
    widgets.readouts(
        [
            Readout("mean_ratio", plain(own.total, 4)),
            Readout("mean_log", plain(float(own.k1.mean), 4)),
            Readout("mean_k3", plain(float(own.k3.mean), 4)),
            Readout("exact", plain(both.exact, 4)),
        ]
    )
    widgets.formula(formula(both, own))
    section, numbers = notice(both, own)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("kl-why", lambda: question(both))
    widgets.take_away("kl-why", "kl-sums", lambda: snippets_kl.why(both), lambda: table(both, own))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    common.settings(lens, "why", estimator=False)


def formula(both: Distributions, own: Sums) -> list[str]:
    """Return the three sums with the numbers of the first and the last event put in."""
    total, mean = latex(own.total, 4), latex(float(own.k1.mean), 4)
    over = "x" if own.total > 1 - 1e-9 else "p_x > 0"
    return [
        rf"\mathbb{{E}}_p[r] &= \sum_{{{over}}} p_x \tfrac{{q_x}}{{p_x}} = \sum_{{{over}}} q_x"
        rf" = {_sum(own.ratio)} = {total}",
        rf"\mathbb{{E}}_p[-\log r] &= \sum_x p_x \log\tfrac{{p_x}}{{q_x}} = {_sum(own.k1.terms)} = {mean}",
        rf"\mathbb{{E}}_p[k_3] &= \mathbb{{E}}_p[r] - 1 + \mathbb{{E}}_p[-\log r] = {total} - 1 + {mean}"
        rf" = {latex(float(own.k3.mean), 4)}",
    ]


def _sum(terms: np.ndarray) -> str:
    parts = [bracketed(float(term)) for term in terms]
    return " + ".join(parts if len(parts) <= 3 else [parts[0], r"\dots", parts[-1]])


def notice(both: Distributions, own: Sums) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    if explain.same(both):
        return "same", {}
    if not np.isfinite(both.exact):
        return "infinite", {}
    numbers = {
        "exact": plain(both.exact, 4), "k3": plain(float(own.k3.mean), 4), "total": plain(own.total, 4),
        "missing": plain(1.0 - own.total, 4),
    }  # fmt: skip
    if own.total < 1 - 1e-9:
        return "why-unseen", numbers
    lowest = int(np.argmin(own.k1.terms))
    numbers |= {"event": explain.letters(len(own.ratio))[lowest], "term": plain(float(own.k1.terms[lowest])),
                "own": plain(float(own.k3.terms[lowest]))}  # fmt: skip
    return "why", numbers


def question(both: Distributions) -> Question:
    """Ask for one term of the mean of k3."""
    k = int(np.argmax(both.reference))
    own = explain.sums(both)
    value = float(own.k3.terms[k])
    name = explain.letters(len(both.current))[k]
    numbers = {"event": name, "p": plain(both.current[k]), "q": plain(both.reference[k])}
    worked = prose("kl", "worked-why", answer=plain(value, 4), log=plain(float(own.k1.terms[k]), 4), **numbers)
    return Question(prose("kl", "ask-why", **numbers), value, worked)


def table(both: Distributions, own: Sums) -> Table:
    """Return the terms as data."""
    columns = (both.current, both.reference, own.ratio, own.k1.terms, own.k3.terms)
    rows = [(name, *(float(c[i]) for c in columns)) for i, name in enumerate(explain.letters(len(own.ratio)))]
    return Table(("event", "current", "reference", "p r", "p (-log r)", "p (r - 1 - log r)"), rows)
