"""One reader for all viewers of a run: it reads only what is new, and keeps a run's curves in memory, bounded.

Knows no page and no session, so that any number of browsers look at the same numbers for the price of one.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grpo_core.live.experiments import GENERATED
from grpo_core.live.store import RunInfo, RunStore, RunStoreError
from grpo_core.messages import message_of

POINTS = 250  # most points of a curve
EVENTS = 200  # most evaluations and commands that are shown
RUNS_KEPT = 12  # runs kept in memory
RESULTS_KEPT = 500  # newest evaluations
STEPS_KEPT = 48  # steps whose groups are kept in memory
TOTALS = (GENERATED, "train_seconds", "num_tokens")  # curves that add up
PAUSE = 0.15  # seconds between two reads of the store, however many viewers ask

Row = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """A run as it stands. `curves`: one list a metric, in step with each other; each point the mean of `every` steps.

    `notices`: what went wrong without ending the run. `start` and `last`: the newest events of their kind ({} before
    there is one). `version` changes when anything does.
    `problem`: why the newest reading failed, "" when it did not; the rest is then what was read before.
    """

    run: RunInfo
    version: int
    curves: Mapping[str, list[float | None]]
    every: int
    evaluations: tuple[Row, ...]
    commands: tuple[Row, ...]
    notices: tuple[Row, ...]
    start: Row
    last: Row
    problem: str = ""
    memo: dict[Any, Any] = field(default_factory=dict, compare=False)

    def once(self, name: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` gives, made once for all viewers of this state of the run."""
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]

    @property
    def step(self) -> int:
        """The last step that was written."""
        return int(self.last.get("step", 0))


