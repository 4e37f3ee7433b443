"""Several updates on one batch: the current group's completions as the actions of a tiny policy, clipped and not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.lens import Lens
from app.numbers import bracketed, latex
from grpo_core.inner_epochs import InnerEpochs, inner_epochs


@dataclass(frozen=True)
class Epochs:
    """One batch, updated mu times: with the current surrogate and without any clip.

    Each completion of the group is one action of a softmax policy and was drawn once; one more action holds the
    probability of everything that was not drawn. `low` and `high`: the clip range.
    """

    advantages: np.ndarray
    probs: np.ndarray
    clipped: InnerEpochs
    free: InnerEpochs
    low: float
    high: float

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.advantages)

    @property
    def updates(self) -> int:
        """The number of updates, mu."""
        return len(self.clipped.drives)

    @property
    def outside(self) -> np.ndarray:
        """Whether each sample's ratio lies outside the interval after the last update."""
        last = self.clipped.ratios[-1]
        return (last < self.low) | (last > self.high)

    @property
    def farthest(self) -> int:
        """The sample whose ratio has gone furthest from 1."""
        return int(np.abs(np.log(self.clipped.ratios[-1])).argmax())

    @property
    def carried(self) -> np.ndarray:
        """How far (in log r) the others have carried each sample in the updates in which it had no gradient."""
        moves = np.diff(np.log(self.clipped.ratios), axis=0)
        return np.abs(np.where(self.clipped.saturated, moves, 0.0)).sum(axis=0)


def run(lens: Lens) -> Epochs:
    """Return both runs for the current group and settings."""
    v, own = lens.values, np.asarray(lens.advantages, dtype=float)
    size = own.size
    rest = max(float(v["rest"]), 1e-6)  # an action of probability 0 has no logit
    probs = np.append(np.full(size, (1.0 - rest) / size), rest)
    batch = np.log(probs), np.arange(size), own
    steps = {"epochs": int(v["mu"]), "learning_rate": float(v["lr"])}
    free = lens.objective.replace(surrogate="unclipped", options={})
    return Epochs(
        own,
        probs,
        inner_epochs(*batch, lens.objective, **steps),
        inner_epochs(*batch, free, **steps),
        1 - v["eps_low"],
        1 + v["eps_high"],
    )


def distinct(both: Epochs) -> list[tuple[int, int]]:
    """Return (sample, how many) for each different advantage: samples with equal advantages move alike."""
    values, firsts, counts = np.unique(both.advantages.round(12), return_index=True, return_counts=True)
    order = np.argsort(-values)
    return [(int(firsts[i]), int(counts[i])) for i in order]


def lines(both: Epochs) -> list[str]:
    """Return the update, and the first one in numbers for the sample that goes furthest."""
    i = both.farthest
    p, n = float(both.probs[i]), both.size
    slope = float(both.clipped.gradients[0, i])
    drive, total = float(both.clipped.drives[0, i]), float(both.clipped.drives[0].sum())
    last = float(both.clipped.ratios[-1, i])
    return [
        r"\theta &\leftarrow \theta + \eta\,\frac{1}{G}\sum_i \frac{\partial J_i}{\partial\log\pi(o_i)}"
        r"\,\nabla_\theta \log\pi(o_i)",
        rf"\frac{{\partial J}}{{\partial\theta_{{{i + 1}}}}} &= \frac{{1}}{{G}}"
        rf"\Big(D_{{{i + 1}}} - \pi_{{{i + 1}}} \sum_j D_j\Big),\qquad D_j = \frac{{\partial J_j}}{{\partial\log\pi}}",
        rf"&= \tfrac{{1}}{{{n}}} \big({latex(drive)} - {latex(p)} \cdot {bracketed(total)}\big)"
        rf" = {latex(slope, sign=True)}\quad\text{{(first update)}}",
        rf"r_{{{i + 1}}} &= \frac{{\pi_\theta(o_{{{i + 1}}})}}{{\pi_{{\mathrm{{old}}}}(o_{{{i + 1}}})}}"
        rf" = \frac{{{latex(p * last)}}}{{{latex(p)}}} = {latex(last)}\quad\text{{(after the last)}}",
    ]


def clip_ratio(both: Epochs) -> float:
    """Return what a trainer logs as the clip ratio: the share of samples without gradient, over all updates."""
    return float(both.clipped.clip_ratios.mean())
