"""The held-out evaluation on the Live page: the picture holds what was measured, with its intervals."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

from app.figures.base import DARK, LIGHT
from app.figures.live_evaluation import MEASURES, accuracies, strata
from app.live.evaluation import written
from app.words import LANGUAGES
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStore

START = {
    "accuracy": 0.2, "accuracy_low": 0.13, "accuracy_high": 0.29,
    "sampled_accuracy": 0.18, "sampled_accuracy_low": 0.15,
    "sampled_accuracy_high": 0.22, "pass_at_k": 0.64, "pass_at_k_low": 0.54, "pass_at_k_high": 0.73, "samples": 8,
    "prompts": 100,
    "strata": [
        {"by": "moves", "value": "2", "answers": 60, "accuracy": 0.25, "accuracy_low": 0.15, "accuracy_high": 0.38},
        {"by": "length", "value": "9-16", "answers": 70, "accuracy": 0.9, "accuracy_low": 0.7, "accuracy_high": 1.0},
        {"by": "length", "value": "1-4", "answers": 700, "accuracy": 0.1, "accuracy_low": 0.0, "accuracy_high": 0.2},
    ],
}  # fmt: skip
LATER = {**START, "accuracy": 0.97, "accuracy_low": 0.91, "accuracy_high": 0.99, "samples": 1}
LATER = {name: value for name, value in LATER.items() if not name.startswith("pass")}


@pytest.fixture
def run(tmp_path) -> RunStore:
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=5))
    store.add_event(run_id, {"event": "eval", "step": 0, "seconds": 0.1, **START})
    store.add_event(run_id, {"event": "step", "step": 1, "seconds": 0.2, "reward": 0.5, "groups": []})
    store.add_event(run_id, {"event": "eval", "step": 1, "seconds": 0.3, **LATER})
    store.add_event(run_id, {"event": "end", "step": 1, "seconds": 0.4, "state": "stopped"})
    return store


def figure_of(at, key: str) -> dict:
    found = [element.proto for element in at.get("bidi_component") if key in element.proto.id]
    return json.loads(found[0].json)["figure"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_newest_values_stand_beside_the_start(open_page, run, language):
    at = open_page("live", {"under": "evaluation", "lang": language})
    assert not at.exception, [e.value for e in at.exception]
    values = [metric.value for metric in at.metric]
    assert "97 %" in values[0] and "91" in values[0] and "99" in values[0]  # noqa: PT018
    assert "77" in at.metric[0].delta
    assert "64 %" in values[2]
    assert "8" in at.metric[2].label
    lines = [trace for trace in figure_of(at, "live-accuracies")["data"] if trace.get("name")]
    assert [line["y"] for line in lines] == [[0.2, 0.97], [0.18, 0.18], [0.64]]
    assert figure_of(at, "live-strata-picture")["data"][1]["y"] == [0.25]
    if language == "zh":  # AppTest reads the names of options outside of the session, in English
        return
    at.segmented_control(key="live-strata").set_value("length").run()
    assert not at.exception
    assert figure_of(at, "live-strata-picture")["data"][0]["x"] == ["1-4", "9-16"]


def test_before_the_first_evaluation(open_page):
    at = open_page("live", {"under": "evaluation"})
    assert not at.exception
    assert not at.metric


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_the_pictures_are_pictures(colors):
    rows = [{"step": 0, "seconds": 0.0, **START}, {"step": 5, "seconds": 1.0, **LATER}]
    for given in ([], rows[:1], rows, [{"step": 1, "accuracy": 0.5}]):
        spec = accuracies(colors, given, by="step", total=5, samples=8, revision="")
        go.Figure(json.loads(json.dumps(spec, allow_nan=False)))
    bars = go.Figure(strata(colors, START["strata"][1:], START["strata"][1:], by="length"))
    assert bars.layout.xaxis.categoryarray == ("1-4", "9-16")
    assert bars.data[0].error_y.array == pytest.approx((0.1, 0.1))
    go.Figure(strata(colors, [], START["strata"][:1], by="moves"))


def test_an_interval_is_written_only_where_there_is_one():
    assert written(MEASURES[0], START) == "20 % (13 to 29)"
    assert written(MEASURES[0], {"accuracy": 0.5}) == "50 %"
    assert written(MEASURES[2], {}) == "–"
