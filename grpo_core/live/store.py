"""The run store: what a worker writes and every page reads.

SQLAlchemy Core on an SQLite file in WAL mode by default, so that a server database is a URL away. A run has
an explicit state and a heartbeat; light metric rows stand apart from the heavy groups; commands wait in a
table until the worker takes them. A queued run with a place waits in line for the worker of the run before it; one
without a place has, or is about to get, a worker of its own. A store that an older version made gets the columns it
lacks when it is opened. Every failure of the database is a RunStoreError with a message a reader can
act on.
"""

import json
import os
import re
import shutil
import socket
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from grpo_core.live.commands import Command, check_command
from grpo_core.live.config import RunConfig
from grpo_core.live.groups import split_event, to_json
from grpo_core.messages import InputError, Message, Spoken, message_from, recall, remember

ACTIVE = ("queued", "running", "paused")
ENDED = ("finished", "stopped", "failed")
HEARTBEAT_SECONDS = 1.0
SILENT_SECONDS = 15.0
"""A run on another machine is taken for dead after this long without a heartbeat."""
LOST_SECONDS = 120.0
"""The same while a process with its id exists here: it may be suspended, or be another program by now."""
GROUP_BYTES = 150_000_000
"""Most bytes of groups one run keeps: beyond it every second of the older steps gives up its groups."""
LOG_BYTES = 4_000_000
"""What SQLite's write-ahead log may keep on disk between its checkpoints."""
KEEP_RECENT = 20
NAME_LENGTH, NOTE_LENGTH = 120, 2000
CANCELLED = Message("It was taken out of the line before it began.")

