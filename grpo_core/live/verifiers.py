"""Verifiers for a task file: who says whether a completion answers its prompt."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from grpo_core.answers import MODES, same_answer
from grpo_core.rewards import accuracy_reward, format_reward, gold_anywhere_reward

FILE_VERIFIERS: Mapping[str, Callable[[str, str], float | None] | None] = MappingProxyType(
    {
        "answer": lambda text, gold: accuracy_reward(text, gold),
        "number": lambda text, gold: accuracy_reward(text, gold, modes=MODES),
        "whole": lambda text, gold: float(same_answer(text, gold)) if gold.strip() else None,
        "contains": gold_anywhere_reward,
        "format": lambda text, gold: format_reward(text),
        "regex": None,
    }
)
"""By name, (completion, answer) -> a number, or None: cannot say.

answer    the answer in <answer> tags or in \\boxed{} is the right one
number    that, or where neither stands there the last number is
whole     the whole completion is the answer
contains  the answer stands anywhere in the completion: can be cheated
format    a thought and an answer in their tags; what the answer is does not count
regex     the file's answer is a regular expression that the completion matches somewhere. A pattern can be made to take
          for ever, so that this one is asked in a process of its own (sandbox.py), like a verifier of the user's
"""
WITHOUT_ANSWER = ("format",)
"""Those that need no answer in the file."""
