"""Checkpoints: what is kept, that a run goes on from one bit by bit, and what happens to damaged ones."""

import itertools
import json
import os
import pickle
import signal

import pytest
import torch
from safetensors import safe_open

from grpo_core.live import checkpoints as module
from grpo_core.live.checkpoints import CheckpointError, Checkpoints, checkpoints_of
from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig
from grpo_core.live.runner import RunnerBusy, mark_dead, resume_run, start_run
from grpo_core.live.store import RunStoreError
from grpo_core.live.trainer import continued, train
from tests.live.test_trainer import timeless
from tests.live.test_worker import ended, until

FAST = {"pace": None, "eval_prompts": 4, "eval_samples": 2, "eval_every": 3, "prompts_per_step": 3}
EVERYTHING = {
    **FAST, "learning_rate": 1e-3, "inner_epochs": 2, "beta": 0.05, "verifier_failures": 0.1, "refresh_every": 4,
    "checkpoint_every": 3, "top_p": 0.9, "refills": 1,
}  # fmt: skip


def save(kept, step, accuracy=None, size=3):
    tensors = {"weights": torch.full((size,), float(step))}
    return kept.save(tensors, {"step": step, "events": 10 * step, "accuracy": accuracy})


def steps(kept):
    return [checkpoint.step for checkpoint in kept.all()]


# What is kept


def test_the_newest_the_best_and_the_last_good_are_kept(tmp_path):
    kept = Checkpoints(tmp_path / "new" / "folder")
    assert kept.newest() is None
    assert kept.good() is None
    for step, accuracy in enumerate([0.3, 0.9, 0.5, 0.1, 0.0, 0.0, 0.0], start=1):
        save(kept, step, accuracy)
    assert steps(kept) == [2, 3, 5, 6, 7]
    assert (kept.newest().step, kept.newest().events, kept.good().step) == (7, 70, 3)
    assert kept.good().tensors()["weights"].tolist() == [3.0] * 3
    kept.drop_after(3)
    assert steps(kept) == [2, 3]


def test_without_evaluations_the_newest_is_the_good_one(tmp_path):
    kept = Checkpoints(tmp_path)
    for step in range(1, 6):
        save(kept, step)
    assert steps(kept) == [3, 4, 5]
    assert kept.good().step == 5


def test_large_ones_are_kept_as_far_as_they_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "KEEP_BYTES", 10_000)
    kept = Checkpoints(tmp_path)
    for step in range(1, 5):
        save(kept, step, size=1000)
    assert steps(kept) == [3, 4]
    save(kept, 5, size=5000)
    assert steps(kept) == [5]


def test_damaged_unfinished_and_foreign_files_are_no_checkpoints(tmp_path):
    kept = Checkpoints(tmp_path)
    whole = save(kept, 1)
    (tmp_path / "step-00000002.safetensors").write_bytes(whole.read_bytes()[:-4])
    (tmp_path / "step-00000003.safetensors").write_bytes(pickle.dumps({"version": 1}))
    (tmp_path / "step-00000004.unfinished").write_bytes(b"half")
    (tmp_path / "step-00000005.safetensors").write_bytes(b"")
    assert steps(kept) == [1]


def test_a_checkpoint_holds_tensors_and_json_only(tmp_path):
    kept = Checkpoints(tmp_path)
    list(train(RunConfig(steps=2, **FAST), checkpoints=kept))
    with safe_open(kept.newest().path, framework="pt") as file:
        own = ("weights", "exp_avg", "exp_avg_sq", "step")
        assert set(file.keys()) == {"chances", *(f"optimizer.{name}" for name in own)}
        state = json.loads(file.metadata()["state"])
    assert state["config"]["prompts_per_step"] == 3
    assert kept.newest().size < 1_500_000  # three numbers for each of the 0.11 M weights
    assert kept.seconds < 1


