"""Runs that are to be compared, before they are queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.live_reader import Reader
from grpo_core.live import runner
from grpo_core.live.config import RunConfig
from grpo_core.live.store import NAME_LENGTH, RunStoreError


@dataclass(frozen=True)
class Plan:
    """What runs are called together and, for each, its settings, those that it changes, and its own name if any."""

    name: str
    configs: Sequence[RunConfig]
    changed: Sequence[Mapping[str, Any]]
    names: Sequence[str] = ()


def queue(source: Reader, plan: Plan) -> list[str]:
    """Put the runs in line, name them, and return their ids. ValueError or RunStoreError when that is not possible."""
    name = plan.name[:NAME_LENGTH]
    ids: list[str] = runner.enqueue(plan.configs, source.store, experiment=name, changed=plan.changed)
    with suppress(RunStoreError):  # they are queued: without a name their settings tell them apart
        for run_id, own in zip(ids, plan.names, strict=False):
            source.store.describe(run_id, name=own)
    return ids
