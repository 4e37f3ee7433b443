"""What a step samples: prompts with their scored completions, joined and chosen from when groups without signal are
replaced (dynamic sampling).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from grpo_core import as_rewards, group_kind
from grpo_core.live.engines import Completions, Prompts
from grpo_core.live.rollout import Rollout
from grpo_core.live.tasks import Problem, Score


@dataclass(frozen=True)
class Draw:
    """P prompts with G completions each. problems: one a group; rows (token ids without padding), texts and scores: one
    a completion, in the rollout's order.
    """

    problems: list[Problem]
    rollout: Rollout
    rows: list[list[int]]
    texts: list[str]
    scores: list[Score]

    @cached_property
    def rewards(self) -> np.ndarray:
        """Rewards (P, G), nan where a completion could not be scored."""
        return as_rewards([score.reward for score in self.scores]).reshape(len(self.problems), -1)

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of every group."""
        return [group_kind(with_none(row)) for row in self.rewards]

    @property
    def lengths(self) -> np.ndarray:
        """Lengths (P, G) in tokens."""
        return np.reshape([len(row) for row in self.rows], self.rewards.shape)

    @property
    def mixed(self) -> int:
        """How many groups have unequal rewards."""
        return self.kinds.count("mixed")

    def groups(self, kept: Sequence[int]) -> "Draw":
        """Give some of the groups."""
        size = self.rollout.completions.group_size
        rows = [i * size + j for i in kept for j in range(size)]
        return Draw(
            [self.problems[i] for i in kept],
            select(self.rollout, torch.tensor(kept, device=self.rollout.logp.device)),
            [self.rows[i] for i in rows],
            [self.texts[i] for i in rows],
            [self.scores[i] for i in rows],
        )

    def to_train(self, count: int) -> "Draw":
        """Give `count` groups: the first mixed ones, and where they are too few the first of the others."""
        if len(self.problems) == count:
            return self
        by_use = sorted(range(len(self.problems)), key=lambda i: (self.kinds[i] != "mixed", i))
        return self.groups(sorted(by_use[:count]))


def join_draws(draws: Sequence[Draw]) -> Draw:
    """Put draws of the same group size together."""
    if len(draws) == 1:
        return draws[0]
    rollout = join([draw.rollout for draw in draws])
    problems = [problem for draw in draws for problem in draw.problems]
    rows = [row for draw in draws for row in draw.rows]
    texts = [text for draw in draws for text in draw.texts]
    return Draw(problems, rollout, rows, texts, [score for draw in draws for score in draw.scores])


def join(rollouts: Sequence[Rollout]) -> Rollout:
    """Put rollouts together: prompts padded on the left, completions on the right (with token 0, under the mask)."""
    prompts = [rollout.prompts for rollout in rollouts]
    longest = max(p.ids.shape[1] for p in prompts)
    ids = torch.cat([_padded(p.ids, longest, left=True) for p in prompts])
    real = torch.cat([_padded(_real(p), longest, left=True) for p in prompts])
    steps = max(rollout.logp.shape[1] for rollout in rollouts)

    def rows(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([_padded(x, steps) for x in values])

    completions = [rollout.completions for rollout in rollouts]
    return Rollout(
        Prompts(ids, None if bool(real.all()) else real),
        Completions(
            rows([c.tokens for c in completions]),
            torch.cat([c.lengths for c in completions]),
            completions[0].group_size,
        ),
        torch.cat([rollout.finished for rollout in rollouts]),
        rows([rollout.logp for rollout in rollouts]),
        rows([rollout.entropy for rollout in rollouts]),
    )


def select(rollout: Rollout, groups: Tensor) -> Rollout:
    """Give some groups of a rollout, cut to their longest completion."""
    size = rollout.completions.group_size
    completions = rollout.completions.groups(groups)
    rows = (groups[:, None] * size + torch.arange(size, device=groups.device)).flatten()
    width = completions.tokens.shape[1]
    return Rollout(
        rollout.prompts.select(groups),
        completions,
        rollout.finished[rows],
        rollout.logp[rows, :width],
        rollout.entropy[rows, :width],
    )


def with_none(rewards: np.ndarray) -> list[float | None]:
    """Give rewards as a list, None where a completion could not be scored."""
    return [None if reward != reward else reward for reward in rewards.tolist()]


def _real(prompts: Prompts) -> Tensor:
    return torch.ones_like(prompts.ids, dtype=torch.bool) if prompts.mask is None else prompts.mask


def _padded(values: Tensor, width: int, *, left: bool = False) -> Tensor:
    missing = width - values.shape[1]
    return values if missing == 0 else torch.nn.functional.pad(values, (missing, 0) if left else (0, missing))
