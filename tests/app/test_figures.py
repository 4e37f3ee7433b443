"""Every picture is a figure Plotly accepts: the pages skip that check, so the tests make it."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest

from app import lens as lenses
from app.explain import advantages, clip, kl, reduction
from app.figures import advantages as advantage_figures
from app.figures import clip as clip_figures
from app.figures import kl as kl_figures
from app.figures import reduction as reduction_figures
from app.figures import reduction_masks as mask_figures
from app.figures.base import DARK, LIGHT, safe
from app.lens import look
from app.link import value_of
from app.params import PARAMS
from app.teaching import teaching_groups
from app.views.reduction import masks
from grpo_core import Group

HOSTILE = Group(
    prompt="<script>alert(1)</script>",
    tokens=(("<b>x</b>", "$x^2$", "&lt;", "\n", "\u202e", "x" * 500), ("<img src=x onerror=alert(1)>",)),
    rewards=(1.0, 0.0),
    logp=((-0.5,) * 6, (-0.5,)),
    ref_logp=((-0.7,) * 6, (-0.2,)),
)
GROUPS = {**teaching_groups(), "hostile": HOSTILE}


def lens_of(group, **chosen):
    return look(group, {name: value_of(chosen, name) for name in PARAMS})


def pictures(group, colors):
    """Every picture of the four pages for one group."""
    lens = lens_of(group)
    s = lens.scores
    yield advantage_figures.bars(
        colors, group.reward_array, s.advantages, mean=float(s.mean), std=float(s.std), scaled=True
    )
    yield advantage_figures.estimators(colors, *advantages.compared(lens))
    q, up, down, at = advantages.rates(lens)
    yield advantage_figures.rates(colors, q, up, down, at=at)
    p, lines, at, size = advantages.mixed(lens)
    yield advantage_figures.mixed(colors, p, lines, at=at, size=size)
    yield from clip_pictures(lens, colors)
    d, values = kl.curves(lens)
    yield kl_figures.curves(colors, d, values, chosen="k3", at=kl.at(lens), tokens=kl.token_points(lens))
    both = kl.compared(lens)
    yield kl_figures.distribution(colors, both.current, both.reference, both.estimates["k3"], name="k3")
    yield reduction_figures.blocks(colors, reduction.rows(lens))
    names, totals, losses, chosen = reduction.rules(lens)
    yield reduction_figures.rules(colors, names, totals, losses, lens.advantages, chosen)
    parts = lenses.split(lens, 2)
    for span in lenses.SPANS:
        yield reduction_figures.parts(colors, reduction.part_names(parts), parts, span=span)
    yield mask_figures.padded(colors, masks.rows(masks.padded(lens)))


def clip_pictures(lens, colors):
    probe = clip.probe(lens)
    high = clip.widest(lens, probe)
    clip_range = lenses.clip_range(lens.values)
    yield clip_figures.curves(
        colors, clip.curves(lens, probe, high), clip.points(lens), probe, clip=clip_range, high=high
    )
    yield clip_figures.levels(colors, clip.level_rows(lens), clip=clip_range, level="token")
    lengths, trajectory = lenses.drift_curve(1.01, 1000)
    yield clip_figures.drift(colors, lengths, trajectory, token=1.01, at=(1000, float(trajectory[-1])))
    change, frozen = clip.graph_curve(lens, probe.advantage)
    yield clip_figures.graph(colors, change, frozen, advantage=probe.advantage)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", GROUPS)
def test_every_picture_is_valid_and_names_its_axes(name, colors):
    for spec in pictures(GROUPS[name], colors):
        figure = go.Figure(spec)
        assert figure.data
        assert any(axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes()))
        json.dumps(spec, allow_nan=False)


def test_a_hostile_token_is_escaped_wherever_it_is_drawn():
    texts = json.dumps([list(pictures(HOSTILE, LIGHT))])
    for raw in ("<b>x", "<img", "<script"):
        assert raw not in texts
    assert safe("<think>") == "&lt;think&gt;"
    assert len(safe("x" * 500)) == 40


def test_tokens_lie_on_the_curve_of_their_advantage():
    lens = lens_of(teaching_groups()["off-policy"])
    probe = clip.probe(lens)
    points, curves = clip.points(lens), clip.curves(lens, probe, 3.0)
    for ratio, value, advantage in zip(points.ratio, points.objective, points.advantage, strict=True):
        curve = next(c for c in curves if c.advantage == pytest.approx(advantage))
        assert value == pytest.approx(np.interp(ratio, curve.ratio, curve.objective), abs=1e-6)


def test_what_the_picture_calls_saturated_has_slope_zero():
    points = clip.points(lens_of(teaching_groups()["off-policy"]))
    assert points.saturated.any()
    assert np.all((points.slope == 0) == (points.saturated | (points.advantage == 0)))
