"""Every surrogate against the ratio: what it is worth, how much weight its gradient has, and where the two part."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import snippets_clip, widgets
from app.explain import clip_surrogates as explain
from app.explain.clip_surrogates import Drawn
from app.figures import clip_surrogates as figures
from app.lens import Lens
from app.numbers import plain, short, signed
from app.params import PARAMS
from app.recipe_words import recipe_note, recipe_title
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import Objective, get_recipe
from grpo_core.surrogate_curves import surrogate_curve

SECTIONS = {
    "clip": "surrogate-clip", "policy_gradient": "surrogate-policy-gradient", "unclipped": "surrogate-unclipped",
    "cispo": "surrogate-cispo", "sapo": "surrogate-sapo", "vespo": "surrogate-vespo", "gmpo": "surrogate-gmpo",
    "dppo_tv": "surrogate-dppo-tv", "dppo_kl": "surrogate-dppo-kl", "dro": "surrogate-dro",
    "kl_cov": "surrogate-kl-cov", "clip_cov": "surrogate-clip-cov",
}  # fmt: skip
RATIOS = {
    "token": "reads-token", "sequence": "reads-sequence", "trajectory": "reads-trajectory", "gmpo": "reads-gmpo",
    "vespo": "reads-vespo", "policy_gradient": "reads-none", "dro": "reads-token",
}  # fmt: skip


def draw(lens: Lens) -> None:
    """Draw one or two surrogates."""
    high = explain.widest(lens)
    first, second = explain.first(lens, high), explain.second(lens, high)
    reads = explain.reads(lens.objective)
    points = explain.points(lens, high)
    figure = figures.surrogates(
        widgets.colors(), first, second, explain.others(lens, high), points, reads=_axis(reads), high=high
    )
    widgets.picture(figure, "surrogates", alt=t("alt.surrogates"))
    widgets.readouts(_readouts(first, second))
    widgets.formula(explain.lines(lens, first))
    widgets.notice("clip", SECTIONS[lens.objective.surrogate], **numbers(first))
    if not widgets.hidden("notice"):
        st.caption(prose("clip", RATIOS[reads]))
        if needs_probability(lens) and lens.values["oldp"] * first.at.ratio > 1:
            st.caption(t("clip.impossible", p=short(lens.values["oldp"]), most=plain(1 / lens.values["oldp"], 2)))
    if second is not None and not widgets.hidden("formula"):
        st.markdown(t("clip.against", title=recipe_title(lens.values["second"])))
        widgets.formula(explain.lines(lens, second))
        st.caption(recipe_note(lens.values["second"]))
    widgets.check_yourself("surrogates", lambda: question(lens))
    widgets.take_away("surrogates", "surrogates", lambda: snippets_clip.surrogate(first), lambda: table(first, second))


def settings(lens: Lens) -> None:
    """Draw the choice of surrogates and the hyperparameters of the first."""
    live = st.container()
    widgets.select("surrogate")
    widgets.select("second", words="clip.second", format_func=_title)
    widgets.choice("sign")
    if lens.objective.surrogate in explain.LEVELLED:
        widgets.choice("level")
    rows = [slider("r"), *(slider(name) for name in explain.options(lens))]
    rows += [slider("oldp")] if needs_probability(lens) else []
    with live:
        widgets.controls(f"clip-surrogates-{lens.objective.surrogate}", rows)


def needs_probability(lens: Lens) -> bool:
    """Return whether the value or the region of either surrogate depends on the token's probability."""
    second = lens.values["second"]
    names = [lens.objective.surrogate, *([] if second == "off" else [get_recipe(second).objective.surrogate])]
    return any(name in explain.READS_LOGP for name in names)


def _title(name: str) -> str:
    return t("clip.second.off") if name == "off" else recipe_title(name)


def _axis(reads: str) -> str:
    return reads if reads in ("sequence", "trajectory", "gmpo", "vespo") else "token"


def _readouts(first: Drawn, second: Drawn | None) -> list[Readout]:
    own = [
        Readout("surrogate_value", signed(first.at.objective)),
        Readout("surrogate_gradient", signed(first.at.gradient)),
    ]
    if second is None:
        return own
    return [
        *own,
        Readout("second_value", signed(second.at.objective)),
        Readout("second_gradient", signed(second.at.gradient)),
    ]


def numbers(one: Drawn) -> dict[str, str]:
    """Return the numbers that a surrogate's text may use."""
    p = one.objective.surrogate_parameters()
    return {
        "ratio": plain(one.at.ratio, 2), "value": signed(one.at.objective), "gradient": signed(one.at.gradient),
        "slope": signed(one.at.value_slope), "advantage": signed(one.at.advantage, 2),
        **{name: short(value) for name, value in p.items() if name in (*PARAMS, "epsilon_low", "epsilon_high")},
    }  # fmt: skip


def question(lens: Lens) -> Question:
    """Ask for the weight of CISPO's gradient under TRL's default cap."""
    trl = Objective(surrogate="cispo", options={"weight_high": 0.2})
    one = np.ones(1)
    value = float(surrogate_curve(one, one, -one, trl).gradient[0])
    return Question(prose("clip", "ask-surrogates"), value, prose("clip", "worked-surrogates", answer=plain(value, 2)))


def table(first: Drawn, second: Drawn | None) -> Table:
    """Return the curves as data."""
    rows = [
        (one.title, float(r), float(j), float(g), float(s), bool(flat))
        for one in (first, second)
        if one is not None
        for r, j, g, s, flat in zip(
            one.curve.ratio, one.curve.objective, one.curve.gradient, one.curve.value_slope, one.curve.saturated,
            strict=True,
        )
    ]  # fmt: skip
    return Table(("surrogate", "ratio", "objective", "dJ/dlogp", "slope of the value in log r", "saturated"), rows)
