"""Comparing runs and the list of runs under AppTest, on runs that were really trained."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil

import numpy as np
import plotly.graph_objects as go
import pytest

from app import live_compare, live_form, live_runs
from app.figures.base import DARK, LIGHT
from app.figures.live_compare import PANELS, STYLES
from app.live import one_setting, tempo
from app.live_reader import Reader, ends
from app.words import t
from grpo_core.live.config import RunConfig
from grpo_core.live.experiments import results, track
from grpo_core.live.store import RunStore

STEPS = 3
NAME = "<img src=x onerror=alert(1)> **rates** $x^2$"
BASE = RunConfig(steps=STEPS, prompts_per_step=2, eval_prompts=4, eval_every=2, pace=None, seed=1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A store with an experiment of two runs, really trained, that differ in the group size."""
    from grpo_core.live.trainer import train

    store = RunStore(tmp_path_factory.mktemp("recorded"))
    sizes = [{"group_size": 2}, {"group_size": 4}]
    names = store.add_waiting([BASE.changed(**own) for own in sizes], experiment=NAME, changed=sizes)
    for name in names:
        assert store.take_next(os.getpid()) == name
        for event in train(store.run(name).config):
            store.add_event(name, event)
    return store.folder, names


@pytest.fixture
def trained(recorded, tmp_path):
    """The experiment in a store of this test's own, which the page reads; returns (store, run ids)."""
    folder, names = recorded
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return RunStore(tmp_path), list(names)


def sound(at):
    assert not at.exception, [e.value for e in at.exception]
    assert at.title[0].value == t("page.live")
    return at


def overlay(at) -> dict:
    (found,) = [e.proto for e in at.get("bidi_component") if "live-overlay" in e.proto.id]
    figure = json.loads(found.json)["figure"]
    go.Figure(figure)
    return figure


def said(at) -> str:
    parts = (*at.markdown, *at.caption, *at.warning, *at.error, *at.info, *at.success)
    return " ".join(element.value for element in parts).replace("\\", "")


# Comparing


def test_nothing_to_compare_yet_invites(open_page):
    at = sound(open_page("live", {"part": "compare"}))
    assert "Choose two to four runs" in at.info[0].value
    assert at.multiselect(key=live_compare.CHOICE).options == []


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_newest_experiment_is_drawn_with_what_differs(open_page, trained, lang):
    store, names = trained
    at = open_page("live", {"part": "compare", "lang": lang})
    assert not at.exception, [e.value for e in at.exception]
    assert at.title[0].value == {"en": "Live", "zh": "实时训练"}[lang]
    figure = overlay(at)
    assert len(figure["data"]) == len(PANELS) * 2
    first, second = figure["data"][:2]
    assert first["name"] != second["name"]
    assert (first["name"][-1], second["name"][-1]) == ("2", "4")
    rows = [[row for row in store.metrics(name) if row["event"] == "step"] for name in names]
    assert [first["y"], second["y"]] == [[row["reward"] for row in run] for run in rows]
    sampled = [np.cumsum([row["completion_tokens"] for row in run]).tolist() for run in rows]
    assert [first["x"], second["x"]] == sampled
    greedy = figure["data"][2]
    assert greedy["y"] == [row["accuracy"] for row in store.metrics(names[0]) if row["event"] == "eval"]
    assert figure["layout"]["shapes"][0]["x0"] == min(sampled[0][-1], sampled[1][-1])
    assert [trace["line"]["dash"] for trace in figure["data"][:2]] == ["solid", "dash"]
    assert not at.warning


def test_the_table_is_the_cores_at_equal_tokens(open_page, trained):
    store, names = trained
    at = sound(open_page("live", {"part": "compare"}))
    wanted = results([track(store.metrics(name)) for name in names])
    frame = at.dataframe[0].value
    assert "tokens" not in frame
    assert f"At {wanted[0]['tokens']:.0f} tokens each" in said(at).replace("\N{THIN SPACE}", "")
    assert [float(text) for text in frame["step"]] == pytest.approx([row["step"] for row in wanted], abs=0.06)
    assert [text.split(" ")[0] for text in frame["accuracy"]] == [f"{row['accuracy']:.2f}" for row in wanted]
    assert [float(text) for text in frame["reward"]] == pytest.approx([row["reward"] for row in wanted], abs=0.006)
    assert "unscored" not in frame
    at.slider(key=live_compare.SHARE).set_value(50).run()
    assert f"At {wanted[0]['tokens'] / 2:.0f} tokens each" in said(at).replace("\N{THIN SPACE}", "")


