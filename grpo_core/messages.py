"""Messages: English sentences that remember the template they were made from and what was put into it.

The core speaks English. What reads a message elsewhere can say the same in another language: it looks the template up
and puts the values in again. The core's exceptions are made from a template in the same way.

>>> error = InputError("{name} must be at least {least:g}, got {value!r}", name="beta", least=0.0, value=-1)
>>> str(error), error.message.template
('beta must be at least 0, got -1', '{name} must be at least {least}, got {value}')
>>> error.message.values["value"]
'-1'
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from string import Formatter
from typing import Any

_DEPTH = 8
"""Messages inside messages inside messages: no more than this is read from elsewhere."""


class Message(str):
    """English text, made from a template whose {fields} are filled with the values of these names.

    `template`: without conversions and formats, so that it is the same for every value. `values`: each field's text; a
    Message or exception that was put in stays a Message. Without values the template is the text, braces included. Of
    conversions only !r is known.
    """

    template: str
    values: Mapping[str, str]
    __slots__ = ("template", "values")

    def __new__(cls, template: str, /, **values: Any) -> Message:
        """Put the values into the template; a Message without further values is itself."""
        if isinstance(template, Message) and not values:
            return template
        plain, texts = _filled(template, values) if values else (template, {})
        self = super().__new__(cls, plain.format(**texts) if values else template)
        self.template, self.values = plain, texts
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.to_data(),)

    def to_data(self) -> dict[str, Any]:
        """Return template and values as plain JSON data."""
        texts = {name: text.to_data() if isinstance(text, Message) else text for name, text in self.values.items()}
        return {"template": self.template, "values": texts}


class Spoken(Exception):  # noqa: N818 - mixed into errors
    """Mixed into an exception: it is raised with a template and its values, and str() gives the English text."""

    def __init__(self, template: str, /, **values: Any) -> None:
        super().__init__(Message(template, **values))

    @property
    def message(self) -> Message:
        """What is wrong, with its template and values."""
        return Message(self.args[0])


class InputError(Spoken, ValueError):
    """An argument, a setting or a file that cannot be used; the message names it, its value and the remedy."""


def message_of(error: BaseException) -> str:
    """Return what an exception says: as a Message where its template is known, else its own text."""
    if error.args and isinstance(error.args[0], Message):
        return error.args[0]
    if isinstance(error, json.JSONDecodeError):
        where = {"line": error.lineno, "column": error.colno, "place": error.pos}
        return Message("{what}: line {line} column {column} (char {place})", what=Message(error.msg), **where)
    if isinstance(error, OSError) and error.errno in SYSTEM:
        own = {"number": error.errno, "what": Message(os.strerror(error.errno))}
        if error.filename is None:
            return Message("[Errno {number}] {what}", **own)
        return Message("[Errno {number}] {what}: {file!r}", file=error.filename, **own)
    return str(error)


def message_from(data: Any, text: str) -> str:
    """Return `text` as the Message that `to_data` wrote beside it; just the text where the two do not agree."""
    try:
        found = _read(data, _DEPTH)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        return text
    return found if found == text else text


def remember(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries as plain data: beside texts that are Messages, "said" keeps their templates and values."""
    said = {name: text.to_data() for name, text in entries.items() if isinstance(text, Message)}
    return {**entries, "said": said} if said else dict(entries)


def recall(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that `remember` wrote, or that somebody else did: texts are Messages where "said" fits."""
    found = dict(entries)
    said = found.pop("said", None)
    for name, data in said.items() if isinstance(said, Mapping) else ():
        if isinstance(found.get(name), str):
            found[name] = message_from(data, found[name])
    return found


def _again(data: Mapping[str, Any]) -> Message:
    return _read(data, 1000)


def _read(data: Any, depth: int) -> Message:
    template = data["template"]
    if depth == 0 or any(form or conversion for *_, form, conversion in Formatter().parse(template)):
        raise ValueError  # a width of a million would be a text of a million letters
    values = {
        str(name): text if isinstance(text, str) else _read(text, depth - 1) for name, text in data["values"].items()
    }
    return Message(template, **values)


def _filled(template: str, values: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the template without conversions and formats, and the text of each field."""
    plain, texts = "", {}
    for literal, name, form, conversion in Formatter().parse(template):
        plain += literal.replace("{", "{{").replace("}", "}}")
        if name is not None:
            plain += f"{{{name}}}"
            texts[name] = _text(values[name], form or "", conversion)
    return plain, texts


def _text(value: Any, form: str, conversion: str | None) -> str:
    if isinstance(value, BaseException):
        value = message_of(value)
    if isinstance(value, Message) and not form and not conversion:
        return value
    return format(repr(value) if conversion == "r" else value, form)


SYSTEM = frozenset({1, 2, 5, 13, 17, 20, 21, 24, 28, 30})
"""The numbers of the system's errors with files: not permitted, not there, disk full and the like."""
