"""Scenarios on the Live page: each opens in both languages, one click queues its runs, and it says what to watch."""

from __future__ import annotations

import os

import pytest

from app.live.scenarios import FORMS, numbers, offered, variant_of, written
from app.words import LANGUAGES, sections, t
from grpo_core.live.config import RunConfig
from grpo_core.live.scenarios import SCENARIOS, scenario_numbers
from grpo_core.live.store import RunStore


def sound(at):
    assert not at.exception, [e.value for e in at.exception]
    return at


@pytest.fixture
def busy(tmp_path) -> RunStore:
    """A store in which another run goes on, so that what is started waits and no process is made."""
    store = RunStore(tmp_path)
    assert store.claim(store.create_run(RunConfig(steps=9)), os.getpid())
    return store


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_scenario_opens_by_its_link(open_page, language):
    for name in offered():
        at = sound(open_page("live", {"scenario": name, "lang": language}))
        assert at.segmented_control(key="live-part").value == "scenarios"
        assert at.radio(key="live-scenario").value == name
        assert at.subheader[0].value == sections("scenarios", language)[f"{name}.title"]
        assert not at.warning
        assert not any("{" in element.value for element in at.markdown if "<" not in element.value)


def test_an_unknown_scenario_is_named_and_the_first_is_shown(open_page):
    at = sound(open_page("live", {"scenario": "<b>none</b>"}))
    assert "none" in at.warning[0].value
    assert "<b>" not in at.warning[0].value
    assert at.radio(key="live-scenario").value == next(iter(offered()))


def test_choosing_a_scenario_puts_it_into_the_address(open_page):
    at = sound(open_page("live", {"part": "scenarios"}))
    at.radio(key="live-scenario").set_value("strong_kl").run()
    assert sound(at).query_params["scenario"] == "strong_kl"
    assert at.subheader[0].value == sections("scenarios")["strong_kl.title"]


def test_an_unknown_part_is_named_and_the_first_is_shown(open_page):
    at = sound(open_page("live", {"part": "nowhere"}))
    assert "nowhere" in at.warning[0].value
    assert at.button(key="live-start")


def test_one_click_queues_every_run_of_a_scenario_and_shows_the_first(open_page, busy):
    at = sound(open_page("live", {"scenario": "learning_rate"}))
    at.button(key="live-scenario-learning_rate").click().run()
    sound(at)
    waiting = busy.waiting_runs()
    wanted = SCENARIOS["learning_rate"].configs()
    assert [run.config.changed(note="", pace=5.0) for run in waiting] == list(wanted.values())
    assert [run.changed for run in waiting] == [{"learning_rate": c.learning_rate} for c in wanted.values()]
    assert [one.name for one in busy.experiments()] == ["Learning rates"]
    assert at.query_params["run"] == waiting[0].id
    assert at.query_params["scenario"] == "learning_rate"
    assert any(sections("scenarios")["learning_rate.watch"] in element.value for element in at.markdown)
    at.button(key="live-sibling-far_too_high").click().run()
    assert sound(at).query_params["run"] == waiting[3].id
    at.button(key="live-scenario-compare").click().run()
    assert sound(at).query_params["part"] == "compare"
    assert at.query_params["runs"].split(",") == [run.id for run in waiting]


def test_one_run_of_a_scenario_alone(open_page, busy):
    at = sound(open_page("live", {"scenario": "top_p"}))
    at.button(key="live-scenario-top_p-nucleus").click().run()
    sound(at)
    assert [run.config.top_p for run in busy.waiting_runs()] == [0.8]
    assert not [button for button in at.button if str(button.key).startswith("live-sibling")]


def test_a_start_that_is_not_possible_is_explained(open_page, tmp_path):
    at = sound(open_page("live", {"scenario": "top_p"}))
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    try:
        at.button(key="live-scenario-top_p").click().run()
        assert "does not exist" in sound(at).error[0].value
    finally:
        moved.rename(tmp_path)


def test_a_run_of_another_kind_says_nothing_of_the_scenario(open_page, tmp_path):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9, group_size=3))
    at = sound(open_page("live", {"scenario": "top_p", "run": run_id}))
    assert not any(sections("scenarios")["top_p.watch"] in element.value for element in at.markdown)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_is_recognised_by_its_settings(name):
    scenario = SCENARIOS[name]
    for variant, config in scenario.configs(seed=7, pace=None).items():
        assert variant_of(scenario, config) == variant
        assert variant_of(scenario, config.changed(group_size=5, top_p=0.123)) is None


def test_measured_numbers_are_written_in_the_form_that_suits_them():
    assert written("final_accuracy", 0.784) == "78 %"
    assert written("largest_clip", 0.0123) == "1.2 %"
    assert written("tokens_to_most", 12345.6) == "12\N{THIN SPACE}346"
    assert written("steps_to_half", 41.67) == "42"
    assert written("steps_to_half", float("inf")) == t("live.scenario.never")
    assert FORMS[-1][0] == ""
    for name in offered():
        assert set(numbers(name)) == set(scenario_numbers(name))
