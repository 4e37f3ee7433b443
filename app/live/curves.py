"""The curves of the Live page: the main one, the small multiples beside it, and what stamps a command on them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import live_form
from app.figures import live as figures
from app.live.changes import stamps
from app.live_plot import live_plot
from app.live_reader import Look
from app.numbers import plain
from app.widgets import colors, literal
from app.words import language, t


def charts(look: Look | None, by: str) -> None:
    """Draw the main curve and the small multiples."""
    left, right = st.columns([1, 1], gap="medium")
    palette = colors()
    version = (look.run.id, look.version) if look else None
    which = (palette.page, by, language())
    with left:
        figure = _once(look, ("progress", *which), lambda: progress(look, by, palette))
        live_plot(figure, key="live-progress", version=(version, which), alt=_progress_alt(look, by))
    with right:
        figure = _once(look, ("panels", *which), lambda: small_multiples(look, by, palette))
        live_plot(figure, key="live-panels", version=(version, which), alt=t("live.alt.panels"))
    if look is not None:
        every = " · " + t("live.point_means", every=look.every) if look.every > 1 else ""
        st.caption(literal(live_form.in_full(look.run.config)) + every)


def _once(look: Look | None, name: Any, make: Any) -> Any:
    return look.once(name, make) if look else make()


def progress(look: Look | None, by: str, palette: Any) -> Any:
    """Return the main curve of a run, or its empty axes."""
    return figures.progress(
        palette, look.curves if look else {}, look.evaluations if look else (), stamps(look, by), **_axis(look, by)
    )


def small_multiples(look: Look | None, by: str, palette: Any) -> Any:
    """Return the small panels of a run, or their empty axes."""
    return figures.panels(palette, look.curves if look else {}, stamps(look, by), **_axis(look, by))


def _axis(look: Look | None, by: str) -> dict[str, Any]:
    steps = look.run.steps if look else live_form.DEFAULT.steps
    total = float(steps) if by == "step" else None if look and look.step else 10.0
    return {"by": by, "total": total, "revision": f"{look.run.id if look else ''} {by}"}


def _progress_alt(look: Look | None, by: str) -> str:
    reward = look.last.get("reward") if look else None
    accuracy = look.evaluations[-1].get("accuracy") if look and look.evaluations else None
    return t("live.alt.progress", by=t(f"live.by.{by}"), reward=plain(reward), accuracy=plain(accuracy))
