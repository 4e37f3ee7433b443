"""What the events of an export must look like, so that whoever shows them can rely on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from grpo_core.messages import InputError

_MEASURED = ("step", "eval")
"""Kinds of events whose entries are numbers, or None where there was nothing to measure."""
_TEXTS = ("event", "name", "text", "cause", "reason", "refused", "state", "device", "model")
_NUMBERS = ("seconds", "parameters", "checkpoint")
_LONGEST = 4000


def check_event(event: Mapping[str, Any]) -> None:
    """ValueError names the first entry of an event that is not of its kind; entries without a kind may be anything."""
    if event.get("seconds") is None:
        raise InputError("seconds are missing")
    for name, value in event.items():
        if name in _TEXTS:
            _text(name, value)
        elif name == "strata":
            _strata(value)
        elif name in _NUMBERS or event["event"] in _MEASURED:
            _number(name, value)
    if event["event"] == "command":
        _command(event)


def check_histogram(found: Any) -> None:
    """ValueError unless it is {"edges": n + 1 numbers, "counts": n numbers}, or None."""
    if found is None:
        return
    edges, counts = (
        _list(name, found.get(name) if isinstance(found, Mapping) else None) for name in ("edges", "counts")
    )
    if len(edges) != len(counts) + 1 or None in edges or None in counts:
        raise InputError("ratio_histogram needs one edge more than counts")
    for value in (*edges, *counts):
        _number("ratio_histogram", value)


def _command(event: Mapping[str, Any]) -> None:
    _text("name", event.get("name"))
    value = event.get("value")
    if event["name"] == "set" and "refused" not in event:
        settings = value if isinstance(value, Mapping) else {"value": value}
        for name, wish in settings.items():
            if not isinstance(value, Mapping) or not isinstance(wish, str | int | float | bool | None):
                raise InputError("{name}={value!r:.40} is no setting", name=name[:40], value=wish)


def _strata(parts: Any) -> None:
    for part in _list("strata", parts):
        if not isinstance(part, Mapping):
            raise InputError("strata hold {part!r:.40}", part=part)
        for name, value in part.items():
            (_text if name in ("by", "value") else _number)(name, value)
        if any(part.get(name) is None for name in ("by", "value", "accuracy", "answers")):
            raise InputError("strata need by, value, accuracy and answers")


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError("{name}={value!r:.40} is no list", name=name, value=value)
    return value


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise InputError(
            "{name}={value!r:.40} is no text of at most {longest} characters", name=name, value=value, longest=_LONGEST
        )


def _number(name: str, value: Any) -> None:
    try:
        fits = value is None or (not isinstance(value, bool | str) and math.isfinite(float(value)))
    except (TypeError, OverflowError):
        fits = False
    if not fits:
        raise InputError("{name}={value!r:.40} is no number", name=name[:40], value=value)
