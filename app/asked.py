"""What people keep asking: the questions as data. Their words are content/<language>/questions.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from app.words import CONTENT


@cache
def asked() -> Mapping[str, Mapping[str, Any]]:
    """Return the questions by id, in order: each with its topic and the place that shows its answer (app.places)."""
    entries = json.loads((CONTENT / "questions.json").read_text(encoding="utf-8"))
    return {entry["id"]: entry for entry in entries}


@cache
def topics() -> tuple[str, ...]:
    """Return the topics, in the order in which they come."""
    return tuple(dict.fromkeys(entry["topic"] for entry in asked().values()))
