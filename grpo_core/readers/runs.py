"""Run: what every reader makes of a log, whatever trainer wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from grpo_core.diagnosis import Finding, diagnose
from grpo_core.groups import Group

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """Something in a log that could not be used: the file and line (from 1, 0 for the whole file), and why."""

    where: str
    line: int
    what: str


@dataclass(frozen=True)
class Run:
    """A run that was read from disk.

    `format` names the reader, `name` the run. `settings`: what is known of its settings, by RunConfig's names.
    `problems`: what was left out of it, and why; empty for a log without fault.
    """

    format: str
    name: str
    settings: Mapping[str, Any]
    problems: tuple[Problem, ...]
    rows: Sequence[Row] = field(repr=False)
    steps: tuple[int, ...] = field(repr=False)
    read_groups: Callable[[], Iterator[tuple[int, Group]]] = field(repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dictionary for each line of the log, in order: step, and numbers by the trainer's own names."""
        return [dict(row) for row in self.rows]

    def groups(self, step: int | None = None) -> Iterator[Group]:
        """Give the groups of a step, or of all steps in order; `steps` lists those that have any."""
        return (group for at, group in self.read_groups() if step is None or at == step)

    def findings(self) -> list[Finding]:
        """Return what the diagnosis says of the run, by its metrics, its settings and its newest groups."""
        return list(self._findings)

    @cached_property
    def _findings(self) -> list[Finding]:
        newest = list(self.groups(self.steps[-1])) if self.steps else []
        return diagnose(self.rows, newest, settings=self.settings)
