"""Every snippet to take away runs as it stands and prints the number that the page shows."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from app import lens as lenses
from app import snippets
from app.explain import clip, kl
from app.lens import look
from app.link import value_of
from app.params import PARAMS
from app.teaching import teaching_groups

GROUPS = ("one-of-four", "one-unscored", "cut-and-empty", "think-tags", "lengths-2-8")


def lens_of(name, **chosen):
    return look(teaching_groups()[name], {key: value_of(chosen, key) for key in PARAMS})


def printed(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
    return out.getvalue()


def floats(text):
    """The numbers in what was printed."""
    words = text.replace("[", " ").replace("]", " ").split()
    return [float(w) for w in words if w.lstrip("-").replace(".", "").replace("e-", "").isdigit()]


@pytest.mark.parametrize("name", GROUPS)
def test_advantages(name):
    lens = lens_of(name)
    assert floats(printed(snippets.advantages(lens))) == pytest.approx(lens.advantages.tolist(), abs=1e-7)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("recipe", ["grpo_paper", "trl_dapo", "rloo_paper", "dr_grpo_paper", "gspo_paper"])
def test_loss(name, recipe):
    lens = lens_of(name, recipe=recipe)
    assert floats(printed(snippets.loss(lens))) == pytest.approx([float(lens.terms.loss)], abs=1e-12)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("reduce", ["sequence_mean", "token_mean", "constant", "sequence_sum"])
def test_reduction(name, reduce):
    lens = lens_of(name, reduce=reduce)
    assert floats(printed(snippets.reduction(lens))) == pytest.approx([float(lens.terms.loss)], abs=1e-5)


def test_clip():
    lens = lens_of("off-policy", r=2.4, sign="down", delta=2.0)
    probe = clip.probe(lens)
    assert floats(printed(snippets.clip(probe, lenses.clip_range(lens.values)))) == [probe.objective, probe.slope]


def test_drift():
    ratios = lenses.drift(1.01, 1000)
    assert floats(printed(snippets.drift(1.01, 1000))) == pytest.approx(list(ratios.values()))


def test_graph():
    slopes = lenses.graph_slopes(1.7, lens_of("first-step").values)
    assert floats(printed(snippets.graph(1.7))) == pytest.approx([slopes["frozen"], slopes["shared"]], abs=1e-6)


def test_binary_and_mixed():
    assert floats(printed(snippets.binary(0.2))) == pytest.approx([2.0, -0.5])
    assert floats(printed(snippets.mixed(0.5, 4))) == [0.875]


def test_kl():
    lens = lens_of("off-policy", d=-0.9)
    assert floats(printed(snippets.kl(-0.9))) == pytest.approx(list(kl.at(lens)[1].values()))


@pytest.mark.parametrize("weights", [((0.6, 0.4), (0.5, 0.5)), ((0.6, 0.4, 0.0), (0.4, 0.3, 0.3))])
def test_expectation(weights):
    both = lenses.distributions(*weights)
    assert floats(printed(snippets.expectation(both))) == pytest.approx([both.exact, *both.expected.values()])


def test_parts():
    lens = lens_of("lengths-2-8")
    parts = lenses.split(lens, 2)
    expected = [parts.mean_of_means, parts.losses["rank"], parts.pooled]
    assert floats(printed(snippets.parts(lens, parts))) == pytest.approx(expected)
    assert np.isclose(parts.pooled, -0.6)
