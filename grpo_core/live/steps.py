"""Process supervision: a verifier for the steps of a thought, and what its rewards make of the advantages.

In the shell game the k-th digit of a thought says under which cup the ball is after the k-th swap: every digit is a
step that can be checked by itself. The last step is the completion as a whole, and its reward the verifier's. A
completion without a thought, or of a task without worked steps, has that step only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grpo_core import AdvantageSpec, process_advantages
from grpo_core.live.tasks import Problem

_THOUGHT = re.compile(r"<think>([^<]*)")


@dataclass(frozen=True)
class Steps:
    """The steps of one completion: the last token of each, counted from 0, and each one's reward."""

    ends: list[int]
    rewards: list[float]


def verify_steps(pieces: Sequence[str], problem: Problem, reward: float | None) -> Steps:
    """Check the steps of one completion, given as the texts of its tokens, of which the last may be the EOS.

    A digit of the thought pays 1 where the ball is, else 0; what goes on after the last swap pays 0. Digits in one
    token are one step, right if all of them are. reward is the step of the whole completion, which ends in the last
    token and takes the place of a digit there; None, it could not be scored, leaves that step out.
    """
    found: dict[int, float] = {}
    thought = _THOUGHT.match("".join(pieces)) if problem.steps else None
    if thought is not None:
        token_of = [i for i, piece in enumerate(pieces) for _ in piece]
        for k, place in enumerate(range(thought.start(1), thought.end(1))):
            right = float(problem.steps[k : k + 1] == thought.string[place])
            found[token_of[place]] = min(right, found.get(token_of[place], 1.0))
    if reward is not None:
        found[len(pieces) - 1] = reward
    return Steps(list(found), list(found.values()))


def step_advantages(steps: Sequence[Steps], lengths: Sequence[int], size: int, spec: AdvantageSpec) -> list[np.ndarray]:
    """Advantages of every token, (T_i,) for each completion, by grpo_core.process_advantages within groups of `size`.

    Of spec the scaling counts, with its ddof and eps: process supervision has the mean over all steps of the group as
    its baseline, whatever estimator spec names.
    """
    scale = "none" if spec.scale == "none" else "group"
    found: list[np.ndarray] = []
    for start in range(0, len(steps), size):
        own, span = steps[start : start + size], slice(start, start + size)
        rewards, ends = [one.rewards for one in own], [one.ends for one in own]
        found += process_advantages(rewards, ends, lengths[span], ddof=spec.ddof, eps=spec.eps, scale=scale)
    return found


def padded(rows: Sequence[np.ndarray], like: Tensor) -> Tensor:
    """Rows (T_i,) as a tensor (B, T) of the shape, dtype and device of another one, 0 on padding."""
    table = torch.zeros(like.shape)
    for i, row in enumerate(rows):
        table[i, : len(row)] = torch.from_numpy(row)
    return table.to(like)


def step_statistics(steps: Sequence[Steps]) -> dict[str, float]:
    """How many steps a completion has on average, and the mean reward of all but the last ones: of the thoughts."""
    if not steps:
        return {}
    inner = [reward for one in steps for reward in one.rewards[:-1]]
    found = {"steps/count": float(np.mean([len(one.ends) for one in steps]))}
    return {**found, "steps/reward": float(np.mean(inner))} if inner else found
