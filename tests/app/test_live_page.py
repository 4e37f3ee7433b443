"""The Live page under AppTest, on real runs: empty, finished, held at a step, failed, and whatever goes wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import plotly.graph_objects as go
import pytest

from app import live_form, live_reader, state
from app.words import t
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStore

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A store with one finished run, really trained: three steps of small groups."""
    from grpo_core.live.trainer import train

    folder = tmp_path_factory.mktemp("recorded")
    store = RunStore(folder)
    config = RunConfig(steps=STEPS, prompts_per_step=3, group_size=4, eval_prompts=5, eval_every=2, pace=None, seed=1)
    run_id = store.create_run(config)
    for event in train(config):
        store.add_event(run_id, event)
    return folder, run_id


@pytest.fixture
def finished(recorded, tmp_path):
    """The finished run in a store of this test's own, which the page reads; returns (store, run id)."""
    folder, run_id = recorded
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return RunStore(tmp_path), run_id


def data_of(at, key: str) -> dict:
    """What the page hands to one of its browser components."""
    found = [element.proto for element in at.get("bidi_component") if key in element.proto.id]
    assert found, key
    return json.loads(found[0].json)


def sound(at):
    """No exception reached the page, and it is the Live page."""
    assert not at.exception, [e.value for e in at.exception]
    assert at.title[0].value == t("page.live")
    return at


def drawn(at, key: str) -> go.Figure:
    """A chart of the page, checked by Plotly."""
    return go.Figure(data_of(at, key)["figure"])


def numbers_of(at, key: str, index: int = 0) -> list:
    return data_of(at, key)["figure"]["data"][index]["y"]


def events_of(store: RunStore, run_id: str) -> list[dict]:
    """A run's events as the trainer gave them, without their numbers in the store."""
    return [{k: v for k, v in row.items() if k != "seq"} for row in store.metrics(run_id)]


# Before the first run


def test_the_empty_page_invites_and_shows_its_axes(open_page):
    at = sound(open_page("live"))
    assert "Start" in at.info[0].value
    assert not at.button(key="live-start").disabled
    assert at.button(key="live-step").disabled
    assert at.button(key="live-stop").disabled
    assert drawn(at, "live-progress").layout.xaxis.range == (0, 120)
    assert numbers_of(at, "live-progress") == []
    assert len(drawn(at, "live-panels").layout.annotations) == 8


