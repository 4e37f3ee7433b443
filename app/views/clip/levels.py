"""Three ratios: of a token, of the geometric mean, of the product; what each weighs and what each corrects."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from app import formulas, snippets, snippets_clip, widgets
from app import lens as lenses
from app.explain import clip as explain
from app.explain import clip_levels
from app.explain.clip_levels import Identity, Pulls
from app.figures import clip as figures
from app.figures import clip_levels as pictures
from app.lens import Lens
from app.numbers import plain, short
from app.views.clip import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t


def draw(lens: Lens) -> None:
    """Draw the chosen picture."""
    widgets.choice("levels_view", hide_label=True)
    {"drift": drift, "weights": weights, "identity": identity}[lens.values["levels_view"]](lens)


def settings(lens: Lens) -> None:
    """Draw the controls that the chosen picture depends on."""
    view = lens.values["levels_view"]
    live = st.container()
    if view == "drift":
        widgets.choice("level")
    rows = {
        "drift": lambda: [slider("drift"), slider("drift_n"), *common.clip_rows(delta=False)],
        "weights": lambda: [slider("drift"), slider("pull_n")],
        "identity": lambda: _steps(lens),
    }[view]()
    with live:
        widgets.controls(f"clip-levels-{view}", rows)


def _steps(lens: Lens) -> list[widgets.Row]:
    size, colors = len(lens.values["was"]), widgets.colors()
    rows = [widgets.count_row(["was", "now"], t("clip.steps"))]
    for name, tint in (("was", colors.old), ("now", colors.current)):
        titles = [t(f"clip.step_{name}", n=k + 1) for k in range(size)]
        rows += [{**row, "help": t("clip.step.help")} for row in widgets.cell_rows(name, titles, color=tint)]
    return rows


def drift(lens: Lens) -> None:
    """One completion, three ratios: of its tokens, of their geometric mean, of their product."""
    clip = lenses.clip_range(lens.values)
    rows = explain.level_rows(lens)
    if rows:
        figure = figures.levels(widgets.colors(), rows, clip=clip, level=lens.values["level"])
        widgets.picture(figure, "levels", alt=t("alt.levels"))
    token, tokens = float(lens.values["drift"]), int(lens.values["drift_n"])
    ratios = lenses.drift(token, tokens)
    lengths, trajectory = lenses.drift_curve(token, tokens)
    figure = figures.drift(widgets.colors(), lengths, trajectory, token=token, at=(tokens, ratios["trajectory"]))
    widgets.picture(figure, "drift", alt=t("alt.drift"))
    widgets.readouts([Readout(f"level_{name}", plain(value, 2)) for name, value in ratios.items()])
    widgets.formula(formulas.levels(token, tokens, ratios))
    section = "levels-capped" if lenses.is_capped(ratios["trajectory"]) else "levels"
    widgets.notice("clip", section, token=short(token), tokens=str(tokens), product=plain(ratios["trajectory"], 2))
    widgets.check_yourself("levels", lambda: explain.drift_question(lens))
    widgets.take_away("clip", "drift", lambda: snippets.drift(token, tokens), lambda: explain.level_table(lens))


def weights(lens: Lens) -> None:
    """How hard a token is pulled when its completion is long: GSPO keeps 1/|o| in the gradient."""
    own = clip_levels.pulls(lens)
    widgets.picture(pictures.pulls(widgets.colors(), own), "pulls", alt=t("alt.pulls"))
    widgets.readouts(
        [
            Readout("pull_gspo", plain(own.at["gspo"], 5)),
            Readout("pull_all", plain(own.at["gspo"] * own.length)),
            Readout("pull_dr_grpo", plain(own.at["dr_grpo"], 5)),
        ]
    )
    widgets.formula(clip_levels.pull_lines(own))
    widgets.notice("clip", "gspo-length", length=str(own.length), pull=plain(own.at["gspo"], 4))
    widgets.check_yourself("pulls", lambda: pull_question(lens))
    widgets.take_away("pulls", "pulls", lambda: snippets_clip.pulls(own), lambda: pull_table(own))


def pull_question(lens: Lens) -> Question:
    """Ask how much harder a token of a short completion is pulled."""
    short_, long_ = (
        clip_levels.pulls(replace(lens, values={**lens.values, "drift": 1.0, "pull_n": n})).at["gspo"]
        for n in (10, 100)
    )
    value = short_ / long_
    return Question(prose("clip", "ask-pulls"), value, prose("clip", "worked-pulls", answer=plain(value, 0)))


def pull_table(own: Pulls) -> Table:
    """Return the curves as data."""
    rows = [(int(n), *(float(own.curves[name][k]) for name in own.curves)) for k, n in enumerate(own.lengths)]
    return Table(("length", *own.curves), rows)


def identity(lens: Lens) -> None:
    """What each ratio corrects, on an answer of a few steps."""
    one = clip_levels.identity(lens)
    widgets.picture(pictures.identity(widgets.colors(), one), "identity", alt=t("alt.identity"))
    names = ("trajectory", "token", "sequence", "new")
    widgets.readouts([Readout(f"expect_{name}", plain(one.values[name])) for name in names])
    widgets.formula(clip_levels.identity_lines(one))
    widgets.notice("clip", "identity", **clip_levels.identity_numbers(one))
    if not widgets.hidden("notice"):
        parts = ("corrects-product", "corrects-token", "corrects-mean")
        st.markdown("\n".join(f"- {prose('clip', part)}" for part in parts))
    widgets.check_yourself("identity", lambda: identity_question(one))
    widgets.take_away("identity", "identity", lambda: snippets_clip.identity(one), lambda: identity_table(one))


def identity_question(one: Identity) -> Question:
    """Ask for the expectation with the product as the weight, from the probabilities."""
    value = one.values["new"]
    worked = prose("clip", "worked-identity", answer=plain(value))
    return Question(prose("clip", "ask-identity"), value, worked)


def identity_table(one: Identity) -> Table:
    """Return the expectations as data."""
    return Table(("expectation", "value"), [(name, value) for name, value in one.values.items()])
