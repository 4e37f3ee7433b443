"""The process that owns one run: it takes the trainer's events to the run store and the store's commands back.

    python -m grpo_core.live.worker RUN_ID --store URL

It depends on no browser and no app. Its own file of messages stands beside the store. With --standby instead of a
run it loads everything, waits until a run's name comes on its standard input, and then works on that run: so that
training begins at once when somebody presses Start.
"""

import argparse
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig
from grpo_core.live.store import ACTIVE, HEARTBEAT_SECONDS, RunStore, RunStoreError

POLL_SECONDS = 0.1
STANDBY_SECONDS = 900.0
"""How long a worker waits for its run before it goes."""
PATIENCE_SECONDS = 600.0
"""How long a worker waits, with the training at rest, for a store that cannot be written (a full disk, say)."""


class Mailbox:
    """The trainer's view of a run's commands; stop() may be called from anywhere."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self._store, self._run_id, self._next = store, run_id, 0.0
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the training to stop, without a command in the store."""
        self._stop.set()

    def __call__(self) -> Iterator[Command]:
        """Give the commands that have come; the store is asked a few times a second."""
        if self._stop.is_set():
            self._stop.clear()
            yield Command("stop")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + POLL_SECONDS
            try:
                yield from self._store.take_commands(self._run_id)
            except RunStoreError as error:
                print(error, file=sys.stderr)


def work(run_id: str, store: RunStore) -> int:
    """Train one queued run to its end and give the process's exit status."""
    if not store.claim(run_id, os.getpid()):
        print(f"Run {run_id} is not waiting for a worker.", file=sys.stderr)
        return 1
    mailbox = Mailbox(store, run_id)
    signal.signal(signal.SIGTERM, lambda *_: mailbox.stop())
    threading.Thread(target=_beat, args=(store, run_id, mailbox), daemon=True).start()
    try:
        from grpo_core.live.trainer import train

        for event in train(store.run(run_id).config, mailbox):
            write(store, run_id, event)
            if event["event"] == "start" and hasattr(os, "nice"):
                os.nice(5)  # loading is over, and where cores are few the pages come first
    except Exception as error:
        traceback.print_exc()
        store.set_state(run_id, "failed", _reason(error), only_if=ACTIVE)
        return 1
    return 0 if store.run(run_id).state != "failed" else 1


def write(store: RunStore, run_id: str, event: dict[str, Any], *, patience: float = PATIENCE_SECONDS) -> None:
    """Write an event; while the store refuses, wait and try again, so that nothing is lost."""
    give_up = time.monotonic() + patience
    while True:
        try:
            return store.add_event(run_id, event)
        except RunStoreError as error:
            print(error, file=sys.stderr, flush=True)
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)


def _beat(store: RunStore, run_id: str, mailbox: Mailbox) -> None:
    """Write heartbeats until the process ends; a run that someone else has ended is not trained further."""
    while True:
        time.sleep(HEARTBEAT_SECONDS)
        try:
            if not store.beat(run_id):
                mailbox.stop()
        except RunStoreError as error:
            print(error, file=sys.stderr, flush=True)


def _reason(error: Exception) -> str:
    """Say in words why a run failed."""
    if "out of memory" in str(error).lower() or isinstance(error, MemoryError):
        return "The device ran out of memory. Lower the group size, the prompts per step or the new tokens."
    return f"{type(error).__name__}: {error}"


def stand_by(store: RunStore) -> str:
    """Load what a run needs, then wait for a run's name; give "" when none comes or nobody is there any more."""
    from grpo_core.live import trainer

    trainer.load_policy(trainer.TASKS[RunConfig().task].start)
    name: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: name.put(sys.stdin.readline().strip()), daemon=True).start()
    try:
        run_id = name.get(timeout=STANDBY_SECONDS)
    except queue.Empty:
        return ""
    if run_id and store.folder is not None:
        with (store.folder / f"{run_id}.log").open("ab") as messages:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(messages.fileno(), stream.fileno())
    return run_id


def main() -> int:
    """Work on the run that the command line or the standard input names."""
    parser = argparse.ArgumentParser(prog="python -m grpo_core.live.worker", description="Train one queued run.")
    parser.add_argument("run_id", nargs="?", default="")
    parser.add_argument("--standby", action="store_true", help="load everything and read the run's name from stdin")
    parser.add_argument("--store", required=True, help="URL of the run store")
    options = parser.parse_args()
    try:
        store = RunStore(options.store)
        run_id = stand_by(store) if options.standby else options.run_id
        return work(run_id, store) if run_id else 0
    except RunStoreError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
