"""The three estimators against the log-ratio, with the group's tokens on the chosen one."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app import formulas, snippets, snippets_kl, widgets
from app.explain import kl as explain
from app.figures import kl as figures
from app.lens import Lens
from app.numbers import latex, plain, signed
from app.views.kl import common
from app.widgets import Readout, slider
from app.words import t


def draw(lens: Lens) -> None:
    """Draw the curves and what belongs to them."""
    d, values = explain.curves(lens)
    at, chosen = explain.at(lens), lens.values["kl"]
    figure = figures.curves(widgets.colors(), d, values, chosen=chosen, at=at, tokens=explain.token_points(lens))
    widgets.picture(figure, "kl", alt=t("alt.kl_curves"))
    own = [Readout(name, _shown(name, value)) for name, value in at[1].items()]
    in_loss = Readout("kl_in_loss", plain(lens.objective.beta * float(lens.terms.kl_loss), 4))
    widgets.readouts([*own, Readout("kl_mean", plain(explain.group_mean(lens), 4)), in_loss])
    widgets.formula(near_lines(*at) if near(at[0]) else formulas.kl(*at))
    section, numbers = explain.notice(lens)
    widgets.notice("kl", section, **numbers)
    widgets.check_yourself("kl", lambda: explain.question(lens))
    widgets.take_away("kl", "kl", lambda: snippet(at[0]), lambda: explain.table(lens))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    live = st.container()
    widgets.choice("kl")
    with live:
        widgets.controls("kl-curve", [slider("d"), slider("beta")])
    common.elsewhere("where")


def _shown(name: str, value: float) -> str:
    if 0 < abs(value) < 1e-12:
        return explain.tiny(value)
    return signed(value) if name == "k1" else plain(value)


def near(d: float) -> bool:
    """Return whether the log-ratio is so small that rounding decides how k3 must be computed."""
    return 0 < abs(d) < explain.NEAR


def near_lines(d: float, values: Mapping[str, float]) -> list[str]:
    """Return the estimators near 0, and what rounding leaves of k3 where it is written out."""
    found = explain.rounded(d)
    return [
        rf"d &= \log\pi_{{\mathrm{{ref}}}} - \log\pi = {_power(d)}",
        rf"k_1 &= -d = {_power(values['k1'])} \qquad k_2 = \tfrac12 d^2 = {_power(values['k2'])}",
        rf"k_3 &= \mathrm{{expm1}}(d) - d = {_power(found['k3'])}",
        rf"e^d - 1 - d &\to {_power(found['written64'])}\;(\text{{64 bits}})"
        rf" \qquad {_power(found['written32'])}\;(\text{{32 bits}})",
    ]


def _power(value: float) -> str:
    """Return a number for LaTeX as a power of ten, however small."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return rf"{mantissa}\times 10^{{{int(exponent)}}}" if value else latex(0.0, 0)


def snippet(d: float) -> str:
    """Return Python for the estimates, and near 0 for what rounding does to k3."""
    return snippets_kl.rounding(d) if near(d) else snippets.kl(d)
