"""Our own export: manifest.json, config.json, metrics.jsonl, commands.jsonl and groups.jsonl, zipped or in a folder.

Every line of metrics.jsonl and commands.jsonl is an event of the trainer with its number in the run, `seq`; every line
of groups.jsonl holds one step: {"step", "groups", "ratio_histogram"}. See grpo_core.live.trainer and live.groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grpo_core.groups import Group
from grpo_core.messages import InputError, Message, message_of
from grpo_core.readers.events import check_event, check_histogram
from grpo_core.readers.files import Files, RunFormatError, parse
from grpo_core.readers.runs import Problem, Run

NAME, VERSION = "grpo-lab-run", 1
MAX_STEP = 10_000_000
_RAGGED = ("tokens", "old_logp", "logp")


def matches(files: Files) -> bool:
    """Say whether these are the files of an export."""
    return "manifest.json" in files


def read(files: Files) -> Run:
    """Read an export; RunFormatError when it is none, or of another version."""
    manifest = read_manifest(files)
    config = files.json("config.json")
    if not isinstance(config, Mapping):
        raise RunFormatError("config.json in {file} holds no settings: it is damaged", file=files.path.name)
    problems: list[Problem] = []
    known = events(files, problems)
    rows = [row for row in known if row["event"] in ("step", "eval")]
    settings = {**config, **{name: value for event in known for name, value in _changes(event).items()}}
    steps: dict[int, None] = {}
    for step, _ in groups(files, problems):
        steps[step] = None

    def again() -> Iterator[tuple[int, Group]]:
        return groups(files, [])

    name = str(manifest.get("run", files.path.stem))
    return Run(NAME, name, settings, tuple(problems), rows, tuple(steps), again, about=manifest)


def _changes(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that an event changed."""
    value = event.get("value") if event.get("name") == "set" and "refused" not in event else None
    return value if isinstance(value, Mapping) else {}


def read_manifest(files: Files) -> dict[str, Any]:
    """Read what an export says of itself, once its version is known to be right."""
    manifest = files.json("manifest.json")
    if not isinstance(manifest, Mapping) or manifest.get("format") != NAME:
        raise RunFormatError(
            "{file} is no run of GRPO Lab: its manifest.json does not say {name!r}", file=files.path.name, name=NAME
        )
    version = manifest.get("version")
    if version != VERSION:
        raise RunFormatError(
            "{file} has version {version!r:.40} of the format, this GRPO Lab reads version "
            "{own}: open it with the GRPO Lab that saved it, or save it again",
            file=files.path.name,
            version=version,
            own=VERSION,
        )
    return dict(manifest)


def events(files: Files, problems: list[Problem]) -> list[dict[str, Any]]:
    """Read the events in their order; lines that cannot be used become problems."""
    found = [event for name in ("metrics.jsonl", "commands.jsonl") for event in _events(files, name, problems)]
    return sorted(found, key=lambda event: event["seq"])


def group_lines(files: Files, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the steps' groups as plain data, each checked; lines that cannot be used become problems."""
    for number, data in _objects(files, "groups.jsonl", problems):
        try:
            step = _whole(data.get("step"), "step")
            check_histogram(data.get("ratio_histogram"))
            for group in data["groups"]:
                group_of(group)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(
                Problem("groups.jsonl", number, Message("no groups of a step: {error}", error=_short(error)))
            )
            continue
        yield step, data


def groups(files: Files, problems: list[Problem]) -> Iterator[tuple[int, Group]]:
    """Read the groups with the steps they are from."""
    for step, data in group_lines(files, problems):
        for group in data["groups"]:
            yield step, group_of(group, source=f"step {step}")


def group_of(data: Mapping[str, Any], *, source: str = "") -> Group:
    """Turn a group of an event into the core's Group; ValueError, KeyError or TypeError when something is wrong."""
    found = Group(
        prompt=data["prompt"],
        answer=data.get("answer"),
        rewards=tuple(data["rewards"]),
        finish=tuple(data["finish"]),
        reward_parts={name: tuple(values) for name, values in data["reward_parts"].items()},
        ref_logp=None if data.get("ref_logp") is None else _rows(data["ref_logp"]),
        source=source,
        **{name: _rows(data[name]) for name in _RAGGED},
    )
    own = ("completions", "advantages", "lengths", "entropy")
    if any(len(data[name]) != found.size for name in own):
        raise InputError("{names} need {size} entries each", names=", ".join(own), size=found.size)
    return found


def _events(files: Files, name: str, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    for number, data in _objects(files, name, problems):
        try:
            kind = data["event"]
            if not isinstance(kind, str) or not kind.isidentifier() or len(kind) > 20:
                raise InputError("event={kind!r:.40} is no kind of event", kind=kind)
            event = {**data, "step": _whole(data["step"], "step"), "seq": _whole(data["seq"], "seq")}
            check_event(event)
            yield event
        except (KeyError, TypeError, ValueError) as error:
            problems.append(Problem(name, number, Message("no event: {error}", error=_short(error))))


def _objects(files: Files, name: str, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a file of JSON objects, one a line; lines that are none become problems."""
    for number, line in enumerate(files.lines(name), 1):
        try:
            data = parse(line)
        except ValueError as error:
            problems.append(Problem(name, number, Message("not JSON: {error}", error=_short(error))))
            continue
        if isinstance(data, dict):
            yield number, data
        else:
            problems.append(Problem(name, number, Message("not a JSON object")))


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_STEP:
        raise InputError(
            "{name}={value!r:.40} is not a whole number from 0 to {max_step}", name=name, value=value, max_step=MAX_STEP
        )
    return value


def _rows(ragged: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row) for row in ragged)


def _short(error: Exception) -> str:
    """Say what is wrong without repeating a long text of the file."""
    text = Message("{name} is missing", name=str(error)) if isinstance(error, KeyError) else message_of(error)
    return text if len(text) <= 200 else text[:200] + " ..."
