"""The process that owns one run: it takes the trainer's events to the run store and the store's commands back.

    python -m grpo_core.live.worker RUN_ID --store URL

It depends on no browser and no app. Its own file of messages stands beside the store. With --standby instead of a
run it loads everything, waits until a run's name comes on its standard input, and then works on that run: so that
training begins at once when somebody presses Start. When its run has ended, the worker takes the next one that stands
in line: a sweep needs nobody to watch it.
"""

import argparse
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from grpo_core.live.checkpoints import CheckpointError, checkpoints_of
from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig
from grpo_core.live.memory import out_of_memory
from grpo_core.live.store import ACTIVE, HEARTBEAT_SECONDS, RunStore, RunStoreError, RunTakenError
from grpo_core.messages import Message, Spoken

POLL_SECONDS = 0.1
NICE = 5
STANDBY_SECONDS = 900.0
"""How long a worker waits for its run before it goes."""
LEAVING = threading.Event()
"""Set when the process was asked to terminate: it then takes no further run."""
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


def work(run_id: str, store: RunStore, tell: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Train one queued run to its end and give the process's exit status; tell is called with every event."""
    if not store.claim(run_id, os.getpid()):
        print(f"Run {run_id} is not waiting for a worker.", file=sys.stderr)
        return 1
    mailbox, over = Mailbox(store, run_id), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _leave(mailbox))
    threading.Thread(target=_beat, args=(store, run_id, mailbox, over), daemon=True).start()
    try:
        for event in events_of(run_id, store, mailbox):
            write(store, run_id, event)
            if tell is not None:
                tell(event)
            elif event["event"] == "start" or event.get("name") == "continued":
                _give_way()
    except RunTakenError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        store.set_state(run_id, "failed", _reason(error), only_if=ACTIVE)
        return 1
    finally:
        over.set()
    return 0 if store.run(run_id).state != "failed" else 1


def events_of(run_id: str, store: RunStore, mailbox: "Mailbox") -> Iterator[dict[str, Any]]:
    """Train a run from its newest checkpoint that can be used, or from its beginning; what came later is replaced."""
    from grpo_core.live.trainer import train

    kept = checkpoints_of(store.folder, run_id)
    for begin in reversed(kept.all() if kept else []):
        try:
            events = train(RunConfig(), mailbox, checkpoints=kept, begin=begin)
            first = next(events)
        except CheckpointError as error:
            print(error, file=sys.stderr, flush=True)
            continue
        store.rewind(run_id, events=begin.events, step=begin.step)
        yield first
        yield from events
        return
    store.rewind(run_id, events=0, step=0)
    yield from train(store.run(run_id).config, mailbox, checkpoints=kept)


def work_on(run_id: str, store: RunStore) -> int:
    """Train a run, then those that stand in line; give the exit status of the last one."""
    status = 0
    while run_id:
        status = work(run_id, store)
        run_id = "" if LEAVING.is_set() else store.take_next(os.getpid()) or ""
        if run_id:
            _say_beside(store, run_id)
    return status


def _leave(mailbox: Mailbox) -> None:
    """End the run in an orderly way, and take no further one."""
    LEAVING.set()
    mailbox.stop()


def _give_way() -> None:
    """Let the pages come first where cores are few: loading is over."""
    if hasattr(os, "nice") and os.nice(0) < NICE:
        os.nice(NICE - os.nice(0))


def write(store: RunStore, run_id: str, event: dict[str, Any], *, patience: float = PATIENCE_SECONDS) -> None:
    """Write an event; while the store refuses, wait and try again, so that nothing is lost."""
    give_up = time.monotonic() + patience
    while True:
        try:
            return store.add_event(run_id, event, worker=os.getpid())
        except RunTakenError:
            raise
        except RunStoreError as error:
            print(error, file=sys.stderr, flush=True)
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)


def _beat(store: RunStore, run_id: str, mailbox: Mailbox, over: threading.Event) -> None:
    """Write heartbeats until the run is over; one that someone else has ended is not trained further."""
    while not over.wait(HEARTBEAT_SECONDS):
        try:
            if not store.beat(run_id, os.getpid()):
                mailbox.stop()
        except RunStoreError as error:
            print(error, file=sys.stderr, flush=True)


def _reason(error: Exception) -> Message:
    """Say in words why a run failed."""
    if out_of_memory(error):
        return Message("The device ran out of memory. Lower the group size, the prompts per step or the new tokens.")
    if isinstance(error, Spoken):
        return error.message
    return Message("{kind}: {error}", kind=type(error).__name__, error=error)


def stand_by(store: RunStore) -> str:
    """Load what a run needs, then wait for a run's name; give "" when none comes or nobody is there any more."""
    from grpo_core.live import trainer

    trainer.start_policy(RunConfig(), trainer.task_of(RunConfig()).start)
    name: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: name.put(sys.stdin.readline().strip()), daemon=True).start()
    try:
        run_id = name.get(timeout=STANDBY_SECONDS)
    except queue.Empty:
        return ""
    if run_id:
        _say_beside(store, run_id)
    return run_id


class Messages:
    """A stream that drops what it cannot write: on a full disk a message must not end the training."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what there is room for."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what there is room for."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's."""
        return getattr(self._stream, name)


def _say_beside(store: RunStore, run_id: str) -> None:
    """Write this process's messages into the run's own file beside the store from now on."""
    if store.folder is None:
        return
    with suppress(OSError), (store.folder / f"{run_id}.log").open("ab") as messages:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(messages.fileno(), stream.fileno())


def main() -> int:
    """Work on the run that the command line or the standard input names."""
    parser = argparse.ArgumentParser(prog="python -m grpo_core.live.worker", description="Train one queued run.")
    parser.add_argument("run_id", nargs="?", default="")
    parser.add_argument("--standby", action="store_true", help="load everything and read the run's name from stdin")
    parser.add_argument("--store", required=True, help="URL of the run store")
    options = parser.parse_args()
    sys.stdout, sys.stderr = Messages(sys.stdout), Messages(sys.stderr)
    try:
        store = RunStore(options.store)
        run_id = stand_by(store) if options.standby else options.run_id
        return work_on(run_id, store)
    except RunStoreError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
