"""Commands: what a user may ask of a training that is going on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_core.live.config import check_live_setting, with_recipe
from grpo_core.messages import InputError

COMMANDS = ("pause", "resume", "stop", "step", "set", "refresh")


@dataclass(frozen=True)
class Command:
    """One wish of a user: pause, resume, stop, step (one step, then pause), set with settings to change (a recipe among
    them brings its own beta and clip range), or refresh (the reference becomes a copy of the policy).
    """

    name: str
    value: Any = None


def check_command(name: str, value: Any) -> Any:
    """Return a command's value in its proper form; a ValueError says what is accepted."""
    if name not in COMMANDS:
        raise InputError("unknown command {name!r}: accepted are {accepted}", name=name, accepted=", ".join(COMMANDS))
    if name != "set":
        return None
    if not isinstance(value, Mapping) or not value:
        raise InputError(
            "set takes the settings to change, as in {{'learning_rate': 2e-4}}; got {value!r}", value=value
        )
    return with_recipe({setting: check_live_setting(setting, wish) for setting, wish in value.items()})