class Reader:
    """Follows the runs of one store for every viewer of this process. Safe to call from several threads."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Memory] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], Row] = OrderedDict()
        self._results: OrderedDict[tuple[str, str, int], Row] = OrderedDict()

    def find(self, wanted: str | None = None) -> str | None:
        """Return the id of the wanted run if it exists, without a wish that of the active or newest one, else None.

        Raises RunStoreError when there is no run of the wanted name, or the store cannot be read and nothing of the run
        is known yet.
        """
        if wanted is not None:
            known = self._runs.get(wanted)
            return wanted if known and known.newest else self.store.run(wanted).id
        run = self.store.active_run() or self.store.latest_run()
        return run.id if run else None

    def look(self, run_id: str) -> Look:
        """Return the run as it stands, read from the store unless that was done a moment ago.

        Raises RunStoreError only when nothing of the run is known yet.
        """
        with self._lock:
            memory = self._runs.setdefault(run_id, _Memory(run_id))
            self._runs.move_to_end(run_id)
            while len(self._runs) > RUNS_KEPT:
                self._runs.popitem(last=False)
            found = memory.look(self.store)
            if memory.forget_groups:
                memory.forget_groups = False
                for key in [key for key in self._groups if key[0] == run_id]:
                    del self._groups[key]
            return found

    def last_evaluation(self, run: RunInfo) -> Row:
        """Return a run's newest evaluation, {} before there is one; an ended run's is read once."""
        key = (run.id, run.state, run.step)
        with self._lock:
            if key not in self._results:
                self._results[key] = self.store.last_event(run.id, "eval")
            while len(self._results) > RESULTS_KEPT:
                self._results.popitem(last=False)
            return self._results[key]

    def groups(self, run_id: str, step: int) -> Row:
        """Return the groups of one step: {"step", "groups", "ratio_histogram"}, groups empty if there are none."""
        key = (run_id, step)
        with self._lock:
            if key in self._groups:
                self._groups.move_to_end(key)
                return self._groups[key]
            found = {**self.store.step_groups(run_id, step), "memo": {}}
            if found["groups"]:
                self._groups[key] = found
            while len(self._groups) > STEPS_KEPT:
                self._groups.popitem(last=False)
            return found


class _Memory:
    """What is known of one run: columns that grow by what each reading brings."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.read_at = -1.0
        self.newest: Look | None = None
        self.forget_groups = False
        self._forget()

    def _forget(self) -> None:
        self.seen = 0
        self.columns: dict[str, array[float]] = {}  # an array is taken over by NumPy as it stands: long runs stay quick
        self.count = 0
        self.evaluations: list[Row] = []
        self.commands: list[Row] = []
        self.notices: list[Row] = []
        self.start: Row = {}
        self.last: Row = {}

    def look(self, store: RunStore) -> Look:
        """Return the newest view, reading the store if the last reading is old enough."""
        if self.newest and time.monotonic() - self.read_at < PAUSE:
            return self.newest
        try:
            run, rows = self._read(store)
        except RunStoreError as error:
            if self.newest is None:
                raise
            self.newest = replace(self.newest, problem=message_of(error))
            return self.newest
        self.read_at = time.monotonic()
        for row in rows:
            self._take(row)
        old = self.newest
        if old is None or rows or old.problem or _face(old.run) != _face(run):
            self.newest = self._view(run)
        return self.newest or self._view(run)

    def _read(self, store: RunStore) -> tuple[RunInfo, list[Row]]:
        run = store.run(self.run_id)
        if run.active and not run.alive:
            store.mark_dead()
            run = store.run(self.run_id)
        rows = store.metrics(self.run_id, after=self.seen)
        if self.seen and any(row.get("name") == "continued" or row.get("event") == "start" for row in rows):
            # It went on from a checkpoint, or began anew: some of what is known here is no longer in the store.
            rows = store.metrics(self.run_id)
            self._forget()
            self.forget_groups = True
        return run, rows

    def _take(self, row: Row) -> None:
        self.seen = int(row["seq"])
        kind = row.get("event")
        if kind == "step":
            self.last = row
            self._append(row)
        elif kind == "eval":
            self.evaluations.append(row)
        elif kind == "command":
            self.commands.append(row)
        elif kind == "notice":
            self.notices.append(row)
        elif kind == "start":
            self.start = row

    def _append(self, row: Row) -> None:
        numbers = {k: float(v) for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        for name in numbers.keys() - self.columns.keys():
            self.columns[name] = array("d", [math.nan]) * self.count
        for name, column in self.columns.items():
            column.append(numbers.get(name, math.nan))
        self._count_tokens(numbers.get("completion_tokens", 0.0))
        self.count += 1

    def _count_tokens(self, sampled: float) -> None:
        """Add up the tokens that were generated so far."""
        total = self.columns.setdefault(GENERATED, array("d"))
        del total[self.count :]
        total.append((total[-1] if total else 0.0) + sampled)

    def _view(self, run: RunInfo) -> Look:
        every = -(-self.count // POINTS) if self.count > POINTS else 1
        return Look(
            run=run,
            version=(self.newest.version if self.newest else 0) + 1,
            curves={
                name: thinned(column, every) if name not in TOTALS else ends(column, every)
                for name, column in self.columns.items()
            },
            every=every,
            evaluations=tuple(spread(self.evaluations, EVENTS)),
            commands=tuple(recent(self.commands, EVENTS)),
            notices=tuple(self.notices[-EVENTS:]),
            start=self.start,
            last=self.last,
        )


def _face(run: RunInfo) -> tuple[Any, ...]:
    """Return what of a run's own row a viewer would notice: not its heartbeat."""
    return run.state, run.reason, run.step, run.device


def thinned(column: Sequence[float], every: int) -> list[float | None]:
    """Return the means of each `every` values in a row, gaps left out; None where there is no value at all."""
    if every == 1:
        return [None if value != value else value for value in column]
    values = np.asarray(column, dtype=float)
    rows = np.pad(values, (0, -len(values) % every), constant_values=np.nan).reshape(-1, every)
    there = ~np.isnan(rows)
    sums, counts = np.where(there, rows, 0.0).sum(axis=1), there.sum(axis=1)
    return [total / count if count else None for total, count in zip(sums.tolist(), counts.tolist(), strict=True)]


def ends(column: Sequence[float], every: int) -> list[float | None]:
    """Return the last of each `every` values in a row: what a total has come to there."""
    last = [column[min(i + every, len(column)) - 1] for i in range(0, len(column), every)]
    return [None if value != value else value for value in last]


def recent(rows: list[Row], limit: int) -> list[Row]:
    """Return the last `limit` of the commands, and before them those that changed settings: these still hold."""
    older = max(0, len(rows) - limit)
    return [row for i, row in enumerate(rows) if i >= older or row.get("name") == "set"]


def spread(rows: list[Row], limit: int) -> list[Row]:
    """Return at most `limit` of the rows, evenly spread, the newest among them."""
    if len(rows) <= limit:
        return rows
    return rows[:: -(-len(rows) // limit)][: limit - 1] + rows[-1:]
