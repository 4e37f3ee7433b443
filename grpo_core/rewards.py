"""Verifiers: from a completion's text to a number, or None when they cannot decide; and how several make one reward."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from grpo_core._arrays import Array, as_data, namespace, number, one_of
from grpo_core.advantages import sum_rewards
from grpo_core.answers import HONEST_MODES, check_text, extract_answer, same_answer
from grpo_core.messages import InputError

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
SCRIPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "latin": ("LATIN",),
        "chinese": ("CJK",),
        "japanese": ("HIRAGANA", "KATAKANA", "CJK"),
        "korean": ("HANGUL",),
        "cyrillic": ("CYRILLIC",),
        "greek": ("GREEK",),
        "arabic": ("ARABIC",),
        "hebrew": ("HEBREW",),
        "devanagari": ("DEVANAGARI",),
        "thai": ("THAI",),
    }
)
"""What the Unicode names of a script's letters begin with."""


def accuracy_reward(
    text: str,
    gold: str | None,
    *,
    modes: Sequence[str] = HONEST_MODES,
    right: float = 1.0,
    wrong: float = 0.0,
    unanswered: float | None = 0.0,
) -> float | None:
    r"""Return `right` if the answer that `text` gives is the gold answer, else `wrong`; None without a gold answer.

    `modes` as in `extract_answer`, equality as in `same_answer`. `unanswered` is for a text that gives no answer, or
    several: None leaves it unscored, which is not the same as wrong for a completion that was cut off.
    Raises ValueError for a text or gold that is not a string.

    >>> accuracy_reward("<answer>0.5</answer>", "1/2"), accuracy_reward("<answer>312</answer>", "12")
    (1.0, 0.0)
    """
    check_text(text, "text")
    if gold is None or not check_text(gold, "gold").strip():
        return None
    answer = extract_answer(text, modes=modes).answer
    if answer is None:
        return None if unanswered is None else number(unanswered, "unanswered")
    return number(right, "right") if same_answer(answer, gold) else number(wrong, "wrong")


def gold_anywhere_reward(text: str, gold: str | None) -> float | None:
    """Return 1.0 if the gold answer's characters stand anywhere in `text`: a verifier that asks to be cheated.

    It pays 12 for 312, for a list of all numbers, and for a thought that ends elsewhere. It is here to show what a
    policy makes of it; use `accuracy_reward` to measure.

    >>> gold_anywhere_reward("312", "12")
    1.0
    """
    check_text(text, "text")
    if gold is None or not check_text(gold, "gold").strip():
        return None
    return float(gold.strip() in text)


def format_reward(text: str, *, think_opened: bool = False) -> float:
    """Return 1.0 if `text` is one thought and one answer, <think>...</think><answer>...</answer>, else 0.0.

    Each tag exactly once and in order, something between the tags of each pair, and only white space around the pairs.
    `think_opened`: the prompt ends with <think>, so that the completion does not contain it. What the answer says does
    not matter: a wrong answer in the right format gets 1.0.

    >>> format_reward("<think>2 + 2</think> <answer>5</answer>"), format_reward("<answer>4</answer>")
    (1.0, 0.0)
    """
    whole = TAGS[0] * bool(think_opened) + check_text(text, "text").strip()
    if any(whole.count(tag) != 1 for tag in TAGS):
        return 0.0
    pieces, rest = [], whole
    for tag in TAGS:
        before, found, rest = rest.partition(tag)
        if not found:
            return 0.0  # the tags are there, in another order
        pieces.append(before.strip())
    outside, thought, between, answer = pieces
    return float(bool(thought and answer) and not (outside or between or rest.strip()))


_MARKUP = re.compile(r"</?(?:think|answer)>|\\[A-Za-z]+")


def language_reward(text: str, *, script: str = "latin") -> float | None:
    r"""Return the share of the text's letters that belong to `script`, None for a text without letters.

    Tags and LaTeX commands are not counted. A script is not a language: French passes for English, and a Chinese text
    may quote a Latin formula. `script` is a name in SCRIPTS. Raises ValueError for another one.
    Source: DeepSeek-R1 arXiv:2501.12948 sec. 2.3.2 rewards the share of words in the target language.

    >>> language_reward("so x = 4"), language_reward("所以 x = 4", script="chinese")
    (1.0, 0.6666666666666666)
    """
    beginnings = SCRIPTS[one_of(script, "script", tuple(SCRIPTS))]
    letters = {c: n for c, n in Counter(_MARKUP.sub(" ", check_text(text, "text"))).items() if c.isalpha()}
    total = sum(letters.values())
    own = sum(n for c, n in letters.items() if _script_name(c).startswith(beginnings))
    return own / total if total else None


