"""The KL of whole completions as a sum of next-token KLs, weighted by where the current policy goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from app import widgets
from app.figures import ppo_policy as figures
from app.lens import Lens
from app.numbers import latex, plain
from app.widgets import Question, Readout, Table
from app.words import prose, t
from grpo_core import categorical_kl
from grpo_core.kl_placement import SequenceKL, sequence_kl
from grpo_core.policies import Outcomes, sequence_outcomes

EDGE = 1e-6  # a probability of exactly 0 or 1 would need an infinite logit


@dataclass(frozen=True)
class Chain:
    """Two policies that decide after each token whether to go on, and their KL taken apart."""

    current: np.ndarray
    reference: np.ndarray
    parts: SequenceKL
    reverse: SequenceKL

    @property
    def wrong(self) -> float:
        """The same next-token KLs, weighted by where the reference goes."""
        return float(self.reverse.reach @ self.parts.conditional)


def policy(go_on: np.ndarray) -> Outcomes:
    """Return the policy that goes on with these probabilities after 0, 1, 2 ... tokens."""
    logits = np.log(np.stack([go_on, 1.0 - go_on], axis=1))
    return sequence_outcomes(logits, tokens=["a", "EOS"], max_length=len(go_on), sharing="prefix")


def chained(lens: Lens) -> Chain:
    """Return what the settings describe; a missing probability of the reference repeats the last one."""
    p, q = lens.values["ch_p"], lens.values["ch_q"]
    current, reference = (np.clip(x, EDGE, 1 - EDGE) for x in (p, (q + q[-1:] * len(p))[: len(p)]))
    own, other = policy(current), policy(reference)
    return Chain(current, reference, sequence_kl(own, other), sequence_kl(other, own))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    colors, size = widgets.colors(), len(lens.values["ch_p"])
    current = widgets.cell_rows("ch_p", [t("control.go_on", n=i) for i in range(size)], color=colors.current)
    reference = widgets.cell_rows("ch_q", [t("control.go_on_ref", n=i) for i in range(size)], color=colors.reference)
    rows = [row for pair in zip(current, reference, strict=False) for row in pair]
    st.caption(t("control.go_on_caption"))
    widgets.controls("where-chain", [*rows, widgets.count_row(["ch_p", "ch_q"], t("control.decisions"))], two=True)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    one = chained(lens)
    widgets.picture(figures.chain(widgets.colors(), one), "chain", alt=t("alt.chain"))
    widgets.readouts(
        [
            Readout("sequence_kl", plain(one.parts.sequence, 4)),
            Readout("sum_of_terms", plain(float(one.parts.terms.sum()), 4)),
            Readout("unweighted", plain(float(one.parts.conditional.sum()), 4)),
            Readout("other_weights", plain(one.wrong, 4)),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("ppo", section, **numbers)
    widgets.check_yourself("chain", lambda: question(one))
    widgets.take_away("ppo", "chain", lambda: snippet(one), lambda: table(one))


def formula(one: Chain) -> list[str]:
    """Return the chain rule with numbers."""
    p = one.parts
    terms = [rf"{latex(w, 3)}\cdot {latex(k, 3)}" for w, k in zip(p.reach, p.conditional, strict=True)]
    shown = terms if len(terms) <= 3 else [*terms[:2], r"\dots", terms[-1]]
    return [
        r"\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}}) &= \sum_s d^{\pi}(s)\;"
        r"\mathrm{KL}\big(\pi(\cdot\,|\,s)\,\|\,\pi_{\mathrm{ref}}(\cdot\,|\,s)\big)",
        rf"&= {' + '.join(shown)} = {latex(p.sequence, 4)}",
    ]


def notice(one: Chain) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "whole": plain(one.parts.sequence, 4), "wrong": plain(one.wrong, 4),
        "reach": plain(100 * float(one.parts.reach[-1]), 1), "last": plain(float(one.parts.conditional[-1]), 3),
    }  # fmt: skip
    return ("chain-same" if one.parts.sequence < 1e-12 else "chain"), numbers


def question(one: Chain) -> Question:
    """Ask for the KL of one decision."""
    p, q = float(one.current[0]), float(one.reference[0])
    value = float(categorical_kl(np.array([p, 1 - p]), np.array([q, 1 - q])))
    numbers = {"p": plain(p, 2), "q": plain(q, 2)}
    return Question(
        prose("ppo", "ask-chain", **numbers), value, prose("ppo", "worked-chain", answer=plain(value, 4), **numbers)
    )


def snippet(one: Chain) -> str:
    """Return Python for the KL and its parts."""
    return f"""import numpy as np
from grpo_core.kl_placement import sequence_kl
from grpo_core.policies import sequence_outcomes

def policy(go_on):  # after 0, 1, 2 ... tokens
    logits = np.log(np.stack([go_on, 1 - go_on], axis=1))
    return sequence_outcomes(logits, tokens=["a", "EOS"], max_length=len(go_on))

current, reference = np.array({one.current.tolist()}), np.array({one.reference.tolist()})
kl = sequence_kl(policy(current), policy(reference))
print(kl.sequence, kl.terms.sum(), kl.terms)"""


def table(one: Chain) -> Table:
    """Return the decisions as data."""
    p = one.parts
    columns = (one.current, one.reference, p.reach, p.conditional, p.terms)
    rows = [(i, *(float(c[i]) for c in columns)) for i in range(len(one.current))]
    return Table(("tokens so far", "current goes on", "reference goes on", "reach", "KL there", "term"), rows)
