"""Model and tasks of the reader's own on the Live page: what can be chosen, what is refused, what it will take."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import live_form
from app.live import models
from app.words import catalogue, t
from grpo_core.live.config import RunConfig
from grpo_core.live.sources import ASSETS, BUILT_IN
from grpo_core.live.store import RunStore
from grpo_core.live.task_files import REASONS
from grpo_core.live.verifiers import FILE_VERIFIERS

ROOT = Path(__file__).resolve().parents[2]
EVIL = "<img src=x onerror=alert(1)>**bold** $x^2$ :red[no]"


def sound(at: AppTest) -> AppTest:
    assert not at.exception, [e.value for e in at.exception]
    return at


@pytest.fixture(autouse=True)
def local(monkeypatch):
    """AppTest's reader has no address: the operator's word lets it name paths."""
    monkeypatch.setenv("GRPO_LAB_ALLOW_FILES", "1")


@pytest.fixture(params=["en", "zh"])
def page(request, tmp_path, monkeypatch):
    """Open the Live page in either language with some inputs filled in; gives the page and the labels of the language.

    At once: AppTest cannot change a choice on a page whose labels are not English.
    """
    monkeypatch.setenv("GRPO_LAB_RUNS", str(tmp_path))
    monkeypatch.setenv("GRPO_LAB_STANDBY", "0")

    def page(**values):
        at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=30)
        at.query_params["lang"] = request.param
        at.session_state[models.OPEN] = True
        for name, value in values.items():
            at.session_state[models.key_of(name)] = value
        at.switch_page("../pages/live.py")
        return sound(at.run()), catalogue(request.param)

    return page


@pytest.fixture
def opened(open_page):
    at = open_page("live")
    at.toggle(key=models.OPEN).set_value(True).run()
    return sound(at)


@pytest.fixture
def write(tmp_path):
    def write(*rows):
        path = tmp_path / "own.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return str(path)

    return write


def choose(at: AppTest, **values) -> AppTest:
    """Set inputs one after another, as a reader does."""
    for name, value in values.items():
        kind = {"kind": "segmented_control", "task_kind": "segmented_control", "lora_rank": "number_input"}.get(name)
        kind = kind or ("text_input" if name in ("folder", "hub", "task_path", "verifier_file") else "selectbox")
        getattr(at, kind)(key=models.key_of(name)).set_value(value).run()
    return sound(at)


def words(at: AppTest) -> str:
    kinds = (at.caption, at.info, at.warning, at.error)
    return "\n".join(element.value for kind in kinds for element in kind).replace("\\", "")


def sums(*, count=30):
    return [{"prompt": f"{a}+1=", "answer": str(a + 1)} for a in range(count)]


def test_every_choice_has_its_words():
    for language in ("en", "zh"):
        labels = catalogue(language)
        stems = {
            "kind": models.KINDS, "task_kind": models.TASK_KINDS, "built_in": ("task", *BUILT_IN),
            "dtype": models.DTYPES, "verifier": (*FILE_VERIFIERS, models.OWN),
        }  # fmt: skip
        keys = {f"live.model.{stem}.{name}" for stem, names in stems.items() for name in names}
        keys |= {f"live.broken.{reason}" for reason in REASONS}
        assert keys <= set(labels)


def test_the_default_run_is_estimated_in_both_languages(page):
    at, labels = page()
    shown = words(at)
    assert labels["live.estimate.line"].partition("{")[2].partition("}")[2].strip().split()[0] in shown
    assert "0.11 M" in shown
    assert labels["live.estimate.optimizer"] in shown
    assert not at.error
    assert not at.warning


def test_a_wider_model_takes_more(opened):
    before = words(opened)
    at = choose(opened, built_in="shell_game_wide", lora_rank=4)
    shown = words(at)
    assert "0.42 M" in shown
    assert shown != before
    chosen = [c.value for c in at.caption if "0.42 M" in c.value]
    assert "0.02 M" in chosen[0]  # what the adapter trains


def test_the_chosen_model_trains_with_the_run(opened, tmp_path, monkeypatch):
    at = choose(opened, built_in="shell_game_wide")
    monkeypatch.setattr("grpo_core.live.runner._spawn", _refuse)
    at.button(key="live-start").click().run()
    (run,) = RunStore(tmp_path).runs()
    assert run.config == RunConfig(model="shell_game_wide", pace=run.config.pace)


def _refuse(*_arguments, **_more):
    raise OSError("no process in this test")


def test_a_folder_is_read_without_loading_it(opened, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    at = choose(opened, kind="folder", folder=str(folder))
    assert "has no config.json" in words(at)
    config = json.loads((ASSETS / "shell_game" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_embd": 16_384, "n_layer": 96, "vocab_size": 50_000}))
    at = choose(at, dtype="bfloat16")
    assert "310.1 B" in words(at) or "B parameters" in words(at)
    assert "Train an adapter" in words(at)
    (folder / "config.json").write_text("{")
    at.run()
    assert t("live.estimate.unknown") in words(sound(at))


def test_a_hub_model_that_is_not_here_is_not_guessed_at(opened, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    at = choose(opened, kind="hub", hub="org/name")
    assert "org/name is not on this machine yet" in words(at)
    at = choose(at, hub="not an id")
    assert "there is no model at" in words(at)
    assert at.error


@pytest.mark.parametrize("rank", [-1, 2000])
def test_an_impossible_rank_is_explained(page, rank):
    at, _ = page(lora_rank=rank)
    assert "1024" in words(at)
    assert at.error


def test_a_task_file_shows_its_split_its_prompts_and_its_broken_lines(page, write):
    path = write({"prompt": EVIL, "answer": EVIL}, *sums(), "{broken", {"prompt": "no answer"})
    at, labels = page(task_kind="path", task_path=path)
    shown = words(at)
    assert labels["live.model.broken"].format(count=2) in shown
    prompts, broken = (at.dataframe[i].value for i in range(2))
    assert prompts.iloc[0].tolist() == [EVIL, EVIL]
    assert broken.iloc[:, 0].tolist() == ["32", "33"]
    assert broken.iloc[:, 1].tolist() == [labels["live.broken.not_json"], labels["live.broken.no_answer"]]
    everything = shown + "".join(m.value for m in at.markdown)
    assert "<img" not in everything
    assert not at.error


def test_a_task_file_that_cannot_be_used_starts_nothing(opened, tmp_path, write):
    at = choose(opened, task_kind="path", task_path=str(tmp_path / "none.jsonl"))
    assert "cannot be read" in words(at)
    at = choose(at, task_path=write("prompt,answer", "1,2"))
    assert "0 usable prompts" in words(at)
    at.button(key="live-start").click().run()
    assert RunStore(tmp_path).runs() == []
    at = choose(at, task_kind="upload")
    assert t("live.model.no_file") in words(at)
    at.button(key="live-reset").click().run()
    assert not sound(at).error


def test_an_upload_is_kept_and_taken(opened, tmp_path, monkeypatch):
    at = choose(opened, task_kind="upload")
    data = "\n".join(map(json.dumps, sums())).encode()
    at.file_uploader(key=models.key_of("upload")).upload("my $x$ *file*.jsonl", data, "application/json").run()
    at = choose(at, verifier="contains")
    assert "my $x$ *file*.jsonl" in words(at)
    monkeypatch.setattr("grpo_core.live.runner._spawn", _refuse)
    at.button(key="live-start").click().run()
    (run,) = RunStore(tmp_path).runs()
    assert run.config.verifier == "contains"
    assert run.config.task_file.startswith(str(tmp_path / "tasks"))
    with open(run.config.task_file, "rb") as file:
        assert file.read() == data


def test_readers_elsewhere_may_upload_but_name_no_paths(open_page, monkeypatch, write):
    monkeypatch.setenv("GRPO_LAB_ALLOW_FILES", "0")
    at = open_page("live")
    at.toggle(key=models.OPEN).set_value(True).run()
    assert at.segmented_control(key=models.key_of("kind")).options == [t("live.model.kind.built_in")]
    assert len(at.segmented_control(key=models.key_of("task_kind")).options) == 2
    assert t("live.model.not_here") in words(sound(at))
    at.session_state[models.key_of("task_kind")] = "path"
    at.session_state[models.key_of("task_path")] = write(*sums())
    at.session_state[models.key_of("kind")] = "folder"
    at.session_state[models.key_of("folder")] = str(ASSETS)
    at.run()
    assert "cannot" not in words(sound(at))
    assert "0.11 M" in words(at)  # the default run, not the folder


def test_own_code_is_offered_only_where_the_operator_allowed_it(open_page, monkeypatch, write, tmp_path):
    path = write(*sums())
    at = open_page("live")
    at.toggle(key=models.OPEN).set_value(True).run()
    at = choose(at, task_kind="path", task_path=path)
    own = t(f"live.model.verifier.{models.OWN}")
    assert own not in at.selectbox(key=models.key_of("verifier")).options
    monkeypatch.setenv("GRPO_LAB_ALLOW_CODE", "1")
    at.run()
    assert own in at.selectbox(key=models.key_of("verifier")).options
    at = choose(at, verifier=models.OWN)
    assert t("live.model.no_verifier") in words(at)
    at = choose(at, verifier_file=str(tmp_path / "v.py"))
    assert not at.error
    monkeypatch.setenv("GRPO_LAB_ALLOW_CODE", "0")
    at.run()
    assert at.selectbox(key=models.key_of("verifier")).value == "answer"


def test_a_runs_settings_can_be_restored_with_model_and_tasks(opened, write, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ASSETS / "shell_game", folder)
    config = RunConfig(model=str(folder), lora_rank=4, dtype="float32", task_file=write(*sums()), verifier="number")
    script = "import streamlit as st\nfrom app import live_form\nfrom app.live import models\n"
    script += "from grpo_core.live.config import RunConfig\n"
    script += f"live_form.restore(RunConfig(**{config.to_dict()!r}))\n"
    script += "st.text(str(live_form.chosen(5.0) == RunConfig(**" + repr(config.to_dict()) + ")))\n"
    script += "st.text(live_form.in_full(live_form.chosen(5.0)))\n"
    at = AppTest.from_string(script).run()
    assert not at.exception
    assert at.text[0].value == "True"
    assert "own.jsonl" in at.text[1].value
    assert "LoRA 4" in at.text[1].value


@pytest.mark.parametrize(("seconds", "expected"), [(0.0123, "10 ms"), (2.4, "2 s"), (400, "7 min"), (10_000, "3 h")])
def test_times_are_rough(seconds, expected):
    assert models.duration(seconds) == expected


def test_sizes_have_units():
    assert (models.size(1.3e6), models.size(2.5e8), models.size(3.77e9)) == ("1.3 MB", "250 MB", "3.8 GB")
    assert (models.count(109_696), models.count(134_515_008), models.count(7_000_000_000)) == (
        "0.11 M",
        "135 M",
        "7.0 B",
    )
    assert live_form.in_full(RunConfig()).count("LoRA") == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_a_verifier_could_not_do_is_said(open_page, tmp_path, language):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig())
    assert store.claim(run_id, os.getpid())
    store.add_event(run_id, {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"})
    trouble = {"verifier/hung": 2.0, "verifier/raised": 0.0, "verifier/died": 1.0}
    store.add_event(run_id, {"event": "step", "step": 1, "seconds": 0.1, "reward": 0.5, **trouble})
    at = sound(open_page("live", {"lang": language}))
    labels = catalogue(language)
    parts = [labels["live.trouble.hung"].format(count=2), labels["live.trouble.died"].format(count=1)]
    assert labels["live.trouble"].format(list=", ".join(parts)) in [w.value for w in at.warning]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_accuracy_by_the_levels_of_a_file(open_page, tmp_path, language):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig())
    assert store.claim(run_id, os.getpid())
    store.add_event(run_id, {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"})
    share = {"accuracy": 0.5, "accuracy_low": 0.1, "accuracy_high": 0.9, "answers": 2}
    strata = [{"by": "level", "value": value, **share} for value in (EVIL, "hard")]
    store.add_event(run_id, {"event": "eval", "step": 0, "seconds": 0.1, **share, "samples": 1, "strata": strata})
    at = sound(open_page("live", {"lang": language, "under": "evaluation"}))
    drawn = [json.loads(e.proto.json) for e in at.get("bidi_component") if "live-strata-picture" in e.proto.id]
    figure = drawn[0]["figure"]
    assert figure["layout"]["xaxis"]["title"]["text"] == catalogue(language)["live.axis.level"]
    shown = figure["data"][0]["x"]
    assert set(shown) == set(figure["layout"]["xaxis"]["categoryarray"])
    assert "hard" in shown
    assert "<img" not in json.dumps(figure)
