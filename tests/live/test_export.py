"""Taking a run away and bringing it in: the same run in another store, and files that are broken or meant to harm."""

import csv
import io
import json
import subprocess
import sys
import time
import zipfile

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_core.live.config import RunConfig
from grpo_core.live.export import ExportError, export_run, import_run, metrics_csv, save_model
from grpo_core.live.store import RunStore, RunStoreError
from grpo_core.live.worker import events_of
from grpo_core.readers import RunFormatError, files, open_run

CONFIG = RunConfig(
    steps=4, pace=None, eval_prompts=5, eval_samples=2, eval_every=2, prompts_per_step=3, group_size=4, beta=0.05
)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A store with one short run that was really trained, and its name."""
    store = RunStore(tmp_path_factory.mktemp("source"))
    run_id = store.create_run(CONFIG)
    for event in events_of(run_id, store, tuple):
        store.add_event(run_id, event)
    store.describe(run_id, name="my run", note="=a note")
    return store, run_id


@pytest.fixture
def exported(source, tmp_path):
    store, run_id = source
    return export_run(store, run_id, tmp_path / "run.zip")


@pytest.fixture
def other(tmp_path):
    (tmp_path / "other").mkdir()
    return RunStore(tmp_path / "other")


def rewritten(path, **changes):
    """The same zip with some files replaced; None leaves one out."""
    target = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        parts = {name: old.read(name) for name in old.namelist()} | changes
        for name, data in parts.items():
            if data is not None:
                new.writestr(name, data)
    return target


def manifest(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("manifest.json"))


def test_a_run_is_the_same_in_another_store(source, exported, other):
    store, run_id = source
    assert import_run(exported, other) == run_id
    before, after = store.run(run_id), other.run(run_id)
    for name in ("state", "config", "created", "started", "ended", "device", "step", "steps", "name", "note"):
        assert getattr(after, name) == getattr(before, name)
    assert not after.active
    assert other.metrics(run_id) == store.metrics(run_id)
    assert other.group_steps(run_id) == store.group_steps(run_id) == [1, 2, 3, 4]
    assert all(other.step_groups(run_id, step) == store.step_groups(run_id, step) for step in range(1, 5))
    again = import_run(exported, other)
    assert again != run_id
    assert other.metrics(again, limit=3)[0]["event"] == "start"
    other.delete_run(run_id)
    assert len(other.runs()) == 1


def test_nothing_half_written_is_left_behind(source, tmp_path):
    store, _ = source
    with pytest.raises(RunStoreError, match="There is no run"):
        export_run(store, "nothing", tmp_path / "run.zip")
    with pytest.raises(FileNotFoundError):
        export_run(store, source[1], tmp_path / "no" / "folder.zip")
    assert list(tmp_path.iterdir()) == []


def test_the_model_loads_with_transformers_and_continues_as_it_did(source, tmp_path):
    store, run_id = source
    folder = save_model(store, run_id, tmp_path / "model")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    groups = store.step_groups(run_id, 4)["groups"]
    # What the run measured after its last update is what the saved model says.
    prompt = tokenizer("<bos>" + groups[0]["prompt"], add_special_tokens=False)["input_ids"]
    for tokens, logps in zip(groups[0]["tokens"], groups[0]["logp"], strict=True):
        own = tokenizer.convert_tokens_to_ids(tokens)
        with torch.no_grad():
            logits = model(torch.tensor([prompt + own])).logits[0, len(prompt) - 1 : -1]
        found = logits.log_softmax(-1).gather(1, torch.tensor(own)[:, None]).squeeze(1)
        torch.testing.assert_close(found, torch.tensor(logps), atol=1e-4, rtol=0)


def test_the_model_travels_with_the_run(source, tmp_path, other):
    store, run_id = source
    path = export_run(store, run_id, tmp_path / "run.zip", model=True)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "unpacked" / "model")
    assert sum(parameter.numel() for parameter in model.parameters()) == 109_696
    assert open_run(tmp_path / "unpacked").name == run_id
    assert import_run(path, other) == run_id


def test_a_run_without_a_checkpoint_has_no_model(other, source, tmp_path):
    run_id = other.create_run(RunConfig())
    with pytest.raises(ExportError, match="has no checkpoint, so that its model is not there; it keeps one when"):
        save_model(other, run_id, tmp_path / "model")
    with pytest.raises(ExportError, match=r"has no checkpoint of step 3.*: there are those of the steps 4"):
        save_model(*source, tmp_path / "model", step=3)


def test_the_table_has_one_line_a_step(source):
    store, run_id = source
    text = metrics_csv(store.metrics(run_id))
    lines = list(csv.DictReader(io.StringIO(text)))
    steps = [row for row in store.metrics(run_id) if row["event"] == "step"]
    assert [line["step"] for line in lines] == ["0", "1", "2", "3", "4"]
    assert [float(line["loss"]) for line in lines[1:]] == [row["loss"] for row in steps]
    assert lines[0]["loss"] == ""
    assert float(lines[0]["eval/accuracy"]) == store.metrics(run_id)[1]["accuracy"]
    assert [line["eval/accuracy"] != "" for line in lines] == [True, False, True, False, True]
    assert "a note" not in text
    assert metrics_csv([]) == "\n"


def test_the_command_line(source, tmp_path):
    store, run_id = source
    base = [sys.executable, "-W", "error", "-m", "grpo_core.live.export", "--store", str(store.folder)]
    done = subprocess.run([*base, run_id, "--to", str(tmp_path / "r.zip"), "--model"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert zipfile.is_zipfile(tmp_path / "r.zip")
    wrong = subprocess.run([*base, "nothing", "--to", str(tmp_path / "x.zip")], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "There is no run 'nothing'" in wrong.stderr
    assert "Traceback" not in wrong.stderr


# Files that are broken or meant to harm


def refused(path, store, match):
    with pytest.raises(RunFormatError, match=match) as caught:
        import_run(path, store)
    assert len(str(caught.value)) < 600
    assert store.runs() == []


def test_what_is_no_zip_is_named(tmp_path, other):
    refused(tmp_path / "nowhere.zip", other, "does not exist")
    (tmp_path / "text.zip").write_text("this is no zip")
    refused(tmp_path / "text.zip", other, r"text\.zip is no zip file")


def test_a_zip_that_was_cut_off_or_changed_is_refused(exported, other, tmp_path):
    data = exported.read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    refused(tmp_path / "cut.zip", other, "is no zip file that can be read")
    with zipfile.ZipFile(exported) as archive:
        place = archive.getinfo("groups.jsonl").header_offset + 200
    (tmp_path / "flipped.zip").write_bytes(data[:place] + bytes(64) + data[place + 64 :])
    refused(tmp_path / "flipped.zip", other, r"groups\.jsonl in flipped\.zip cannot be read, it is damaged")


def event(**entries):
    """A file of metrics with one event in it, which is a sound one but for these entries."""
    return {"metrics.jsonl": json.dumps({"event": "step", "step": 1, "seq": 1, "seconds": 0.5, **entries}).encode()}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"manifest.json": None}, "has no manifest.json: it is incomplete"),
        ({"manifest.json": b"{"}, "manifest.json in changed.zip is not JSON"),
        ({"manifest.json": b"[]"}, "is no run of GRPO Lab"),
        ({"manifest.json": b'{"format": "grpo-lab-run", "version": 2}'}, "has version 2 of the format"),
        ({"config.json": b"[1]"}, "is damaged: line 0 of config.json is no settings"),
        ({"groups.jsonl": None}, "has no groups.jsonl"),
        ({"metrics.jsonl": b"{}\n"}, "line 1 of metrics.jsonl is no event: 'event' is missing"),
        ({"metrics.jsonl": b'{"event": "step", "step": -1, "seq": 1}\n'}, "step=-1 is not a whole number"),
        ({"metrics.jsonl": b'{"event": "<b>", "step": 1, "seq": 1}\n'}, "is no kind of event"),
        (event(seconds=None), "line 1 of metrics.jsonl is no event: seconds are missing"),
        (event(seconds="x"), "seconds='x' is no number"),
        (event(reward="abc"), "reward='abc' is no number"),
        (event(reward=[1]), r"reward=\[1\] is no number"),
        (event(reward=True), "reward=True is no number"),
        (event(reward=10**400), "reward=1000000.* is no number"),
        (event(event="eval", accuracy="x"), "accuracy='x' is no number"),
        (event(event="eval", strata="x"), "strata='x' is no list"),
        (event(event="eval", strata=[{"by": 5}]), "by=5 is no text"),
        (event(event="eval", strata=[{"by": "moves"}]), "strata need by, value"),
        (event(event="start", parameters="x"), "parameters='x' is no number"),
        (event(event="end", checkpoint="<b>"), "checkpoint='<b>' is no number"),
        (event(event="notice", text=5), "text=5 is no text"),
        (event(event="command", name="set", value="x"), "value='x' is no setting"),
        (event(event="command", name="set", value={"pace": []}), r"pace=\[\] is no setting"),
        ({"groups.jsonl": b'{"step": 1, "groups": [], "ratio_histogram": "x"}\n'}, "edges=None is no list"),
        ({"groups.jsonl": b'{"step":1,"groups":[],"ratio_histogram":{"edges": [[], 1], "counts": [1]}}'}, "no num"),
        ({"metrics.jsonl": b"\xff\xfe\n"}, "line 1 of metrics.jsonl is not JSON: it is not UTF-8 text"),
        ({"metrics.jsonl": b"[" * 100_000}, "line 1 of metrics.jsonl is not JSON: it is nested too deeply"),
        ({"commands.jsonl": b"3\n"}, "line 1 of commands.jsonl is not a JSON object"),
        ({"groups.jsonl": b'{"step": 1, "groups": [{"prompt": 3}]}\n'}, "line 1 of groups.jsonl is no groups"),
        ({"../../evil.txt": b"x"}, r"points outside of it, '\.\./\.\./evil\.txt': it is not safe"),
        ({"/etc/evil": b"x"}, "points outside of it"),
        ({"a\\b": b"x"}, "points outside of it"),
        ({"C:evil": b"x"}, "points outside of it"),
    ],
)  # fmt: skip
def test_broken_and_hostile_files_are_refused_in_words(exported, other, changes, match):
    refused(rewritten(exported, **changes), other, match)


def test_a_bomb_is_not_unpacked(exported, other, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 5_000_000)
    refused(
        rewritten(exported, **{"metrics.jsonl": b"0" * 6_000_000}), other, "is too large: at most 10000 files and 5 MB"
    )
    monkeypatch.setattr(files, "MAX_LINE", 1_000_000)
    refused(rewritten(exported, **{"metrics.jsonl": b"0" * 2_000_000}), other, r"metrics\.jsonl in .* is too large")


@pytest.mark.parametrize("created", [1e18, -1e18, 1e400, 10**400, float("nan"), "x"])
def test_a_date_that_no_calendar_has_is_left_out(exported, other, created):
    said = manifest(exported) | {"created": created, "started": created, "ended": created}
    run = other.run(import_run(rewritten(exported, **{"manifest.json": json.dumps(said)}), other))
    assert abs(run.created - time.time()) < 600
    assert run.started is None


def test_a_number_of_steps_that_is_none_is_that_of_the_settings(exported, other):
    said, config = manifest(exported) | {"steps": "x"}, {**CONFIG.to_dict(), "steps": "abc"}
    changed = {"manifest.json": json.dumps(said), "config.json": json.dumps(config)}
    assert other.run(import_run(rewritten(exported, **changed), other)).steps == RunConfig().steps


def test_settings_of_another_version_do_not_hinder(exported, other):
    config = {**CONFIG.to_dict(), "from_the_future": 1, "verifier_file": "/etc/passwd"}
    run_id = import_run(rewritten(exported, **{"config.json": json.dumps(config)}), other)
    assert other.run(run_id).config.group_size == 4