@pytest.mark.parametrize(("by", "curve"), [("step", "step"), ("seconds", "train_seconds")])
def test_other_axes(open_page, trained, by, curve):
    store, names = trained
    at = sound(open_page("live", {"part": "compare", "axis": by}))
    rows = [row for row in store.metrics(names[0]) if row["event"] == "step"]
    assert overlay(at)["data"][0]["x"] == [row[curve] for row in rows]
    at.segmented_control(key=live_compare.BY).set_value("tokens").run()
    assert sound(at).query_params["axis"] == "tokens"


def test_runs_of_ones_own_choice_are_in_the_link_and_unfair_ones_are_warned_about(open_page, trained):
    store, names = trained
    other = store.create_run(BASE.changed(seed=2, learning_rate=1e-3, group_size=2))
    store.set_state(other, "stopped")
    at = sound(open_page("live", {"part": "compare", "runs": f"{names[0]},{other}"}))
    text = said(at)
    assert t("compare.caution.seed", names="1, 2") in text
    assert overlay(at)["data"][1]["name"].endswith("Seed 2")
    at.multiselect(key=live_compare.CHOICE).set_value([*names, other]).run()
    assert sound(at).query_params["runs"] == ",".join([*names, other])
    assert "More than one thing differs" in said(at)
    assert len(overlay(at)["data"]) == len(PANELS) * 3


def test_unknown_runs_and_hand_made_links(open_page, trained):
    at = sound(open_page("live", {"part": "compare", "runs": "<b>gone</b>,,", "axis": "bananas"}))
    assert "gone" in at.warning[0].value
    assert "<b>" not in at.warning[0].value
    assert at.segmented_control(key=live_compare.BY).value == "tokens"


def test_a_change_on_the_way_is_named(open_page, trained):
    store, names = trained
    event = {
        "event": "command",
        "step": 1,
        "seconds": 0.1,
        "name": "set",
        "value": {"learning_rate": 2e-4, "pace": 1.0},
    }
    store.add_event(names[0], event)
    at = sound(open_page("live", {"part": "compare"}))
    assert [w.value.replace("\\", "") for w in at.warning] == [
        t("compare.caution.later", names=t("live.set.learning_rate"))
    ]


def test_hostile_names_stay_texts(open_page, trained):
    store, names = trained
    store.describe(names[0], name=NAME, note=NAME)
    at = sound(open_page("live", {"part": "compare"}))
    assert "<img" not in overlay(at)["data"][0]["name"]
    at = sound(open_page("live", {"part": "runs", "run": names[0]}))
    assert "$x^2$" not in " ".join(element.value for element in (*at.markdown, *at.caption))
    assert list(at.dataframe[0].value["name"])[1] == NAME


def test_curves_to_take_away(trained):
    store, names = trained
    tracks = [track(store.metrics(name)) for name in names]
    rows = list(csv.reader(io.StringIO(live_compare.curves_csv(["=1+1", "b"], tracks, "tokens"))))
    assert rows[0][:3] == ["generated_tokens", "run", "reward"]
    assert len(rows) == 1 + 101 * 2
    assert {row[1] for row in rows[1:]} == {"'=1+1", "b"}
    assert float(rows[-1][0]) == min(one.end("tokens") for one in tracks)


def test_one_thing_is_changed_and_queued(open_page, tmp_path):
    store = RunStore(tmp_path)
    busy = store.create_run(RunConfig())  # nothing starts while this one goes on
    assert store.claim(busy, os.getpid())
    at = sound(open_page("live", {"part": "compare"}))
    at.text_input(key="live-compare-values-learning_rate").set_value("1e-4，3e-4; 1e-3").run()
    button = at.button(key="live-compare-queue")
    assert (button.disabled, "3" in button.label) == (False, True)
    button.click().run()
    waiting = store.waiting_runs()
    assert [run.config.learning_rate for run in waiting] == [1e-4, 3e-4, 1e-3]
    assert {run.config.pace for run in waiting} == {None}
    assert [dict(run.changed) for run in waiting] == [{"learning_rate": rate} for rate in (1e-4, 3e-4, 1e-3)]
    assert sound(at).query_params["runs"] == ",".join(run.id for run in waiting)
    assert len(overlay(at)["data"]) == len(PANELS) * 3
    at.button(key=f"live-line-cancel-{waiting[1].id}").click().run()
    assert [run.id for run in store.waiting_runs()] == [waiting[0].id, waiting[2].id]
    at.button(key="live-line-cancel-all").click().run()
    assert store.waiting_runs() == []
    assert "live-line-cancel-all" not in [button.key for button in sound(at).button]


