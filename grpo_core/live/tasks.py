"""Tasks: where prompts come from, how a completion is judged, and which prompts are never trained on."""

import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from grpo_core.advantages import sum_rewards
from grpo_core.rewards import accuracy_reward, gold_anywhere_reward

CUPS = 5
HELD_OUT_SHARE = 10
"""One prompt in this many is held out: chosen by a hash of its text, so the split never depends on a seed."""

_WELL_FORMED = re.compile(r"(?:<think>[^<>]*</think>)?<answer>[^<>]*</answer>")


@dataclass(frozen=True)
class Problem:
    """One prompt with its right answer and the worked steps that lead to it."""

    prompt: str
    answer: str
    steps: str

    @property
    def level(self) -> str:
        """What a task file calls its difficulty; nothing here."""
        return ""

    @property
    def moves(self) -> int:
        """How many of the swaps move the ball: the problem's difficulty."""
        return sum(a != b for a, b in pairwise(self.prompt[0] + self.steps))


@dataclass(frozen=True)
class Score:
    """What a verifier says of one completion: the reward that trains (None: it cannot say), and its parts.

    verified: the verifier's reward where a learned reward model's stands in its place.
    """

    reward: float | None
    accuracy: float
    format: float
    verified: float | None = None


@dataclass(frozen=True)
class Task:
    """One task as data: how many swaps the ball makes, who judges, and which start weights belong to it.

    swaps may be several numbers, of which every prompt takes one at random. verifier is a name in VERIFIERS.
    """

    name: str
    swaps: int | tuple[int, ...]
    verifier: str
    start: str = "shell_game"

    def sample(self, rng: random.Random, count: int, *, held_out: bool = False) -> list[Problem]:
        """Draw problems from the training prompts, or from the held-out ones."""
        problems: list[Problem] = []
        while len(problems) < count:
            swaps = self.swaps if isinstance(self.swaps, int) else rng.choice(self.swaps)
            problem = shell_game(rng, swaps=swaps)
            if is_held_out(problem.prompt) == held_out:
                problems.append(problem)
        return problems

    def held_out(self, count: int) -> list[Problem]:
        """Give `count` different held-out problems: the same ones for every run and seed.

        Fewer only when the task has not that many.
        """
        rng = random.Random(f"held out {self.name}")
        found: dict[str, Problem] = {}
        before = -1
        while before < len(found) < count:
            before = len(found)
            for problem in self.sample(rng, count, held_out=True):
                found.setdefault(problem.prompt, problem)
        return list(found.values())[:count]

    def longest(self, count: int) -> list[Problem]:
        """Some of the longest prompts: here they are of one length, or nearly."""
        return self.held_out(count)

    def judge(self, completions: Sequence[str], problems: Sequence[Problem]) -> list[Score]:
        """Judge completions for an evaluation: always exactly, whatever trains."""
        return judge_exactly(completions, problems)

    def troubles(self) -> dict[str, float]:
        """What the verifier could not do since the last call, by kind; these verifiers cannot fail."""
        return {}

    def scores(self, completions: Sequence[str], problems: Sequence[Problem], lengths: Sequence[int]) -> list[Score]:
        """Judge completions; problems and lengths (in tokens) have one entry for each."""
        weights = VERIFIERS[self.verifier]
        judged = [exact(text, problem.answer) for text, problem in zip(completions, problems, strict=True)]
        if tuple(weights.items()) == (("exact", 1.0),):
            return judged
        rows = zip(completions, problems, lengths, judged, strict=True)
        parts = np.array([[PARTS[name](*row) for name in weights] for row in rows], dtype=float)
        totals = sum_rewards(parts, weights=list(weights.values())).tolist()
        return [Score(total, score.accuracy, score.format) for total, score in zip(totals, judged, strict=True)]

    def score(self, completion: str, problem: Problem, *, length: int = 0) -> Score:
        """Judge one completion of `length` tokens."""
        return self.scores([completion], [problem], [length])[0]


