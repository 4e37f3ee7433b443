"""The curves of the Live page: the main one, the small multiples beside it, and what stamps a command on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import live_form, state
from app.figures import live as figures
from app.figures.live_panels import SETS, filled, panels, watching
from app.live import after, findings
from app.live.changes import stamps
from app.live.scenarios import followed
from app.live_plot import live_plot
from app.live_reader import Look, Reader
from app.numbers import plain
from app.widgets import colors, literal
from app.words import language, t
from grpo_core.diagnosis import Finding

SET, SET_PARAM = "live-panel-set", "panels"  # session key and the name in the address


def _places() -> Sequence[DeltaGenerator]:
    """Return where curve and panels go: side by side, or one below the other in a presentation."""
    if state.lab().frame.present:
        return st.container(), st.container()
    return st.columns([1, 1.1], gap="medium")  # six choices of panels fit beside their help at 1280 pixels


def charts(source: Reader, look: Look | None, by: str) -> None:
    """Draw the main curve and the small multiples, and under each what the diagnosis finds on it."""
    left, right = _places()
    palette = colors()
    version = (look.run.id, look.version) if look else None
    found = findings.findings_of(source, look)
    which = (palette.page, by, language())
    with left:
        figure = _once(look, ("progress", *which), lambda: progress(look, by, palette))
        live_plot(figure, key="live-progress", version=(version, which), alt=_progress_alt(look, by))
        findings.beside(found, main=True)
    with right:
        names = shown_panels(look)
        which = (*which, *names)
        figure = _once(look, ("panels", *which), lambda: small_multiples(look, by, palette, names, found))
        live_plot(figure, key="live-panels", version=(version, which), alt=_panels_alt(names))
        findings.beside(found, main=False)
    if look is not None:
        _under(source, look)
    if found:
        findings.checks(found)


def _under(source: Reader, look: Look) -> None:
    """Draw the settings of the run in one line, what can be taken away, and the way on when it has ended."""
    words, buttons = st.columns([2.4, 1.4], gap="small", vertical_alignment="center")
    every = " · " + t("live.point_means", every=look.every) if look.every > 1 else ""
    words.caption(literal(live_form.in_full(look.run.config)) + every)
    with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        if look.run.state in ("stopped", "finished"):
            after.go_on(source, look)
        if look.step:
            after.downloads(source, look)


def shown_panels(look: Look | None) -> tuple[str, ...]:
    """Draw the choice of panels with their help, and return the panels that are chosen."""
    scenario = followed(look)
    sets = {"watched": watching(scenario[0].watch)} if scenario else {}
    sets = {**sets, **SETS}
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        names = filled(sets[_panel_set(tuple(sets))], look.curves if look else {})
        with st.popover(
            "", icon=":material/help:", type="tertiary", help=t("live.panels.what"), key="live-panels-help"
        ):
            st.markdown("\n".join(f"- **{t(f'live.panel.{name}')}**: {t(f'live.panel.{name}.help')}" for name in names))
    return names


def _panel_set(offered: tuple[str, ...]) -> str:
    """Draw the choice of panels; it is kept in the address, where the first one is left out."""
    wanted = st.query_params.get(SET_PARAM, offered[0])
    wanted = wanted if wanted in offered else offered[0]
    if st.session_state.get(SET) != wanted:
        st.session_state[SET] = wanted
    st.segmented_control(
        t("live.panels"), offered, key=SET, required=True, label_visibility="collapsed", on_change=_go,
        format_func=lambda name: t(f"live.panels.{name}"),
    )  # fmt: skip
    return wanted


def _go() -> None:
    st.query_params[SET_PARAM] = st.session_state[SET]


def _once(look: Look | None, name: Any, make: Any) -> Any:
    return look.once(name, make) if look else make()


def progress(look: Look | None, by: str, palette: Any) -> Any:
    """Return the main curve of a run, or its empty axes."""
    return figures.progress(
        palette, look.curves if look else {}, look.evaluations if look else (), stamps(look, by), **axis_of(look, by)
    )


def small_multiples(
    look: Look | None, by: str, palette: Any, names: Sequence[str], found: Sequence[Finding] = ()
) -> Any:
    """Return the small panels of a run, or their empty axes."""
    own = look.curves if look else {}
    return panels(palette, names, own, stamps(look, by), marks=findings.marks(found), **axis_of(look, by))


def axis_of(look: Look | None, by: str) -> dict[str, Any]:
    """Return what all charts of a run share: the axis, its right end, and when a reader's zoom is forgotten."""
    steps = look.run.steps if look else live_form.DEFAULT.steps
    total = float(steps) if by == "step" else None if look and look.step else 10.0
    return {"by": by, "total": total, "revision": f"{look.run.id if look else ''} {by}"}


def _panels_alt(names: Sequence[str]) -> str:
    return t("live.alt.panels", names=", ".join(t(f"live.panel.{name}") for name in names))


def _progress_alt(look: Look | None, by: str) -> str:
    reward = look.last.get("reward") if look else None
    accuracy = look.evaluations[-1].get("accuracy") if look and look.evaluations else None
    return t("live.alt.progress", by=t(f"live.by.{by}"), reward=plain(reward), accuracy=plain(accuracy))
