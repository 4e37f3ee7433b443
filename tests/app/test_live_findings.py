"""Panels and diagnosis of the Live page: everything on the monitoring list is visible, findings stand in words."""

from __future__ import annotations

import json
import math
import os

import plotly.graph_objects as go
import pytest

from app import live_reader
from app.figures.base import DARK, LIGHT
from app.figures.live import Stamp
from app.figures.live_panels import MOST, PANELS, SETS, filled, panels, watching
from app.live import findings
from app.live_reader import Reader
from app.words import LANGUAGES, catalogue, sections, t
from grpo_core.diagnosis import RULES
from grpo_core.live.config import RunConfig
from grpo_core.live.scenarios import SCENARIOS
from grpo_core.live.store import RunStore

MONITORED = (
    "ratio/min", "ratio/max", "ratio/outside_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "kl_old", "kl",
    "advantages/abs_mean", "reward_std_within", "groups/mixed", "groups/all-right", "groups/all-wrong",
    "groups/unscored", "completions/mean_length", "completions/clipped_ratio", "entropy", "grad_norm",
    "frac_reward_zero_std", "completions/unscored_ratio", "loss", "time/sampling", "time/scoring", "time/reference",
    "time/update", "tokens_per_second", "num_tokens",
)  # fmt: skip
STEPS = 60


@pytest.fixture
def hacked(tmp_path) -> tuple[RunStore, str]:
    """A run as the store holds it, whose reward rises while its evaluation falls and whose entropy is spent."""
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=STEPS))
    store.add_event(run_id, {"event": "start", "step": 0, "seconds": 0.0, "device": "cpu"})
    for step in range(1, STEPS + 1):
        reward = 0.2 + 0.7 * step / STEPS
        row = {"reward": reward, "entropy": math.exp(-step / 10), "grad_norm": 0.5, "loss": 0.3}
        store.add_event(run_id, {"event": "step", "step": step, "seconds": step / 10, "groups": [], **row})
        if step % 5 == 0:
            judged = {"sampled_accuracy": 0.8 if step < 30 else 0.0, "accuracy": 0.9}
            store.add_event(run_id, {"event": "eval", "step": step, "seconds": step / 10, **judged})
    store.add_event(run_id, {"event": "end", "step": STEPS, "seconds": 6.0, "state": "finished"})
    return store, run_id


def sound(at):
    assert not at.exception, [e.value for e in at.exception]
    return at


def labels(at) -> str:
    """Everything in words on the page, and the titles of its popovers."""
    return " ".join([e.value for e in at.markdown] + [e.proto.popover.label for e in at.get("popover")])


@pytest.mark.parametrize("language", LANGUAGES)
def test_findings_stand_in_words_with_their_evidence(open_page, hacked, language):
    at = sound(open_page("live", {"lang": language}))
    prose = sections("diagnosis", language)
    said = labels(at)
    for name in ("reward_hacking", "entropy_collapse"):
        assert prose[f"{name}.title"] in said
        assert prose[f"{name}.cause"].split("{")[0] in said
    assert "{" not in "".join(e.value for e in at.markdown if "<style>" not in e.value)
    assert "80 %" in said
    assert any(prose["cannot_tell.metrics"].split("{")[0] in e.value for e in at.markdown)


def test_the_title_of_a_panel_is_marked_when_a_finding_is_about_it(open_page, hacked):
    at = sound(open_page("live"))
    found = [e.proto for e in at.get("bidi_component") if "live-panels" in e.proto.id]
    titles = [note["text"] for note in json.loads(found[0].json)["figure"]["layout"]["annotations"]]
    marked = [text for text in titles if "▲" in text]
    assert [t("live.panel.entropy") in text for text in marked] == [True]


def test_a_diagnosis_is_made_once_for_all_viewers(hacked):
    store, run_id = hacked
    reader = Reader(store)
    looks = [reader.look(run_id) for _ in range(3)]
    assert all(findings.findings_of(reader, look) is findings.findings_of(reader, looks[0]) for look in looks)
    assert len(findings.findings_of(reader, looks[0])) == len(RULES)
    assert findings.findings_of(reader, None) == []


def test_while_a_run_goes_on_its_diagnosis_is_made_anew_after_a_pause(tmp_path, monkeypatch):
    monkeypatch.setattr(live_reader, "PAUSE", -1.0)
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9))
    assert store.claim(run_id, os.getpid())
    reader = Reader(store)

    def after(step: int) -> list:
        store.add_event(run_id, {"event": "step", "step": step, "seconds": step / 10, "reward": 0.1, "groups": []})
        return findings.findings_of(reader, reader.look(run_id))

    first = after(1)
    assert after(2) is first
    monkeypatch.setattr(findings, "PAUSE", -1.0)
    assert after(3) is not first
    monkeypatch.setattr(findings, "PAUSE", 1e9)
    kept = after(4)
    store.add_event(run_id, {"event": "end", "step": 4, "seconds": 1.0, "state": "stopped", "reason": ""})
    assert findings.findings_of(reader, reader.look(run_id)) is not kept


def test_every_panel_has_words_and_every_series_a_name():
    for name, panel in PANELS.items():
        assert f"live.panel.{name}" in catalogue()
        assert f"live.panel.{name}.help" in catalogue()
        assert all(f"live.series.{series.name}" in catalogue() for series in panel.series), name
    assert {name for names in SETS.values() for name in names} == set(PANELS)
    assert all(len(names) <= MOST for names in SETS.values())


@pytest.mark.parametrize("metric", MONITORED)
def test_everything_on_the_monitoring_list_has_its_panel(metric):
    assert any(series.metric == metric for names in SETS.values() for name in names for series in PANELS[name].series)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_every_set_of_panels_is_a_picture(name, colors):
    metrics = [series.metric for panel in SETS[name] for series in PANELS[panel].series]
    curves = {"step": [1, 2, 3], "seconds": [0.1, 0.2, 0.3], **{metric: [0.5, None, -0.25] for metric in metrics}}
    for by in ("step", "seconds"):
        spec = panels(colors, SETS[name], curves, [Stamp(2, "lr 1e-3")], by=by, total=3, revision="", marks={})
        figure = go.Figure(json.loads(json.dumps(spec, allow_nan=False)))
        assert len(figure.data) == len(metrics)
        assert len(figure.layout.shapes) == len(SETS[name])
        assert all(note.hovertext for note in figure.layout.annotations)
    go.Figure(panels(colors, SETS[name], {}, [], by="step", total=None, revision=""))


def test_panels_without_anything_to_show_are_left_out_after_the_first_step():
    assert filled(SETS["signal"], {}) == SETS["signal"]
    assert filled(("entropy", "drawn"), {"entropy": [0.5]}) == ("entropy",)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_scenario_tells_to_watch_comes_first(name):
    scenario = SCENARIOS[name]
    shown = watching(scenario.watch)
    assert 4 <= len(shown) <= MOST
    seen = [m for m in scenario.watch if any(PANELS[panel].shows(m) for panel in shown)]
    assert set(scenario.watch) - set(seen) <= {"reward", "sampled_accuracy"}, "those are on the main curve"


def test_a_choice_of_panels_is_in_the_address(open_page, hacked):
    at = sound(open_page("live", {"panels": "cost"}))
    assert at.segmented_control(key="live-panel-set").value == "cost"
    at.segmented_control(key="live-panel-set").set_value("policy").run()
    assert sound(at).query_params["panels"] == "policy"
    assert sound(open_page("live", {"panels": "<b>"})).segmented_control(key="live-panel-set").value == "overview"
