"""Token, sequence and trajectory ratio: what each puts on a token's gradient, and what each corrects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.lens import Lens
from app.numbers import latex, plain
from grpo_core import AdvantageSpec, GroupBatch, Objective, sequence_outcomes
from grpo_core.importance import reweighted_rewards
from grpo_core.token_gradients import token_gradients

OPEN = {"epsilon_low": 1.0, "epsilon_high": 1e6}  # no clip: what is looked at is the weight of a gradient
PULLS: Mapping[str, Objective] = {
    "gspo": Objective(ratio_level="sequence", **OPEN),
    "grpo": Objective(**OPEN),
    "dr_grpo": Objective(aggregation="constant", constant=1.0, **OPEN),
}
POINTS = 16
LONGEST = 256  # tokens: where the curves end, and what the constant divisor is


@dataclass(frozen=True)
class Pulls:
    """How hard one token is pulled, against the length of its completion: times G and divided by the advantage.

    `lengths` (N,); `curves`: the pull under each objective (N,); `at`: the same at the chosen length. `own`: the
    group's completions under GSPO, (length, pull). `constant`: the length that Dr. GRPO divides by.
    """

    lengths: np.ndarray
    curves: Mapping[str, np.ndarray]
    at: Mapping[str, float]
    length: int
    token: float
    own: list[tuple[int, float]]
    constant: float


def pulls(lens: Lens) -> Pulls:
    """Return the pulls for completions whose tokens all have the slider's ratio, and those of the group."""
    token, length = float(lens.values["drift"]), int(lens.values["pull_n"])
    lengths = np.unique(np.append(np.geomspace(1, LONGEST, POINTS).astype(int), length))
    mask = np.arange(LONGEST)[None, :] < lengths[:, None]
    logp = np.where(mask, np.log(token), 0.0)
    batch = GroupBatch(logp, np.zeros_like(logp), None, mask, np.ones(len(lengths)))
    constant = float(LONGEST)
    curves = {
        name: -len(lengths) * token_gradients(batch, _with(o, constant)).policy[:, 0] for name, o in PULLS.items()
    }
    k = int(np.searchsorted(lengths, length))
    at = {name: float(curve[k]) for name, curve in curves.items()}
    return Pulls(lengths, curves, at, length, token, group_pulls(lens), constant)


def _with(objective: Objective, constant: float) -> Objective:
    return objective.replace(constant=constant) if objective.aggregation == "constant" else objective


def group_pulls(lens: Lens) -> list[tuple[int, float]]:
    """Return (length, pull of one token that trains, under GSPO) for each completion that has a pull."""
    batch = GroupBatch.from_groups([lens.group], AdvantageSpec())
    sides = np.where(lens.advantages == 0, 0.0, np.sign(lens.advantages))
    own = GroupBatch(batch.logp, batch.old_logp, None, batch.mask, sides)
    found = np.abs(len(sides) * token_gradients(own, PULLS["gspo"]).policy).max(axis=1)  # all that train are alike
    return [(n, float(found[i])) for i, n in enumerate(lens.lengths) if 0 < found[i] < np.inf]


def pull_lines(own: Pulls) -> list[str]:
    """Return GSPO's and Dr. GRPO's pull on one token: symbols, numbers, results."""
    r, n, divisor = latex(own.token), own.length, f"{own.constant:.0f}"
    return [
        r"\frac{\partial J}{\partial\log\pi_t} &= \frac{A}{G} \times \text{pull}",
        rf"\mathrm{{GSPO}}:\quad \frac{{1}}{{|o|}}\, s &= \frac{{{r}}}{{{n}}} = {_fine(own.at['gspo'])}",
        rf"\text{{token mean}}:\quad \frac{{1}}{{|o|}}\, r_t &= \frac{{{r}}}{{{n}}} = {_fine(own.at['grpo'])}",
        rf"\text{{constant}}:\quad \frac{{1}}{{C}}\, r_t &= \frac{{{r}}}{{{divisor}}} = {_fine(own.at['dr_grpo'])}",
    ]


def _fine(value: float) -> str:
    return latex(value, 5)


# What each ratio corrects


@dataclass(frozen=True)
class Identity:
    """Expected rewards of an answer in several steps, right only if every step is: exact, and reweighted."""

    old: np.ndarray
    new: np.ndarray
    values: Mapping[str, float]  # "old", "token", "sequence", "trajectory", "new"

    @property
    def ratios(self) -> np.ndarray:
        """The token ratios of the right answer."""
        return self.new / self.old


def identity(lens: Lens) -> Identity:
    """Return the expectations for the probabilities of a right step under both policies."""
    size = min(len(lens.values["was"]), len(lens.values["now"]))
    old = np.clip(np.asarray(lens.values["was"][:size]), 0.01, 0.999)
    new = np.clip(np.asarray(lens.values["now"][:size]), 1e-6, 1 - 1e-6)
    before, after = (
        sequence_outcomes(
            np.log(np.stack([p, 1 - p], axis=1)), tokens=["right", "EOS"], max_length=size, sharing="position"
        )
        for p in (old, new)
    )
    rewards = [float("EOS" not in tokens) for tokens in before.tokens]
    return Identity(old, new, reweighted_rewards(before, after, rewards))


def identity_lines(one: Identity) -> list[str]:
    """Return the three weights with their numbers."""
    v, r = one.values, one.ratios
    shown = [latex(x, 2) for x in r]
    product = r" \cdot ".join(shown if len(shown) <= 4 else [shown[0], r"\dots", shown[-1]])
    total = " + ".join(shown if len(shown) <= 4 else [shown[0], r"\dots", shown[-1]])
    base, n = latex(v["old"]), r.size
    return [
        rf"\mathbb{{E}}_{{\mathrm{{old}}}}[W R] &= {base} \cdot ({product}) = {latex(v['trajectory'])}"
        rf" = \mathbb{{E}}_{{\mathrm{{new}}}}[R]",
        rf"\mathbb{{E}}_{{\mathrm{{old}}}}\big[\tfrac{{1}}{{L}}\textstyle\sum_t r_t R\big] &= {base} \cdot"
        rf" \tfrac{{1}}{{{n}}} ({total}) = {latex(v['token'])}",
        rf"\mathbb{{E}}_{{\mathrm{{old}}}}[s R] &= {base} \cdot ({product})^{{1/{n}}} = {latex(v['sequence'])}",
    ]


def identity_numbers(one: Identity) -> dict[str, str]:
    """Return the numbers for the text."""
    return {name: plain(value) for name, value in one.values.items()}