def _script_name(letter: str) -> str:
    return unicodedata.name(letter, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")


def overlong_penalty(
    length: Array, *, max_length: float, cache: float, factor: float = 1.0, capped: bool = True
) -> Array:
    r"""Return the soft punishment of long completions, in tokens: 0, then a slope over the last `cache` tokens.

    0 up to max_length - cache, then -factor (length - (max_length - cache)) / cache, and -factor beyond max_length.
    Without `capped` the slope goes on. `length` is a number or an array of any shape. With cache 0 there is only the
    step at max_length. Raises ValueError for a negative length and a cache outside 0..max_length.
    Source: DAPO arXiv:2503.14476 eq. 13; TRL 1.16 `get_soft_overlong_punishment` (factor 1, capped), OpenRLHF 0.11.2
    (factor, capped), verl 0.9.1 DAPO reward manager (factor, not capped).

    >>> overlong_penalty([12000, 18000, 21000], max_length=20480, cache=4096).tolist()
    [0.0, -0.39453125, -1.0]
    """
    limit = number(max_length, "max_length", low=0.0, open_low=True)
    slope, height = number(cache, "cache", low=0.0, high=limit), number(factor, "factor", low=0.0)
    tokens = as_data(length, "length")
    xp = namespace(tokens)
    if not bool(xp.all(tokens >= 0)):
        raise InputError("length must be at least 0 tokens, got {length!r:.80}", length=length)
    zero = xp.zeros_like(tokens)
    if slope == 0:
        if not capped:
            raise InputError("cache must be above 0 unless the penalty is capped: the slope would be endless")
        return xp.where(tokens > limit, zero - height, zero)
    over = xp.clip(tokens - (limit - slope), 0.0, slope if capped else None)
    return zero - over / slope * height


# --- verifiers by name, and their sum ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One completion as verifiers see it: its text, the gold answer if there is one, its length in tokens if known."""

    text: str
    gold: str | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "text")
        if self.gold is not None:
            check_text(self.gold, "gold")


@dataclass(frozen=True)
class Verifier:
    """A verifier as data: what it is called, its hyperparameters with defaults, and the function."""

    title: str
    parameters: Mapping[str, Any]
    score: Callable[..., float | None]  # (Sample, **parameters) -> a number, or None: cannot decide


def _overlong(sample: Sample, **parameters: Any) -> float:
    if sample.length is None:
        raise InputError("length must be given, in tokens, for the verifier 'overlong'")
    return float(overlong_penalty(sample.length, **parameters))


VERIFIERS: Mapping[str, Verifier] = MappingProxyType(
    {
        "accuracy": Verifier(
            title="right answer",
            parameters={"modes": HONEST_MODES, "right": 1.0, "wrong": 0.0, "unanswered": 0.0},
            score=lambda sample, **p: accuracy_reward(sample.text, sample.gold, **p),
        ),
        "format": Verifier(
            title="think, then answer",
            parameters={"think_opened": False},
            score=lambda sample, **p: format_reward(sample.text, **p),
        ),
        "language": Verifier(
            title="share of letters in the script",
            parameters={"script": "latin"},
            score=lambda sample, **p: language_reward(sample.text, **p),
        ),
        "overlong": Verifier(
            title="soft overlong punishment",
            parameters={"max_length": 20480, "cache": 4096, "factor": 1.0, "capped": True},
            score=_overlong,
        ),
        "gold_anywhere": Verifier(
            title="gold answer anywhere (can be cheated)",
            parameters={},
            score=lambda sample: gold_anywhere_reward(sample.text, sample.gold),
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class RewardComponent:
    """One term of a reward: a name in VERIFIERS, its weight, its hyperparameters, and the name it is recorded under."""

    verifier: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        one_of(self.verifier, "verifier", tuple(VERIFIERS))
        number(self.weight, "weight")
        known = VERIFIERS[self.verifier].parameters
        unknown = sorted(set(self.options) - set(known))
        if unknown:
            raise InputError(
                "options of {verifier!r} are {known}, got {unknown}",
                verifier=self.verifier,
                known=sorted(known) or "none",
                unknown=unknown,
            )
        if not self.name:
            object.__setattr__(self, "name", self.verifier)

    def score(self, sample: Sample) -> float | None:
        """Return what the verifier says of `sample`, before the weight; None when it cannot decide."""
        verifier = VERIFIERS[self.verifier]
        value = verifier.score(sample, **{**verifier.parameters, **self.options})
        return None if value is None else number(value, self.name)


@dataclass(frozen=True)
class RewardReport:
    """One completion's reward (None: unscored) with every component before its weight, and the weights."""

    reward: float | None
    parts: Mapping[str, float | None]
    weights: Mapping[str, float]

    @property
    def unscored(self) -> tuple[str, ...]:
        """The components that could not decide."""
        return tuple(name for name, value in self.parts.items() if value is None)


def score_completions(samples: Sequence[Sample], components: Sequence[RewardComponent]) -> list[RewardReport]:
    """Return a report for each completion: the weighted sum of its components, each kept separately.

    A component that cannot decide drops out of that completion's sum; a completion that none can score is unscored, not
    0. Raises ValueError for no components or two of one name.
    Source: TRL 1.16 GRPOTrainer sums reward functions in this way.

    >>> parts = [RewardComponent(verifier="accuracy"), RewardComponent(verifier="format", weight=0.1)]
    >>> score_completions([Sample("<think>?</think><answer>5</answer>", gold="4")], parts)[0].reward
    0.1
    """
    names = [component.name for component in components]
    if not names or len(set(names)) < len(names):
        raise InputError("components must be at least one, each with a name of its own, got {names}", names=names)
    table = [[component.score(sample) for component in components] for sample in samples]
    if not table:
        return []
    weights = {component.name: float(component.weight) for component in components}
    parts = np.array([[np.nan if value is None else value for value in row] for row in table])
    totals = sum_rewards(parts, weights=list(weights.values()))
    return [
        RewardReport(None if np.isnan(total) else float(total), dict(zip(names, row, strict=True)), weights)
        for total, row in zip(totals, table, strict=True)
    ]


def reward_parts(reports: Sequence[RewardReport]) -> dict[str, tuple[float | None, ...]]:
    """Return each component's values over completions, the form of Group.reward_parts."""
    names = list(reports[0].parts) if reports else []
    return {name: tuple(report.parts[name] for report in reports) for name in names}
