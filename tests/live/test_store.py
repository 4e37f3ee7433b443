"""The run store: states, events, groups, commands, and what happens when the disk does not play along."""

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig
from grpo_core.live.groups import event_group
from grpo_core.live.store import RunnerBusy, RunStore, RunStoreError

START = {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"}


def group_data(size: int = 2, tokens: int = 3) -> dict:
    rows = [[f"t{i}{k}" for k in range(tokens)] for i in range(size)]
    return {
        "prompt": "1:12=",
        "answer": "2",
        "completions": ["".join(row) for row in rows],
        "rewards": [float(i % 2) for i in range(size)],
        "reward_parts": {"accuracy": [1.0] * size, "format": [0.0] * size},
        "mean": 0.5,
        "std": 0.7,
        "kind": "mixed",
        "advantages": [-0.5, 0.5],
        "lengths": [tokens] * size,
        "finish": ["eos", "length"] * (size // 2),
        "tokens": rows,
        "logp": [[-0.5] * tokens] * size,
        "old_logp": [[-0.25] * tokens] * size,
        "ref_logp": [[-0.75] * tokens] * size,
        "entropy": [[0.1] * tokens] * size,
    }


def step_event(step: int, **more) -> dict:
    return {"event": "step", "step": step, "seconds": 0.1 * step, "reward": 0.5, "groups": [group_data()], **more}


def add_many(store: RunStore, run_id: str) -> None:
    for step in range(2, 200):
        store.add_event(run_id, step_event(step))


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path)


def test_a_run_goes_from_queued_to_finished(store):
    run_id = store.create_run(RunConfig(steps=7, seed=3))
    assert store.run(run_id).state == "queued"
    assert store.claim(run_id, os.getpid())
    assert not RunStore(store.url).claim("no such run", 1)
    store.add_event(run_id, START)
    run = store.run(run_id)
    assert (run.state, run.device, run.alive, run.config.seed, run.steps) == ("running", "cpu", True, 3, 7)
    store.add_event(run_id, {"event": "command", "step": 0, "seconds": 0.1, "name": "pause"})
    assert store.run(run_id).state == "paused"
    store.add_event(run_id, {"event": "command", "step": 0, "seconds": 0.2, "name": "resume"})
    store.add_event(run_id, step_event(1))
    assert store.active_run() == store.run(run_id)
    store.add_event(run_id, {"event": "end", "step": 1, "seconds": 0.3, "state": "finished"})
    run = store.run(run_id)
    assert (run.state, run.step, run.active, run.alive) == ("finished", 1, False, False)
    assert run.ended is not None
    assert store.active_run() is None
    assert store.latest_run() == run


def test_metrics_are_light_and_read_from_where_one_left_off(store):
    run_id = store.create_run(RunConfig())
    for step in range(1, 6):
        store.add_event(run_id, step_event(step, kl=float("nan")))
    rows = store.metrics(run_id)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert set(rows[0]) == {"seq", "event", "step", "seconds", "reward", "kl"}
    assert rows[0]["kl"] is None
    assert store.metrics(run_id, after=rows[2]["seq"]) == rows[3:]
    assert store.metrics(run_id, after=rows[2]["seq"], limit=1) == rows[3:4]
    assert store.metrics(run_id, after=rows[-1]["seq"]) == []
    json.dumps(rows, allow_nan=False)


def test_groups_come_back_whole_and_become_the_cores_groups(store):
    run_id = store.create_run(RunConfig())
    assert store.step_groups(run_id) == {"step": None, "groups": []}
    for step in (1, 2):
        store.add_event(run_id, step_event(step, ratio_histogram={"edges": [0.5, 1.5], "counts": [step]}))
    newest = store.step_groups(run_id)
    assert newest["step"] == 2
    assert newest["ratio_histogram"] == {"edges": [0.5, 1.5], "counts": [2]}
    assert store.step_groups(run_id, step=1)["groups"] == [group_data()]
    assert store.step_groups(run_id, step=9) == {"step": 9, "groups": []}
    group = event_group(newest["groups"][0])
    assert group.rewards == (0.0, 1.0)
    assert group.kind == "mixed"
    assert group.truncated == (False, True)
    assert group.old_logp == ((-0.25,) * 3,) * 2


def test_groups_stay_within_their_bytes_and_keep_the_newest(tmp_path):
    store = RunStore(tmp_path, group_bytes=20_000)
    run_id = store.create_run(RunConfig())
    for step in range(1, 201):
        store.add_event(run_id, step_event(step))
    kept = store.group_steps(run_id)
    assert kept[-20:] == list(range(181, 201))
    assert 20 < len(kept) < 120
    assert len(store.metrics(run_id)) == 200


def test_commands_are_taken_once_in_their_order(store):
    run_id = store.create_run(RunConfig())
    store.post_command(run_id, "pause")
    store.post_command(run_id, "set", {"learning_rate": "2e-4", "pace": None})
    assert store.take_commands(run_id) == [
        Command("pause"),
        Command("set", {"learning_rate": 2e-4, "pace": None}),
    ]
    assert store.take_commands(run_id) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("explode", None, "accepted are pause, resume"),
        ("set", None, "set takes the settings to change"),
        ("set", {"seed": 4}, "cannot change during a run"),
        ("set", {"learning_rate": -1}, "a number from 0 to 1"),
        ("set", {"beta": "x"}, "beta='x'"),
    ],
)
def test_a_wrong_command_says_what_is_accepted(store, name, value, expected):
    run_id = store.create_run(RunConfig())
    with pytest.raises(ValueError, match=expected):
        store.post_command(run_id, name, value)
    assert store.take_commands(run_id) == []