# Going on


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "grpo_paper"}, {"recipe": "verl_clip_cov"}, {"recipe": "remax_paper"}, {"lora_rank": 4},
        {"reward_source": "learned", "iteration_steps": 5, "refresh_every": 0}, {"supervision": "process"},
    ],
)  # fmt: skip
def test_a_run_goes_on_from_its_checkpoint_bit_by_bit(tmp_path, changes):
    config = RunConfig(**{"recipe": "grpo_paper", "steps": 12, **EVERYTHING, **changes})
    straight = timeless(train(config, checkpoints=Checkpoints(tmp_path / "straight")))
    kept = Checkpoints(tmp_path / "cut")
    first = list(itertools.takewhile(lambda event: event["step"] < 8, train(config, checkpoints=kept)))
    assert max(event["step"] for event in first) == 7
    begin = kept.newest()
    assert begin.step == 6
    told, *rest = timeless(train(RunConfig(), checkpoints=kept, begin=begin))
    assert (told["event"], told["name"], told["value"]) == ("command", "continued", {"step": 6})
    assert timeless(first)[: begin.events] + rest == straight
    assert rest[-1]["state"] == "finished"
    last = [Checkpoints(tmp_path / name).newest().tensors() for name in ("straight", "cut")]
    assert all(last[0][name].equal(last[1][name]) for name in last[0])


def test_what_was_changed_is_kept_and_time_goes_on(tmp_path):
    kept, polls = Checkpoints(tmp_path), itertools.count()
    changes = {2: Command("set", {"group_size": 5, "learning_rate": 0.0}), 3: Command("refresh")}
    config = RunConfig(steps=9, checkpoint_every=0, **FAST)
    events = train(config, lambda: [changes[n]] if (n := next(polls)) in changes else [], checkpoints=kept)
    done = list(itertools.takewhile(lambda event: event["step"] < 5, events))
    begin = kept.newest()
    assert begin.step == 3  # the refresh before step 4 was the last change
    rest = list(train(RunConfig(), begin=begin))
    assert rest[1]["group_size"] == 5
    assert rest[1]["kl"] == pytest.approx(0, abs=1e-9)  # the refreshed reference, and nothing has moved since
    assert rest[0]["seconds"] >= done[begin.events - 1]["seconds"]
    assert rest[1]["num_tokens"] > done[-1]["num_tokens"] / 2


def test_a_pause_a_stop_and_the_end_are_kept(tmp_path):
    polls = itertools.count()
    script = {1: Command("pause"), 2: Command("step"), 4: Command("resume"), 6: Command("stop")}
    kept = Checkpoints(tmp_path)
    config = RunConfig(steps=9, checkpoint_every=0, **FAST)
    seen = []
    for event in train(config, lambda: [script[n]] if (n := next(polls)) in script else [], checkpoints=kept):
        seen.append((event.get("name", event["event"]), event["step"], steps(kept)))
    # Each line: the event, and what was kept when it was told.
    assert ("pause", 1, []) in seen
    assert ("step", 1, [1]) in seen
    assert ("resume", 2, [1, 2]) in seen
    name, step, there = seen[-1]
    assert (name, there) == ("end", [1, 2, step])


def test_a_full_disk_is_told_and_the_training_goes_on(tmp_path):
    (tmp_path / "file").write_text("no folder")
    kept = Checkpoints(tmp_path / "file")
    events = list(train(RunConfig(steps=2, checkpoint_every=1, **FAST), checkpoints=kept))
    told = [event for event in events if event["event"] == "notice"]
    assert [event["step"] for event in told] == [1, 2]
    assert "The checkpoint of step 1 could not be written" in told[0]["text"]
    assert events[-1]["state"] == "finished"


def test_a_checkpoint_of_another_model_is_refused_in_words(tmp_path):
    kept = Checkpoints(tmp_path)
    list(train(RunConfig(steps=1, **FAST), checkpoints=kept))
    tensors, newest = kept.newest().tensors(), kept.newest()
    tensors["optimizer.weights"] = tensors["optimizer.weights"][:-1]
    kept.save(tensors, dict(newest.state))
    with pytest.raises(CheckpointError, match=r"step-00000001.* does not fit this run: it holds 109695 numbers"):
        continued(kept.newest())
    kept.save(tensors, {**newest.state, "config": {"from_the_future": 1}})
    with pytest.raises(CheckpointError, match="of another version"):
        continued(kept.newest())


# Real workers


