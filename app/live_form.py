"""The settings of the next live run: one input each, kept while the reader visits other pages, checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.live import models
from app.numbers import short
from app.recipe_words import recipe_title
from app.widgets import literal
from app.words import known, t, told
from grpo_core import RECIPES
from grpo_core.live.config import REWARD_SOURCES, SCALES, SUPERVISIONS, SURROGATES, RunConfig, accepted, with_recipe
from grpo_core.live.faults import FAULTS
from grpo_core.live.tasks import TASKS


@dataclass(frozen=True)
class Field:
    """One setting: "choice", "whole" (a number field with steps), "real" (free text: 1e-4 can be typed) or "flag"."""

    name: str
    kind: str
    choices: tuple[str, ...] = ()


FIELDS = (
    Field("task", "choice", tuple(TASKS)),
    Field("recipe", "choice", tuple(RECIPES)),
    Field("prompts_per_step", "whole"),
    Field("group_size", "whole"),
    Field("learning_rate", "real"),
    Field("beta", "real"),
    Field("epsilon_low", "real"),
    Field("epsilon_high", "real"),
    Field("inner_epochs", "whole"),
    Field("temperature", "real"),
    Field("steps", "whole"),
    Field("seed", "whole"),
)
MORE = (
    Field("scale_rewards", "choice", SCALES),
    Field("surrogate", "choice", SURROGATES),
    Field("top_p", "real"),
    Field("refills", "whole"),
    Field("max_new_tokens", "whole"),
    Field("max_grad_norm", "real"),
    Field("refresh_every", "whole"),
    Field("checkpoint_every", "whole"),
    Field("eval_every", "whole"),
    Field("eval_prompts", "whole"),
    Field("eval_samples", "whole"),
    Field("verifier_failures", "real"),
    Field("fault", "choice", FAULTS),
    Field("reward_source", "choice", REWARD_SOURCES),
    Field("iteration_steps", "whole"),
    Field("retrain", "flag"),
    Field("replay", "real"),
    Field("supervision", "choice", SUPERVISIONS),
)
"""Settings that seldom change: they stand under "More settings"."""
ALL = FIELDS + MORE
ACROSS = 4
MORE_OPEN = "live-more"  # session key
DEFAULT = RunConfig()


def key_of(name: str) -> str:
    """Return the session key of a setting's input."""
    return f"live-set-{name}"


def settings() -> dict[str, Any]:
    """Return what stands in the inputs, unchecked."""
    return {field.name: st.session_state.get(key_of(field.name), shown(field, DEFAULT)) for field in ALL}


def chosen(pace: float | None) -> RunConfig:
    """Return the run that the inputs describe. ValueError names the setting, its value and what is accepted."""
    values = settings()
    for field in ALL:
        if field.kind == "whole" and values[field.name] is None:
            raise ValueError(f"{t(f'live.set.{field.name}')}: {told(accepted(field.name))}")
    try:
        return RunConfig.from_dict({**values, **models.settings(), "pace": pace})
    except ValueError as error:
        raise ValueError(told(error)) from None


def form(*, title: str) -> None:
    """Draw the settings in a box that can be opened."""
    with st.expander(title, icon=":material/tune:", key="live-settings"):
        _inputs(FIELDS)
        if st.toggle(t("live.more"), key=MORE_OPEN, help=t("live.more_help"), persist_state="session"):
            _inputs(MORE)
        models.form()
        _messages()
        words = {"help": t("live.defaults_help"), "icon": ":material/restart_alt:"}
        st.button(t("live.defaults"), key="live-reset", on_click=reset, **words)


def _inputs(fields: Sequence[Field]) -> None:
    for start in range(0, len(fields), ACROSS):
        for column, field in zip(st.columns(ACROSS), fields[start : start + ACROSS], strict=False):
            with column:
                _input(field)


def reset() -> None:
    """Put every setting back to the default run."""
    restore(DEFAULT)
    models.reset()


def restore(config: RunConfig) -> None:
    """Put the settings of a run into the inputs."""
    for field in ALL:
        st.session_state[key_of(field.name)] = shown(field, config)
    models.restore(config)


