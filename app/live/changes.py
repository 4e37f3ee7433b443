"""What commands did to a run: in words, as stamps for the charts, and as the settings that a step was taken with."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from app import live_form
from app.figures.live import Stamp
from app.live_reader import Look, Row
from app.numbers import short
from app.words import known, t
from grpo_core.live.config import RunConfig

FULL = "full"


def settings_at(look: Look, step: int | None = None) -> RunConfig:
    """Return the settings that a step was taken with; without one those that the run has now."""
    changes: dict[str, Any] = {}
    for row in look.commands:
        in_time = step is None or int(row.get("step", 0)) < step
        if row.get("name") == "set" and "refused" not in row and in_time and isinstance(row.get("value"), dict):
            changes |= row["value"]
    return live_form.adopted(look.run.config, changes)


def stamps(look: Look | None, by: str) -> list[Stamp]:
    """Return the commands of a run where they took effect, and its notices, of those in a row the first."""
    if look is None:
        return []
    taken = [row for row in look.commands if "refused" not in row]
    rows = sorted([*taken, *look.notices], key=lambda row: int(row.get("seq", 0)))
    told = [row for before, row in pairwise([{}, *rows]) if not (_is_notice(row) and _is_notice(before))]
    return [Stamp(float(row[by]), words) for row in told for words in command_words(row)]


def _is_notice(row: Row) -> bool:
    return row.get("event") == "notice"


def command_words(row: Row) -> list[str]:
    """Return a command or a notice in a word or two, one for each setting it changed."""
    name, value = str(row.get("name")), row.get("value")
    if name == "set" and isinstance(value, dict):
        return [_set_words(setting, wish) for setting, wish in value.items()]
    key = f"live.notice.stamp.{name}" if _is_notice(row) else f"live.cmd.{name}"
    return [t(key) if known(key) else re.sub(r"\W", " ", name)]


def _set_words(setting: str, wish: Any) -> str:
    if setting == "pace":
        return pace_label(pace_name(wish))
    name = t(f"live.cmd.{setting}") if known(f"live.cmd.{setting}") else setting
    return t("live.cmd.set", name=name, value=live_form.value_words(setting, wish))


def pace_name(pace: float | None) -> str:
    """Return the name of a pace in steps a second, or of full speed."""
    return FULL if pace is None else short(pace)


def pace_label(name: str) -> str:
    """Return a pace in words, by its name."""
    if name == FULL:
        return t("live.pace_full")
    return t("live.pace_one") if name == "1" else t("live.pace_value", pace=name)


def pace_of(name: str) -> float | None:
    """Return the pace of that name."""
    return None if name == FULL else float(name)
