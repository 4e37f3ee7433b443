"""What the tests share that start real workers."""

from __future__ import annotations

import os
import signal

from grpo_core.live.store import RunStore


def put_away(store: RunStore) -> None:
    """Leave no run of a store waiting or going on: call it when a test has ended."""
    for run in store.waiting_runs():
        store.cancel(run.id)
    for run in store.runs():
        if run.alive and run.pid and run.pid != os.getpid():
            os.kill(run.pid, signal.SIGKILL)
    store.mark_dead()
