"""A live group under the microscope: the numbers of its tokens against the loss of the whole step, and the page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from app import walk
from app.figures.base import DARK, LIGHT
from app.figures.live_tokens import MOST, probabilities
from app.live.heat import QUANTITIES, fact_rows, heat_of, step_ends, step_words, values_of
from app.live.tokens import AFTER, BEFORE, step_loss
from app.words import LANGUAGES, catalogue, sections
from grpo_core import RECIPES, loss_terms
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStore

CONFIG = RunConfig.for_recipe(
    "trl_grpo", beta=0.04, steps=4, prompts_per_step=3, group_size=4, inner_epochs=2, learning_rate=1e-3,
    eval_prompts=4, eval_every=4, pace=None, seed=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run really trained: with a KL term, two updates on each batch, and groups with and without a signal."""
    from grpo_core.live.trainer import train

    folder = tmp_path_factory.mktemp("tokens")
    store = RunStore(folder)
    run_id = store.create_run(CONFIG)
    for event in train(CONFIG):
        store.add_event(run_id, event)
    return folder, run_id


@pytest.fixture
def found(recorded):
    """The groups of a step in which something was learnt."""
    store = RunStore(recorded[0])
    steps = [store.step_groups(recorded[1], step) for step in store.group_steps(recorded[1])]
    return next(step for step in steps if any(group["kind"] == "mixed" for group in step["groups"]))


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_the_pull_is_the_slope_of_the_steps_loss(found, moment):
    step = step_loss(found, CONFIG)
    terms = step.before if moment == BEFORE else step.after
    pull, h = -np.asarray(step.gradients[moment].total), 1e-6

    def loss(place, change: float) -> float:
        logp = np.array(terms.batch.logp, dtype=float)
        logp[place] += change
        return float(loss_terms(replace(terms.batch, logp=logp), step.objective).loss)

    for place in zip(*np.nonzero(np.asarray(terms.batch.mask)), strict=True):
        low, high = loss(place, -h), loss(place, h)
        assert pull[place] == pytest.approx(-(high - low) / (2 * h), abs=1e-7)


def test_before_the_update_every_ratio_is_1_and_after_it_some_have_moved(found):
    step = step_loss(found, CONFIG)
    mask = np.asarray(step.before.batch.mask)
    assert (np.asarray(step.before.ratio)[mask] == 1.0).all()
    recorded = np.concatenate([np.concatenate([*map(np.asarray, g["logp"])]) for g in found["groups"]])
    sampled = np.concatenate([np.concatenate([*map(np.asarray, g["old_logp"])]) for g in found["groups"]])
    assert np.asarray(step.after.ratio)[mask] == pytest.approx(np.exp(recorded - sampled))
    assert np.abs(recorded - sampled).max() > 1e-3


def test_a_group_is_seen_under_the_loss_of_the_whole_step(found):
    step = step_loss(found, CONFIG)
    assert float(np.asarray(step.before.weights).sum()) == pytest.approx(1.0)
    for index, group in enumerate(found["groups"]):
        lens = step.lens(index, AFTER)
        assert lens.advantages == pytest.approx(np.array(group["advantages"]))
        assert lens.whole == (12, sum(sum(g["lengths"]) for g in found["groups"]))
        for completion, tokens in enumerate(group["tokens"]):
            at = walk.chain(lens, completion, len(tokens) - 1)
            place = step.rows(index).start + completion, len(tokens) - 1
            assert at.pull == pytest.approx(-float(step.gradients[AFTER].total[place]))
            assert at.weight == pytest.approx(1 / (12 * len(tokens)))
            assert at.pull == pytest.approx(at.weight * (at.drive - CONFIG.beta * at.kl_drive))
            assert rf"12 \cdot {len(tokens)}" in walk.weight_line(lens, at)
            assert all(line.count("{") == line.count("}") for line in walk.lines(lens, at))


def test_every_quantity_is_what_was_recorded(found):
    step = step_loss(found, CONFIG)
    for index, group in enumerate(found["groups"]):
        padded = {name: values_of(name, step, index) for name in QUANTITIES}
        for i, row in enumerate(group["old_logp"]):
            size = len(row)
            assert padded["before"][i, :size] == pytest.approx(np.exp(row))
            assert padded["after"][i, :size] == pytest.approx(np.exp(group["logp"][i]))
            assert padded["entropy"][i, :size] == pytest.approx(group["entropy"][i])
            d = np.array(group["ref_logp"][i]) - np.array(row)
            assert padded["kl"][i, :size] == pytest.approx(np.exp(d) - 1 - d, abs=1e-9)
            assert padded["advantage"][i, :size] == pytest.approx([group["advantages"][i]] * size)
            assert all((values[i, size:] == 0).all() for values in padded.values())


