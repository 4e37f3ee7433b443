"""The teaching groups: small groups made by hand so that each shows one thing. Their data is content/groups.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from app.words import CONTENT
from grpo_core import Group

FIRST = "one-of-four"


@cache
def teaching_groups() -> Mapping[str, Group]:
    """Return the teaching groups by id, in the order in which they are offered."""
    entries = json.loads((CONTENT / "groups.json").read_text(encoding="utf-8"))
    return {entry["id"]: _group(entry) for entry in entries}


def _group(entry: Mapping[str, Any]) -> Group:
    """Turn ratios, which a person can read, into the log-probabilities they stand for."""
    completions = entry["completions"]
    logp = [np.asarray(c["logp"], dtype=float) for c in completions]
    return Group(
        prompt=entry["prompt"],
        answer=entry.get("answer"),
        rewards=tuple(entry["rewards"]),
        tokens=tuple(tuple(c["tokens"]) for c in completions),
        logp=tuple(map(tuple, logp)),
        old_logp=tuple(tuple(row - _log(c, "ratio")) for row, c in zip(logp, completions, strict=True)),
        ref_logp=tuple(tuple(row - _log(c, "ref_ratio")) for row, c in zip(logp, completions, strict=True)),
        finish=tuple(c.get("finish", "unknown") for c in completions),
    )


def _log(completion: Mapping[str, Any], name: str) -> Any:
    return np.log(np.asarray(completion.get(name, [1.0] * len(completion["logp"])), dtype=float))
