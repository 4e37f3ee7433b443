"""The words a reader sees: labels from one catalogue, prose from Markdown files, both in `content/<language>`."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

CONTENT = Path(__file__).parent / "content"
LANGUAGE = "en"


@cache
def catalogue(language: str = LANGUAGE) -> dict[str, str]:
    """Return the label catalogue of a language: key -> text, with {placeholders} for numbers."""
    files = sorted((CONTENT / language).glob("labels*.json"))
    return {key: text for file in files for key, text in json.loads(file.read_text(encoding="utf-8")).items()}


def t(key: str, **values: Any) -> str:
    """Return the label of that key, with `values` put in. KeyError for a key that is not in the catalogue."""
    text = catalogue()[key]
    return text.format(**values) if values else text


def known(key: str) -> bool:
    """Return whether the catalogue has that key."""
    return key in catalogue()


@cache
def sections(page: str, language: str = LANGUAGE) -> dict[str, str]:
    """Return a page's prose: the text under each `## name` of its Markdown file."""
    text = (CONTENT / language / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {name.strip(): body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def prose(page: str, section: str, **values: Any) -> str:
    """Return one section of a page's prose. `values` are numbers already formatted, never a reader's text."""
    text = sections(page)[section]
    return text.format(**values) if values else text


def plain_text(value: str, limit: int = 24) -> str:
    """Return untrusted text so that it can stand in a message: letters, digits and a few signs, shortened."""
    kept = re.sub(r"[^0-9A-Za-z.,+_ -]", "?", value)
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"