def summary(config: RunConfig) -> str:
    """Return a run's main settings in one line."""
    return t("live.summary", **_words(config))


def in_full(config: RunConfig) -> str:
    """Return a run's settings in one line, all that the form has."""
    names = {"beta": "beta", "low": "epsilon_low", "high": "epsilon_high", "temperature": "temperature"}
    numbers = {word: short(getattr(config, name)) for word, name in names.items()}
    text = t("live.this_run", summary=summary(config), epochs=config.inner_epochs, seed=config.seed, **numbers)
    others = [field.name for field in MORE if getattr(config, field.name) != getattr(DEFAULT, field.name)]
    return " · ".join(
        [
            text,
            *filter(None, [models.model_words(config)]),
            *(f"{t(f'live.set.{name}')} {value_words(name, getattr(config, name))}" for name in others),
        ]
    )


def value_words(setting: str, value: Any) -> str:
    """Return a setting's value in words."""
    if setting in NAMES:
        return NAMES[setting](str(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return compact(float(value))
    key = f"live.choice.{value}"
    return t(key) if known(key) else re.sub(r"[^\w.-]", " ", str(value))


def _words(config: RunConfig) -> Mapping[str, Any]:
    task = models.task_words(config) or task_name(config.task)
    return {
        "task": task, "recipe": recipe_title(config.recipe), "prompts": config.prompts_per_step,
        "size": config.group_size, "lr": compact(config.learning_rate), "steps": config.steps,
    }  # fmt: skip


def adopted(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return a config with those of the changes that it accepts: another version may have written them."""
    for name, value in changes.items():
        with suppress(ValueError, TypeError):
            config = config.changed(**{name: value})
    return config


def task_name(name: str) -> str:
    """Return a task's name in words."""
    return t(f"live.task.{name}") if known(f"live.task.{name}") else name


NAMES: Mapping[str, Callable[[str], str]] = {"task": task_name, "recipe": recipe_title}
"""How choices are called that have names of their own."""


def shown(field: Field, config: RunConfig) -> Any:
    """Return a setting as its input holds it."""
    value = getattr(config, field.name)
    return compact(value) if field.kind == "real" else value


def compact(value: float) -> str:
    """Return a number as one would type it: 0.2, and 1e-4 for what is small."""
    if 0 < abs(value) < 1e-2:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}"


def _input(field: Field) -> None:
    taken = _take_recipe if field.name == "recipe" else None
    st.session_state.setdefault(key_of(field.name), shown(field, DEFAULT))
    draw(field, key_of(field.name), on_change=taken, persist_state="session")


def draw(field: Field, key: str, **more: Any) -> None:
    """Draw one setting's input, with its help and what is accepted."""
    label, note = t(f"live.set.{field.name}"), t(f"live.set.{field.name}.help")
    if field.kind == "choice":
        names = NAMES.get(field.name, lambda value: value_words(field.name, value))
        st.selectbox(label, field.choices, key=key, help=note, format_func=names, **more)
    elif field.kind == "flag":
        st.checkbox(label, key=key, help=note, **more)
    elif field.kind == "whole":
        st.number_input(label, step=1, format="%d", key=key, help=f"{note} {_allowed(field)}", **more)
    else:
        st.text_input(label, key=key, help=f"{note} {_allowed(field)}", **more)


def _allowed(field: Field) -> str:
    return t("live.accepted", accepted=told(accepted(field.name)))


def _take_recipe() -> None:
    """A recipe brings its own beta and clip range, its scaling and its surrogate."""
    brought = with_recipe({"recipe": st.session_state[key_of("recipe")]})
    own = RunConfig(**brought)
    for field in ALL:
        if field.name in brought:
            st.session_state[key_of(field.name)] = shown(field, own)


def _messages() -> None:
    try:
        config = chosen(None)
    except ValueError as error:
        st.error(f"{t('live.invalid')} {literal(told(error))}", icon=":material/error:")
        return
    if st.session_state.get(models.OPEN):
        models.show_outlook(config)
    for name in config.warnings():
        if known(f"live.warn.{name}"):
            st.warning(t(f"live.warn.{name}"), icon=":material/warning:")
