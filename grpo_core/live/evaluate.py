"""Accuracy on held-out prompts: greedy and sampled, always by the exact verifier."""

from collections.abc import Sequence
from statistics import fmean

import torch

from grpo_core.live.engines import Engine
from grpo_core.live.model import Policy
from grpo_core.live.rollout import encode, sample
from grpo_core.live.tasks import Problem, Score, exact


def evaluate(
    policy: Policy,
    engine: Engine,
    problems: Sequence[Problem],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> dict[str, float]:
    """Answer every problem twice, greedily and by sampling, and give the shares that are right and well formed.

    accuracy and format are the greedy ones, sampled_accuracy and sampled_format those at the temperature,
    mean_length the mean number of sampled tokens. Both answers come from one decode: each prompt is a group
    of two. The seed makes evaluations comparable, and apart from the run's own random numbers.
    """
    greedy = torch.tensor([True, False] * len(problems), device=policy.device)
    rollout = sample(
        engine,
        encode(policy, [problem.prompt for problem in problems]),
        group_size=2,
        max_new_tokens=max_new_tokens,
        eos=policy.tokenizer.eos_token_id,
        generator=torch.Generator().manual_seed(seed),
        temperature=temperature,
        greedy=greedy,
    )
    lengths = rollout.completions.lengths.tolist()
    rows = [row[:n] for row, n in zip(rollout.completions.tokens.tolist(), lengths, strict=True)]
    texts = policy.texts(rows)
    scores = [exact(text, problems[i // 2].answer) for i, text in enumerate(texts)]
    return {**_shares(scores[::2], ""), **_shares(scores[1::2], "sampled_"), "mean_length": fmean(lengths[1::2])}


def _shares(scores: Sequence[Score], prefix: str) -> dict[str, float]:
    """Share of right and of well-formed answers."""
    return {
        f"{prefix}accuracy": fmean(score.reward or 0.0 for score in scores),
        f"{prefix}format": fmean(score.format for score in scores),
    }