def rows_of(store, run_id, kinds=("start", "eval", "step")):
    rows = timeless(store.metrics(run_id))
    return [{k: v for k, v in row.items() if k != "seq"} for row in rows if row["event"] in kinds]


def test_a_killed_worker_goes_on_as_if_nothing_had_happened(store):
    config = RunConfig(steps=14, **EVERYTHING)
    straight = start_run(config, store)
    assert ended(store, straight).state == "finished"
    cut = start_run(config.changed(pace=8), store)
    run = until(lambda: store.run(cut).step >= 8 and store.run(cut))
    with pytest.raises(RunnerBusy):
        resume_run(cut, store)
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not store.run(cut).alive)
    assert mark_dead(store) == [cut]
    died_at = store.run(cut).step
    resume_run(cut, store, {"pace": None})
    run = ended(store, cut)
    assert (run.state, run.step, run.reason) == ("finished", 14, "")
    expected = rows_of(store, straight, ("eval", "step"))
    assert rows_of(store, cut, ("eval", "step")) == expected
    assert [row["step"] for row in expected if row["event"] == "step"] == list(range(1, 15))
    continued_at = [row["step"] for row in store.metrics(cut) if row.get("name") == "continued"]
    assert continued_at == [died_at - died_at % 3]
    assert store.group_steps(cut) == list(range(1, 15))
    for step in (1, continued_at[0], 14):
        assert store.step_groups(cut, step) == store.step_groups(straight, step)


def test_a_finished_run_goes_on_with_more_steps_and_other_settings(store):
    run_id = start_run(RunConfig(steps=4, **FAST), store)
    assert ended(store, run_id).state == "finished"
    resume_run(run_id, store, {"steps": 6, "learning_rate": "0"})
    run = ended(store, run_id)
    assert (run.state, run.step, run.steps) == ("finished", 6, 6)
    rows = [row for row in store.metrics(run_id) if row["event"] == "step"]
    assert [row["learning_rate"] for row in rows] == [1e-4] * 4 + [0.0] * 2
    assert [row["event"] for row in store.metrics(run_id)].count("end") == 1


def test_a_run_without_a_checkpoint_begins_anew(store):
    run_id = start_run(RunConfig(steps=500, checkpoint_every=0, **{**FAST, "pace": 30}), store)
    run = until(lambda: store.run(run_id).step >= 2 and store.run(run_id))
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not store.run(run_id).alive)
    resume_run(run_id, store)
    until(lambda: store.run(run_id).state == "running" and store.run(run_id).step >= 1)
    store.post_command(run_id, "stop")
    ended(store, run_id)
    rows = store.metrics(run_id)
    assert [row["event"] for row in rows].count("start") == 1
    done = [row["step"] for row in rows if row["event"] == "step"]
    assert done == list(range(1, len(done) + 1))


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(store):
    run_id = start_run(RunConfig(steps=6, **{**EVERYTHING, "refills": 0}), store)
    ended(store, run_id)
    kept = checkpoints_of(store.folder, run_id)
    assert steps(kept) == [3, 6]
    newest = kept.newest()
    tensors = newest.tensors()
    del tensors["chances"]
    kept.save(tensors, dict(newest.state))
    resume_run(run_id, store, {"steps": 7})
    assert ended(store, run_id).step == 7
    assert "does not fit this run" in (store.folder / f"{run_id}.log").read_text()
    done = [row["step"] for row in store.metrics(run_id) if row["event"] == "step"]
    assert done == list(range(1, 8))


def test_what_cannot_be_resumed_says_why(store):
    run_id = store.create_run(RunConfig())
    with pytest.raises(RunnerBusy):
        resume_run(run_id, store)
    store.set_state(run_id, "stopped")
    with pytest.raises(ValueError, match="'seed' cannot change when a run goes on: accepted are learning_rate"):
        resume_run(run_id, store, {"seed": 1})
    with pytest.raises(RunStoreError, match="There is no run 'no such run'"):
        resume_run("no such run", store)
    kept = checkpoints_of(store.folder, run_id)
    save(kept, 5)
    with pytest.raises(ValueError, match="step=4 has no checkpoint: accepted are 5"):
        resume_run(run_id, store, step=4)
    assert store.run(run_id).state == "stopped"
