"""What viewers cost the training: `python -m benchmarks.viewers` prints steps a second without and with 50 of them.

One run trains on and on while viewers come and go, so that both numbers are of the same run on the same machine:
stretches without a viewer alternate with stretches in which 50 sessions follow it, over real HTTP and WebSocket
connections to a served app, each asking for its fragments as often as a browser would. The sessions are played by this
process, which takes processor time that real viewers would spend on their own machines: on two cores that is a good
part of what is measured. It runs at the lowest priority.

    python -m benchmarks.viewers --viewers 50 --seconds 10 --rounds 3
    python -m benchmarks.viewers --pace 5        # the default pace instead of full speed
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect

from grpo_core.live.config import RunConfig
from grpo_core.live.runner import start_run
from grpo_core.live.store import RunStore
from tools.served import served

STEADY = 150  # steps after which completions no longer grow longer
WAIT = 180.0  # seconds that anything may take before the measurement fails


@dataclass
class Counts:
    """What the viewers got."""

    pages: int = 0
    fragments: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)


class Viewer:
    """One session that follows the live page as a browser does, without drawing anything."""

    def __init__(self, url: str, counts: Counts) -> None:
        self.url, self.counts = url.replace("http", "ws", 1), counts
        self.page = ""
        self.timers: dict[str, asyncio.Task[None]] = {}

    async def follow(self) -> None:
        """Open the page and go on until cancelled."""
        options = {"subprotocols": ["streamlit"], "compression": None, "max_size": None}
        async with connect(f"{self.url}/_stcore/stream", **options) as socket:
            self.socket = socket
            await self._ask()
            try:
                async for message in socket:
                    self.counts.bytes += len(message)
                    self._take(ForwardMsg.FromString(message))
            finally:
                self._forget_timers()

    async def _ask(self, fragment: str = "") -> None:
        """Ask for the page, or for one of its fragments."""
        wish = BackMsg()
        wish.rerun_script.query_string = ""
        wish.rerun_script.page_name = "live"
        wish.rerun_script.page_script_hash = self.page
        wish.rerun_script.fragment_id = fragment
        wish.rerun_script.is_auto_rerun = bool(fragment)
        await self.socket.send(wish.SerializeToString())

    def _take(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self.page = message.new_session.page_script_hash
        elif kind == "auto_rerun":
            timer = message.auto_rerun
            old = self.timers.pop(timer.fragment_id, None)
            if old:
                old.cancel()
            self.timers[timer.fragment_id] = asyncio.create_task(self._repeat(timer.fragment_id, timer.interval))
        elif kind == "stop_auto_rerun":
            self._forget_timers()
        elif kind == "script_finished":
            whole = message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
            self.counts.pages += whole
            self.counts.fragments += message.script_finished == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
        elif kind == "delta" and message.delta.new_element.WhichOneof("type") == "exception":
            self.counts.faults.append(message.delta.new_element.exception.message)

    async def _repeat(self, fragment: str, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            with contextlib.suppress(Exception):
                await self._ask(fragment)

    def _forget_timers(self) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()


@contextlib.contextmanager
def following(url: str, viewers: int) -> Iterator[Counts]:
    """Let so many sessions follow the live page for as long as the block runs."""
    counts = Counts()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> list[asyncio.Task[None]]:
        return [asyncio.create_task(Viewer(url, counts).follow()) for _ in range(viewers)]

    async def stop(tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    tasks = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        until(lambda: counts.pages >= viewers or _broken(tasks, counts), "the viewers' first pages")
        yield counts
        if broken := _broken(tasks, counts):
            raise RuntimeError(f"viewers could not follow: {broken}")
    finally:
        asyncio.run_coroutine_threadsafe(stop(tasks), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _broken(tasks: list[asyncio.Task[None]], counts: Counts) -> list[str]:
    """Return why sessions ended or what they were told instead of a page."""
    return [repr(task.exception()) for task in tasks if task.done() and not task.cancelled()][:1] + counts.faults[:1]


def until(condition, what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {WAIT:.0f} s in vain for {what}")
        time.sleep(0.05)


def speed(store: RunStore, run_id: str, seconds: float) -> float:
    """Return the steps a second of a run over the next seconds."""
    first, began = store.run(run_id).step, time.monotonic()
    time.sleep(seconds)
    last, took = store.run(run_id).step, time.monotonic() - began
    if not store.run(run_id).alive:
        raise RuntimeError(f"the run ended: {store.run(run_id).reason}")
    return (last - first) / took


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one stretch")
    parser.add_argument("--rounds", type=int, default=3, help="stretches with viewers, each between two without")
    parser.add_argument("--pace", type=float, default=None, help="steps a second of the run (default: full speed)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(folder)
        with served(runs=folder) as url:
            run_id = start_run(RunConfig(steps=100_000, pace=None), store)
            try:
                until(lambda: store.run(run_id).step >= STEADY, "the run to be steady")
                store.post_command(run_id, "set", {"pace": chosen.pace})
                if hasattr(os, "nice"):
                    os.nice(19)
                compare(store, run_id, url, chosen)
            finally:
                store.post_command(run_id, "stop")
                until(lambda: not store.run(run_id).active, "the run to stop")


def compare(store: RunStore, run_id: str, url: str, chosen: argparse.Namespace) -> None:
    """Alternate stretches without and with viewers, and print what they come to."""
    alone, watched, fragments, megabytes = [speed(store, run_id, chosen.seconds)], [], [], []
    for _ in range(chosen.rounds):
        with following(url, chosen.viewers) as counts:
            time.sleep(2.0)
            before, received = counts.fragments, counts.bytes
            watched.append(speed(store, run_id, chosen.seconds))
            fragments.append((counts.fragments - before) / chosen.seconds)
            megabytes.append((counts.bytes - received) / chosen.seconds / 1e6)
        time.sleep(2.0)
        alone.append(speed(store, run_id, chosen.seconds))
    without, with_them = statistics.median(alone), statistics.median(watched)
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {len(alone)} and {len(watched)} stretches"
    )
    print(f"steps/s without viewers      {without:8.2f}   {' '.join(f'{x:.1f}' for x in alone)}")
    print(f"steps/s with {chosen.viewers:3} viewers     {with_them:8.2f}   {' '.join(f'{x:.1f}' for x in watched)}")
    print(f"ratio                        {with_them / without:8.3f}   cost {1 - with_them / without:.1%}")
    print(f"redrawn fragments a second   {statistics.median(fragments):8.1f}   {statistics.median(megabytes):.1f} MB/s")


if __name__ == "__main__":
    main()
