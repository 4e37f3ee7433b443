"""Inner epochs: one batch updated several times, and why the clip is not a trust region."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import snippets_clip, widgets
from app.explain import clip_epochs as explain
from app.explain.clip_epochs import Epochs
from app.figures import clip_epochs as figures
from app.lens import Lens
from app.numbers import plain, short
from app.views.clip import common
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import Objective
from grpo_core.inner_epochs import inner_epochs


def draw(lens: Lens) -> None:
    """Draw the ratios update by update, and the three statements with their numbers."""
    both = explain.run(lens)
    widgets.picture(figures.epochs(widgets.colors(), both, explain.distinct(both)), "epochs", alt=t("alt.epochs"))
    outside, i = int(both.outside.sum()), both.farthest
    widgets.readouts(
        [
            Readout("epoch_clip_ratio", f"{100 * explain.clip_ratio(both):.0f} %"),
            Readout("epoch_outside", t("readout.of", n=outside, total=both.size)),
            Readout("epoch_farthest", plain(float(both.clipped.ratios[-1, i]))),
            Readout("epoch_kl", plain(float(both.clipped.kl[-1]), 4)),
        ]
    )
    if not widgets.hidden("notice"):
        statements(both, outside)
    widgets.formula(explain.lines(both))
    section, numbers = notice(lens, both)
    widgets.notice("clip", section, **numbers)
    common.timeline("epochs")
    widgets.check_yourself("epochs", question)
    widgets.take_away("epochs", "epochs", lambda: snippets_clip.epochs(lens, both), lambda: table(both))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    live = st.container()
    widgets.select("surrogate")
    with live:
        widgets.controls("clip-epochs", [slider("mu"), slider("lr"), *common.clip_rows(), slider("rest")])


def statements(both: Epochs, outside: int) -> None:
    """Draw what the clip does not do, each with this run's numbers."""
    i, free = both.farthest, both.free
    carried = int(both.carried.argmax())
    texts = (
        prose(
            "clip", "trust-interval", outside=str(outside), total=str(both.size), low=short(both.low),
            high=short(both.high), farthest=plain(float(both.clipped.ratios[-1, i]), 2),
        ),
        prose("clip", "trust-others", moved=plain(100 * float(np.expm1(both.carried[carried])), 1)),
        prose("clip", "trust-kl", kl=plain(float(both.clipped.kl[-1])), free=plain(float(free.kl[-1]))),
    )  # fmt: skip
    for column, letter, text in zip(st.columns(3), "abc", texts, strict=True):
        column.markdown(f"**({letter})** {text}")


def notice(lens: Lens, both: Epochs) -> tuple[str, dict[str, str]]:
    """Return what to notice about this run."""
    first = next((k for k, share in enumerate(both.clipped.clip_ratios, start=1) if share > 0), None)
    numbers = {
        "updates": str(both.updates), "size": str(both.size), "first": str(first), "low": short(both.low),
        "high": short(both.high), "farthest": plain(float(both.clipped.ratios[-1, both.farthest]), 2),
        "share": f"{100 * both.clipped.clip_ratios[-1]:.0f}",
    }  # fmt: skip
    if not np.any(both.advantages):
        return "epochs-flat", numbers
    if both.updates == 1:
        return "epochs-one", numbers
    if lens.objective.surrogate not in ("clip", "clip_cov"):
        return "epochs-other", numbers
    return ("epochs-none" if first is None else "epochs"), numbers


def question() -> Question:
    """Ask for the clip ratio of the only update."""
    one = inner_epochs(np.zeros(2), [0, 1], [1.0, -1.0], Objective(), epochs=1, learning_rate=5.0)
    value = float(one.clip_ratios[0])
    far = plain(float(one.ratios[-1].max()), 2)
    return Question(prose("clip", "ask-epochs"), value, prose("clip", "worked-epochs", answer=plain(value, 0), far=far))


def table(both: Epochs) -> Table:
    """Return every sample's ratio after every update, with and without a clip."""
    flat = np.vstack([both.clipped.saturated, both.outside])
    rows = [
        (
            k, i + 1, float(both.advantages[i]), float(both.clipped.ratios[k, i]), float(both.free.ratios[k, i]),
            bool(flat[k, i]), float(both.clipped.kl[k]), float(both.free.kl[k]),
        )
        for k in range(both.updates + 1)
        for i in range(both.size)
    ]  # fmt: skip
    header = (
        "updates done",
        "sample",
        "advantage",
        "ratio",
        "ratio without clip",
        "no gradient",
        "KL",
        "KL without clip",
    )
    return Table(header, rows)