def test_an_ended_run_takes_no_commands(store):
    run_id = store.create_run(RunConfig())
    store.set_state(run_id, "stopped")
    with pytest.raises(RunStoreError, match="already ended"):
        store.post_command(run_id, "pause")


def test_a_second_exclusive_run_is_refused_until_the_first_ends(store):
    first = store.create_run(RunConfig(), exclusive=True)
    store.claim(first, os.getpid())
    with pytest.raises(RunnerBusy, match=rf"{first} is still queued at step 0 of 120"):
        store.create_run(RunConfig(), exclusive=True)
    assert len(store.runs()) == 1
    store.set_state(first, "stopped")
    assert store.create_run(RunConfig(), exclusive=True) != first


def test_a_run_whose_process_is_gone_is_marked_failed(store):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    run_id = store.create_run(RunConfig())
    store.claim(run_id, process.pid)
    store.add_event(run_id, START)
    store.add_event(run_id, step_event(4))
    assert not store.run(run_id).alive
    assert store.active_run() is None
    assert store.mark_dead() == [run_id]
    run = store.run(run_id)
    assert (run.state, run.step) == ("failed", 4)
    assert "up to step 4 is kept" in run.reason
    assert store.mark_dead() == []
    assert not store.beat(run_id)
    assert store.step_groups(run_id)["step"] == 4


def test_a_zombie_counts_as_gone(store):
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    process.stdout.read()  # its end of the pipe closes when it exits; until wait() it is a zombie
    run_id = store.create_run(RunConfig())
    store.claim(run_id, process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not store.run(run_id).alive
    process.communicate()


def test_a_named_folder_must_exist(tmp_path):
    with pytest.raises(RunStoreError, match="does not exist"):
        RunStore(tmp_path / "nowhere")


def test_the_default_folder_is_made_and_the_environment_names_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRPO_LAB_RUNS", raising=False)
    assert RunStore().folder == tmp_path / "runs"
    other = tmp_path / "other"
    monkeypatch.setenv("GRPO_LAB_RUNS", str(other))
    with pytest.raises(RunStoreError, match="GRPO_LAB_RUNS"):
        RunStore()
    other.mkdir()
    assert RunStore().folder == other


def test_a_folder_that_disappears_is_named(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    store = RunStore(folder)
    folder.rename(tmp_path / "moved")
    with pytest.raises(RunStoreError, match=r"runs for the runs does not exist"):
        store.runs()


def test_a_full_disk_is_named_and_nothing_written_is_lost(tmp_path):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig())
    store.add_event(run_id, step_event(1))
    pages = sqlite3.connect(tmp_path / "runs.db").execute("PRAGMA page_count").fetchone()[0]
    full = RunStore(tmp_path)
    with full._engine.connect() as db:  # SQLite itself reports "full" beyond this many pages, as on a full disk
        db.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(RunStoreError, match="is full"):
        add_many(full, run_id)
    rows = store.metrics(run_id)
    assert rows[0]["step"] == 1
    assert store.run(run_id).step == rows[-1]["step"] == store.step_groups(run_id)["step"]


def test_a_file_that_is_no_store_is_named(tmp_path):
    (tmp_path / "runs.db").write_text("this is not a database, although it is long enough to look like one" * 20)
    with pytest.raises(RunStoreError, match="is not a run store"):
        RunStore(tmp_path)


def test_settings_of_another_version_do_not_hide_a_run(store):
    run_id = store.create_run(RunConfig(seed=5))
    with sqlite3.connect(store.folder / "runs.db") as db:
        text = db.execute("SELECT config FROM runs").fetchone()[0]
        changed = json.dumps({**json.loads(text), "from_the_future": 1, "beta": -3})
        db.execute("UPDATE runs SET config = ?", (changed,))
    db.close()
    run = store.run(run_id)
    assert run.config.seed == 5
    assert run.config.beta == 0.0
