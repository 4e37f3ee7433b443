"""Runs that stand in line: their order, who takes them, and real workers that follow one another."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from grpo_core.live.config import RunConfig
from grpo_core.live.runner import enqueue, start_next, start_run
from grpo_core.live.store import CANCELLED, RunnerBusy, RunStore, RunStoreError, process_exists

PATIENCE = 240.0
QUICK = {"eval_prompts": 4, "prompts_per_step": 2, "pace": None}
LONG = RunConfig(steps=50_000, eval_prompts=4, prompts_per_step=2, pace=20)


@pytest.fixture
def gone():
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def until(condition):
    """Wait until something is so; a test that waits too long has failed."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


def states(store, names):
    return [store.run(name).state for name in names]


# The line


def test_runs_leave_the_line_in_their_order_and_one_at_a_time(store):
    first, second = store.add_waiting([RunConfig(seed=1), RunConfig(seed=2)])
    (third,) = store.add_waiting([RunConfig(seed=3)])
    assert [run.id for run in store.waiting_runs()] == [first, second, third]
    assert [run.place for run in store.waiting_runs()] == [1, 2, 3]
    assert store.active_run() is None
    assert store.take_next(os.getpid()) == first
    assert (store.run(first).waiting, store.run(first).state, store.active_run().id) == (False, "queued", first)
    assert store.take_next(os.getpid()) is None
    store.set_state(first, "finished")
    assert store.take_next(os.getpid()) == second
    assert [run.id for run in store.waiting_runs()] == [third]


def test_a_waiting_run_is_active_but_needs_no_worker(store):
    (name,) = store.add_waiting([RunConfig()])
    run = store.run(name)
    assert (run.active, run.alive, run.waiting) == (True, True, True)
    with sqlite3.connect(store.folder / "runs.db") as db:
        db.execute("UPDATE runs SET created = 1000.0")
    db.close()
    assert store.run(name).alive
    assert store.mark_dead() == []


def test_start_now_does_not_mind_those_that_wait_but_they_mind_it(store):
    (waiting,) = store.add_waiting([RunConfig()])
    now = store.create_run(RunConfig(), exclusive=True)
    assert store.claim(now, os.getpid())
    assert store.take_next(os.getpid()) is None
    with pytest.raises(RunnerBusy, match=now):
        store.create_run(RunConfig(), exclusive=True)
    store.set_state(now, "stopped")
    assert store.take_next(os.getpid()) == waiting
    assert store.latest_run().id == now


def test_a_run_in_line_is_the_latest_only_when_there_is_no_other(store):
    (waiting,) = store.add_waiting([RunConfig()])
    assert store.latest_run().id == waiting


def test_a_dead_worker_does_not_block_the_line(store, gone):
    dead = store.create_run(RunConfig())
    assert store.claim(dead, gone)
    (waiting,) = store.add_waiting([RunConfig()])
    assert store.take_next(os.getpid()) == waiting


def test_many_that_ask_at_once_get_each_run_once(store):
    names = store.add_waiting([RunConfig(seed=seed) for seed in range(3)])
    stores = [RunStore(store.url) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda one: one.take_next(os.getpid()), stores))
    assert [name for name in got if name] == names[:1]
    store.set_state(names[0], "finished")
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda one: one.take_next(os.getpid()), stores))
    assert [name for name in got if name] == names[1:2]


def test_only_one_process_claims_a_run(store):
    run_id = store.create_run(RunConfig())
    assert store.claim(run_id, os.getpid())
    assert not store.claim(run_id, os.getpid() + 1)
    assert store.claim(run_id, os.getpid())


def test_a_run_in_line_is_cancelled_by_name_or_by_stop(store):
    first, second, third = store.add_waiting([RunConfig()] * 3)
    assert store.cancel(first)
    assert not store.cancel(first)
    store.post_command(second, "stop")
    assert states(store, (first, second)) == ["stopped", "stopped"]
    assert store.run(second).reason == CANCELLED
    assert store.take_next(os.getpid()) == third
    assert not store.cancel(third)
    assert store.take_commands(third) == []


def test_an_ended_run_is_reopened_for_another_worker(store, gone):
    run_id = store.create_run(RunConfig())
    assert store.claim(run_id, gone)
    with pytest.raises(RunStoreError, match="has not ended"):
        store.reopen(run_id)
    store.mark_dead()
    other = store.create_run(RunConfig())
    assert store.claim(other, os.getpid())
    with pytest.raises(RunnerBusy, match=other):
        store.reopen(run_id)
    store.set_state(other, "stopped")
    store.reopen(run_id)
    run = store.run(run_id)
    assert (run.state, run.pid, run.ended, run.reason, run.alive) == ("queued", None, None, "", True)
    assert store.claim(run_id, os.getpid())


# Experiments, names, deletion


