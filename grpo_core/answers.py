"""Finding the answer that a completion gives, and saying whether two answers are the same.

Nothing is evaluated, and every step takes time proportional to the text, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from grpo_core.messages import InputError

MODES = ("answer_tag", "boxed", "last_number")
HONEST_MODES = ("answer_tag", "boxed")
"""The modes in which the completion itself says what its answer is."""
MAX_ANSWER = 500
"""Longer answers are compared as plain text: none of them is a number, and unwrapping is not worth its time."""


@dataclass(frozen=True)
class Extraction:
    """The answer a completion gives and the mode that found it, or None and the reason why there is none."""

    answer: str | None
    mode: str | None = None
    problem: str = ""


def extract_answer(text: str, *, modes: Sequence[str] = HONEST_MODES) -> Extraction:
    r"""Return the answer that `text` gives, tried in the order of `modes`.

    Only what follows the thinking counts: after the last ``</think>``, or the whole text if there is no ``<think>``. A
    thought that never ends has no answer.

    - ``answer_tag``: the content of ``<answer>...</answer>``. Several blocks must agree; picking one of them would let
      a completion hedge
    - ``boxed``: the content of the last ``\boxed{...}``, braces balanced
    - ``last_number``: the last number anywhere. Lenient: it takes a number for an answer because of where it stands

    A mode that finds a broken answer ends the search. Raises ValueError for a text that is not a string or an unknown
    mode.

    >>> extract_answer(r"<think>maybe 7</think>It is \boxed{\frac{1}{2}}.").answer
    '\\frac{1}{2}'
    """
    text = check_text(text, "text")
    unknown = [mode for mode in modes if mode not in MODES]
    if isinstance(modes, str) or unknown:
        raise InputError(
            "modes must be a list of {accepted}, got {modes!r}", accepted=", ".join(map(repr, MODES)), modes=modes
        )
    told = _after_thinking(text)
    if told is None:
        return Extraction(None, None, "the thinking never ends")
    for mode in modes:
        found = _FINDERS[mode](told)
        if found is not None:
            return found
    return Extraction(None, None, "no answer is marked")


def check_text(value: Any, name: str) -> str:
    """Return `value` if it is a string; ValueError otherwise."""
    if not isinstance(value, str):
        raise InputError(
            "{name} must be text, got {kind} {value!r:.80}", name=name, kind=type(value).__name__, value=value
        )
    return value


def _after_thinking(text: str) -> str | None:
    opened, closed = text.rfind("<think>"), text.rfind("</think>")
    if opened > closed:
        return None
    return text[closed + len("</think>") :] if closed >= 0 else text


def _tagged(text: str) -> Extraction | None:
    blocks, position = [], 0
    while True:
        start = text.find("<answer>", position)
        end = text.find("</answer>", position)
        if start < 0 and end < 0:
            break
        again = text.find("<answer>", start + 1)
        if start < 0 or end < start or 0 <= again < end:
            return Extraction(None, "answer_tag", "an answer tag has no partner")
        blocks.append(text[start + len("<answer>") : end].strip())
        position = end + len("</answer>")
    if not blocks:
        return None
    if len({normalise_answer(block) for block in set(blocks)}) > 1:
        return Extraction(None, "answer_tag", f"{len(blocks)} answers that differ")
    return _nonempty(blocks[-1], "answer_tag")


def _boxed(text: str) -> Extraction | None:
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    start += len(r"\boxed{")
    end = _closing_brace(text, start)
    if end is None:
        return Extraction(None, "boxed", "the braces of the box never close")
    return _nonempty(text[start:end].strip(), "boxed")


def _closing_brace(text: str, start: int) -> int | None:
    """Return where the brace that was opened before `start` closes; escaped braces are text."""
    depth = 1
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return match.start()
    return None


_NUMBER_IN_TEXT = re.compile(r"(?:(?<![0-9A-Za-z)\]}])-)?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?")


def _last_number(text: str) -> Extraction | None:
    last = None
    for last in _NUMBER_IN_TEXT.finditer(text.translate(_PLAIN)):  # noqa: B007
        pass
    return None if last is None else Extraction(last.group().rstrip(","), "last_number")


def _nonempty(answer: str, mode: str) -> Extraction:
    return Extraction(answer, mode) if answer else Extraction(None, mode, "the answer is empty")


_FINDERS = {"answer_tag": _tagged, "boxed": _boxed, "last_number": _last_number}

_PLAIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # full-width forms to ASCII
_PLAIN.update({0x2212: ord("-"), 0x3000: ord(" "), 0xA0: ord(" ")})
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), (r"\text{", "}"), (r"\boxed{", "}"))
_SPACING = re.compile(r"\\[,;:! ]|\\(?:quad|left|right)(?![A-Za-z])")
_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+"
_NUMBER = re.compile(
    rf"([+-]?)(?:({_DECIMAL})(?:/({_DECIMAL}))?|\\[dt]?frac(?:\{{({_DECIMAL})\}}\{{({_DECIMAL})\}}|([0-9])([0-9])))"
)


def normalise_answer(text: str) -> Fraction | str:
    r"""Return the answer as an exact number if it is one, else as plain text in lower case.

    Numbers: 12, -3, 0.5, .5, 1,000 and 1{,}000 (groups of three), 1e3, 1/2, ``\frac{1}{2}``, also inside ``$...$``,
    ``\boxed{}``, ``\text{}``, with a currency sign or full-width digits. Not numbers: 1,5 (a pair or a decimal comma,
    nobody knows), 50%, 3 apples, 1 1/2. Text loses outer space, a final full stop and spaces beside punctuation.

    >>> [normalise_answer(x) == normalise_answer("0.5") for x in ("1/2", r"$\frac{1}{2}$", "5", "0.50")]
    [True, True, False, True]
    """
    text = check_text(text, "text").strip()
    if len(text) > MAX_ANSWER:
        return " ".join(text.split()).casefold()
    plain = _unwrapped(text.translate(_PLAIN))
    value = _as_number(plain.replace("{,}", ","))
    if value is not None:
        return value
    words = " ".join(plain.split()).casefold()
    return re.sub(r" ?([^\w\s]) ?", r"\1", words)


def _unwrapped(text: str) -> str:
    """Return `text` without what only typesets it, layer by layer."""
    text = _SPACING.sub("", text)
    while True:
        inner = text.strip()
        if inner.endswith(".") and not inner.endswith(".."):
            inner = inner[:-1]
        for left, right in _WRAPPERS:
            wrapped = len(inner) >= len(left) + len(right) and inner.startswith(left) and inner.endswith(right)
            if wrapped and (right != "}" or _closing_brace(inner, len(left)) == len(inner) - 1):
                inner = inner[len(left) : -len(right)]
                break
        if inner == text:
            return re.sub(r"^\\?\$(?=[0-9.+-])", "", text)  # a currency sign
        text = inner


def _as_number(text: str) -> Fraction | None:
    match = _NUMBER.fullmatch(re.sub(" ?/ ?", "/", text))
    if match is None:
        return None
    sign, *parts = match.groups()
    top, bottom = next((pair for pair in zip(parts[::2], parts[1::2], strict=True) if pair[0]), (None, None))
    numerator, denominator = (Fraction((part or "1").replace(",", "")) for part in (top, bottom))
    if denominator == 0:
        return None
    return (-1 if sign == "-" else 1) * numerator / denominator


def same_answer(answer: str, gold: str) -> bool:
    """Return whether two answers are the same number, or the same text; never because one contains the other.

    >>> [same_answer(a, "12") for a in ("12.0", "312", "24/2", "twelve")]
    [True, False, True, False]
    """
    return normalise_answer(answer) == normalise_answer(gold)
