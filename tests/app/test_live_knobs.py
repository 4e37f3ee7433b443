"""Interventions on the Live page: the form is made from the core's list, sends what differs, and says what it sent."""

from __future__ import annotations

import json
import os

import pytest

from app import live_form
from app.live import knobs
from app.live.changes import settings_at
from app.live_reader import Reader
from app.words import LANGUAGES, catalogue, t
from grpo_core.live.commands import COMMANDS
from grpo_core.live.config import LIVE_SETTINGS, RunConfig
from grpo_core.live.store import RunStore


@pytest.fixture
def going(tmp_path) -> tuple[RunStore, str]:
    """A run that goes on and has taken a step, in the store that the page reads."""
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9))
    assert store.claim(run_id, os.getpid())
    store.add_event(run_id, {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"})
    store.add_event(run_id, {"event": "step", "step": 1, "seconds": 0.1, "reward": 0.5, "groups": []})
    return store, run_id


def sound(at):
    assert not at.exception, [e.value for e in at.exception]
    return at


def submit(at):
    """Press the form's button."""
    return next(button for button in at.button if button.label == t("live.knobs.apply")).click().run()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_setting_that_may_change_has_an_input(open_page, going, language):
    at = sound(open_page("live", {"lang": language}))
    drawn = {w.key for kind in ("text_input", "number_input", "selectbox") for w in at.get(kind)}
    assert {knobs.key_of(name) for name in LIVE_SETTINGS if name != "pace"} <= drawn
    for name in (*LIVE_SETTINGS, *knobs.EXTRA):
        assert f"live.cmd.{name}" in catalogue() or name == "pace"
    assert set(knobs.EXTRA) < set(COMMANDS)


def test_only_what_differs_is_sent(open_page, going):
    store, run_id = going
    at = sound(open_page("live"))
    at.text_input(key=knobs.key_of("learning_rate")).set_value("3e-4")
    at.number_input(key=knobs.key_of("group_size")).set_value(4)
    sound(submit(at))
    sent = store.take_commands(run_id)
    assert [(command.name, command.value) for command in sent] == [("set", {"learning_rate": 3e-4, "group_size": 4})]
    assert any("3e" in caption.value for caption in at.caption)


def test_a_recipe_brings_its_own(open_page, going):
    store, run_id = going
    at = sound(open_page("live"))
    at.selectbox(key=knobs.key_of("recipe")).set_value("dapo_paper")
    sound(submit(at))
    (sent,) = store.take_commands(run_id)
    assert sent.value["recipe"] == "dapo_paper"
    assert sent.value["epsilon_high"] == 0.28


@pytest.mark.parametrize(("name", "typed"), [("learning_rate", "abc"), ("temperature", "0"), ("top_p", "2")])
def test_what_is_not_accepted_is_not_sent(open_page, going, name, typed):
    store, run_id = going
    at = sound(open_page("live"))
    at.text_input(key=knobs.key_of(name)).set_value(typed)
    sound(submit(at))
    assert name.split("_")[0] in at.error[0].value.replace("\\", "")
    assert store.take_commands(run_id) == []


def test_nothing_differs(open_page, going):
    store, run_id = going
    at = sound(submit(sound(open_page("live"))))
    assert store.take_commands(run_id) == []
    assert any(caption.value == t("live.knobs.nothing").replace(".", "\\.") for caption in at.caption)


def test_the_reference_is_refreshed(open_page, going):
    store, run_id = going
    at = sound(open_page("live"))
    at.button(key="live-refresh").click().run()
    assert [command.name for command in store.take_commands(run_id)] == ["refresh"]
    sound(at)


def test_inputs_and_charts_follow_what_another_reader_changed(open_page, going):
    store, run_id = going
    store.add_event(run_id, {"event": "command", "step": 1, "seconds": 0.2, "name": "set", "value": {"beta": 0.5}})
    store.add_event(run_id, {"event": "command", "step": 1, "seconds": 0.2, "name": "refresh", "value": None})
    at = sound(open_page("live"))
    assert at.text_input(key=knobs.key_of("beta")).value == "0.5"
    found = [e.proto for e in at.get("bidi_component") if "live-progress" in e.proto.id]
    notes = " ".join(note["text"] for note in json.loads(found[0].json)["figure"]["layout"]["annotations"])
    assert "beta 0.5" in notes
    assert t("live.cmd.refresh") in notes


def test_settings_of_a_step_are_those_it_was_taken_with(going):
    store, run_id = going
    for step, value in ((1, {"beta": 0.5}), (3, {"beta": 0.25, "recipe": "no such recipe"})):
        store.add_event(run_id, {"event": "command", "step": step, "seconds": 0.2, "name": "set", "value": value})
    look = Reader(store).look(run_id)
    assert [settings_at(look, step).beta for step in (1, 2, 3, 4)] == [0.0, 0.5, 0.5, 0.25]
    assert settings_at(look) == RunConfig(steps=9, beta=0.25)


def test_a_run_that_has_ended_offers_no_changes(open_page, going):
    store, run_id = going
    store.add_event(run_id, {"event": "end", "step": 1, "seconds": 0.3, "state": "stopped", "reason": ""})
    at = sound(open_page("live"))
    assert not [button for button in at.button if button.label == t("live.knobs.apply")]


def test_more_settings_are_drawn_when_asked_for_and_sent_with_the_rest(open_page):
    at = sound(open_page("live"))
    assert "live-set-top_p" not in {w.key for w in at.text_input}
    at.toggle(key=live_form.MORE_OPEN).set_value(True).run()
    for field in live_form.MORE:
        kinds = {"choice": at.selectbox, "whole": at.number_input, "real": at.text_input, "flag": at.checkbox}
        assert kinds[field.kind](key=live_form.key_of(field.name)).help
    at.text_input(key="live-set-top_p").set_value("2").run()
    assert "top" in sound(at).error[0].value
    at.text_input(key="live-set-top_p").set_value("0.8").run()
    assert not sound(at).error
    at.button(key="live-reset").click().run()
    assert sound(at).text_input(key="live-set-top_p").value == "1"


def test_a_runs_line_names_what_is_not_as_usual():
    assert "Top-p" not in live_form.in_full(RunConfig())
    assert live_form.in_full(RunConfig(top_p=0.8, fault="shared_graph")).endswith(
        "Top-p 0.8 · Built-in mistake old and current in one graph"
    )