def test_the_page_never_loads_torch(tmp_path):
    code = (
        "import sys; from streamlit.testing.v1 import AppTest;"
        "at = AppTest.from_file('app/main.py', default_timeout=60);"
        "at.switch_page('../pages/live.py'); at.run(); assert not at.exception;"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "GRPO_LAB_RUNS": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.strip() == "[]"


# A finished run


def test_a_finished_run_shows_every_step(open_page, finished):
    store, run_id = finished
    at = sound(open_page("live"))
    assert at.query_params["run"] == run_id
    rows = [row for row in store.metrics(run_id) if row["event"] == "step"]
    assert numbers_of(at, "live-progress") == [row["reward"] for row in rows]
    evaluations = [row for row in store.metrics(run_id) if row["event"] == "eval"]
    assert numbers_of(at, "live-progress", 1) == [row["accuracy"] for row in evaluations]
    panels = data_of(at, "live-panels")["figure"]["data"]
    assert all(len(trace["y"]) == STEPS for trace in panels), [len(trace["y"]) for trace in panels]
    for key in ("live-progress", "live-panels", "live-ratios", "live-probabilities"):
        drawn(at, key)
    words = " ".join(element.value for element in at.markdown).replace("\\", "")
    assert "finished" in words
    assert f"step {STEPS} of {STEPS}" in words
    assert "0.11 M parameters" in words


def test_the_group_is_shown_exactly(open_page, finished):
    store, run_id = finished
    at = sound(open_page("live"))
    groups = store.step_groups(run_id, STEPS)["groups"]
    strip = data_of(at, "live-strip")
    assert strip["step"] == STEPS
    assert [group["kind"] for group in strip["groups"]] == [group["kind"] for group in groups]
    frame = at.dataframe[0].value
    assert list(frame["completion"]) == groups[0]["completions"]
    assert list(frame["advantage"]) == groups[0]["advantages"]
    assert list(frame["tokens"]) == groups[0]["lengths"]
    metrics = {metric.label: metric.value for metric in at.metric}
    assert metrics[t("live.prompt")] == groups[0]["prompt"]
    assert metrics[t("live.mean")] == f"{groups[0]['mean']:.3f}"


def test_tokens_are_coloured_by_their_pull(open_page, finished):
    store, run_id = finished
    at = sound(open_page("live"))
    group = store.step_groups(run_id, STEPS)["groups"][0]
    rows = data_of(at, "live-tokens")["rows"]
    assert [row["texts"] for row in rows] == group["tokens"]
    for row, advantage in zip(rows, group["advantages"], strict=True):
        assert {(level > 0) - (level < 0) for level in row["levels"]} == {(advantage > 0) - (advantage < 0)}


def test_walking_back_shows_an_earlier_step_and_follow_returns(open_page, finished):
    at = sound(open_page("live"))
    at.button(key="live-earlier").click().run()
    assert data_of(sound(at), "live-strip")["step"] == STEPS - 1
    assert not at.toggle(key="live-follow").value
    at.number_input(key="live-at-step").set_value(1).run()
    assert data_of(sound(at), "live-strip")["step"] == 1
    assert at.button(key="live-earlier").disabled
    at.number_input(key="live-at-step").set_value(999).run()
    assert data_of(sound(at), "live-strip")["step"] == STEPS
    at.button(key="live-earlier").click().run()
    at.toggle(key="live-follow").set_value(True).run()
    assert data_of(sound(at), "live-strip")["step"] == STEPS


def test_charts_against_seconds(open_page, finished):
    store, run_id = finished
    at = sound(open_page("live"))
    at.segmented_control(key="live-by").set_value("seconds").run()
    figure = data_of(sound(at), "live-progress")["figure"]
    assert figure["data"][0]["x"] == [row["seconds"] for row in store.metrics(run_id) if row["event"] == "step"]


def test_a_group_opens_in_the_explorer_with_the_runs_recipe(open_page, finished):
    store, run_id = finished
    at = sound(open_page("live"))
    at.button(key="live-open").click().run()
    assert not at.exception, [e.value for e in at.exception]
    assert at.title[0].value == t("page.advantages")
    group = store.step_groups(run_id, STEPS)["groups"][0]
    lab = at.session_state[state._KEY]
    assert lab.view.group.completions == tuple("".join(row) for row in group["tokens"])
    assert lab.view.group.rewards == tuple(group["rewards"])
    assert lab.view.chosen["recipe"] == "dr_grpo_paper"


# What goes wrong


def test_an_unknown_run_is_named_and_the_newest_is_shown(open_page, finished):
    at = sound(open_page("live", {"run": "<b>gone</b>"}))
    assert "gone" in at.warning[0].value
    assert "<b>" not in at.warning[0].value
    assert len(numbers_of(at, "live-progress")) == STEPS


def test_an_unknown_run_in_an_empty_store(open_page):
    at = sound(open_page("live", {"run": "gone"}))
    assert "gone" in at.warning[0].value
    assert not at.button(key="live-start").disabled


@pytest.mark.parametrize("broken", ["missing folder", "not a store"])
def test_an_unreadable_store_is_explained(open_page, monkeypatch, tmp_path, broken):
    if broken == "not a store":
        (tmp_path / "runs.db").write_bytes(b"not a database at all, but long enough to look at" * 20)
    else:
        monkeypatch.setenv("GRPO_LAB_RUNS", str(tmp_path / "no" / "such" / "folder"))
    at = sound(open_page("live"))
    assert t("live.store") in at.error[0].value
    assert len(at.error) == 1


def test_a_store_that_vanishes_leaves_what_was_read(open_page, finished, tmp_path, monkeypatch):
    monkeypatch.setattr(live_reader, "PAUSE", -1.0)
    at = sound(open_page("live"))
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    try:
        at.run()
        assert t("live.stale") in sound(at).warning[0].value
        assert len(numbers_of(at, "live-progress")) == STEPS
        assert at.dataframe[0].value["completion"][0]
    finally:
        moved.rename(tmp_path)
    at.run()
    assert not sound(at).warning


def test_an_old_run_points_to_the_one_that_goes_on(open_page, finished):
    store, run_id = finished
    active = store.create_run(RunConfig(steps=9))
    assert store.claim(active, os.getpid())
    at = sound(open_page("live", {"run": run_id}))
    assert active in at.info[0].value.replace("\\", "")
    at.button(key="live-show-active").click().run()
    assert sound(at).query_params["run"] == active
    assert at.button(key="live-starting").disabled


def test_settings_that_are_not_accepted_start_nothing(open_page, tmp_path):
    at = sound(open_page("live"))
    at.text_input(key="live-set-learning_rate").set_value("abc").run()
    assert "learning" in sound(at).error[0].value
    at.button(key="live-start").click().run()
    assert any("abc" in error.value for error in sound(at).error)
    assert RunStore(tmp_path).runs() == []
    at.button(key="live-reset").click().run()
    assert not sound(at).error


def test_every_setting_out_of_range_is_explained(open_page):
    at = sound(open_page("live"))
    for field in live_form.FIELDS:
        if field.kind == "choice":
            continue
        widget = (at.number_input if field.kind == "whole" else at.text_input)(key=live_form.key_of(field.name))
        before = widget.value
        widget.set_value(-1 if field.kind == "whole" else "-1").run()
        assert re.search(field.name.replace("_", ".?_?"), sound(at).error[0].value.replace("\\", "")), field.name
        (at.number_input if field.kind == "whole" else at.text_input)(key=live_form.key_of(field.name)).set_value(
            before
        ).run()
        assert not sound(at).error


def test_a_recipe_brings_its_own_clip_range(open_page):
    at = sound(open_page("live"))
    at.selectbox(key="live-set-recipe").set_value("dapo_paper").run()
    assert sound(at).text_input(key="live-set-epsilon_high").value == "0.28"
    assert live_form.chosen  # the page itself is the only caller that needs a session


def test_a_group_of_one_is_warned_about(open_page):
    at = sound(open_page("live"))
    at.number_input(key="live-set-group_size").set_value(1).run()
    assert at.warning[0].value == t("live.warn.group_of_one")


def test_a_second_start_is_refused_while_a_run_is_active(open_page, finished):
    store, run_id = finished
    other = store.create_run(RunConfig(steps=9))
    assert store.claim(other, os.getpid())
    at = sound(open_page("live", {"run": run_id}))
    at.button(key="live-start").click().run()
    assert other in sound(at).error[0].value.replace("\\", "")
    assert len(store.runs()) == 2
    assert len(numbers_of(at, "live-progress")) == STEPS


def test_a_killed_worker_is_shown_as_failed_with_its_steps(open_page, finished):
    store, run_id = finished
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    dead = store.create_run(RunConfig(steps=9))
    assert store.claim(dead, gone.pid)
    for row in events_of(store, run_id):
        if row["event"] in ("start", "step"):
            store.add_event(dead, row)
    at = sound(open_page("live"))
    assert at.query_params["run"] == dead
    assert f"step {STEPS}" in at.error[0].value
    assert store.run(dead).state == "failed"
    assert len(numbers_of(at, "live-progress")) == STEPS
    assert not at.button(key="live-start").disabled


@pytest.mark.parametrize(("run_state", "button"), [("queued", "starting"), ("running", "pause"), ("paused", "resume")])
def test_an_active_run_offers_what_fits_its_state(open_page, tmp_path, run_state, button):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9, pace=2.0))
    assert store.claim(run_id, os.getpid())
    store.set_state(run_id, run_state)
    at = sound(open_page("live"))
    main = at.button(key=f"live-{button}")
    assert main.disabled == (run_state == "queued")
    assert not at.button(key="live-stop").disabled
    assert at.selectbox(key="live-pace").value == "2"
    at.button(key="live-stop").click().run()
    sound(at)
    assert [command.name for command in store.take_commands(run_id)] == ["stop"]
    at.selectbox(key="live-pace").set_value("full").run()
    sound(at)
    assert [(command.name, command.value) for command in store.take_commands(run_id)] == [("set", {"pace": None})]
    if run_state != "queued":
        at.button(key=f"live-{button}").click().run()
        assert [command.name for command in store.take_commands(run_id)] == [button]


