"""What goes wrong without ending a run is said beside its state and marked on its charts."""

from __future__ import annotations

import json

import pytest

from app import live_reader
from app.live.changes import stamps
from app.live_reader import Reader
from app.words import catalogue
from grpo_core.live.checkpoints import Checkpoints, checkpoints_of
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStore

CONFIG = RunConfig(steps=3, prompts_per_step=2, group_size=2, eval_prompts=2, checkpoint_every=1, pace=None, seed=1)
REASON = {"en": "File exists", "zh": "文件已存在"}


@pytest.fixture
def unkept(tmp_path):
    """A run, really trained, whose folder of checkpoints is a file; returns (store, run id)."""
    from grpo_core.live.trainer import train

    store = RunStore(tmp_path)
    run_id = store.create_run(CONFIG)
    (tmp_path / run_id).mkdir()
    (tmp_path / run_id / "checkpoints").write_text("in the way")
    for event in train(CONFIG, checkpoints=checkpoints_of(store.folder, run_id)):
        store.add_event(run_id, event)
    return store, run_id


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_checkpoint_that_cannot_be_written_is_said_and_marked(open_page, unkept, lang):
    at = open_page("live", {"lang": lang})
    assert not at.exception, [e.value for e in at.exception]
    words, own = at.warning[0].value.replace("\\", ""), catalogue(lang)
    assert own["live.notice.checkpoint"].format(step=3, reason=REASON[lang]) in words
    assert own["live.notice.times"].format(count=3, step=1) in words
    assert own["live.notice.no_checkpoint"] in words
    (found,) = [json.loads(e.proto.json) for e in at.get("bidi_component") if "live-progress" in e.proto.id]
    layout = found["figure"]["layout"]
    assert [shape["x0"] for shape in layout["shapes"]] == [1]  # three in a row are one mark
    assert own["live.notice.stamp.checkpoint"] in [note["text"] for note in layout["annotations"]]


def test_one_that_could_be_written_later_ends_the_warning(open_page, unkept, monkeypatch):
    monkeypatch.setattr(live_reader, "PAUSE", -1.0)
    store, run_id = unkept
    at = open_page("live")
    assert len(at.warning) == 1
    folder = store.folder / run_id / "checkpoints"
    folder.unlink()
    Checkpoints(folder).save({}, {"step": 2, "events": 3, "accuracy": None})
    store.add_event(run_id, {"event": "command", "step": 3, "seconds": 1.0, "name": "pause", "value": None})
    at.run()
    assert "step 2" in at.warning[0].value
    Checkpoints(folder).save({}, {"step": 3, "events": 4, "accuracy": None})
    store.add_event(run_id, {"event": "command", "step": 3, "seconds": 1.0, "name": "resume", "value": None})
    at.run()
    assert not at.warning


def test_what_happened_after_a_checkpoint_is_forgotten_with_it(unkept, monkeypatch):
    monkeypatch.setattr(live_reader, "PAUSE", -1.0)
    store, run_id = unkept
    reader = Reader(store)
    assert [row["step"] for row in reader.look(run_id).notices] == [1, 2, 3]
    kept = 1 + [row["event"] for row in store.metrics(run_id)].index("notice")
    store.rewind(run_id, events=kept, step=1)  # as a worker does that goes on from there
    store.add_event(run_id, {"event": "command", "step": 1, "seconds": 0.2, "name": "continued", "value": {"step": 1}})
    look = reader.look(run_id)
    assert [row["step"] for row in look.notices] == [1]
    assert [stamp.x for stamp in stamps(look, "step")] == [1, 1]


def test_a_notice_of_an_unknown_kind_is_marked_as_text(open_page, unkept):
    store, run_id = unkept
    store.add_event(run_id, {"event": "command", "step": 2, "seconds": 0.2, "name": "pause", "value": None})
    store.add_event(run_id, {"event": "notice", "step": 3, "seconds": 0.3, "name": "<b>new</b>", "text": "<b>"})
    look = Reader(store).look(run_id)
    assert "<" not in stamps(look, "step")[-1].text
    assert not open_page("live").exception
