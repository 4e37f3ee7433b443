"""What can follow a run: going on as its end suggests, and the files to take away."""

from __future__ import annotations

import csv
import io
import os
import zipfile

import pytest

from app.live import after, models
from app.live_reader import Reader
from app.words import catalogue, t
from grpo_core.live.config import RunConfig
from grpo_core.live.runner import reopen_run
from grpo_core.live.store import RunStore

GROUP = {
    "prompt": "=1+1", "answer": "2", "completions": ["2", "3"], "rewards": [1.0, 0.0], "advantages": [0.5, -0.5],
    "lengths": [2, 2], "finish": ["eos", "length"], "kind": "mixed", "mean": 0.5, "std": 0.5,
    "reward_parts": {"accuracy": [1.0, 0.0]}, "tokens": [["2", "<eos>"], ["3", "<eos>"]], "ref_logp": None,
    **{name: [[-0.5, -0.1], [-0.7, -0.2]] for name in ("logp", "old_logp", "entropy")},
}  # fmt: skip


def ended(folder, **end) -> tuple[RunStore, str]:
    store = RunStore(folder)
    run_id = store.create_run(RunConfig(steps=7, learning_rate=1e-3))
    row = {"event": "step", "step": 1, "seconds": 0.1, "reward": 0.5, "groups": [GROUP]}
    store.add_event(run_id, {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"})
    store.add_event(run_id, row)
    store.add_event(run_id, {"event": "end", "step": 1, "seconds": 0.2, **end})
    return store, run_id


def sound(at):
    assert not at.exception, [e.value for e in at.exception]
    return at


@pytest.mark.parametrize(
    ("end", "label"),
    [
        ({"state": "stopped"}, "Resume"),
        ({"state": "finished"}, "Go on for 7 more steps"),
        ({"state": "failed", "reason": "KeyError: 1"}, "Resume"),
        (
            {"state": "failed", "reason": "not finite", "cause": "diverged", "checkpoint": 5},
            "Go on from step 5 with half the learning rate (5e-4)",
        ),
    ],
)
def test_the_way_on_is_what_the_end_suggests(open_page, tmp_path, end, label):
    ended(tmp_path, **end)
    assert sound(open_page("live")).button(key="live-go-on").label == label


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "org/name"},
        {"task_file": "/elsewhere/tasks/a.jsonl"},
        {"task_file": "TASKS/../../a.jsonl"},
        {"task_file": "TASKS/a.jsonl", "verifier_file": "TASKS/a.jsonl"},
    ],
)
def test_a_reader_from_elsewhere_begins_no_run_that_names_files(open_page, tmp_path, monkeypatch, settings):
    """An export can be made to name a verifier file: an uploaded one, say, whose lines are Python as well."""
    monkeypatch.setenv("GRPO_LAB_ALLOW_CODE", "1")
    monkeypatch.setenv("GRPO_LAB_ALLOW_FILES", "0")
    monkeypatch.setattr("grpo_core.live.runner._spawn", None)
    named = {name: path.replace("TASKS", str(tmp_path / "tasks")) for name, path in settings.items()}
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(**named))
    store.set_state(run_id, "stopped")
    at = open_page("live", {"part": "runs"})
    at.button(key="live-go-on").click().run()
    assert t("live.model.not_here").rstrip(".") in " ".join(error.value for error in sound(at).error)
    assert store.run(run_id).state == "stopped"
    at.button(key="live-runs-restore").click().run()
    assert models.UPLOADED not in at.session_state or "verifier_file" in settings


@pytest.mark.parametrize(
    ("end", "changes"),
    [
        ({"state": "stopped"}, {}),
        ({"state": "finished"}, {"steps": 14}),
        ({"state": "failed", "cause": "diverged"}, {}),
        ({"state": "failed", "cause": "diverged", "checkpoint": 1}, {"learning_rate": 5e-4}),
    ],
)
def test_what_changes_on_the_way_on_is_accepted(tmp_path, end, changes):
    store, run_id = ended(tmp_path, **end)
    reader = Reader(store)
    look = reader.look(run_id)
    _, _, wanted = after.way_on(look, after.ending(reader, look))
    assert wanted == changes
    reopen_run(run_id, store, wanted)
    assert store.run(run_id).state == "queued"


def test_going_on_is_refused_while_another_run_is_active(open_page, tmp_path):
    store, run_id = ended(tmp_path, state="stopped")
    other = store.create_run(RunConfig(steps=9))
    assert store.claim(other, os.getpid())
    at = sound(open_page("live", {"run": run_id}))
    at.button(key="live-go-on").click().run()
    assert store.run(run_id).state == "stopped"
    assert t("live.refused") in sound(at).error[0].value


def test_what_is_taken_away_holds_the_run(tmp_path):
    store, run_id = ended(tmp_path, state="stopped")
    with zipfile.ZipFile(io.BytesIO(after.exported(store, run_id))) as archive:
        assert {"manifest.json", "config.json", "metrics.jsonl", "groups.jsonl"} <= set(archive.namelist())
    (line,) = [row for row in csv.DictReader(io.StringIO(after.table(store, run_id))) if row["step"] == "1"]
    assert float(line["reward"]) == 0.5
    reader = Reader(store)
    rows = list(csv.DictReader(io.StringIO(after.completions(reader, reader.look(run_id)))))
    assert [row["completion"] for row in rows] == ["2", "3"]
    compile(after.script(reader.look(run_id)), "script", "exec")
    assert rows[0]["prompt"] == "'=1+1"  # inert in a spreadsheet


def test_the_menu_offers_the_model_only_where_there_is_a_checkpoint(open_page, tmp_path):
    ended(tmp_path, state="stopped")
    labels = [e.proto.label for e in sound(open_page("live")).get("download_button")]
    assert labels == [catalogue()[f"live.take.{name}"] for name in ("export", "csv", "groups_csv", "trl")]