def test_an_experiment_keeps_what_its_runs_differ_in(store):
    rates = [{"learning_rate": 1e-4}, {"learning_rate": 1e-3}]
    names = store.add_waiting([RunConfig(**own) for own in rates], experiment=" two rates ", changed=rates)
    (found,) = store.experiments()
    assert (found.name, found.runs) == ("two rates", tuple(names))
    assert [dict(store.run(name).changed) for name in names] == rates
    assert {store.run(name).experiment for name in names} == {found.id}
    store.delete_run(names[0])
    assert store.experiments()[0].runs == (names[1],)
    store.delete_run(names[1])
    assert store.experiments() == []
    with pytest.raises(ValueError, match="give one for each"):
        store.add_waiting([RunConfig()], changed=[])
    with pytest.raises(ValueError, match="at most 120"):
        store.add_waiting([RunConfig()], experiment="x" * 121)
    assert store.runs() == []


def test_names_and_notes(store):
    run_id = store.create_run(RunConfig(note="from the form"))
    assert (store.run(run_id).name, store.run(run_id).note) == ("", "from the form")
    store.describe(run_id, name=" <b>first</b> ", note="")
    assert (store.run(run_id).name, store.run(run_id).note) == ("<b>first</b>", "")
    with pytest.raises(ValueError, match="at most 120"):
        store.describe(run_id, name="n" * 121)
    with pytest.raises(RunStoreError, match="no run"):
        store.describe("gone", name="x")


def test_deleting_removes_everything_of_one_run_and_nothing_else(store):
    kept, doomed = store.create_run(RunConfig()), store.create_run(RunConfig())
    step = {"event": "step", "step": 1, "seconds": 0.1, "groups": [{"tokens": [["a"]]}]}
    for name in (kept, doomed):
        store.add_event(name, step)
        store.set_state(name, "finished")
        (store.folder / name).mkdir()
        (store.folder / name / "step-1.pt").write_bytes(b"weights")
        (store.folder / f"{name}.log").write_text("said")
    store.delete_run(doomed)
    assert [run.id for run in store.runs()] == [kept]
    assert store.metrics(doomed) == []
    assert store.step_groups(doomed)["groups"] == []
    assert len(store.metrics(kept)) == 1
    assert store.step_groups(kept, 1)["groups"]
    assert sorted(path.name for path in store.folder.iterdir() if doomed in path.name) == []
    assert (store.folder / kept / "step-1.pt").exists()
    store.delete_run("../" + store.folder.name)
    store.delete_run("..")
    assert store.folder.is_dir()
    assert [run.id for run in store.runs()] == [kept]


def test_a_run_with_a_worker_is_not_deleted(store):
    run_id = store.create_run(RunConfig())
    assert store.claim(run_id, os.getpid())
    with pytest.raises(RunStoreError, match="stop it before"):
        store.delete_run(run_id)
    assert store.run(run_id).alive


# A disk that does not play along


def limited(store, pragma):
    """The same store with a connection of its own, on which SQLite itself reports what a bad disk would."""
    other = RunStore(store.url)
    with other._engine.connect() as db:
        db.exec_driver_sql(f"PRAGMA {pragma}")
    return other


def test_a_full_disk_queues_all_runs_or_none(store):
    (first,) = store.add_waiting([RunConfig()])
    with sqlite3.connect(store.folder / "runs.db") as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    full = limited(store, f"max_page_count={pages}")
    with pytest.raises(RunStoreError, match="is full"):
        full.add_waiting([RunConfig(note="x" * 500) for _ in range(200)], experiment="too much")
    assert [run.id for run in store.waiting_runs()] == [first]
    assert store.experiments() == []
    assert store.take_next(os.getpid()) == first


def test_a_store_that_may_only_be_read_says_so_and_shows_everything(store):
    (first,) = store.add_waiting([RunConfig()], experiment="kept")
    closed = limited(store, "query_only=1")
    for write in (
        lambda: closed.add_waiting([RunConfig()]),
        lambda: closed.create_run(RunConfig()),
        lambda: closed.describe(first, name="new"),
        lambda: closed.delete_run(first),
        lambda: closed.cancel(first),
        lambda: start_next(closed),
    ):
        with pytest.raises(RunStoreError, match="cannot be written"):
            write()
    assert [run.id for run in closed.waiting_runs()] == [first]
    assert closed.experiments()[0].runs == (first,)
    assert (store.run(first).name, store.run(first).waiting) == ("", True)


# A store that an older version made