@pytest.mark.parametrize("text", ["1e-4", "", "1, 2, 3, 4, 5", "abc, 1e-4", "0.1, 0.10", "-1, 1"])
def test_values_that_make_no_experiment(open_page, tmp_path, text):
    at = sound(open_page("live", {"part": "compare"}))
    at.text_input(key="live-compare-values-learning_rate").set_value(text).run()
    assert at.error[0].value
    assert at.button(key="live-compare-queue").disabled
    assert RunStore(tmp_path).runs() == []


@pytest.mark.parametrize("knob", one_setting.SUGGESTED)
def test_every_knob_has_words_and_values_that_work(open_page, knob):
    at = open_page("live", {"part": "compare"})
    at.session_state[one_setting.KNOB] = knob
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    assert not at.error
    assert not at.button(key="live-compare-queue").disabled


# The list of runs


def test_the_list_shows_what_became_of_each(open_page, trained):
    store, names = trained
    failed = store.create_run(RunConfig(steps=9))
    store.set_state(failed, "failed", "no luck")
    (waiting,) = store.add_waiting([RunConfig()])
    assert store.claim(store.create_run(RunConfig()), os.getpid())
    at = sound(open_page("live", {"part": "runs", "run": names[1]}))
    frame = at.dataframe[0].value
    assert list(frame["state"]) == [t("live.state.queued"), t("runs.waits"), "failed", "finished", "finished"]
    assert list(frame["steps"])[-1] == f"{STEPS}/{STEPS}"
    accuracy = [store.last_event(name, "eval")["accuracy"] for name in names]
    assert list(frame["accuracy"])[-2:] == accuracy[::-1]
    assert at.selectbox(key=live_runs.CHOICE).value == names[1]
    assert waiting in [run.id for run in store.waiting_runs()]
    at.selectbox(key=live_runs.CHOICE).set_value(failed).run()
    assert "no luck" in said(sound(at))
    assert at.query_params["run"] == failed


def test_name_and_note_are_kept(open_page, trained):
    store, names = trained
    at = sound(open_page("live", {"part": "runs", "run": names[0]}))
    at.text_input(key=f"live-runs-name-{names[0]}").set_value("mine").run()
    at.text_input(key=f"live-runs-note-{names[0]}").set_value("a note").run()
    sound(at)
    assert (store.run(names[0]).name, store.run(names[0]).note) == ("mine", "a note")
    assert list(at.dataframe[0].value["name"])[1] == "mine"


def test_settings_go_back_into_the_form(open_page, trained):
    _, names = trained
    at = sound(open_page("live", {"part": "runs", "run": names[1]}))
    at.button(key="live-runs-restore").click().run()
    assert t("runs.restored") in said(sound(at))
    chosen = {field.name: at.session_state[live_form.key_of(field.name)] for field in live_form.FIELDS}
    assert (chosen["group_size"], chosen["seed"], chosen["steps"]) == (4, 1, STEPS)
    assert chosen["learning_rate"] == "1e-4"


def test_a_run_is_opened_and_compared(open_page, trained):
    _, names = trained
    at = sound(open_page("live", {"part": "runs", "run": names[0]}))
    at.button(key="live-runs-compare").click().run()
    assert sound(at).query_params["part"] == "compare"
    assert at.query_params["runs"] == names[0]
    at = sound(open_page("live", {"part": "runs", "run": names[0]}))
    at.button(key="live-runs-open").click().run()
    assert "part" not in sound(at).query_params
    assert at.query_params["run"] == names[0]


def test_a_run_is_deleted_only_when_confirmed_and_never_while_it_goes_on(open_page, trained):
    store, names = trained
    (store.folder / names[1]).mkdir()
    (store.folder / names[1] / "checkpoint").write_text("weights")
    at = sound(open_page("live", {"part": "runs", "run": names[1]}))
    assert len(store.runs()) == 2
    at.button(key="live-runs-delete-now").click().run()
    sound(at)
    assert [run.id for run in store.runs()] == [names[0]]
    assert not (store.folder / names[1]).exists()
    active = store.create_run(RunConfig())
    assert store.claim(active, os.getpid())
    at = sound(open_page("live", {"part": "runs", "run": active}))
    assert at.button(key="live-runs-delete-now").disabled
    assert "live-go-on" not in [button.key for button in at.button]


