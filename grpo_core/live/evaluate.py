"""Accuracy on held-out prompts: greedy and sampled, by difficulty and length, always by the exact verifier."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch

from grpo_core import clustered_interval, pass_at_k, wilson_interval
from grpo_core.live.engines import Engine
from grpo_core.live.model import Policy
from grpo_core.live.rollout import Rollout, encode, sample
from grpo_core.live.tasks import Problem, Score, judge_exactly

Judge = Callable[[Sequence[str], Sequence[Problem]], list[Score]]
"""Completions and their problems -> scores with reward 1 for right and 0 for wrong."""
LENGTHS = (4, 8, 16, 32)
"""Completions are counted by length up to these many tokens."""


def evaluate(
    policy: Policy,
    engine: Engine,
    problems: Sequence[Problem],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    samples: int = 1,
    seed: int = 0,
    judge: Judge = judge_exactly,
) -> dict[str, Any]:
    """Answer every problem greedily and `samples` times by sampling; give the shares that are right, and how sure.

    accuracy and format are the greedy ones, sampled_accuracy and sampled_format those of a single sample at the
    temperature, mean_length the mean number of sampled tokens. pass_at_k, with more than one sample: the share of
    problems that at least one of the k = samples samples solves. The ends of the 95 % intervals stand beside each as
    _low and _high. strata: the same by how often the ball moves and by how many swaps there are (greedy), and by
    the completion's own length (sampled); for a task file by the level that its lines name. judge says what is right.
    unscored, where there are any: answers that it could not judge. They are left out, of what is sampled with all
    answers to their prompt; a share of which no answer is left is not there.
    All answers come from one decode: each prompt is a group of samples + 1. The seed makes evaluations comparable,
    and apart from the run's own random numbers.
    """
    rollout = sample(
        engine,
        encode(policy, [problem.prompt for problem in problems]),
        group_size=samples + 1,
        max_new_tokens=max_new_tokens,
        eos=policy.tokenizer.eos_token_id,
        generator=torch.Generator().manual_seed(seed),
        temperature=temperature,
        greedy=torch.tensor([True, *[False] * samples] * len(problems), device=policy.device),
    )
    return _measured(problems, _scores(policy, problems, rollout, judge), rollout.completions.lengths.tolist(), samples)


def _measured(problems: Sequence[Problem], scores: list[Score], lengths: list[int], samples: int) -> dict[str, Any]:
    """Every number of an evaluation from the scores and lengths of its answers, each prompt's greedy one first."""
    size = samples + 1
    greedy = scores[::size]
    sampled = [score for i, score in enumerate(scores) if i % size]
    lengths = [n for i, n in enumerate(lengths) if i % size]
    unscored = sum(score.reward is None for score in scores)
    return {
        **_greedy(greedy),
        **_sampled(sampled, samples),
        "mean_length": fmean(lengths),
        "samples": samples,
        **({"unscored": unscored} if unscored else {}),
        "strata": _strata(problems, greedy, sampled, lengths),
    }


def _scores(policy: Policy, problems: Sequence[Problem], rollout: Rollout, judge: Judge) -> list[Score]:
    completions = rollout.completions
    pairs = zip(completions.tokens.tolist(), completions.lengths.tolist(), strict=True)
    texts = policy.texts([row[:n] for row, n in pairs])
    return judge(texts, [problems[i // completions.group_size] for i in range(len(texts))])


def _greedy(scores: Sequence[Score]) -> dict[str, float]:
    """Shares of right and of well-formed answers, one a problem."""
    return {**_share("accuracy", scores, len(scores)), "format": fmean(score.format for score in scores)}


def _sampled(scores: Sequence[Score], samples: int) -> dict[str, float]:
    """Success of a single sample, and of the best of all of them, over the prompts whose samples were all judged."""
    found = {"sampled_format": fmean(score.format for score in scores)}
    counts = np.array([np.nan if score.reward is None else score.reward for score in scores])
    right = counts.reshape(-1, samples).sum(axis=1)
    right = right[~np.isnan(right)]
    if not len(right):
        return found
    low, high = clustered_interval(right, samples=samples)
    found |= {"sampled_accuracy": float(right.mean() / samples), "sampled_accuracy_low": low}
    found |= {"sampled_accuracy_high": high}
    if samples > 1:
        solved = pass_at_k(samples, right, k=samples)
        low, high = wilson_interval(float(solved.sum()), len(solved))
        found |= {"pass_at_k": float(solved.mean()), "pass_at_k_low": float(low), "pass_at_k_high": float(high)}
    return found


def _strata(
    problems: Sequence[Problem], greedy: Sequence[Score], sampled: Sequence[Score], lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """Accuracy within parts of the answers, easy to hard and short to long; parts without an answer are left out."""
    samples = len(sampled) // len(problems)
    once, each = range(len(problems)), [i // samples for i in range(len(sampled))]
    swaps, levels = [len(problem.steps) for problem in problems], sorted({problem.level for problem in problems})
    parts = {
        "moves": _parts(greedy, once, [problem.moves for problem in problems], str) if any(swaps) else {},
        "level": _parts(greedy, once, [levels.index(problem.level) for problem in problems], lambda i: levels[i] or "–")
        if len(levels) > 1
        else {},
        "swaps": _parts(greedy, once, swaps, str) if len(set(swaps)) > 1 else {},
        "length": _parts(sampled, each, [int(np.searchsorted(LENGTHS, n)) for n in lengths], _bin),
    }
    return [
        {"by": by, "value": value, "answers": len(scores), **_share("accuracy", scores, prompts)}
        for by, found in parts.items()
        for value, (scores, prompts) in found.items()
        if _judged(scores)
    ]


def _parts(
    scores: Sequence[Score], prompts: Sequence[int], keys: Sequence[int], name: Callable[[int], str]
) -> dict[str, tuple[list[Score], int]]:
    """Scores by key, keys in order, each with the number of prompts that they are from."""
    found = {}
    for key in sorted(set(keys)):
        members = [i for i, other in enumerate(keys) if other == key]
        found[name(key)] = [scores[i] for i in members], len({prompts[i] for i in members})
    return found


def _bin(number: int) -> str:
    """Name a range of lengths: "5-8", and "33+" for the last."""
    first = LENGTHS[number - 1] + 1 if number else 1
    return f"{first}-{LENGTHS[number]}" if number < len(LENGTHS) else f"{first}+"


def _share(name: str, scores: Sequence[Score], prompts: int) -> dict[str, float]:
    """Share of right answers with its 95 % interval; several answers to one prompt count as one there, to be safe."""
    judged = _judged(scores)
    if not judged:
        return {}
    share = sum(judged) / len(judged)
    trials = prompts * len(judged) / len(scores)
    low, high = wilson_interval(share * trials, trials)
    return {name: share, f"{name}_low": float(low), f"{name}_high": float(high)}


def _judged(scores: Sequence[Score]) -> list[float]:
    return [score.reward for score in scores if score.reward is not None]
