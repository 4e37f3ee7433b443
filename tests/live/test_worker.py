"""Real workers: started, followed through the store, paused, stopped, killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
import torch

from grpo_core.live import store as store_module
from grpo_core.live.config import RunConfig
from grpo_core.live.runner import _STANDBY, RunnerBusy, mark_dead, prepare, resume_run, start_run
from grpo_core.live.store import RunStore, RunStoreError, process_exists
from grpo_core.live.worker import write

PATIENCE = 180.0
QUICK = {"eval_prompts": 4, "prompts_per_step": 2}


def until(condition):
    """Wait until something is so; a test that waits too long has failed."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


def ended(store, run_id):
    return until(lambda: not store.run(run_id).active and store.run(run_id))


def test_a_run_is_paused_resumed_and_finishes(store):
    run_id = start_run(RunConfig(steps=12, pace=20, **QUICK), store)
    queued = store.run(run_id)
    assert (queued.state, queued.pid is not None) in (("queued", True), ("running", True))
    with pytest.raises(RunnerBusy, match=f"Run {run_id} is still"):
        start_run(RunConfig(), store)
    until(lambda: store.run(run_id).step >= 2)
    store.post_command(run_id, "pause")
    paused = until(lambda: store.run(run_id).state == "paused" and store.run(run_id))
    assert paused.alive
    with pytest.raises(RunnerBusy, match="is still paused"):
        start_run(RunConfig(), store)
    store.post_command(run_id, "step")
    until(lambda: store.run(run_id).step == paused.step + 1)
    store.post_command(run_id, "set", {"pace": None})
    store.post_command(run_id, "resume")
    run = ended(store, run_id)
    assert (run.state, run.step, run.reason) == ("finished", 12, "")
    rows = store.metrics(run_id)
    assert [row["step"] for row in rows if row["event"] == "step"] == list(range(1, 13))
    assert [row["name"] for row in rows if row["event"] == "command"] == ["pause", "step", "set", "resume"]
    assert len(store.step_groups(run_id)["groups"]) == 2
    assert store.active_run() is None
    assert (store.folder / f"{run_id}.log").read_text() == ""


def test_a_killed_worker_is_seen_as_failed_and_its_steps_are_kept(store):
    run_id = start_run(RunConfig(steps=5000, pace=20, **QUICK), store)
    run = until(lambda: store.run(run_id).step >= 3 and store.run(run_id))
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not store.run(run_id).alive)
    assert mark_dead(store) == [run_id]
    dead = store.run(run_id)
    assert dead.state == "failed"
    assert f"everything up to step {dead.step} is kept" in dead.reason
    steps = [row["step"] for row in store.metrics(run_id) if row["event"] == "step"]
    assert steps == list(range(1, dead.step + 1))
    assert store.step_groups(run_id)["step"] == dead.step


def test_a_worker_that_slept_too_long_leaves_its_run_to_the_next(store, monkeypatch):
    run_id = start_run(RunConfig(steps=60, pace=20, **QUICK), store)
    asleep = until(lambda: store.run(run_id).step >= 3 and store.run(run_id)).pid
    os.kill(asleep, signal.SIGSTOP)  # as a machine that sleeps does with all its programs
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(store_module, "LOST_SECONDS", 1.0)
            until(lambda: mark_dead(store))
        resume_run(run_id, store)
        until(lambda: store.run(run_id).pid not in (None, asleep) and store.run(run_id).state == "running")
    finally:
        os.kill(asleep, signal.SIGCONT)
    until(lambda: not process_exists(asleep))
    run = ended(store, run_id)
    assert (run.state, run.step, run.reason) == ("finished", 60, "")
    rows = store.metrics(run_id)
    assert [row["step"] for row in rows if row["event"] == "step"] == list(range(1, 61))
    assert sum(row["event"] == "end" for row in rows) == 1


def test_a_worker_outlives_the_program_that_started_it_and_stops_when_told(store):
    code = (
        "import sys\nfrom grpo_core.live import RunConfig, RunStore\nfrom grpo_core.live.runner import start_run\n"
        "print(start_run(RunConfig(steps=5000, eval_prompts=4), RunStore(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.url], capture_output=True, text=True, timeout=180, check=True
    )
    run_id = done.stdout.strip()
    until(lambda: store.run(run_id).step >= 2)
    store.post_command(run_id, "stop")
    run = ended(store, run_id)
    assert run.state == "stopped"
    assert store.metrics(run_id)[-1]["event"] == "end"


def test_a_worker_that_stands_by_takes_the_next_run(store):
    prepare(store)
    prepare(store)
    (ready,) = _STANDBY.values()
    run_id = start_run(RunConfig(steps=2, pace=None, **QUICK), store)
    assert store.run(run_id).pid == ready.pid
    assert not _STANDBY
    assert ended(store, run_id).state == "finished"
    assert (store.folder / f"{run_id}.log").read_text() == ""


def test_a_worker_that_stands_by_goes_with_its_program(store):
    code = (
        "import sys\nfrom grpo_core.live import RunStore\nfrom grpo_core.live import runner\n"
        "runner.prepare(RunStore(sys.argv[1]))\nprint(*[p.pid for p in runner._STANDBY.values()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.url], capture_output=True, text=True, timeout=180, check=True
    )
    until(lambda: not process_exists(int(done.stdout)))


def test_a_worker_that_is_asked_to_terminate_stops_properly(store):
    run_id = start_run(RunConfig(steps=5000, pace=20, **QUICK), store)
    run = until(lambda: store.run(run_id).step >= 1 and store.run(run_id))
    os.kill(run.pid, signal.SIGTERM)
    assert ended(store, run_id).state == "stopped"


def test_a_run_that_cannot_begin_says_why(store):
    missing = "mps" if torch.cuda.is_available() else "cuda"
    run_id = start_run(RunConfig(device=missing), store)
    run = ended(store, run_id)
    assert run.state == "failed"
    assert f"device '{missing}' is not on this machine" in run.reason


def test_a_worker_takes_no_run_that_is_not_waiting(store):
    run_id = store.create_run(RunConfig())
    store.set_state(run_id, "stopped")
    done = subprocess.run(
        [sys.executable, "-m", "grpo_core.live.worker", run_id, "--store", store.url],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is not waiting for a worker" in done.stderr
    assert store.run(run_id).state == "stopped"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_a_worker_that_cannot_even_write_its_messages_waits_for_room_and_loses_nothing(store, tmp_path):
    run_id = store.create_run(RunConfig(steps=4, pace=None, **QUICK))
    full = (
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.step > 1 BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        db.execute(full)
    command = [sys.executable, "-m", "grpo_core.live.worker", run_id, "--store", store.url]
    with open("/dev/full", "w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    until(lambda: store.run(run_id).step == 1)
    time.sleep(2.5)  # so long that it has tried again
    assert process.poll() is None
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        db.execute("DROP TRIGGER full")
    assert ended(store, run_id).state == "finished"
    assert [row["step"] for row in store.metrics(run_id) if row["event"] == "step"] == [1, 2, 3, 4]
    process.wait(timeout=PATIENCE)


def test_a_store_that_comes_back_loses_nothing(tmp_path, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    store = RunStore(folder)
    run_id = store.create_run(RunConfig())
    store.claim(run_id, os.getpid())
    folder.rename(tmp_path / "away")
    event = {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"}
    with pytest.raises(RunStoreError, match="does not exist"):
        write(store, run_id, event, patience=0.0)
    (tmp_path / "away").rename(folder)
    write(store, run_id, event, patience=0.0)
    assert store.run(run_id).state == "running"
    assert "does not exist" in capsys.readouterr().err