def test_a_command_that_comes_too_late_is_explained(open_page, tmp_path, monkeypatch):
    monkeypatch.setattr(live_reader, "PAUSE", 1e9)  # the page still shows the run as it was
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9))
    assert store.claim(run_id, os.getpid())
    store.set_state(run_id, "running")
    at = sound(open_page("live"))
    store.set_state(run_id, "finished")
    at.button(key="live-pause").click().run()
    assert "already ended" in sound(at).error[0].value


def test_commands_are_stamped_on_both_charts(open_page, finished):
    store, run_id = finished
    store.add_event(run_id, {"event": "command", "step": 1, "seconds": 0.1, "name": "pause", "value": None})
    store.add_event(
        run_id, {"event": "command", "step": 2, "seconds": 0.2, "name": "set", "value": {"learning_rate": 2e-4}}
    )
    at = sound(open_page("live"))
    progress, panels = drawn(at, "live-progress").layout, drawn(at, "live-panels").layout
    assert [shape.x0 for shape in progress.shapes] == [1, 2]
    assert len(panels.shapes) == 2 * 8
    assert any("pause" in note.text for note in progress.annotations)


def test_hostile_texts_stay_texts(open_page, finished):
    store, run_id = finished
    found = store.step_groups(run_id, STEPS)
    group = found["groups"][0]
    evil = "<img src=x onerror=alert(1)>**bold** $x^2$ :red[no]"
    group["prompt"] = group["answer"] = evil
    group["completions"][0] = evil
    group["tokens"][0][0] = evil
    hostile = store.create_run(RunConfig(steps=1))
    store.add_event(hostile, {"event": "start", "step": 0, "seconds": 0.0, "device": evil})
    store.add_event(
        hostile, {**events_of(store, run_id)[2], "event": "step", "step": 1, "seconds": 0.1, "groups": found["groups"]}
    )
    store.add_event(hostile, {"event": "end", "step": 1, "seconds": 0.2, "state": "failed", "reason": evil})
    at = sound(open_page("live"))
    assert at.dataframe[0].value["completion"][0] == evil
    assert [code.value for code in at.code] == [evil, evil]
    everything = " ".join([e.value for e in (*at.markdown, *at.error, *at.caption)])
    assert not re.search(r"(?<!\\)(<img|\*\*bold|\$x|:red\[)", everything)
    assert "<img" not in json.dumps(data_of(at, "live-probabilities")["figure"])


def test_a_presentation_enlarges_the_live_page_and_stands_in_its_address(open_page):
    def titles(at):
        found = [json.loads(e.proto.json) for e in at.get("bidi_component") if "live-progress" in e.proto.id]
        return [note["font"]["size"] for one in found for note in one["figure"]["layout"]["annotations"]]

    at = open_page("live", {"present": "1"})
    large = titles(at)
    assert any("font-size: 20px" in e.value for e in at.get("html"))
    at.button(key="present").click().run()
    assert "present" not in at.query_params
    usual = titles(at)
    assert len(large) == len(usual) > 0
    assert all(one > other for one, other in zip(large, usual, strict=True))
    at.button(key="present").click().run()
    assert at.query_params["present"] in ("1", ["1"])  # AppTest gives it either way
    assert titles(at) == large
