"""Reading a run from disk: groups, metrics, findings and problems, from a zip file or a folder."""

import json
import subprocess
import sys
import zipfile

import pytest

from grpo_core import Group
from grpo_core.diagnosis import diagnose
from grpo_core.live.config import RunConfig
from grpo_core.live.export import export_run
from grpo_core.live.groups import event_group
from grpo_core.live.store import RunStore
from grpo_core.live.worker import events_of
from grpo_core.readers import FORMATS, RunFormatError, open_run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("store"))
    config = RunConfig(steps=8, pace=None, eval_prompts=5, eval_samples=1, prompts_per_step=2, learning_rate=0.0)
    run_id = store.create_run(config)
    for event in events_of(run_id, store, tuple):
        store.add_event(run_id, event)
    return store


@pytest.fixture
def path(store, tmp_path):
    return export_run(store, store.latest_run().id, tmp_path / "run.zip")


def test_a_run_is_read_as_it_was(store, path):
    kept, run = store.latest_run(), open_run(path)
    assert (run.format, run.name, run.problems) == ("grpo-lab-run", kept.id, ())
    assert run.settings == kept.config.to_dict()
    rows = [row for row in store.metrics(kept.id) if row["event"] in ("step", "eval")]
    assert run.metrics() == [{**row, "seq": own["seq"]} for row, own in zip(rows, run.metrics(), strict=True)]
    assert run.steps == tuple(range(1, 9))
    groups = list(run.groups())
    assert len(groups) == 16
    assert all(isinstance(group, Group) for group in groups)
    expected = [event_group(group, source="step 3") for group in store.step_groups(kept.id, 3)["groups"]]
    assert list(run.groups(3)) == expected
    assert list(run.groups(99)) == []


def test_findings_are_the_diagnosis_of_what_was_read(path):
    run = open_run(path)
    found = run.findings()
    assert found == diagnose(run.metrics(), list(run.groups(8)), settings=run.settings)
    assert "learning_rate_zero" in {finding.name for finding in found} | {finding.rule for finding in found}


def test_a_folder_is_read_like_the_zip(path, tmp_path):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "folder")
    one, other = open_run(path), open_run(tmp_path / "folder")
    assert one.metrics() == other.metrics()
    assert list(one.groups()) == list(other.groups())


def test_settings_are_those_at_the_end(path, tmp_path):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "folder")
    row = {"event": "command", "name": "set", "step": 4, "seconds": 1.0, "seq": 7}
    lines = [{**row, "value": {"beta": 0.5}}, {**row, "value": {"beta": -1}, "refused": "no"}]
    (tmp_path / "folder" / "commands.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert open_run(tmp_path / "folder").settings["beta"] == 0.5


def test_broken_lines_are_left_out_and_listed(path, tmp_path):
    folder = tmp_path / "folder"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    metrics = (folder / "metrics.jsonl").read_text().splitlines()
    metrics[3] = metrics[3][: len(metrics[3]) // 2]
    (folder / "metrics.jsonl").write_text("\n".join(metrics) + "\n")
    groups = (folder / "groups.jsonl").read_text().splitlines()
    groups[1] = json.dumps({"step": 2, "groups": [{**json.loads(groups[1])["groups"][0], "rewards": [1.0]}]})
    groups[2] = groups[2].replace('"old_logp":[[-', '"old_logp":[[NaN,-', 1)
    (folder / "groups.jsonl").write_text("\n".join(groups) + "\n")
    run = open_run(folder)
    assert [(problem.where, problem.line) for problem in run.problems] == [
        ("metrics.jsonl", 4), ("groups.jsonl", 2), ("groups.jsonl", 3),
    ]  # fmt: skip
    assert "not JSON" in run.problems[0].what
    assert "rewards" in run.problems[1].what
    assert run.steps == (1, 4, 5, 6, 7, 8)
    assert len(list(run.groups())) == 12
    assert len(run.findings()) > 5


def test_a_link_in_a_folder_is_not_followed(path, tmp_path):
    folder = tmp_path / "folder"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    (folder / "metrics.jsonl").rename(tmp_path / "elsewhere")
    (folder / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFormatError, match=r"has no metrics\.jsonl"):
        open_run(folder)


def test_what_is_no_run_is_refused(tmp_path):
    assert [one.name for one in FORMATS] == ["grpo-lab-run"]
    with pytest.raises(RunFormatError, match="is no log of a known format: accepted are grpo-lab-run"):
        open_run(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        open_run(tmp_path / "nowhere")


def test_the_command_line_prints_one_object_a_line(path, tmp_path):
    command = [sys.executable, "-W", "error", "-m", "grpo_core.readers"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert lines[0]["name"] == open_run(path).name
    assert [kinds.count(kind) for kind in ("run", "problem", "group")] == [1, 0, 16]
    assert kinds.count("metrics") == lines[0]["lines"]
    assert kinds.count("finding") == len(open_run(path).findings())
    group = next(line for line in lines if line.pop("kind") == "group")
    assert Group.from_json(group) == next(open_run(path).groups())
    wrong = subprocess.run([*command, str(tmp_path / "nowhere")], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 1


def test_reading_loads_no_torch(path):
    code = (
        "import sys\nfrom grpo_core.readers import open_run\nrun = open_run(sys.argv[1])\nrun.findings()\n"
        "assert not {'torch', 'streamlit', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
