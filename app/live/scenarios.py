"""The Scenarios part: known effects and failures of GRPO, one click each, and what to watch while one runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache

import streamlit as st

from app import live_form
from app.live.orders import chosen_pace, refuse, say_refused, show, start_all
from app.live_compare import RUNS
from app.live_reader import Look, Reader
from app.numbers import plain
from app.widgets import literal
from app.words import known, plain_text, prose, sections, t
from grpo_core.live.config import RunConfig
from grpo_core.live.scenarios import SCENARIOS, Scenario, effects, scenario_numbers
from grpo_core.live.store import RunInfo, RunStoreError

CHOICE = "live-scenario"  # session key
PARAM = "scenario"  # in the address
UNTOLD = (
    "seed", "steps", "pace", "note", "device", "eval_every", "eval_prompts", "eval_samples", "probe",
    "checkpoint_every",
)  # fmt: skip
"""Settings that do not make another run of it."""


@cache
def offered() -> dict[str, Scenario]:
    """Return the scenarios that can be told: what has not been measured, or has no words yet, is not offered."""
    measured, told = effects()["measured"], sections("scenarios")
    return {name: one for name, one in SCENARIOS.items() if name in measured and f"{name}.title" in told}


def section(source: Reader) -> None:
    """Draw the list of scenarios and the chosen one."""
    with st.container(key="live-scenarios"):
        st.fragment(lambda: _scenarios(source))()


def _scenarios(source: Reader) -> None:
    name = _chosen()
    names, one = st.columns([1, 2.4], gap="large")
    with names:
        st.radio(
            t("live.scenario.list"), list(offered()), key=CHOICE, format_func=title, on_change=_go,
            label_visibility="collapsed",
        )  # fmt: skip
        st.caption(t("live.scenario.measured_note"))
    with one:
        _one(source, offered()[name])


def _chosen() -> str:
    """Return the scenario that the address names, with a note if there is none of that name."""
    first = next(iter(offered()))
    wanted = st.query_params.get(PARAM, first)
    name = wanted if wanted in offered() else first
    if st.session_state.get(CHOICE) != name:
        st.session_state[CHOICE] = name
    if name != wanted:
        st.warning(t("live.scenario.unknown", name=literal(plain_text(wanted))), icon=":material/link_off:")
    return name


def _go() -> None:
    st.query_params[PARAM] = st.session_state[CHOICE]


def title(name: str) -> str:
    """Return what a scenario is called."""
    return prose("scenarios", f"{name}.title")


def _one(source: Reader, scenario: Scenario) -> None:
    """Draw one scenario: what to watch, why it happens, what was measured, and the buttons that start it."""
    name = scenario.name
    st.subheader(title(name), anchor=False)
    st.markdown(f"**{t('live.scenario.watch')}** {prose('scenarios', f'{name}.watch')}")
    _start_buttons(source, scenario)
    st.markdown(f"**{t('live.scenario.why')}** {prose('scenarios', f'{name}.why')}")
    effect = prose("scenarios", f"{name}.effect", **numbers(name))
    st.markdown(f"**{t('live.scenario.effect')}** {literal_numbers(effect)}")
    found = sorted({finding for own in scenario.findings.values() for finding in own})
    if found:
        titles = ", ".join(prose("diagnosis", f"{finding}.title") for finding in found)
        st.markdown(f"**{t('live.scenario.findings')}** {titles}")


def literal_numbers(text: str) -> str:
    """Return prose whose numbers cannot be read as a strike-through or a formula."""
    return text.replace("~", "\\~").replace("$", "\\$")


def numbers(name: str) -> dict[str, str]:
    """Return everything that was measured in a scenario, written for its texts."""
    return {key: written(key.split("__")[1], value) for key, value in scenario_numbers(name).items()}


def written(measure: str, value: float) -> str:
    """Return a measured value as text, in the form that suits what it measures."""
    if math.isinf(value):
        return t("live.scenario.never")
    return next(form(value) for end, form in FORMS if end in measure)


def _percent(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}%}".replace("%", " %")


FORMS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("clip", _percent(1)),
    ("accuracy", _percent(0)),
    ("greedy", _percent(0)),
    ("pass_at_k", _percent(0)),
    ("format", _percent(0)),
    ("truncated", _percent(0)),
    ("dead_groups", _percent(0)),
    ("tokens", lambda value: f"{value:,.0f}".replace(",", "\N{THIN SPACE}")),
    ("steps", lambda value: f"{value:.0f}"),
    ("drawn", lambda value: f"{value:.0f}"),
    ("mixed", lambda value: f"{value:.1f}"),
    ("length", lambda value: f"{value:.1f}"),
    ("", lambda value: plain(value, 2)),
)
"""How measures are written, by a part of their name; the first that fits."""


# Starting the runs


def _start_buttons(source: Reader, scenario: Scenario) -> None:
    """Draw one button that starts every run of the scenario, and one for each of them alone."""
    configs, name = configs_of(scenario), scenario.name
    alone = list(configs) if len(configs) > 1 else []
    with st.container(horizontal=True, key="live-scenario-start"):
        key = "start" if not alone else "start_all"
        words = {"help": t(f"live.scenario.{key}_help"), "icon": ":material/play_arrow:", "type": "primary"}
        if st.button(t(f"live.scenario.{key}", count=len(configs)), key=f"live-scenario-{name}", **words):
            _start(source, scenario, list(configs))
        for variant in alone:
            text, note = variant_words(name, variant), difference(scenario, variant)
            if st.button(text, key=f"live-scenario-{name}-{variant}", help=literal(note), icon=":material/play_arrow:"):
                _start(source, scenario, [variant])
    st.caption(literal(_common(scenario)))


def configs_of(scenario: Scenario) -> dict[str, RunConfig]:
    """Return the run of each variant, with this reader's pace and language."""
    found = scenario.configs(pace=chosen_pace())
    return {
        variant: config.changed(note=f"{title(scenario.name)}: {variant_words(scenario.name, variant)}"[:500])
        for variant, config in found.items()
    }