def test_a_refusal_is_said_and_nothing_is_lost(open_page, trained):
    store, names = trained
    active = store.create_run(RunConfig())
    assert store.claim(active, os.getpid())
    at = sound(open_page("live", {"part": "runs", "run": names[0]}))
    at.button(key="live-go-on").click().run()
    assert active in said(sound(at))
    assert store.run(names[0]).state == "finished"


def test_the_empty_list(open_page):
    assert "There is no run yet" in sound(open_page("live", {"part": "runs"})).info[0].value


# The parts it is made of


def test_a_reader_adds_up_the_generated_tokens(trained):
    store, names = trained
    curves = Reader(store).look(names[0]).curves
    rows = [row for row in store.metrics(names[0]) if row["event"] == "step"]
    assert curves["generated_tokens"] == np.cumsum([row["completion_tokens"] for row in rows]).tolist()
    assert ends([1.0, 2.0, 3.0, 4.0, 5.0], 2) == [2.0, 4.0, 5.0]
    assert ends([], 2) == []


def test_many_viewers_together_ask_for_little_more_than_a_few():
    asked = [viewers / tempo.slowed(0.5, viewers) for viewers in range(1, 51)]
    assert max(asked) <= tempo.FEW / 0.5 + 1e-9
    assert [tempo.slowed(0.5, n) for n in (1, tempo.FEW)] == [0.5, 0.5]
    assert tempo.slowed(5.0, 1000) == tempo.LONGEST
    assert tempo.slowed(20.0, 1000) == 20.0
    assert tempo.sessions() == 1


MATRICES = {
    "everyone": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
"""Machado, Oliveira and Fernandes (2009), table for severity 1."""


def lab(color: str, matrix: np.ndarray) -> np.ndarray:
    """A colour in CIELAB, as somebody sees it."""
    srgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(matrix @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ seen / np.array([0.9505, 1.0, 1.089]), 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", MATRICES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_runs_are_told_apart_by_every_eye_and_from_colours_with_a_meaning(eyes, theme):
    page = LIGHT if theme == "light" else DARK
    runs = [style.color(page) for style in STYLES]
    seen = [lab(color, MATRICES[eyes]) for color in runs]
    gaps = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(gaps) > 18, gaps
    assert all(np.linalg.norm(one - lab(page.page, MATRICES[eyes])) > 25 for one in seen)
    meanings = (page.up, page.down, page.current, page.old, page.reference, page.entropy, page.band)
    if eyes == "everyone":
        assert min(np.linalg.norm(a - lab(m, MATRICES[eyes])) for a in seen for m in meanings) > 15
    assert len({style.dash for style in STYLES}) == len({style.symbol for style in STYLES}) == len(STYLES)


def test_a_run_comes_back_from_a_file_and_a_broken_file_changes_nothing(open_page, trained, tmp_path):
    from grpo_core.live.export import export_run

    store, names = trained
    file = export_run(store, names[0], tmp_path / "taken.zip")
    store.delete_run(names[0])
    at = sound(open_page("live", {"part": "runs"}))
    at.file_uploader(key="live-runs-file-0").upload("<b>broken</b>.zip", b"PK no archive", "application/zip").run()
    assert "broken" in sound(at).error[0].value
    assert "<b>" not in at.error[0].value
    assert [run.id for run in store.runs()] == [names[1]]
    at.file_uploader(key="live-runs-file-1").upload("run.zip", file.read_bytes(), "application/zip").run()
    assert names[0] in said(sound(at))
    assert {run.id for run in store.runs()} == set(names)
    assert at.query_params["run"] == names[0]
    assert len([row for row in store.metrics(names[0]) if row["event"] == "step"]) == STEPS


def test_the_line_is_seen_where_a_run_is_watched(open_page, tmp_path):
    store = RunStore(tmp_path)
    active = store.create_run(RunConfig())
    assert store.claim(active, os.getpid())
    (waiting,) = store.add_waiting([RunConfig()])
    at = sound(open_page("live", {"run": waiting}))
    assert t("runs.in_line") in said(at)
    at.button(key=f"live-line-cancel-{waiting}").click().run()
    assert store.run(waiting).state == "stopped"
    assert f"live-line-cancel-{waiting}" not in [button.key for button in sound(at).button]