def test_under_process_supervision_every_token_has_its_own_advantage():
    from grpo_core.live.trainer import train

    config = CONFIG.changed(supervision="process", steps=1)
    found = next(event for event in train(config) if event["event"] == "step")
    step = step_loss(found, config)
    used = np.asarray(step.before.inputs.advantages)
    rows = [row for group in found["groups"] for row in group["token_advantages"]]
    for row, own, mask in zip(used, rows, np.asarray(step.before.mask), strict=True):
        assert row[mask].tolist() == own
    assert any(len(set(row)) > 1 for row in rows)
    means = [value for group in found["groups"] for value in group["advantages"]]
    assert np.ravel(step.scores.advantages) == pytest.approx(means, abs=2e-6)
    shown = values_of("advantage", step, 0)
    assert np.ravel(shown[0])[: len(rows[0])].tolist() == rows[0]
    for moment in (BEFORE, AFTER):
        lens = step.lens(0, moment)
        assert lens.batch.advantages[0][: len(rows[0])].tolist() == rows[0]


def test_what_was_not_measured_is_left_out(found):
    groups = [{**group, "entropy": None, "ref_logp": None} for group in found["groups"]]
    step = step_loss({**found, "groups": groups}, CONFIG.changed(beta=0.0))
    assert values_of("entropy", step, 0) is None
    assert values_of("kl", step, 0) is None
    names, rows = fact_rows(step, 0)
    assert set(QUANTITIES) - set(names) == {"entropy", "kl"}
    assert [len(row) for row in rows] == groups[0]["lengths"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_can_be_looked_at_or_says_why_not(found, recipe):
    try:
        step = step_loss(found, CONFIG.changed(recipe=recipe, beta=0.0))
    except ValueError as error:
        assert "uniform" in str(error)  # noqa: PT017 - it draws tokens at random
        return
    for moment in (BEFORE, AFTER):
        lens = step.lens(0, moment)
        assert walk.lines(lens, walk.chain(lens, 0, 0))
    assert all(heat_of(name, values_of(name, step, 0)).reach >= 0 for name in QUANTITIES)


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_probabilities_are_a_picture_also_of_a_long_completion(colors):
    long = probabilities(colors, ["<b>"] * 200, [0.5] * 200, [0.6] * 200, [0.1] * 200, chosen=150)
    figure = go.Figure(json.loads(json.dumps(long, allow_nan=False)))
    assert len(figure.data[0].x) == MOST
    assert 150 in figure.data[0].x
    assert "<b>" not in "".join(figure.layout.xaxis.ticktext)
    go.Figure(probabilities(colors, ["a"], [0.5], [0.6], None, chosen=0))


def test_every_quantity_has_its_words():
    for name in QUANTITIES:
        assert f"live.heat.{name}" in catalogue()
        assert f"heat-{name}" in sections("live")


def table_of(at) -> dict:
    assert not at.exception, [e.value for e in at.exception]
    (table,) = [json.loads(e.proto.json) for e in at.get("bidi_component") if "live-tokens" in e.proto.id]
    return table


def test_every_quantity_colours_the_table(open_page, recorded, tmp_path):
    shutil.copytree(recorded[0], tmp_path, dirs_exist_ok=True)
    at = open_page("live")
    for name in QUANTITIES:
        at.session_state["live-heat"] = name
        at.session_state["live-place"] = (1, 1)
        at.session_state["live-moment"] = "after"
        table = table_of(at.run())
        assert table["selected"] == [1, 1]
        assert len(table["rows"][0]["facts"][0]) == len(table["fact_names"]) == len(QUANTITIES)
        assert at.latex[0].value


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_table_speaks_the_readers_language(open_page, recorded, tmp_path, language):
    shutil.copytree(recorded[0], tmp_path, dirs_exist_ok=True)
    table = table_of(open_page("live", {"lang": language}))
    assert table["fact_names"] == [catalogue(language)[f"live.heat.{name}"] for name in QUANTITIES]
    assert table["selected"] is not None


# Process supervision


@pytest.fixture(scope="module")
def supervised(tmp_path_factory):
    """A store with one run, really trained, whose completions were judged in steps."""
    from grpo_core.live.trainer import train

    store = RunStore(tmp_path_factory.mktemp("supervised"))
    config = CONFIG.changed(supervision="process", steps=1, prompts_per_step=12, pace=None)
    run_id = store.create_run(config)
    for event in train(config):
        store.add_event(run_id, event)
    return store.folder, store.step_groups(run_id, 1)["groups"]


def thoughtful(groups) -> int:
    """The first group in which a completion has several steps."""
    return next(i for i, group in enumerate(groups) if any(len(ends) > 2 for ends in group["step_ends"]))


def test_every_step_is_marked_with_its_reward_on_the_tokens(open_page, supervised, tmp_path):
    folder, groups = supervised
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    at, index = open_page("live"), thoughtful(groups)
    at.session_state["live-group"], group = index, groups[index]
    table = table_of(at.run())
    assert table["words"]["steps"] == catalogue()["live.heat.steps"]
    assert table["fact_names"][0] == catalogue()["live.heat.step"]
    for row, ends, rewards in zip(table["rows"], group["step_ends"], group["step_rewards"], strict=True):
        assert {k: text for k, text in enumerate(row["ends"]) if text} == dict(
            zip(ends, (f"{reward:g}" for reward in rewards), strict=True)
        )
        said = [facts[0] for facts in row["facts"]]
        assert said[ends[0]] == f"1 of {len(ends)}, paid {rewards[0]:g}"
        assert said[ends[-1]] == f"{len(ends)} of {len(ends)}, paid {rewards[-1]:g}"
    said = " ".join(" ".join(caption.value for caption in at.caption).split())
    assert "Every step of the thought was judged" in said
    column = at.dataframe[0].value["steps"]
    assert list(column) == [" ".join(f"{reward:g}" for reward in rewards) for rewards in group["step_rewards"]]


def test_the_probabilities_have_a_line_at_the_end_of_every_step(open_page, supervised, tmp_path):
    folder, groups = supervised
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    at, index = open_page("live"), thoughtful(groups)
    completion = max(range(CONFIG.group_size), key=lambda i: len(groups[index]["step_ends"][i]))
    at.session_state["live-group"], at.session_state["live-place"] = index, (completion, 0)
    at.run()
    (data,) = [json.loads(e.proto.json) for e in at.get("bidi_component") if "live-probabilities" in e.proto.id]
    figure = go.Figure(data["figure"])
    lines = [shape.x0 - 0.5 for shape in figure.layout.shapes if shape.type == "line"]
    assert lines == sorted(groups[index]["step_ends"][completion])
    said = [note.text for note in figure.layout.annotations]
    assert [text for text in said if text.startswith("r ")] == [
        f"r {reward:g}" for reward in groups[index]["step_rewards"][completion]
    ]


def test_without_steps_nothing_is_marked(open_page, recorded, tmp_path):
    shutil.copytree(recorded[0], tmp_path, dirs_exist_ok=True)
    table = table_of(open_page("live"))
    assert "steps" not in table["words"]
    assert not any("ends" in row for row in table["rows"])


@pytest.mark.parametrize("ends", [{}, {2: "1"}, {1: "0", 3: "1"}])
def test_a_token_belongs_to_the_step_that_ends_at_it_or_next(ends):
    for position in range(5):
        later = [end for end in ends if end >= position]
        words = step_words(ends, position)
        assert (words == "–") == (not later)
        if later:
            assert words == f"{list(ends).index(later[0]) + 1} of {len(ends)}, paid {ends[later[0]]}"


@pytest.mark.parametrize("recipe", ["trl_grpo", "dr_grpo_paper"])
def test_the_formula_of_an_advantage_adds_up_the_steps_that_are_left(supervised, recipe):
    groups = supervised[1]
    step = step_loss({"groups": groups}, CONFIG.changed(recipe=recipe, supervision="process"))
    index = thoughtful(groups)
    lens, group = step.lens(index, BEFORE), groups[index]
    rewards = np.concatenate([*map(np.asarray, group["step_rewards"])])
    scale = 1.0 if lens.spec.scale == "none" else rewards.std(ddof=lens.spec.ddof) + lens.spec.eps
    if recipe != "trl_grpo":  # what was recorded is the advantage of the run's own recipe
        assert r"(r_j - \bar r)" in walk.step_lines(lens, walk.chain(lens, 0, 0))[0]
        return
    for completion, ends in enumerate(group["step_ends"]):
        for position in range(group["lengths"][completion]):
            pairs = zip(ends, group["step_rewards"][completion], strict=True)
            terms = [(reward - rewards.mean()) / scale for end, reward in pairs if end >= position]
            said = "".join(walk.lines(lens, walk.chain(lens, completion, position))[:2])
            assert rf"A_{{{completion + 1},{position + 1}}} &= \sum_{{j:\, e_j \ge {position + 1}}}" in said
            assert f"= {sum(terms):+.3f}" in said
            written = "".join(f"{term:+.3f}" for term in terms).removeprefix("+")
            assert len(terms) < 2 or written in said


@pytest.mark.parametrize("ends", [[[0]], [[0], [0, 1]], [["x"], [0]], [None, [0]], 5, "ab"])
def test_steps_that_do_not_fit_the_completions_are_left_out(ends):
    assert step_ends({"completions": ["a", "b"], "step_ends": ends, "step_rewards": [[1.0], [0.0]]}) == []
    whole = {"completions": ["a", "b"], "step_ends": [[1, 0], [0]], "step_rewards": [[1.0, 0.0], [0.5]]}
    assert step_ends(whole) == [{0: "0", 1: "1"}, {0: "0.5"}]