_META = sa.MetaData()
_RUNS = sa.Table(
    "runs",
    _META,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("config", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False, index=True),
    sa.Column("started", sa.Float),
    sa.Column("ended", sa.Float),
    sa.Column("heartbeat", sa.Float),
    sa.Column("pid", sa.Integer),
    sa.Column("host", sa.String(255)),
    sa.Column("device", sa.String(200)),
    sa.Column("step", sa.Integer, nullable=False, default=0),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("group_bytes", sa.Integer, nullable=False, default=0),
    # Columns from here on are newer than the first stores: they may be missing there, or empty.
    sa.Column("place", sa.Integer),
    sa.Column("name", sa.Text),
    sa.Column("note", sa.Text),
    sa.Column("experiment", sa.String(40)),
    sa.Column("changed", sa.Text),
    sa.Column("said", sa.Text),
)
_EXPERIMENTS = sa.Table(
    "experiments",
    _META,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False, index=True),
)
_EVENTS = sa.Table(
    "events",
    _META,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(40), nullable=False),
    sa.Column("event", sa.String(20), nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Index("events_of_run", "run_id", "seq"),
)
_GROUPS = sa.Table(
    "step_groups",
    _META,
    sa.Column("run_id", sa.String(40), primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
_COMMANDS = sa.Table(
    "commands",
    _META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(40), nullable=False, index=True),
    sa.Column("name", sa.String(20), nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("taken", sa.Float),
)


class RunStoreError(Spoken, RuntimeError):
    """The run store cannot do what was asked; the message says why and what helps."""


class RunnerBusy(RunStoreError):  # noqa: N818 - it is a state of affairs, not a defect
    """A run was asked for while another one is active."""


class RunTakenError(RunStoreError):
    """A worker wrote for a run that another worker has by now: this one had been taken for dead."""


@dataclass(frozen=True)
class RunInfo:
    """One run as the store knows it; times are seconds since the epoch, step is the last one that is kept.

    name and note are what its owner calls it. place: where it stands in the line, None when it does not wait there.
    experiment: the id of the experiment that it is part of, and changed: the settings that tell it from the others.
    """

    id: str
    state: str
    reason: str
    config: RunConfig
    created: float
    started: float | None
    ended: float | None
    heartbeat: float | None
    pid: int | None
    host: str | None
    device: str | None
    step: int
    steps: int
    place: int | None = None
    name: str = ""
    note: str = ""
    experiment: str | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def waiting(self) -> bool:
        """Whether the run stands in line until the runs before it have ended."""
        return self.state == "queued" and self.place is not None

    @property
    def active(self) -> bool:
        """Whether the run is queued, running or paused according to its last written state."""
        return self.state in ACTIVE

    @property
    def alive(self) -> bool:
        """Whether the run is active and its worker really is there, or need not be there yet."""
        return self.active and not _is_dead(self, time.time())


@dataclass(frozen=True)
class Experiment:
    """A few runs that belong together; created is in seconds since the epoch, runs are their ids in order."""

    id: str
    name: str
    created: float
    runs: tuple[str, ...]


class RunStore:
    """Runs, their metrics, groups and commands, in one database.

    Give a folder, a .db file or an SQLAlchemy URL; without one it is the folder that the environment variable
    GRPO_LAB_RUNS names, or runs/ in the current folder, which is made when it is missing. A folder that was
    named must exist. group_bytes bounds what the groups of one run may take.
    """

    def __init__(self, url_or_path: str | os.PathLike[str] | None = None, *, group_bytes: int = GROUP_BYTES) -> None:
        self.url, self._file = _resolve(url_or_path)
        self._group_bytes = group_bytes
        self._engine = _engine(self.url)
        with self._write() as db:
            _META.create_all(db)
            _add_missing_columns(db)

    @property
    def folder(self) -> Path | None:
        """The folder of an SQLite store, for files that belong to its runs; None for a server database."""
        return self._file.parent if self._file else None

    # --- runs ----------------------------------------------------------------------------------------

    def create_run(self, config: RunConfig, *, exclusive: bool = False) -> str:
        """Write a new queued run; with exclusive, RunnerBusy while another run is active."""
        with self._write() as db:
            if exclusive:
                _refuse_second(db)
            return _insert_run(db, config)

    def add_waiting(
        self,
        configs: Sequence[RunConfig],
        *,
        experiment: str | None = None,
        changed: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[str]:
        """Put runs at the end of the line, in order, and name them; see grpo_core.live.runner.enqueue.

        experiment: what they are called together, None when they are none. changed: for each run, the settings that
        tell it from the others. ValueError for a name that is no short text, and a list of another length.
        """
        differences = [dict(own) for own in changed] if changed is not None else [{} for _ in configs]
        if len(differences) != len(configs):
            raise InputError(
                "changed has {got} entries for {count} runs: give one for each",
                got=len(differences),
                count=len(configs),
            )
        title = None if experiment is None else _check_text("experiment", experiment, NAME_LENGTH)
        with self._write() as db:
            group = None if title is None else _insert_experiment(db, title)
            last = int(db.execute(sa.select(sa.func.coalesce(sa.func.max(_RUNS.c.place), 0))).scalar_one())
            pairs = zip(configs, differences, strict=True)
            return [
                _insert_run(db, config, place=last + i, experiment=group, changed=json.dumps(own))
                for i, (config, own) in enumerate(pairs, start=1)
            ]

    def add_run(
        self,
        about: Mapping[str, Any],
        config: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
        groups: Mapping[int, bytes],
    ) -> str:
        """Write an ended run that another store kept, all or nothing, and give its id: its own where that is free.

        about: its row, with "run" for its id. groups: by step, as add_event writes them. See live.export.import_run.
        """
        row = {name: value for name, value in about.items() if name in _RUNS.c}
        with self._write() as db:
            settings = _stored_config(config)
            run_id = _insert_run(db, settings, changed="{}", run_id=_free_id(db, str(about.get("run"))))
            created = row.pop("created", None) or time.time()
            size = sum(map(len, groups.values()))
            steps = row.pop("steps", 0) or settings.steps
            own = {"created": created, "steps": steps, "group_bytes": size, "place": None}
            values = {**row, **own, **_why(row.get("reason", ""))}
            db.execute(_RUNS.update().where(_RUNS.c.id == run_id).values(**values))
            for event in events:
                data = {name: value for name, value in event.items() if name != "seq"}
                own = {"run_id": run_id, "event": event["event"], "step": int(event["step"]), "data": to_json(data)}
                db.execute(_EVENTS.insert().values(**own))
            for step, blob in groups.items():
                db.execute(_GROUPS.insert().values(run_id=run_id, step=step, size=len(blob), data=blob))
            if size > self._group_bytes:
                left = _thin_groups(db, run_id, max(groups))
                db.execute(_RUNS.update().where(_RUNS.c.id == run_id).values(group_bytes=left))
        return run_id

    def take_next(self, pid: int | None = None) -> str | None:
        """Take the first run out of the line, for a process that works on it or is about to be started.

        None when none waits, or while another run has a worker. However many ask at once, one of them gets it.
        """
        now = time.time()
        values = {"place": None, "heartbeat": now, "pid": pid, "host": socket.gethostname() if pid else None}
        with self._write() as db:
            if _busy(db) is not None:
                return None
            first = sa.select(_RUNS.c.id).where(*_IN_LINE).order_by(_RUNS.c.place, _RUNS.c.created).limit(1)
            run_id: str | None = db.execute(first).scalar()
            taken = run_id and db.execute(_RUNS.update().where(_RUNS.c.id == run_id, *_IN_LINE).values(**values))
            return run_id if taken and taken.rowcount else None

    def waiting_runs(self) -> list[RunInfo]:
        """List the runs that stand in line, the next one first."""
        query = sa.select(_RUNS).where(*_IN_LINE).order_by(_RUNS.c.place, _RUNS.c.created)
        with self._read() as db:
            return [_info(row) for row in db.execute(query).mappings()]

    def cancel(self, run_id: str) -> bool:
        """End a run that still stands in line; False when it has left it."""
        values = {"state": "stopped", **_why(CANCELLED), "ended": time.time(), "place": None}
        query = _RUNS.update().where(_RUNS.c.id == run_id, *_IN_LINE).values(**values)
        with self._write() as db:
            return bool(db.execute(query).rowcount)

    def reopen(self, run_id: str, *, state: str = "queued", changes: Mapping[str, Any] | None = None) -> None:
        """Give an ended run back to a worker, as `queued`; RunnerBusy while another run has one.

        Its events stay; commands that it never took are dropped, and changes of settings wait for it instead.
        RunStoreError for a run that has not ended.
        """
        empty = {"pid": None, "host": None, "heartbeat": time.time(), "ended": None, "place": None}
        with self._write() as db:
            _refuse_second(db)
            query = _RUNS.update().where(_RUNS.c.id == run_id, _RUNS.c.state.in_(ENDED))
            if not db.execute(query.values(state=state, **_why(""), **empty)).rowcount:
                raise RunStoreError("Run {run} cannot go on: it is not there, or has not ended.", run=run_id)
            db.execute(_COMMANDS.delete().where(_COMMANDS.c.run_id == run_id, _COMMANDS.c.taken.is_(None)))
            if changes:
                row = {"run_id": run_id, "name": "set", "value": json.dumps(dict(changes)), "created": time.time()}
                db.execute(_COMMANDS.insert().values(**row))

    def describe(self, run_id: str, *, name: str | None = None, note: str | None = None) -> None:
        """Give a run a name or a note. ValueError for a text that is too long; RunStoreError when there is no run."""
        texts = {"name": (name, NAME_LENGTH), "note": (note, NOTE_LENGTH)}
        values = {key: _check_text(key, text, most) for key, (text, most) in texts.items() if text is not None}
        self.run(run_id)
        if values:
            with self._write() as db:
                db.execute(_RUNS.update().where(_RUNS.c.id == run_id).values(**values))

    def delete_run(self, run_id: str) -> None:
        """Remove a run with its events, groups and commands, its messages, and its folder of checkpoints.

        RunStoreError for a run that is active: stop it first. One that stands in line is removed.
        """
        with self._write() as db:
            row = db.execute(sa.select(_RUNS).where(_RUNS.c.id == run_id)).mappings().first()
            run = None if row is None else _info(row)
            if run is not None and run.alive and not run.waiting:
                raise RunStoreError(
                    "Run {run} is still {state}: stop it before you delete it.", run=run_id, state=Message(run.state)
                )
            for table in (_EVENTS, _GROUPS, _COMMANDS):
                db.execute(table.delete().where(table.c.run_id == run_id))
            db.execute(_RUNS.delete().where(_RUNS.c.id == run_id))
            _drop_empty_experiments(db)
        self._remove_files(run_id)

    def run(self, run_id: str) -> RunInfo:
        """Give one run; RunStoreError when there is none of that name."""
        with self._read() as db:
            row = db.execute(sa.select(_RUNS).where(_RUNS.c.id == run_id)).mappings().first()
        if row is None:
            raise RunStoreError("There is no run {run!r} in the run store {store}.", run=run_id, store=self.url)
        return _info(row)

    def runs(self, limit: int = 50) -> list[RunInfo]:
        """List the newest runs first."""
        query = sa.select(_RUNS).order_by(_RUNS.c.created.desc(), _RUNS.c.id.desc()).limit(limit)
        with self._read() as db:
            return [_info(row) for row in db.execute(query).mappings()]

    def experiments(self, limit: int = 50) -> list[Experiment]:
        """List the newest experiments first, each with its runs."""
        query = sa.select(_EXPERIMENTS).order_by(_EXPERIMENTS.c.created.desc()).limit(limit)
        members = sa.select(_RUNS.c.id, _RUNS.c.experiment).where(_RUNS.c.experiment.is_not(None))
        with self._read() as db:
            pairs = db.execute(members.order_by(_RUNS.c.created, _RUNS.c.id)).all()
            return [
                Experiment(row.id, row.name, row.created, tuple(run for run, owner in pairs if owner == row.id))
                for row in db.execute(query)
            ]

    def latest_run(self) -> RunInfo | None:
        """Give the newest run, one that stands in line only when there is no other; None in an empty store."""
        query = sa.select(_RUNS).order_by(_RUNS.c.place.is_not(None), _RUNS.c.created.desc(), _RUNS.c.id.desc())
        with self._read() as db:
            row = db.execute(query.limit(1)).mappings().first()
        return None if row is None else _info(row)

    def active_run(self) -> RunInfo | None:
        """Give the newest run that is queued, running or paused and whose worker is there; else None.

        A run that stands in line is not meant.
        """
        return next((run for run in self._active() if run.alive and not run.waiting), None)

    def mark_dead(self) -> list[str]:
        """Turn active runs whose worker is gone into failed ones and name them; the steps they wrote are kept."""
        dead = [run for run in self._active() if not run.alive]
        for run in dead:
            self.set_state(run.id, "failed", Message(_SILENT, step=run.step), only_if=ACTIVE)
        return [run.id for run in dead]

    def set_state(self, run_id: str, state: str, reason: str = "", *, only_if: tuple[str, ...] = ()) -> bool:
        """Write a run's state; with only_if, just when it is in one of these. True when it was written."""
        if state not in ACTIVE + ENDED:
            raise InputError(
                "state={state!r} is not accepted: give one of {accepted}",
                state=state,
                accepted=", ".join(ACTIVE + ENDED),
            )
        now = time.time()
        values: dict[str, Any] = {"state": state, **_why(reason)}
        values |= {"ended": now} if state in ENDED else {"heartbeat": now}
        query = _RUNS.update().where(_RUNS.c.id == run_id)
        if only_if:
            query = query.where(_RUNS.c.state.in_(only_if))
        with self._write() as db:
            return bool(db.execute(query.values(**values)).rowcount)

    def claim(self, run_id: str, pid: int) -> bool:
        """Note which process works on a queued run; False when it no longer waits for one, or another has it."""
        values = {"pid": pid, "host": socket.gethostname(), "heartbeat": time.time(), "place": None}
        free = sa.or_(_RUNS.c.pid.is_(None), _RUNS.c.pid == pid)
        query = _RUNS.update().where(_RUNS.c.id == run_id, _RUNS.c.state == "queued", free).values(**values)
        with self._write() as db:
            return bool(db.execute(query).rowcount)

    def attach(self, run_id: str, pid: int) -> None:
        """Note the process that was started for a queued run, before it can say so itself."""
        values = {"pid": pid, "host": socket.gethostname()}
        with self._write() as db:
            db.execute(_RUNS.update().where(_RUNS.c.id == run_id, _RUNS.c.pid.is_(None)).values(**values))

    def beat(self, run_id: str, worker: int | None = None) -> bool:
        """Write a heartbeat; False when the run has been ended by someone else, or has another worker than this."""
        query = _RUNS.update().where(_RUNS.c.id == run_id, _RUNS.c.state.in_(ACTIVE), *_held_by(worker))
        with self._write() as db:
            return bool(db.execute(query.values(heartbeat=time.time())).rowcount)

    # --- events --------------------------------------------------------------------------------------

    def add_event(self, run_id: str, event: Mapping[str, Any], *, worker: int | None = None) -> None:
        """Write one event of the trainer: its light row, its groups apart, and the run's state and step.

        worker: the process that writes. RunTakenError when the run has another one by now, and nothing is written.
        """
        light, heavy = split_event(event)
        blob = zlib.compress(to_json(heavy).encode(), 1) if heavy else b""
        step, now = int(event["step"]), time.time()
        row = {"run_id": run_id, "event": event["event"], "step": step, "data": to_json(remember(light))}
        changes = {"heartbeat": now, "step": step, **_run_changes(event, now)}
        with self._write() as db:
            held = db.execute(_RUNS.update().where(_RUNS.c.id == run_id, *_held_by(worker)).values(**changes)).rowcount
            if worker is not None and not held:
                raise RunTakenError("Run {run} has another worker by now: this one writes nothing more.", run=run_id)
            db.execute(_EVENTS.insert().values(**row))
            if blob:
                db.execute(_GROUPS.insert().values(run_id=run_id, step=step, size=len(blob), data=blob))
                self._keep_small(db, run_id, len(blob), step)

    def rewind(self, run_id: str, *, events: int, step: int) -> None:
        """Keep a run's first events, up to a step, and remove all that came after: it goes on from there."""
        where = _EVENTS.c.run_id == run_id
        later = sa.select(_EVENTS.c.seq).where(where).order_by(_EVENTS.c.seq).offset(events).limit(1)
        with self._write() as db:
            first = db.execute(later).scalar()
            if first is not None:
                # The last one stays as a row of no run: SQLite would give its number away again, and whoever reads on
                # from the newest number would miss what comes now.
                last = sa.select(sa.func.max(_EVENTS.c.seq)).where(where).scalar_subquery()
                db.execute(_EVENTS.update().where(_EVENTS.c.seq == last).values(run_id="", data="{}"))
                db.execute(_EVENTS.delete().where(where, _EVENTS.c.seq >= first))
            db.execute(_GROUPS.delete().where(_GROUPS.c.run_id == run_id, _GROUPS.c.step > step))
            values = {"step": step, "group_bytes": _group_bytes(db, run_id)}
            db.execute(_RUNS.update().where(_RUNS.c.id == run_id).values(**values))

    def metrics(self, run_id: str, after: int = 0, limit: int | None = None) -> list[dict[str, Any]]:
        """Give the light rows after a sequence number, oldest first: seq, event, step, seconds, every metric."""
        query = (
            sa.select(_EVENTS.c.seq, _EVENTS.c.data)
            .where(_EVENTS.c.run_id == run_id, _EVENTS.c.seq > after)
            .order_by(_EVENTS.c.seq)
            .limit(limit)
        )
        with self._read() as db:
            return [{**recall(json.loads(data)), "seq": seq} for seq, data in db.execute(query)]

    def last_event(self, run_id: str, event: str) -> dict[str, Any]:
        """Give the newest light row of one kind, {} when there is none."""
        query = sa.select(_EVENTS.c.data).where(_EVENTS.c.run_id == run_id, _EVENTS.c.event == event)
        with self._read() as db:
            data = db.execute(query.order_by(_EVENTS.c.seq.desc()).limit(1)).scalar()
        return {} if data is None else recall(json.loads(data))

    def step_groups(self, run_id: str, step: int | None = None) -> dict[str, Any]:
        """Give the groups of a step, or of the newest one: {"step", "groups", "ratio_histogram"}.

        A step that has none (not yet taken, or thinned out of a long run) gives {"step": step, "groups": []}.
        """
        query = sa.select(_GROUPS.c.data).where(_GROUPS.c.run_id == run_id)
        query = query.where(_GROUPS.c.step == step) if step is not None else query
        with self._read() as db:
            blob = db.execute(query.order_by(_GROUPS.c.step.desc()).limit(1)).scalar()
        if blob is None:
            return {"step": step, "groups": []}
        found: dict[str, Any] = json.loads(zlib.decompress(blob))
        return found

    def group_steps(self, run_id: str) -> list[int]:
        """List the steps whose groups are kept."""
        query = sa.select(_GROUPS.c.step).where(_GROUPS.c.run_id == run_id).order_by(_GROUPS.c.step)
        with self._read() as db:
            return list(db.execute(query).scalars())

    # --- commands ------------------------------------------------------------------------------------

    def post_command(self, run_id: str, name: str, value: Any = None) -> None:
        """Leave a command for the worker: pause, resume, stop, step, or set with {"learning_rate": 2e-4}.

        Stop cancels a run that still stands in line.
        ValueError for a command or value that is not accepted; RunStoreError when the run has already ended.
        """
        value = check_command(name, value)
        run = self.run(run_id)
        if name == "stop" and run.waiting and self.cancel(run_id):
            return
        if not run.active:
            raise RunStoreError(
                "Run {run} has already ended ({state}): it takes no commands.", run=run_id, state=Message(run.state)
            )
        row = {"run_id": run_id, "name": name, "value": json.dumps(value), "created": time.time()}
        with self._write() as db:
            db.execute(_COMMANDS.insert().values(**row))

    def take_commands(self, run_id: str) -> list[Command]:
        """Give the commands that wait for a run, oldest first, and mark them as taken."""
        waiting = (
            sa.select(_COMMANDS.c.id, _COMMANDS.c.name, _COMMANDS.c.value)
            .where(_COMMANDS.c.run_id == run_id, _COMMANDS.c.taken.is_(None))
            .order_by(_COMMANDS.c.id)
        )
        with self._read() as db:
            rows = db.execute(waiting).all()
        if rows:
            ids = [row.id for row in rows]
            with self._write() as db:
                db.execute(_COMMANDS.update().where(_COMMANDS.c.id.in_(ids)).values(taken=time.time()))
        return [Command(row.name, json.loads(row.value)) for row in rows]

    # --- inside --------------------------------------------------------------------------------------

    def _keep_small(self, db: sa.Connection, run_id: str, added: int, step: int) -> None:
        """Count the bytes of a run's groups; beyond the limit, drop those of every second older step."""
        total = db.execute(sa.select(_RUNS.c.group_bytes).where(_RUNS.c.id == run_id)).scalar_one() + added
        if total > self._group_bytes:
            total = _thin_groups(db, run_id, step)
        db.execute(_RUNS.update().where(_RUNS.c.id == run_id).values(group_bytes=total))

    def _remove_files(self, run_id: str) -> None:
        """Remove what a deleted run left beside the store; only names that the store itself gives are touched."""
        if self.folder is None or not run_id or Path(run_id).name != run_id or run_id in (".", ".."):
            return
        try:
            (self.folder / f"{run_id}.log").unlink(missing_ok=True)
            if (self.folder / run_id).is_dir():
                shutil.rmtree(self.folder / run_id)
        except OSError as error:
            raise RunStoreError("The run is deleted, but not its files: {error}", error=error) from None

    def _active(self) -> list[RunInfo]:
        query = sa.select(_RUNS).where(_RUNS.c.state.in_(ACTIVE)).order_by(_RUNS.c.created.desc())
        with self._read() as db:
            return [_info(row) for row in db.execute(query).mappings()]

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with _explained(self.url, self._file), self._engine.connect() as db:
            yield db

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with _explained(self.url, self._file), self._engine.connect() as plain:
            db = plain.execution_options(grpo_lab_write=True)
            with db.begin():
                yield db


def _held_by(worker: int | None) -> list[sa.ColumnElement[bool]]:
    """Conditions under which a run is still that of a process on this machine; None: of anybody."""
    return [] if worker is None else [_RUNS.c.pid == worker, _RUNS.c.host == socket.gethostname()]


def _run_changes(event: Mapping[str, Any], now: float) -> dict[str, Any]:
    """What an event changes in its run's own row."""
    kind = event["event"]
    if kind == "start":
        return {"state": "running", "started": now, "device": event["device"]}
    if kind == "end":
        return {"state": event["state"], **_why(event.get("reason", "")), "ended": now}
    if kind != "command" or "refused" in event:
        return {}
    if event["name"] == "set" and "steps" in event["value"]:
        return {"steps": event["value"]["steps"]}
    states = {"pause": "paused", "step": "paused", "resume": "running", "continued": "running"}
    if event["name"] in states:
        return {"state": states[event["name"]]}
    return {}


def _why(reason: str) -> dict[str, str | None]:
    """The columns that hold why a run ended: the text, and its template and values."""
    said = json.dumps(reason.to_data()) if isinstance(reason, Message) else None
    return {"reason": str(reason), "said": said}


def _refuse_second(db: sa.Connection) -> None:
    """Raise RunnerBusy while a run is active: within the writing transaction, so that no two pass."""
    busy = _busy(db)
    if busy is not None:
        raise RunnerBusy(
            "Run {run} is still {state} at step {step} of {steps}. Stop it, or wait until it ends, then start again.",
            run=busy.id,
            state=Message(busy.state),
            step=busy.step,
            steps=busy.steps,
        )


def _busy(db: sa.Connection) -> RunInfo | None:
    """Give the run that has a worker, or is about to get one."""
    rows = db.execute(sa.select(_RUNS).where(_RUNS.c.state.in_(ACTIVE))).mappings()
    return next((run for run in map(_info, rows) if run.alive and not run.waiting), None)


_SILENT = "The training process ended without saying why; everything up to step {step} is kept."
_IN_LINE = (_RUNS.c.state == "queued", _RUNS.c.place.is_not(None))


_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


def _free_id(db: sa.Connection, wanted: str) -> str | None:
    """Give the id of a run from another store if it is one and nobody has it here."""
    taken = db.execute(sa.select(_RUNS.c.id).where(_RUNS.c.id == wanted)).first()
    return wanted if taken is None and _ID.fullmatch(wanted) else None


def _insert_run(db: sa.Connection, config: RunConfig, *, run_id: str | None = None, **more: Any) -> str:
    """Write a queued run and give its id."""
    run_id = run_id or time.strftime("%Y%m%d-%H%M%S-") + uuid.uuid4().hex[:6]
    row = {"id": run_id, "state": "queued", "reason": "", "config": json.dumps(config.to_dict()), "note": config.note}
    db.execute(_RUNS.insert().values(**row, created=time.time(), steps=config.steps, **more))
    return run_id


def _insert_experiment(db: sa.Connection, name: str) -> str:
    """Write an experiment and give its id."""
    experiment = "x-" + uuid.uuid4().hex[:10]
    db.execute(_EXPERIMENTS.insert().values(id=experiment, name=name, created=time.time()))
    return experiment


def _drop_empty_experiments(db: sa.Connection) -> None:
    """Remove experiments that have no run any more."""
    used = sa.select(_RUNS.c.experiment).where(_RUNS.c.experiment.is_not(None))
    db.execute(_EXPERIMENTS.delete().where(_EXPERIMENTS.c.id.not_in(used)))


def _check_text(what: str, text: Any, most: int) -> str:
    """Return a name or note without blanks at its ends; ValueError when it is no text or too long."""
    if not isinstance(text, str) or len(text) > most:
        raise InputError(
            "{what}={text!r:.40} is not accepted: give a text of at most {most} characters",
            what=what,
            text=text,
            most=most,
        )
    return text.strip()


def _add_missing_columns(db: sa.Connection) -> None:
    """Give the tables of an older store the columns that are newer than it: empty ones, the rows stay."""
    inspector = sa.inspect(db)
    for table in _META.sorted_tables:
        there = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                kind = column.type.compile(db.dialect)
                db.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}"))


def _thin_groups(db: sa.Connection, run_id: str, step: int) -> int:
    """Drop the groups of every second step but the newest ones; give the bytes that are left."""
    where = _GROUPS.c.run_id == run_id
    old = sa.select(_GROUPS.c.step).where(where, _GROUPS.c.step <= step - KEEP_RECENT)
    doomed = list(db.execute(old.order_by(_GROUPS.c.step)).scalars())[1::2]
    for start in range(0, len(doomed), 500):
        db.execute(_GROUPS.delete().where(where, _GROUPS.c.step.in_(doomed[start : start + 500])))
    return _group_bytes(db, run_id)


def _group_bytes(db: sa.Connection, run_id: str) -> int:
    """Count the bytes that a run's groups take."""
    there = sa.select(sa.func.coalesce(sa.func.sum(_GROUPS.c.size), 0)).where(_GROUPS.c.run_id == run_id)
    return int(db.execute(there).scalar_one())


def _is_dead(run: RunInfo, now: float) -> bool:
    """Say whether an active run's worker is gone: its process does not exist, or its heart has stopped."""
    if run.waiting:
        return False
    silence = now - (run.heartbeat or run.created)
    if run.pid is None or run.host != socket.gethostname():
        return silence > (SILENT_SECONDS if run.heartbeat else LOST_SECONDS)
    return not process_exists(run.pid) or silence > LOST_SECONDS


def process_exists(pid: int) -> bool:
    """Say whether a process of this machine is there and not merely waiting to be cleared away."""
    if os.name == "nt":
        return True  # os.kill would end it there; the heartbeat alone decides
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


def _info(row: sa.RowMapping) -> RunInfo:
    """Turn a row of the runs table into a RunInfo."""
    config = _stored_config(json.loads(row["config"]))
    derived = {
        "config": config,
        "name": row["name"] or "",
        "note": config.note if row["note"] is None else row["note"],
        "changed": json.loads(row["changed"]) if row["changed"] else {},
        "reason": message_from(json.loads(row["said"]), row["reason"]) if row["said"] else row["reason"],
    }
    return RunInfo(**{name: row[name] for name in RunInfo.__dataclass_fields__ if name not in derived}, **derived)


def _stored_config(settings: Mapping[str, Any]) -> RunConfig:
    """Read settings that an older or newer version may have written: unknown ones are left out."""
    config = RunConfig()
    for name, value in settings.items():
        with suppress(ValueError, TypeError):
            config = config.changed(**{name: value})
    return config


# --- the database itself ----------------------------------------------------------------------


def _resolve(where: str | os.PathLike[str] | None) -> tuple[str, Path | None]:
    """Give the URL of a store and, for an SQLite file, its path; a folder that was named must exist."""
    if where is None:
        where = os.environ.get("GRPO_LAB_RUNS")
    if where is None:
        path = Path("runs").resolve() / "runs.db"
        _make_folder(path.parent)
        return f"sqlite:///{path}", path
    text = os.fspath(where)
    if "://" in text:
        name = text.removeprefix("sqlite:///")
        return text, Path(name).resolve() if name != text and name != ":memory:" else None
    path = Path(text).expanduser().resolve()
    path = path if path.suffix == ".db" else path / "runs.db"
    if not path.parent.is_dir():
        raise _missing(path.parent)
    return f"sqlite:///{path}", path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunStoreError(
            "The folder {folder} for the runs cannot be made: {error}.",
            folder=folder,
            error=Message(error.strerror or ""),
        ) from None


def _missing(folder: Path) -> RunStoreError:
    return RunStoreError(
        "The folder {folder} for the runs does not exist. "
        "Make it, or name another one in the environment variable GRPO_LAB_RUNS.",
        folder=folder,
    )


def _engine(url: str) -> sa.Engine:
    """Open a database; for SQLite with WAL, patience for other writers, and transactions of our own."""
    try:
        engine = sa.create_engine(url, connect_args={"timeout": 10} if url.startswith("sqlite") else {})
    except (SQLAlchemyError, ImportError) as error:
        raise RunStoreError("The run store {url} cannot be opened: {error}", url=url, error=error) from None
    if engine.dialect.name != "sqlite":
        return engine

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, see below
        # The last two: what thinning leaves free is not overwritten, and the log of changes becomes small again.
        small = ("secure_delete=OFF", f"journal_size_limit={LOG_BYTES}")
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", *small):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(db: sa.Connection) -> None:
        # A writer takes its lock at once: upgrading a reading transaction later could fail as busy.
        db.exec_driver_sql("BEGIN IMMEDIATE" if db.get_execution_options().get("grpo_lab_write") else "BEGIN")

    return engine


@contextmanager
def _explained(url: str, file: Path | None) -> Iterator[None]:
    """Turn a failure of the database into a RunStoreError that says what to do."""
    if file is not None and not file.parent.is_dir():
        raise _missing(file.parent)
    try:
        yield
    except SQLAlchemyError as error:
        raise _explain(str(getattr(error, "orig", None) or error), file or url) from None


def _explain(message: str, where: Path | str) -> RunStoreError:
    """Say in words what an SQLite message means for the reader."""
    sign = next((sign for sign in _CAUSES if sign in message.lower()), None)
    if sign is not None:
        return RunStoreError(_CAUSES[sign], where=where)
    return RunStoreError("The run store {where} reports: {message}", where=where, message=message)


_CAUSES = {
    "full": "The disk that holds {where} is full. Make room; what was written so far is kept.",
    "readonly": "The run store {where} cannot be written (read-only file, folder or disk).",
    "unable to open": "The run store {where} cannot be opened: check that its folder may be written.",
    "not a database": "{where} is not a run store of GRPO Lab. Move it away or name another folder.",
    "locked": "The run store {where} is in use by another program that does not let go. Try again.",
    "disk i/o": "The disk that holds {where} reports an error: it may be full or have been taken away.",
}
"""What an SQLite message has in it, and what it means."""
