"""The one reader of a process: it reads only what is new, keeps its curves short, and survives a store that fails."""

from __future__ import annotations

import math

import pytest

from app import live_reader
from app.live.changes import settings_at
from app.live_reader import EVENTS, POINTS, Reader, spread, thinned
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStore, RunStoreError


class Counting(RunStore):
    """A store that notes from where its metrics were read."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked: list[int] = []

    def metrics(self, run_id, after=0, limit=None):
        self.asked.append(after)
        return super().metrics(run_id, after, limit)


@pytest.fixture
def store(tmp_path):
    return Counting(tmp_path)


@pytest.fixture
def at_once(monkeypatch):
    """Read at every look, however soon after the last one."""
    monkeypatch.setattr(live_reader, "PAUSE", -1.0)


def started(store: RunStore, steps: int) -> str:
    run_id = store.create_run(RunConfig(steps=max(steps, 1)))
    add(store, run_id, range(1, steps + 1))
    return run_id


def add(store: RunStore, run_id: str, steps) -> None:
    for step in steps:
        store.add_event(run_id, {"event": "step", "step": step, "seconds": step / 10, "reward": step / 100})


def test_only_what_is_new_is_read(store, at_once):
    run_id, reader = started(store, 3), Reader(store)
    first = reader.look(run_id)
    add(store, run_id, [4])
    second = reader.look(run_id)
    assert first.curves["reward"] == [0.01, 0.02, 0.03]
    assert second.curves["reward"] == [0.01, 0.02, 0.03, 0.04]
    assert store.asked[0] == 0
    assert store.asked[1] > 0
    assert (second.step, second.version > first.version) == (4, True)


def test_viewers_at_one_moment_share_one_reading(store):
    run_id, reader = started(store, 3), Reader(store)
    looks = [reader.look(run_id) for _ in range(20)]
    assert len(store.asked) == 1
    assert all(look is looks[0] for look in looks)
    made = [look.once("picture", lambda: object()) for look in looks]
    assert all(one is made[0] for one in made)


def test_nothing_new_is_the_same_look(store, at_once):
    run_id, reader = started(store, 3), Reader(store)
    assert reader.look(run_id) is reader.look(run_id)


def test_a_metric_that_comes_late_or_stays_away_leaves_gaps(store, at_once):
    run_id, reader = started(store, 1), Reader(store)
    reader.look(run_id)
    store.add_event(run_id, {"event": "step", "step": 2, "seconds": 0.2, "kl": 0.5, "note": "no number", "flag": True})
    curves = reader.look(run_id).curves
    assert curves["kl"] == [None, 0.5]
    assert curves["reward"] == [0.01, None]
    assert "note" not in curves
    assert "flag" not in curves


def test_a_long_run_keeps_its_curves_short(store, at_once):
    run_id, reader = started(store, 0), Reader(store)
    add(store, run_id, range(1, 1001))
    look = reader.look(run_id)
    assert look.every == math.ceil(1000 / POINTS) == 4
    assert len(look.curves["reward"]) == math.ceil(1000 / 4) <= POINTS
    assert look.curves["reward"][:2] == pytest.approx([0.025, 0.065])
    assert look.curves["step"][0] == 2.5


def test_what_a_checkpoint_replaces_is_forgotten(store, at_once):
    run_id, reader = started(store, 4), Reader(store)
    store.add_event(run_id, {"event": "eval", "step": 4, "seconds": 0.5, "accuracy": 0.5})
    for step in (5, 6):
        heavy = {"groups": [{"prompt": str(step)}]}
        store.add_event(run_id, {"event": "step", "step": step, "seconds": step / 10, "reward": 9.0, **heavy})
    assert reader.look(run_id).curves["reward"][-2:] == [9.0, 9.0]
    assert reader.groups(run_id, 6)["groups"]
    store.rewind(run_id, events=3, step=3)
    back = {"event": "command", "name": "continued", "step": 3, "seconds": 0.3, "value": {"step": 3}}
    store.add_event(run_id, back)
    look = reader.look(run_id)
    assert look.curves["reward"] == [0.01, 0.02, 0.03]
    assert (look.evaluations, [row["name"] for row in look.commands], look.step) == ((), ["continued"], 3)
    add(store, run_id, [4])
    again = reader.look(run_id)
    assert again.curves == Reader(store).look(run_id).curves
    assert again.curves["step"] == [1.0, 2.0, 3.0, 4.0]
    assert reader.groups(run_id, 6)["groups"] == []


def test_a_change_that_a_checkpoint_does_not_know_is_forgotten_though_it_came_in_its_step(store, at_once):
    run_id, reader = started(store, 3), Reader(store)
    change = {"event": "command", "name": "set", "step": 3, "seconds": 0.4, "value": {"learning_rate": 0.5}}
    store.add_event(run_id, change)
    assert settings_at(reader.look(run_id)).learning_rate == 0.5
    store.rewind(run_id, events=3, step=3)
    store.add_event(run_id, {"event": "command", "name": "continued", "step": 3, "seconds": 0.3, "value": {"step": 3}})
    assert settings_at(reader.look(run_id)) == store.run(run_id).config


def test_a_change_of_settings_still_holds_after_any_number_of_other_commands(store, at_once):
    run_id, reader = started(store, 1), Reader(store)
    change = {"event": "command", "name": "set", "step": 1, "seconds": 0.1, "value": {"learning_rate": 0.5}}
    store.add_event(run_id, change)
    for step in range(2, EVENTS + 10):
        store.add_event(run_id, {"event": "command", "name": "refresh", "step": step, "seconds": step / 10})
    look = reader.look(run_id)
    assert settings_at(look).learning_rate == 0.5
    assert len(look.commands) == EVENTS + 1


def test_a_run_that_begins_anew_is_read_anew(store, at_once):
    run_id, reader = store.create_run(RunConfig()), Reader(store)
    start = {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"}
    store.add_event(run_id, start)
    add(store, run_id, [1, 2])
    reader.look(run_id)
    store.rewind(run_id, events=0, step=0)
    assert store.run(run_id).step == 0
    store.add_event(run_id, start)
    add(store, run_id, [1])
    assert reader.look(run_id).curves["reward"] == [0.01]


def test_a_store_that_fails_leaves_what_was_read(store, at_once, tmp_path):
    run_id, reader = started(store, 2), Reader(store)
    reader.look(run_id)
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    try:
        look = reader.look(run_id)
        assert "does not exist" in look.problem
        assert look.curves["reward"] == [0.01, 0.02]
    finally:
        moved.rename(tmp_path)
    assert reader.look(run_id).problem == ""


def test_a_run_that_is_not_there_is_an_error(store):
    with pytest.raises(RunStoreError, match="no run"):
        Reader(store).look("nothing")
    with pytest.raises(RunStoreError, match="no run"):
        Reader(store).find("nothing")
    assert Reader(store).find() is None


def test_groups_are_read_once(store):
    run_id, reader = started(store, 0), Reader(store)
    group = {"prompt": "p", "tokens": [["a"]]}
    store.add_event(run_id, {"event": "step", "step": 1, "seconds": 0.1, "groups": [group]})
    assert reader.groups(run_id, 1)["groups"] == [group]
    assert reader.groups(run_id, 1) is reader.groups(run_id, 1)
    assert reader.groups(run_id, 2)["groups"] == []


def test_thinning_and_spreading():
    assert thinned([1.0, math.nan, 3.0], 1) == [1.0, None, 3.0]
    assert thinned([1.0, 3.0, math.nan, 5.0, math.nan], 2) == [2.0, 5.0, None]
    rows = [{"i": i} for i in range(10)]
    assert spread(rows, 10) == rows
    kept = spread(rows, 4)
    assert len(kept) <= 4
    assert kept[0] == rows[0]
    assert kept[-1] == rows[-1]
