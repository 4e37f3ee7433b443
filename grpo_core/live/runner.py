"""Starts workers and clears away after those that were killed."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunnerBusy, RunStore, RunStoreError

__all__ = ["RunnerBusy", "mark_dead", "start_run"]

_ROOT = Path(__file__).resolve().parents[2]


def start_run(config: RunConfig, store: RunStore) -> str:
    """Start a worker for a new run and give the run's name; RunnerBusy while another run is active.

    The worker is a process of its own session: closing the browser or the app does not end it.
    """
    store.mark_dead()
    run_id = store.create_run(config, exclusive=True)
    try:
        process = _spawn(run_id, store)
    except OSError as error:
        store.set_state(run_id, "failed", f"The worker process could not be started: {error}")
        raise RunStoreError(f"The worker process could not be started: {error}") from None
    store.attach(run_id, process.pid)
    threading.Thread(target=process.wait, daemon=True).start()  # a worker that ends leaves no zombie
    return run_id


def mark_dead(store: RunStore) -> list[str]:
    """Turn runs whose worker is gone into failed ones, with every step they wrote kept; give their names."""
    return store.mark_dead()


def _spawn(run_id: str, store: RunStore) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "grpo_core.live.worker", run_id, "--store", store.url]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    with _messages(run_id, store) as messages:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
            env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )


def _messages(run_id: str, store: RunStore) -> IO[bytes]:
    """The file for what a worker prints; nowhere for a server database."""
    return Path(os.devnull if store.folder is None else store.folder / f"{run_id}.log").open("wb")
