"""The words a reader sees: labels from a gettext catalogue, prose from Markdown files, both in `content/<language>`.

English is complete by definition. A key or section that another language lacks is shown in English (tests find it).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from babel.messages.pofile import read_po

from grpo_core.messages import Message, message_of

P, R = ParamSpec("P"), TypeVar("R")
CONTENT = Path(__file__).parent / "content"
ENGLISH = "en"
LANGUAGES = {"en": "English", "zh": "中文"}
"""Every language by its code, each under its own name."""
_source: list[Callable[[], str]] = []


def follow(source: Callable[[], str]) -> None:
    """Take the language from this function from now on (app.state: the session that is being drawn)."""
    _source[:] = [source]


def language() -> str:
    """Return the language that is being spoken."""
    return _source[0]() if _source else ENGLISH


def cached(make: Callable[P, R]) -> Callable[P, R]:
    """Remember results that hold words: one for each language and each set of arguments."""

    @lru_cache(maxsize=512)
    def remembered(_: str, *args: Any, **more: Any) -> R:
        return make(*args, **more)

    @wraps(make)
    def spoken(*args: P.args, **more: P.kwargs) -> R:
        return remembered(language(), *args, **more)

    return spoken


@cache
def catalogue(language: str = ENGLISH) -> dict[str, str]:
    """Return the label catalogue of a language: key -> text, with {placeholders} for numbers.

    ValueError for a file of labels beside the catalogue: labels used to be JSON, and nothing reads that any more.
    """
    if stray := [path.name for path in (CONTENT / language).glob("labels*.json")]:
        raise ValueError(f"labels belong into content/{language}/messages.po, not into {', '.join(stray)}")
    with (CONTENT / language / "messages.po").open("rb") as file:
        return {message.id: message.string for message in read_po(file) if message.id}


def t(key: str, /, **values: Any) -> str:
    """Return the label of that key, with `values` put in. KeyError for a key that is not in the catalogue."""
    text = catalogue(language()).get(key)
    if text is None:
        text = catalogue()[key]
    return text.format(**values) if values else text


def spoken(key: str) -> str | None:
    """Return the label of that key if the language that is being spoken has it, else None."""
    return catalogue(language()).get(key)


def said(text: str) -> str:
    """Return words of the core, or of a formula, in the language that is being spoken (its label: said.<the words>).

    Numbers stand as {n} in the label. Words that the language has no label for stay as they are.
    """
    numbers = re.findall(r"\d+", text)
    found = spoken("said." + re.sub(r"\d+", "{n}", text.strip()))
    if found is None:
        return text
    for number in numbers:
        found = found.replace("{n}", number, 1)
    return text.replace(text.strip(), found)


_WORDS = re.compile(r"(\\text(?:bf)?\{)([^{}]*)(\})")


def formula(latex: str) -> str:
    """Return a formula in the language that is being spoken: the words in it are what stands in \\text and \\textbf."""
    return _WORDS.sub(lambda part: part[1] + said(part[2]) + part[3], latex)


@cache
def core_words(language: str) -> dict[str, str]:
    """Return what the core's messages are in a language: template -> translated template. Nothing for English."""
    path = CONTENT / language / "errors.po"
    if not path.exists():
        return {}
    with path.open("rb") as file:
        return {message.id: message.string for message in read_po(file) if message.id}


def told(said: BaseException | str) -> str:
    """Return what the core says, an error or a message, in the language that is being spoken.

    Values stay as they are: untrusted text, never to be shown as markup. What has no template stays as it stands.
    """
    message = message_of(said) if isinstance(said, BaseException) else said
    own = core_words(language())
    if not isinstance(message, Message):
        return own.get(message, message)
    values = {name: told(value) if isinstance(value, Message) else value for name, value in message.values.items()}
    template = own.get(message.template, message.template)
    return template.format(**values) if values else template


def known(key: str) -> bool:
    """Return whether the catalogue has that key."""
    return key in catalogue()


@cache
def sections(page: str, language: str = ENGLISH) -> dict[str, str]:
    """Return a page's prose: the text under each `## name` of its Markdown file."""
    path = CONTENT / language / f"{page}.md"
    if language != ENGLISH and not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {name.strip(): body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def section(page: str, name: str) -> str:
    """Return one section of a page's prose as it stands in its file."""
    text = sections(page, language()).get(name)
    return sections(page)[name] if text is None else text


def prose(page: str, name: str, /, **values: Any) -> str:
    """Return one section of a page's prose. `values` are numbers already formatted, never a reader's text."""
    text = section(page, name)
    return text.format(**values) if values else text


def plain_text(value: str, limit: int = 24) -> str:
    """Return untrusted text so that it can stand in a message: letters, digits and a few signs, shortened."""
    kept = re.sub(r"[^0-9A-Za-z.,+_ -]", "?", value)
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"