OLD = """
CREATE TABLE runs (
    id VARCHAR(40) NOT NULL, state VARCHAR(10) NOT NULL, reason TEXT NOT NULL, config TEXT NOT NULL,
    created FLOAT NOT NULL, started FLOAT, ended FLOAT, heartbeat FLOAT, pid INTEGER, host VARCHAR(255),
    device VARCHAR(200), step INTEGER NOT NULL, steps INTEGER NOT NULL, group_bytes INTEGER NOT NULL,
    PRIMARY KEY (id));
CREATE TABLE events (seq INTEGER NOT NULL, run_id VARCHAR(40) NOT NULL, event VARCHAR(20) NOT NULL,
    step INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (seq));
INSERT INTO runs VALUES ('old-run', 'finished', '', '{"seed": 7, "note": "as it was"}', 1.0, 2.0, 3.0, 3.0, 1,
    'there', 'cpu', 4, 5, 0);
INSERT INTO events VALUES (1, 'old-run', 'step', 4, '{"event": "step", "step": 4, "reward": 0.5}');
"""


def test_a_store_of_an_older_version_opens_and_loses_nothing(tmp_path):
    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.executescript(OLD)
    db.close()
    with ThreadPoolExecutor(4) as pool:  # several programs may open it at once
        stores = list(pool.map(lambda _: RunStore(tmp_path), range(4)))
    store = stores[-1]
    run = store.run("old-run")
    assert (run.state, run.step, run.config.seed, run.name, run.note) == ("finished", 4, 7, "", "as it was")
    assert (run.place, run.experiment, dict(run.changed)) == (None, None, {})
    assert store.metrics("old-run")[0]["reward"] == 0.5
    store.describe("old-run", name="mine")
    (new,) = store.add_waiting([RunConfig()], experiment="e", changed=[{"seed": 0}])
    assert (RunStore(tmp_path).run("old-run").name, RunStore(tmp_path).run(new).place) == ("mine", 1)


# Real workers


def test_one_worker_takes_the_whole_line_and_goes(store):
    names = enqueue([RunConfig(steps=3, seed=seed, **QUICK) for seed in (0, 0, 1)], store)
    until(lambda: not any(store.run(name).active for name in names))
    assert states(store, names) == ["finished"] * 3
    runs = [store.run(name) for name in names]
    assert len({run.pid for run in runs}) == 1
    assert [run.step for run in runs] == [3, 3, 3]
    assert runs[0].ended <= runs[1].started <= runs[1].ended <= runs[2].started
    rewards = [[row["reward"] for row in store.metrics(name) if row["event"] == "step"] for name in names]
    losses = [[row["loss"] for row in store.metrics(name) if row["event"] == "step"] for name in names]
    assert (rewards[0], losses[0]) == (rewards[1], losses[1])
    assert losses[0] != losses[2]
    until(lambda: not process_exists(runs[0].pid))


def test_a_killed_worker_does_not_end_the_line(store):
    names = enqueue([LONG, RunConfig(steps=2, **QUICK)], store)
    run = until(lambda: store.run(names[0]).step >= 1 and store.run(names[0]))
    assert start_next(store) is None
    with pytest.raises(RunnerBusy, match=names[0]):
        start_run(RunConfig(), store)
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: start_next(store) == names[1])
    store.mark_dead()
    assert store.run(names[0]).state == "failed"
    assert until(lambda: not store.run(names[1]).active and store.run(names[1])).state == "finished"


def test_stop_goes_on_to_the_next_and_terminate_leaves_it(store):
    first, second, third = enqueue([LONG, LONG, RunConfig(steps=2, **QUICK)], store)
    until(lambda: store.run(first).step >= 1)
    store.post_command(first, "stop")
    run = until(lambda: store.run(second).step >= 1 and store.run(second))
    assert store.run(first).state == "stopped"
    os.kill(run.pid, signal.SIGTERM)
    until(lambda: not process_exists(run.pid))
    assert states(store, (second, third)) == ["stopped", "queued"]
    assert store.run(third).waiting
    assert start_next(store) == third
    assert until(lambda: not store.run(third).active and store.run(third)).state == "finished"


def test_a_run_that_cannot_begin_does_not_end_the_line(store):
    broken = RunConfig(steps=2, **QUICK).changed(device="mps")
    names = enqueue([broken, RunConfig(steps=2, **QUICK)], store)
    until(lambda: not any(store.run(name).active for name in names))
    assert states(store, names) == ["failed", "finished"]


def test_two_programs_that_start_the_line_start_each_run_once(store):
    names = store.add_waiting([RunConfig(steps=2, **QUICK) for _ in range(2)])
    code = (
        "import sys\nfrom grpo_core.live import RunStore\nfrom grpo_core.live.runner import start_next\n"
        "print(start_next(RunStore(sys.argv[1])))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code, store.url], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = sorted(process.communicate(timeout=180)[0].strip() for process in both)
    assert said == sorted([names[0], "None"])
    until(lambda: not any(store.run(name).active for name in names))
    assert states(store, names) == ["finished", "finished"]
    starts = [[row["event"] for row in store.metrics(name)].count("start") for name in names]
    assert starts == [1, 1]