def variant_words(name: str, variant: str) -> str:
    """Return what a variant is called."""
    return prose("scenarios", f"{name}.variant.{variant}")


def _start(source: Reader, scenario: Scenario, variants: list[str]) -> None:
    configs, varied = configs_of(scenario), scenario.differs_in
    changed = [{setting: getattr(configs[variant], setting) for setting in varied} for variant in variants]
    start_all(
        source, [configs[variant] for variant in variants], name=title(scenario.name), changed=changed,
        **{PARAM: scenario.name},
    )  # fmt: skip
    say_refused()
    refuse("")


def difference(scenario: Scenario, variant: str) -> str:
    """Return the settings that tell a variant from the others."""
    config = scenario.configs()[variant]
    return _settings({setting: getattr(config, setting) for setting in scenario.differs_in})


def _common(scenario: Scenario) -> str:
    """Return what all runs of a scenario share where it is not the default run's."""
    if not scenario.common:
        return t("live.scenario.default")
    return t("live.scenario.common", settings=_settings(scenario.common))


def _settings(settings: Mapping[str, object]) -> str:
    def words(name: str, value: object) -> str:
        label = t(f"live.set.{name}") if known(f"live.set.{name}") else name
        return f"{label} {live_form.value_words(name, value)}"

    return ", ".join(words(name, value) for name, value in settings.items())


# While one runs


def variant_of(scenario: Scenario, config: RunConfig) -> str | None:
    """Return which variant of a scenario a run is, by its settings; None when it is none of them."""
    told = [field.name for field in fields(RunConfig) if field.name not in UNTOLD]
    for variant, own in scenario.configs().items():
        if all(getattr(own, name) == getattr(config, name) for name in told):
            return variant
    return None


def followed(look: Look | None) -> tuple[Scenario, str] | None:
    """Return the scenario that the address names and the variant that is shown, if the run belongs to it."""
    scenario = offered().get(st.query_params.get(PARAM, ""))
    variant = variant_of(scenario, look.run.config) if scenario and look else None
    return (scenario, variant) if scenario and variant else None


def beside(source: Reader, look: Look | None) -> None:
    """Draw what to watch, and the way to the scenario's other runs, when the run that is shown belongs to one."""
    found = followed(look)
    if found is None or look is None:
        return
    scenario, variant = found
    siblings = _siblings(source, look)
    with st.container(border=True, key="live-scenario-beside"):
        texts, others = st.columns([2.4, 1.6] if siblings else [6, 1], gap="medium", vertical_alignment="center")
        name = scenario.name
        with texts:
            own = f"**{title(name)}:** {variant_words(name, variant)}. " if len(scenario.variants) > 1 else ""
            st.markdown(f"{own or f'**{title(name)}.** '}{prose('scenarios', f'{name}.watch')}")
        with others, st.container(horizontal=True, horizontal_alignment="right"):
            for other, run_id in siblings.items():
                if st.button(
                    variant_words(name, other), key=f"live-sibling-{other}", help=t("live.scenario.show_help")
                ):
                    show(run_id)
            if siblings and st.button(
                t("live.part.compare"), key="live-scenario-compare", icon=":material/stacked_line_chart:",
                help=t("live.scenario.compare_help"),
            ):  # fmt: skip
                _compare(scenario, {**siblings, variant: look.run.id})
            with st.popover(t("live.scenario.why_short"), icon=":material/help:", key="live-scenario-why"):
                st.markdown(prose("scenarios", f"{name}.why"))
                st.markdown(literal_numbers(prose("scenarios", f"{name}.effect", **numbers(name))))


def _compare(scenario: Scenario, runs: Mapping[str, str]) -> None:
    """Show the runs of a scenario in one picture, in the order of its variants."""
    run_ids = [runs[variant] for variant in scenario.variants if variant in runs]
    st.query_params.update({RUNS: ",".join(run_ids), "part": "compare"})
    st.rerun()


def continues(source: Reader, shown: str | None, active: RunInfo) -> bool:
    """Return whether a run that began is the next one of the scenario that the reader follows."""
    if shown is None or active.experiment is None or st.query_params.get(PARAM) not in offered():
        return False
    return source.store.run(shown).experiment == active.experiment


def _siblings(source: Reader, look: Look) -> dict[str, str]:
    """Return the other runs that were started together with this one: variant to run."""
    scenario = offered().get(st.query_params.get(PARAM, ""))
    if scenario is None or look.run.experiment is None:
        return {}
    try:
        together = look.once("experiment", lambda: _runs_of(source, str(look.run.experiment)))
    except RunStoreError:
        return {}
    found = {variant_of(scenario, config): run_id for run_id, config in together if run_id != look.run.id}
    return {variant: run_id for variant, run_id in found.items() if variant}


def _runs_of(source: Reader, experiment: str) -> list[tuple[str, RunConfig]]:
    for one in source.store.experiments():
        if one.id == experiment:
            return [(run_id, source.store.run(run_id).config) for run_id in one.runs]
    return []
