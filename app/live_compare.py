"""Comparing runs: two to four of them on the same axes, a table at equal cost, and runs that differ in one thing."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app import live_runs
from app.figures import live_compare as figures
from app.figures.live_compare import Drawn
from app.live import making, tempo
from app.live.source import first_look
from app.live.wording import label, setting_words
from app.live_plot import live_plot
from app.live_reader import Look, Reader
from app.numbers import MISSING, plain, short
from app.widgets import colors, literal
from app.words import language, plain_text, prose, t, told
from grpo_core.live.experiments import (
    AXES,
    FEWEST,
    MOST,
    Track,
    align,
    cautions,
    changes_of,
    equal_cost,
    results,
)
from grpo_core.live.store import Experiment, RunInfo, RunStoreError

EVERY = 1.0  # seconds between two looks while one of the runs goes on
LISTED = 60  # runs and experiments that are offered
RUNS, AXIS = "runs", "axis"  # in the address
CHOICE, EXPERIMENT, BY, SHARE = "live-compare-runs", "live-compare-experiment", "live-compare-by", "live-compare-share"
MEASURES = (
    "accuracy", "sampled_accuracy", "reward", "mixed", "all-right", "all-wrong", "unscored", "advantage", "length",
    "tokens", "step", "seconds", "to_half",
)  # fmt: skip
SHARES = ("mixed", "all-right", "all-wrong", "unscored")


def section(source: Reader) -> None:
    """Draw the part of the page that compares runs."""
    try:
        runs, experiments = source.store.runs(LISTED), source.store.experiments(LISTED)
    except RunStoreError as error:
        st.error(f"{t('live.store')} {literal(told(error))}", icon=":material/error:")
        return
    st.markdown(prose("compare", "what"))
    ids = choose(runs, experiments)
    live_runs.line(source)
    infos = {run.id: run for run in runs}
    going = any(infos[name].active for name in ids)
    with st.container(key="live-compare"):
        st.fragment(lambda: pictures(source, ids, going=going), run_every=tempo.every(EVERY) if going else None)()
    if made := making.form(source, opened=len(ids) < FEWEST):
        show_runs(made)
        st.rerun()


# Which runs


def choose(runs: Sequence[RunInfo], experiments: Sequence[Experiment]) -> list[str]:
    """Draw the choice of an experiment or of single runs, and the axis; return the ids of the chosen runs."""
    infos = {run.id: run for run in runs}
    ids = _wanted(infos, experiments)
    first, second, third = st.columns([1.5, 3, 1.7], vertical_alignment="bottom", gap="small")
    with first:
        _experiments(experiments, infos, ids)
    if st.session_state.get(CHOICE) != ids:
        st.session_state[CHOICE] = ids
    second.multiselect(
        t("compare.runs"), list(infos), key=CHOICE, max_selections=MOST, on_change=_take_runs,
        format_func=lambda name: live_runs.title(infos[name]), placeholder=t("compare.runs_hint"),
        help=t("compare.runs_help", most=MOST),
    )  # fmt: skip
    with third:
        _axis()
    return ids


def _wanted(infos: Mapping[str, RunInfo], experiments: Sequence[Experiment]) -> list[str]:
    """Return the runs that the address names; without any, those of the newest experiment."""
    text = st.query_params.get(RUNS)
    if text is None:
        newest = next((e.runs for e in experiments if len([r for r in e.runs if r in infos]) >= FEWEST), ())
        return [name for name in newest if name in infos][:MOST]
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    lost = [name for name in names if name not in infos]
    if lost:
        said = ", ".join(literal(plain_text(name)) for name in lost[:MOST])
        st.warning(t("compare.unknown", runs=said), icon=":material/link_off:")
    return [name for name in names if name in infos][:MOST]


def _take_runs() -> None:
    show_runs(st.session_state[CHOICE])


def show_runs(ids: Sequence[str]) -> None:
    """Write the runs to compare into the address."""
    st.query_params[RUNS] = ",".join(ids)


def _experiments(experiments: Sequence[Experiment], infos: Mapping[str, RunInfo], ids: Sequence[str]) -> None:
    """Draw the list of experiments; the one whose runs are shown is marked."""
    there = {e.id: [name for name in e.runs if name in infos][:MOST] for e in experiments}
    titles = {e.id: e.name for e in experiments if there[e.id]}
    shown = next((name for name in titles if there[name] == list(ids)), None)
    if st.session_state.get(EXPERIMENT) != shown:
        st.session_state[EXPERIMENT] = shown

    def take() -> None:
        if st.session_state[EXPERIMENT] is not None:
            show_runs(there[st.session_state[EXPERIMENT]])

    st.selectbox(
        t("compare.experiment"), list(titles), key=EXPERIMENT, index=None, format_func=titles.__getitem__,
        on_change=take, placeholder=t("compare.experiment_none"), help=t("compare.experiment_help"),
    )  # fmt: skip


def _axis() -> None:
    wanted = st.query_params.get(AXIS, "tokens")
    wanted = wanted if wanted in AXES else "tokens"
    if st.session_state.get(BY) != wanted:
        st.session_state[BY] = wanted

    def take() -> None:
        st.query_params[AXIS] = st.session_state[BY]

    st.segmented_control(
        t("compare.by"), ("tokens", "step", "seconds"), key=BY, required=True, on_change=take,
        format_func=lambda name: t(f"compare.by.{name}"), help=t("compare.by_help"), width="stretch",
    )  # fmt: skip


# Curves and table


def pictures(source: Reader, ids: Sequence[str], *, going: bool) -> None:
    """Draw what the chosen runs came to; drawn again and again while one of them goes on."""
    looks = [look for look in (first_look(source, name) for name in ids) if look is not None]
    if going and not any(look.run.active for look in looks):
        st.rerun()  # the last one has ended: draw the page once more, without the timer
    if len(looks) < FEWEST:
        st.info(prose("compare", "empty"), icon=":material/stacked_line_chart:")
        return
    by = st.session_state[BY]
    names, tracks = legend([look.run for look in looks]), [track_of(look) for look in looks]
    problems = list(dict.fromkeys(look.problem for look in looks if look.problem))
    for problem in problems:
        st.warning(f"{t('live.stale')} {literal(told(problem))}", icon=":material/warning:")
    warn(looks)
    palette, which = colors(), tuple((look.run.id, look.version) for look in looks)
    made = (by, palette.page, language(), which, tuple(names))
    figure = looks[0].once(("compare", *made), lambda: _figure(palette, names, tracks, by, ids))
    live_plot(figure, key="live-overlay", version=made, alt=_alt(names, by))
    table(short_names([look.run for look in looks]) or names, tracks, by)


def _figure(palette: Any, names: Sequence[str], tracks: Sequence[Track], by: str, ids: Sequence[str]) -> Any:
    drawn = [Drawn(name, track) for name, track in zip(names, tracks, strict=True)]
    return figures.overlay(palette, drawn, by=by, equal=equal_cost(tracks, by), revision=f"{by} {','.join(ids)}")


def track_of(look: Look) -> Track:
    """Return a run as the comparison sees it."""
    return Track(look.curves, look.evaluations)


def _alt(names: Sequence[str], by: str) -> str:
    return t("compare.alt", runs=", ".join(names), by=t(f"compare.by.{by}"))


def legend(runs: Sequence[RunInfo]) -> list[str]:
    """Return what tells each run from the others: its name, if it has one, and the settings in which it differs."""
    found = []
    for run, own in zip(runs, changes_of([run.config for run in runs]), strict=True):
        words = ", ".join(setting_words(name, value) for name, value in own.items())
        found.append(" · ".join(filter(None, (run.name, words))) or live_runs.title(run))
    return [text if found.count(text) == 1 else f"{i}. {text}" for i, text in enumerate(found, start=1)]


def short_names(runs: Sequence[RunInfo]) -> list[str]:
    """Return the names that the runs were given, which take less room than a legend; [] unless each has its own."""
    found = [run.name for run in runs]
    return found if all(found) and len(set(found)) == len(found) else []


def warn(looks: Sequence[Look]) -> None:
    """Say what makes the comparison unfair, and name the one thing that differs when it is fair."""
    configs = [look.run.config for look in looks]
    later = sorted({name for look in looks for row in look.commands for name in _changed_by(row)} - {"pace"})
    for name, settings in cautions(configs, later).items():
        said = settings if name == "seed" else [label(setting) for setting in settings]
        st.warning(t(f"compare.caution.{name}", names=literal(", ".join(said))), icon=":material/balance:")


def _changed_by(row: Mapping[str, Any]) -> list[str]:
    value = row.get("value")
    return [str(name) for name in value] if row.get("name") == "set" and isinstance(value, dict) else []


def table(names: Sequence[str], tracks: Sequence[Track], by: str) -> None:
    """Draw the table of results at equal cost, the choice of that cost, and the curves to take away."""
    most = equal_cost(tracks, by)
    left, right = st.columns([3, 1], vertical_alignment="bottom", gap="medium")
    with left:
        share = st.slider(
            t("compare.share"), 5, 100, value=100, step=5, format="%d %%", key=SHARE, help=t("compare.share_help"),
        )  # fmt: skip
    cost = most * share / 100
    right.download_button(
        t("compare.csv"), data=lambda: curves_csv(names, tracks, by), file_name="grpo-lab-comparison.csv",
        mime="text/csv", on_click="ignore", icon=":material/table_view:", key="live-compare-csv", width="stretch",
        help=t("compare.csv_help"),
    )  # fmt: skip
    st.caption(t("compare.at", cost=_cost(by, cost), by=t(f"compare.by.{by}")))
    found = results(tracks, by, cost)
    shown = [name for name in MEASURES if name not in (by, *_left_out(found))]
    pairs = zip(names, found, strict=True)
    rows = [{"run": name, **{m: measure_words(m, row, by) for m in shown}} for name, row in pairs]
    text = st.column_config.TextColumn
    columns = {"run": text(t("compare.column.run"), width=150, pinned=True)}
    columns |= {m: text(t(f"compare.column.{m}"), help=t(f"compare.column.{m}_help")) for m in shown}
    st.dataframe(pd.DataFrame(rows), key="live-compare-table", hide_index=True, column_config=columns)


def _left_out(found: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """Return what need not stand in the table: unscored completions, where there are none."""
    return ("unscored",) if not any(row["unscored"] > 0 for row in found) else ()


def measure_words(measure: str, row: Mapping[str, float], by: str) -> str:
    """Return one cell of the table."""
    value = row[measure]
    if measure == "to_half":
        return t("compare.never") if math.isinf(value) else _cost(by, value)
    if math.isnan(value):
        return MISSING
    if measure in ("accuracy", "sampled_accuracy"):
        low, high = row[f"{measure}_low"], row[f"{measure}_high"]
        interval = "" if math.isnan(low) else f" ({low:.2f}–{high:.2f})"
        return f"{value:.2f}{interval}"
    if measure in SHARES:
        return f"{value:.0%}".replace("%", " %")
    if measure in ("tokens", "step", "seconds"):
        return _cost(measure, value)
    return plain(value, 2)


def _cost(by: str, value: float) -> str:
    if by == "tokens":
        return f"{value:,.0f}".replace(",", "\N{THIN SPACE}")
    return f"{value:.1f}" if by == "seconds" else short(round(value, 1))


def curves_csv(names: Sequence[str], tracks: Sequence[Track], by: str) -> str:
    """Return the curves of all runs at equal costs as CSV: one row for each cost and run."""
    metrics = [panel.metric for panel in figures.PANELS]
    found = align(tracks, by, metrics)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([AXES[by], "run", *metrics])
    for i, cost in enumerate(found.x):
        for name, run in zip(names, found.runs, strict=True):
            safe_name = "'" + name if name[:1] in ("=", "+", "-", "@") else name
            writer.writerow([cost, safe_name, *("" if run[m][i] is None else run[m][i] for m in metrics)])
    return out.getvalue()