def shell_game(rng: random.Random, *, swaps: int) -> Problem:
    """Hide a ball under one of five cups and swap pairs of cups: "2:13,24,12,25,34=" asks where it ends."""
    start = rng.randint(1, CUPS)
    pairs = [sorted(rng.sample(range(1, CUPS + 1), 2)) for _ in range(swaps)]
    steps = follow(start, pairs)
    prompt = f"{start}:" + ",".join(f"{a}{b}" for a, b in pairs) + "="
    return Problem(prompt, str(steps[-1]), "".join(map(str, steps)))


def follow(start: int, pairs: Sequence[Sequence[int]]) -> list[int]:
    """Say under which cup the ball is after each swap."""
    place, places = start, []
    for a, b in pairs:
        place = b if place == a else a if place == b else place
        places.append(place)
    return places


def is_held_out(prompt: str) -> bool:
    """Say whether a prompt belongs to the held-out part, by a hash of its text."""
    return zlib.crc32(prompt.encode()) % HELD_OUT_SHARE == 0


def format_score(completion: str) -> float:
    """1.0 when the whole completion is one answer block, with or without a thought before it, else 0.0.

    Looser than grpo_core.format_reward, which asks for the thought: here the thought is what training must find.
    """
    return float(_WELL_FORMED.fullmatch(completion) is not None)


def accuracy_score(completion: str, answer: str) -> float:
    """1.0 when the completion's answer block holds the right answer, else 0.0."""
    return float(accuracy_reward(completion, answer, modes=("answer_tag",)) or 0.0)


@lru_cache(maxsize=50_000)
def exact(completion: str, answer: str) -> Score:
    """Reward 1.0 for the right answer in the right format, else 0.0."""
    accuracy, form = accuracy_score(completion, answer), format_score(completion)
    return Score(accuracy * form, accuracy, form)


def judge_exactly(completions: Sequence[str], problems: Sequence[Problem]) -> list[Score]:
    """The exact verifier, for several completions."""
    return [exact(text, problem.answer) for text, problem in zip(completions, problems, strict=True)]


PARTS: Mapping[str, Callable[[str, Problem, int, Score], float | None]] = MappingProxyType(
    {
        "exact": lambda text, problem, length, score: score.reward,
        "format": lambda text, problem, length, score: score.format,
        "length": lambda text, problem, length, score: float(length),
        "gold_anywhere": lambda text, problem, length, score: gold_anywhere_reward(text, problem.answer),
    }
)
"""What a reward can be made of: the right answer in the right format, the format, the number of tokens, and whether the
right answer stands anywhere in the text, which pleases without anything being solved."""

VERIFIERS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "exact": {"exact": 1.0},
        "lenient": {"gold_anywhere": 1.0},
        "format_only": {"format": 1.0},
        "mostly_format": {"format": 1.0, "exact": 0.1},
        "length_bonus": {"exact": 1.0, "length": 0.2},
    }
)
"""Verifiers as data: the weight of each part."""

TASKS: Mapping[str, Task] = MappingProxyType(
    {
        task.name: task
        for task in (
            Task("shell_game", swaps=5, verifier="exact"),
            Task("shell_game_short", swaps=3, verifier="exact"),
            Task("shell_game_long", swaps=6, verifier="exact"),
            Task("shell_game_lenient", swaps=5, verifier="lenient"),
            Task("shell_game_format", swaps=5, verifier="format_only"),
            Task("shell_game_mostly_format", swaps=5, verifier="mostly_format"),
            Task("shell_game_length_bonus", swaps=5, verifier="length_bonus"),
            Task("shell_game_mixed", swaps=(3, 4, 5, 6), verifier="exact"),
            Task("shell_game_unskilled", swaps=5, verifier="exact", start="shell_game_unskilled"),
        )
    }
)
