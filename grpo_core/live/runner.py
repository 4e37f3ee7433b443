"""Starts workers, keeps one ready, keeps the line of waiting runs going, and clears away after killed ones."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_core.live.checkpoints import Checkpoint, Checkpoints, checkpoints_of
from grpo_core.live.config import RunConfig, check_resume_setting, with_recipe
from grpo_core.live.store import RunnerBusy, RunStore, RunStoreError
from grpo_core.messages import InputError

__all__ = ["RunnerBusy", "enqueue", "mark_dead", "prepare", "reopen_run", "resume_run", "start_next", "start_run"]

_ROOT = Path(__file__).resolve().parents[2]
_LOCK = threading.Lock()
_STANDBY: dict[str, "subprocess.Popen[bytes]"] = {}
"""By the URL of its store, a worker that has loaded everything and waits for a run."""


def start_run(config: RunConfig, store: RunStore) -> str:
    """Give a new run to a worker and return the run's name; RunnerBusy while another run is active.

    The worker is a process of its own session: closing the browser or the app does not end it.
    """
    store.mark_dead()
    run_id = store.create_run(config, exclusive=True)
    _start(run_id, store)
    return run_id


def enqueue(
    configs: Sequence[RunConfig],
    store: RunStore,
    experiment: str | None = None,
    *,
    changed: Sequence[Mapping[str, Any]] | None = None,
) -> list[str]:
    """Let runs follow one another, after those that already wait; give their names in order.

    The first one starts at once when nothing else is going on. Each worker takes the next run when its own has ended,
    so that the line goes on without the app. experiment and changed: see RunStore.add_waiting.
    """
    names = store.add_waiting(configs, experiment=experiment, changed=changed)
    start_next(store)
    return names


def start_next(store: RunStore) -> str | None:
    """Start the first run in line unless another has a worker; give its name, None when there was nothing to do.

    Cheap, and safe to call at any time from any number of programs: it is how the line goes on after a worker was
    killed.
    """
    store.mark_dead()
    run_id = store.take_next() if store.waiting_runs() else None
    if run_id is not None:
        _start(run_id, store)
    return run_id


def resume_run(
    run_id: str, store: RunStore, changes: Mapping[str, Any] | None = None, *, step: int | None = None
) -> None:
    """Let a run that was stopped, failed, died or finished go on from a checkpoint, and give it to a worker.

    From the newest checkpoint; after a loss that was no number from the last good one; or from that of a step. What
    came after it is replaced. A run without a checkpoint begins anew. changes: settings that differ from here on, those
    of config.RESUME_SETTINGS. RunnerBusy while another run is active; ValueError for a setting or a step that is not
    accepted.
    """
    _start(reopen_run(run_id, store, changes, step=step), store)


def reopen_run(
    run_id: str, store: RunStore, changes: Mapping[str, Any] | None = None, *, step: int | None = None
) -> str:
    """As resume_run, without a worker: the run is queued for the caller's own. Gives its name."""
    settings = with_recipe({name: check_resume_setting(name, wish) for name, wish in (changes or {}).items()})
    store.mark_dead()
    run_id = store.run(run_id).id
    kept = checkpoints_of(store.folder, run_id)
    begin = _beginning(run_id, store, kept, step)
    store.reopen(run_id, changes=settings)
    if kept is not None and begin is not None:
        kept.drop_after(begin.step)
    return run_id


def _beginning(run_id: str, store: RunStore, kept: Checkpoints | None, step: int | None) -> Checkpoint | None:
    """Choose the checkpoint that a run goes on from."""
    if kept is None or not kept.all():
        return None
    if step is not None:
        there = {checkpoint.step: checkpoint for checkpoint in kept.all()}
        if step not in there:
            raise InputError(
                "step={step!r} has no checkpoint: accepted are {accepted}",
                step=step,
                accepted=", ".join(map(str, there)),
            )
        return there[step]
    end = store.last_event(run_id, "end")
    return kept.good() if end.get("cause") == "diverged" else kept.newest()


def _start(run_id: str, store: RunStore) -> None:
    """Give a queued run to a worker."""
    try:
        process = _hand_over(run_id, store) or _spawn(store, f"{run_id}.log", run_id)
    except OSError as error:
        refused = RunStoreError("The worker process could not be started: {error}", error=error)
        store.set_state(run_id, "failed", refused.message)
        raise refused from None
    store.attach(run_id, process.pid)


def prepare(store: RunStore) -> None:
    """Have a worker ready for the next start_run, which then begins to train at once; cheap to call again.

    It goes by itself when this program ends, or when no run has come for a quarter of an hour.
    """
    with _LOCK, contextlib.suppress(OSError):
        process = _STANDBY.get(store.url)
        if process is None or process.poll() is not None:
            _STANDBY[store.url] = _spawn(store, "standby.log", "--standby")


def mark_dead(store: RunStore) -> list[str]:
    """Turn runs whose worker is gone into failed ones, with every step they wrote kept; give their names."""
    return store.mark_dead()


def _hand_over(run_id: str, store: RunStore) -> "subprocess.Popen[bytes] | None":
    """Give a run to the worker that waits for one; None when there is none."""
    with _LOCK:
        process = _STANDBY.pop(store.url, None)
    if process is None or process.poll() is not None or process.stdin is None:
        return None
    try:
        process.stdin.write(f"{run_id}\n".encode())
        process.stdin.close()
    except OSError:
        return None
    return process


def _spawn(store: RunStore, messages: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a worker process whose messages go to a file beside the store."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    file = Path(os.devnull) if store.folder is None else store.folder / messages
    with file.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "grpo_core.live.worker", *arguments, "--store", store.url],
            stdin=subprocess.PIPE if "--standby" in arguments else subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # a worker that ends leaves no zombie
    return process
