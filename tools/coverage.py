"""Write docs/coverage.md, which idea is shown where, from docs/coverage.json: `python -m tools.coverage`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from app.places import Place, place
from app.words import known, t

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
SOURCE, TARGET = DOCS / "coverage.json", DOCS / "coverage.md"
HEAD = """# Which idea is shown where

Every idea that GRPO Lab must make visible, with the views that show it. Put a link's address behind that of the app
(`http://localhost:8501/`). `python -m tools.coverage` writes this file from `docs/coverage.json`; a test opens every
link and fails when one is dead or this file is stale.

| row | idea | shown by |
|---|---|---|
"""


def rows() -> Mapping[str, Mapping[str, Any]]:
    """Return the ideas by their row's name."""
    data: Mapping[str, Mapping[str, Any]] = json.loads(SOURCE.read_text(encoding="utf-8"))
    return data


def places(row: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """Return a row's views of the explorer, each with what it is called."""
    for case in row.get("cases", ()):
        page, name = case.split(":")
        key = f"preset.{page}.{name}"
        yield f"{t(f'page.{page}')}: {t(key if known(key) else f'group.{name}')}", place({"page": page, "preset": name})
    for entry in row.get("places", ()):
        found = place(entry)
        words = [t(f"param.{name}.{value}") for name, value in entry["set"].items()]
        yield f"{t(f'page.{found.page}')}: {', '.join(words)}", found


def live_links(row: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Return a row's parts of the Live page, each with what it is called and its link's parameters."""
    for entry in row.get("live", ()):
        part, _, more = entry.partition("?")
        query = {"part": part, **dict(pair.split("=") for pair in more.split("&") if pair)}
        words = ", ".join([t(f"live.part.{part}"), *(value.replace("_", " ") for value in list(query.values())[1:])])
        yield f"{t('page.live')}: {words}", query


def line(name: str, row: Mapping[str, Any]) -> str:
    """Return one row of the table."""
    links = [f"[{words}]({found.href()})" for words, found in places(row)]
    links += [f"[{words}](live?{'&'.join(f'{k}={v}' for k, v in query.items())})" for words, query in live_links(row)]
    return f"| {name} | {row['idea']} | {'; '.join(links) or 'Not yet. ' + row['open']} |"


def document() -> str:
    """Return the whole page."""
    return HEAD + "\n".join(line(name, row) for name, row in rows().items()) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
    print(f"{TARGET.name}: {len(rows())} rows")
