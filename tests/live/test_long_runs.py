"""Long runs: what the store takes, and what one look at a run costs, do not grow with the number of its steps."""

import base64
import json
import random

from app import live_reader
from app.live_reader import EVENTS, POINTS, Reader
from grpo_core.live.config import RunConfig
from grpo_core.live.store import GROUP_BYTES, LOG_BYTES, RunStore
from grpo_core.live.trainer import train

STEPS = 5000
LIMIT = 200_000_000
QUICK = {"pace": None, "eval_every": 5, "eval_prompts": 100, "eval_samples": 8}


def size(store):
    return sum(path.stat().st_size for path in store.folder.glob("runs.db*"))


def test_a_run_of_five_thousand_steps_stays_under_200_mb(tmp_path):
    """Groups are bounded; so 5,000 light rows, of a run that does not learn and so writes the most, must fit beside."""
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig())
    events = [event for event in train(RunConfig(steps=25, learning_rate=0.0, **QUICK)) if event["event"] != "end"]
    for event in events:
        store.add_event(run_id, {name: value for name, value in event.items() if name != "groups"})
    rows = store.metrics(run_id)
    light = sum(len(json.dumps(row)) for row in rows if row["event"] != "start") / 25 * STEPS
    assert 5_000_000 < light < 30_000_000
    # A tenth more than their bytes: pages of SQLite that a row or a group fills in part.
    assert 1.1 * (GROUP_BYTES + light) + LOG_BYTES < LIMIT


def test_thinned_groups_leave_a_store_that_does_not_grow(tmp_path):
    """A tenth of everything: groups that no compression makes smaller, far more than are kept."""
    store, chances = RunStore(tmp_path, group_bytes=GROUP_BYTES // 10), random.Random(0)
    run_id = store.create_run(RunConfig())
    for step in range(1, STEPS // 10 + 1):
        text = base64.b64encode(chances.randbytes(75_000)).decode()
        store.add_event(run_id, {"event": "step", "step": step, "seconds": 0.1 * step, "groups": [{"x": text}]})
    assert size(store) < LIMIT // 10 + LOG_BYTES
    kept = store.group_steps(run_id)
    assert kept[-20:] == list(range(STEPS // 10 - 19, STEPS // 10 + 1))
    assert kept[0] == 1
    assert len(kept) > 100


def test_a_look_at_a_long_run_has_a_bounded_number_of_points(tmp_path, monkeypatch):
    monkeypatch.setattr(live_reader, "PAUSE", -1.0)
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig())
    names = [f"metric/{i}" for i in range(40)]
    for step in range(1, 1001):
        row = {"event": "step", "step": step, "seconds": 0.1 * step, **dict.fromkeys(names, 0.5)}
        store.add_event(run_id, row)
        if step % 4 == 0:
            store.add_event(run_id, {"event": "eval", "step": step, "seconds": 0.1 * step, "accuracy": 0.5})
            store.add_event(run_id, {"event": "command", "step": step, "seconds": 0.1 * step, "name": "refresh"})
    reader = Reader(store)
    look = reader.look(run_id)
    assert {len(curve) for curve in look.curves.values()} == {POINTS}
    assert all(isinstance(curve, list) for curve in look.curves.values())
    assert len(look.evaluations) <= EVENTS
    assert len(look.commands) <= EVENTS
    assert (look.every, look.step) == (4, 1000)
    # Columns hold plain numbers, 8 bytes each, so that a run of 5,000 steps with 60 metrics takes a few megabytes.
    (memory,) = reader._runs.values()
    assert {column.itemsize for column in memory.columns.values()} == {8}
