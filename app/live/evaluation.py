"""The held-out evaluation: greedy, single-sample and best-of-k accuracy with intervals, by difficulty and length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.figures import live_evaluation as figures
from app.figures.live_evaluation import MEASURES, Measure
from app.live.curves import axis_of
from app.live.source import first_look
from app.live_plot import live_plot
from app.live_reader import Look, Reader, Row
from app.numbers import plain
from app.widgets import colors
from app.words import language, prose, t

BY = "live-strata"  # session key
ORDER = ("level", "moves", "swaps", "length")


def section(source: Reader, run_id: str | None) -> None:
    """Draw the evaluations of a run: what stands now, how it came, and what parts of the prompts it holds for."""
    look = first_look(source, run_id)
    st.subheader(t("live.eval.title"), anchor=False)
    if look is None or not look.evaluations:
        st.caption(t("live.eval.none"))
        return
    _numbers(look)
    left, right = st.columns([1.2, 1], gap="medium")
    palette, by = colors(), st.session_state.get("live-by") or "step"
    which = (palette.page, by, language())
    with left:
        figure = look.once(("accuracies", *which), lambda: accuracies(look, by, palette))
        live_plot(figure, key="live-accuracies", version=(look.run.id, look.version, which), alt=_alt(look))
    with right:
        _strata(look, palette)
    st.caption(prose("live", "evaluation", prompts=look.evaluations[-1].get("prompts", 0), samples=samples_of(look)))


def accuracies(look: Look, by: str, palette: Any) -> Any:
    """Return the picture of a run's accuracies."""
    return figures.accuracies(palette, look.evaluations, samples=samples_of(look), **axis_of(look, by))


def samples_of(look: Look) -> int:
    """Return of how many samples the best one was taken."""
    return max((int(row.get("samples", 1)) for row in look.evaluations), default=1)


def _numbers(look: Look) -> None:
    """Draw the newest value of each measure with its interval, and how it has changed since before training."""
    for column, measure in zip(st.columns(len(MEASURES)), MEASURES, strict=True):
        rows = [row for row in look.evaluations if measure.value(row) is not None]
        name = f"live.eval.{measure.name}"
        label = t(name, samples=samples_of(look)) if measure.name == "best" else t(name)
        if not rows:
            column.metric(label, plain(None), help=t(f"{name}_help"))
            continue
        change = 100 * ((measure.value(rows[-1]) or 0.0) - (measure.value(rows[0]) or 0.0))
        delta = t("live.eval.change", points=f"{change:+.0f}") if len(rows) > 1 else None
        column.metric(label, written(measure, rows[-1]), delta=delta, help=t(f"{name}_help"))
    if unscored := look.evaluations[-1].get("unscored"):
        st.warning(t("live.eval.unscored", count=unscored), icon=":material/help:")


def written(measure: Measure, row: Row) -> str:
    """Return a share with its interval: "97 % (91 to 99)"."""
    value, interval = measure.value(row), measure.interval(row)
    if value is None:
        return plain(None)
    if interval is None:
        return f"{100 * value:.0f} %"
    low, high = (f"{100 * end:.0f}" for end in interval)
    return t("live.eval.value", share=f"{100 * value:.0f}", low=low, high=high)


def _strata(look: Look, palette: Any) -> None:
    parts = [row.get("strata") or [] for row in look.evaluations]
    offered = [name for name in ORDER if any(part.get("by") == name for part in parts[-1])]
    if not offered:
        return
    by = st.segmented_control(
        t("live.eval.by"), offered, key=BY, default=offered[0], required=True, label_visibility="collapsed",
        format_func=lambda name: t(f"live.eval.by.{name}"), persist_state="session",
    )  # fmt: skip
    by = by if by in offered else offered[0]
    before, now = (_of(rows, by) for rows in (parts[0] if len(parts) > 1 else [], parts[-1]))
    figure = figures.strata(palette, before, now, by=by)
    version = (look.run.id, look.evaluations[-1]["step"], by, palette.page, language())
    live_plot(figure, key="live-strata-picture", version=version, alt=t("live.alt.strata", by=t(f"live.axis.{by}")))


def _of(parts: Sequence[Row], by: str) -> list[Row]:
    return [part for part in parts if part.get("by") == by]


def _alt(look: Look) -> str:
    newest = {m.name: next((r for r in reversed(look.evaluations) if m.value(r) is not None), {}) for m in MEASURES}
    texts = [f"{t(f'live.eval.{m.name}', samples=samples_of(look))}: {written(m, newest[m.name])}" for m in MEASURES]
    return f"{t('live.eval.title')}. " + "; ".join(texts)
