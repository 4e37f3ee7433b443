"""The verifier bench: completions to be scored, as cases to choose from and as a reader's own texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from app.words import CONTENT

MAX_TEXTS = 8
MAX_CHARACTERS = 4000


@dataclass(frozen=True)
class Bench:
    """What is scored: a prompt, its gold answer ("" if there is none) and the completions."""

    prompt: str
    gold: str
    texts: tuple[str, ...]


@cache
def bench_cases() -> Mapping[str, Bench]:
    """Return the cases by name, in order. Their data is content/bench.json."""
    data = json.loads((CONTENT / "bench.json").read_text(encoding="utf-8"))
    return {name: Bench(case["prompt"], case["gold"], tuple(case["texts"])) for name, case in data.items()}
