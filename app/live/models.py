"""Which model trains and on whose tasks: built-in or the reader's own, and what that will take, said before Start."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import streamlit as st

from app.live.source import open_store
from app.numbers import plain
from app.widgets import literal
from app.words import known, prose, t, told
from grpo_core.live.config import DTYPES, RunConfig
from grpo_core.live.estimates import Estimate, Known, estimate, evaluation_seconds, known_model, token_room, work_of
from grpo_core.live.machine import Machine, this_machine
from grpo_core.live.sandbox import KINDS as TROUBLES
from grpo_core.live.sandbox import code_allowed
from grpo_core.live.sources import BUILT_IN, find_source
from grpo_core.live.task_files import MAX_BYTES, TaskFile, keep_upload, parse_tasks, read_tasks, usable
from grpo_core.live.tasks import TASKS
from grpo_core.live.verifiers import FILE_VERIFIERS

KINDS = ("built_in", "folder", "hub")
TASK_KINDS = ("built_in", "upload", "path")
OWN = "own"
"""Stands among the verifiers for Python code of the user's."""
SHOWN = 5
"""How many prompts and how many broken lines of a file are shown."""
MEGA, GIGA = 1e6, 1e9
DEFAULTS: Mapping[str, Any] = {
    "kind": "built_in", "built_in": "", "folder": "", "hub": "", "dtype": "auto",
    "lora_rank": 0, "task_kind": "built_in", "task_path": "", "verifier": "answer", "verifier_file": "",
}  # fmt: skip
OPEN = "live-model-open"  # session key
UPLOADED = "live-model-uploaded"  # session key: (path, name) of the file that was uploaded last


def key_of(name: str) -> str:
    """Return the session key of an input."""
    return f"live-model-{name}"


def _value(name: str) -> Any:
    return st.session_state.get(key_of(name), DEFAULTS[name])


def paths_allowed() -> bool:
    """Return whether this reader may name files, folders and hub models: on the machine itself, or if allowed.

    GRPO_LAB_ALLOW_FILES=1 allows it to everyone, 0 to nobody. Behind a proxy everyone seems to be on the machine
    itself, unless the proxy says for whom it asks.
    """
    word = os.environ.get("GRPO_LAB_ALLOW_FILES", "")
    if word:
        return word == "1"
    forwarded = {"X-Forwarded-For", "X-Real-Ip", "Forwarded"} & {name.title() for name in st.context.headers}
    return st.context.ip_address is None and not forwarded


def check_paths(config: RunConfig) -> None:
    """ValueError where a run's settings, which a file may have brought in, name what this reader may not name."""
    uploaded = not config.task_file or Path(config.task_file).parent == _folder() / "tasks"
    harmless = config.model in ("", *BUILT_IN) and uploaded and not config.verifier_file
    if not harmless and not paths_allowed():
        raise ValueError(t("live.model.not_here"))


def settings() -> dict[str, Any]:
    """Return the settings that stand in these inputs. ValueError says what is wrong with a file."""
    kind, task_kind = (_value("kind"), _value("task_kind")) if paths_allowed() else ("built_in", _safe_task_kind())
    own = _value("verifier") == OWN and code_allowed() and paths_allowed()
    path = {"built_in": "", "path": str(_value("task_path")).strip(), "upload": _uploaded()[0]}[task_kind]
    found = {
        "model": str(_value(kind)).strip(),
        "dtype": _value("dtype"),
        "lora_rank": _value("lora_rank"),
        "task_file": path,
        "verifier": DEFAULTS["verifier"] if _value("verifier") == OWN else _value("verifier"),
        "verifier_file": str(_value("verifier_file")).strip() if own and task_kind != "built_in" else "",
    }
    if task_kind != "built_in":
        _check_task(found, own)
    if kind != "built_in":
        find_source(found["model"])
    return found


def _safe_task_kind() -> str:
    return "upload" if _value("task_kind") == "upload" else "built_in"


def _check_task(found: Mapping[str, Any], own: bool) -> None:
    if not found["task_file"]:
        raise ValueError(t("live.model.no_file"))
    if own and not found["verifier_file"]:
        raise ValueError(t("live.model.no_verifier"))
    usable(tasks_of(found["task_file"], found["verifier"], own))


def _uploaded() -> tuple[str, str]:
    found: tuple[str, str] = st.session_state.get(UPLOADED, ("", ""))
    return found


def reset() -> None:
    """Put these inputs back to the default run."""
    for name, value in DEFAULTS.items():
        st.session_state[key_of(name)] = value
    st.session_state.pop(UPLOADED, None)


def restore(config: RunConfig) -> None:
    """Put a run's model and tasks into these inputs."""
    reset()
    kind = "built_in" if config.model in ("", *BUILT_IN) else "folder" if os.path.exists(config.model) else "hub"
    kept = Path(config.task_file).parent == _folder() / "tasks"
    found = {"kind": kind, kind: config.model, "dtype": config.dtype, "lora_rank": config.lora_rank}
    found |= {"verifier": OWN if config.verifier_file else config.verifier, "verifier_file": config.verifier_file}
    if config.task_file:
        found |= {"task_kind": "upload"} if kept else {"task_kind": "path", "task_path": config.task_file}
    if config.task_file and kept:
        st.session_state[UPLOADED] = (config.task_file, Path(config.task_file).name)
    for name, value in found.items():
        st.session_state[key_of(name)] = value
    st.session_state[OPEN] = found != {name: DEFAULTS[name] for name in found}


def tasks_of(path: str, verifier: str, own: bool) -> TaskFile:
    """Return what stands in a task file, read once for each state of the file; ValueError where it cannot be read."""
    try:
        stat = Path(path).expanduser().stat()
    except (OSError, ValueError):
        return read_tasks(path)  # says what is wrong
    return _read(path, stat.st_mtime_ns, stat.st_size, verifier, own)


@lru_cache(maxsize=4)
def _read(path: str, _time: int, size: int, verifier: str, own: bool) -> TaskFile:
    if size > MAX_BYTES:
        return read_tasks(path)  # says so
    return parse_tasks(Path(path).expanduser().read_bytes(), verifier=verifier, own_code=own)


# The inputs


def form() -> None:
    """Draw the inputs for model and tasks, where the reader asked for them."""
    if not st.toggle(t("live.model.open"), key=OPEN, help=t("live.model.open_help"), persist_state="session"):
        return
    for name, value in DEFAULTS.items():
        st.session_state.setdefault(key_of(name), value)
    model, tasks = st.columns(2, gap="medium")
    with model:
        _model_inputs()
    with tasks:
        _task_inputs()


def _pick(name: str, options: tuple[str, ...], *, prefix: str | None = None, select: bool = False) -> None:
    label, stem = t(f"live.model.{name}"), prefix or f"live.model.{name}"
    more: dict[str, Any] = {"key": key_of(name), "help": t(f"live.model.{name}.help"), "persist_state": "session"}
    if select:
        st.selectbox(label, options, format_func=lambda value: t(f"{stem}.{value or 'task'}"), **more)
    else:
        st.segmented_control(label, options, required=True, format_func=lambda value: t(f"{stem}.{value}"), **more)


def _text(name: str) -> None:
    label, note = t(f"live.model.{name}"), t(f"live.model.{name}.help")
    st.text_input(label, key=key_of(name), help=note, max_chars=500, persist_state="session")


def _model_inputs() -> None:
    kinds = KINDS if paths_allowed() else KINDS[:1]
    if _value("kind") not in kinds:
        st.session_state[key_of("kind")] = kinds[0]
    _pick("kind", kinds)
    kind = _value("kind")
    if kind == "built_in":
        _pick("built_in", ("", *BUILT_IN), select=True)
    else:
        _text(kind)
        _pick("dtype", DTYPES, select=True)
    st.number_input(
        t("live.model.lora_rank"), step=1, format="%d", key=key_of("lora_rank"), help=t("live.model.lora_rank.help"),
        persist_state="session",
    )  # fmt: skip
    if not paths_allowed():
        st.caption(t("live.model.not_here"))


def _task_inputs() -> None:
    kinds = TASK_KINDS if paths_allowed() else TASK_KINDS[:2]
    if _value("task_kind") not in kinds:
        st.session_state[key_of("task_kind")] = kinds[0]
    _pick("task_kind", kinds)
    if _value("task_kind") == "built_in":
        return
    if _value("task_kind") == "upload":
        _upload()
    else:
        _text("task_path")
    own = (OWN,) if code_allowed() and paths_allowed() else ()
    if _value("verifier") not in (*FILE_VERIFIERS, *own):
        st.session_state[key_of("verifier")] = DEFAULTS["verifier"]
    _pick("verifier", (*FILE_VERIFIERS, *own), select=True)
    if _value("verifier") == OWN:
        _text("verifier_file")
    _file_contents()


def _upload() -> None:
    """Take a file; it is kept beside the runs, so that a run can be repeated."""
    file = st.file_uploader(
        t("live.model.upload"), type=["jsonl", "json", "txt"], key=key_of("upload"), help=t("live.model.upload.help"),
        max_upload_size=MAX_BYTES // 10**6,
    )  # fmt: skip
    if file is not None:
        try:
            st.session_state[UPLOADED] = (str(keep_upload(file.getvalue(), _folder())), file.name)
        except (ValueError, OSError) as error:
            st.error(literal(told(error)), icon=":material/error:")
    path, name = _uploaded()
    if path:
        st.caption(t("live.model.uploaded", name=literal(name)))


def _folder() -> Path:
    """Return the folder of the run store, or one for temporary files where the store is a server."""
    source = open_store()
    folder = source.store.folder if source is not None else None
    return folder or Path(tempfile.gettempdir()) / "grpo-lab"


def _file_contents() -> None:
    """Say what stands in the file, and which lines cannot be used."""
    own = _value("verifier") == OWN
    path = _uploaded()[0] if _value("task_kind") == "upload" else str(_value("task_path")).strip()
    if not path:
        return
    try:
        tasks = tasks_of(path, DEFAULTS["verifier"] if own else _value("verifier"), own)
    except ValueError:
        return  # the form says it
    train, held_out = tasks.split
    st.caption(t("live.model.split", train=len(train), held_out=len(held_out)))
    if tasks.problems:
        names = {"prompt": t("live.prompt"), "answer": t("live.answer")}
        rows = [{names["prompt"]: p.prompt[:200], names["answer"]: p.answer[:80]} for p in tasks.problems[:SHOWN]]
        st.dataframe(rows, hide_index=True, key="live-model-prompts")
    if tasks.broken_count:
        st.warning(t("live.model.broken", count=tasks.broken_count), icon=":material/warning:")
        line, reason = t("live.model.line"), t("live.model.reason")
        rows = [{line: str(b.line), reason: t(f"live.broken.{b.reason}")} for b in tasks.broken[:SHOWN]]
        st.dataframe(rows, hide_index=True, key="live-model-broken")


def show_troubles(metrics: Mapping[str, Any]) -> None:
    """Say what the verifier could not do in the newest step."""
    found = {kind: metrics.get(f"verifier/{kind}") for kind in TROUBLES}
    said = [t(f"live.trouble.{kind}", count=f"{number:g}") for kind, number in found.items() if number]
    if said:
        st.warning(t("live.trouble", list=", ".join(said)), icon=":material/rule:")


# The estimate


@dataclass(frozen=True)
class Outlook:
    """What a run will take on this machine."""

    known: Known
    machine: Machine
    estimate: Estimate
    evaluations: float | None

    @property
    def too_large(self) -> bool:
        """Whether it takes more memory than is free."""
        return self.machine.free is not None and self.estimate.total > self.machine.free


def outlook(config: RunConfig) -> Outlook:
    """Return what a run will take; ValueError where nothing can be said."""
    name = config.model or TASKS[config.task].start
    own, machine = known_model(name), this_machine(config.device)
    built_in = name in BUILT_IN
    half = not built_in and {"auto": machine.kind == "cuda", "bfloat16": True}.get(config.dtype, False)
    room = None if machine.memory is None else token_room(own.shape, own.parameters, machine.memory, half=half)
    tokens, speed, numbers = _prompt_tokens(config, built_in), machine.speed, own.parameters
    work = work_of(config, prompt_tokens=tokens, half=half)
    found = estimate(own.shape, work, speed=speed, room=room, parameters=numbers)
    sizes = {"prompt_tokens": tokens, "parameters": numbers}
    evaluations = None if speed is None else evaluation_seconds(own.shape, config, speed, **sizes)
    return Outlook(own, machine, found, evaluations)


def _prompt_tokens(config: RunConfig, built_in: bool) -> int:
    """Return roughly the tokens of a long prompt: four letters a token, and 30 for a chat template."""
    if not config.task_file:
        return 20
    tasks = tasks_of(config.task_file, config.verifier, bool(config.verifier_file))
    longest = max(len(problem.prompt) for problem in tasks.problems)
    return longest + 1 if built_in else longest // 4 + 30


def show_outlook(config: RunConfig) -> None:
    """Draw what the next run will take, with a warning where that is more than there is."""
    try:
        found = outlook(config)
    except ValueError as error:
        st.info(f"{t('live.estimate.unknown')} {literal(told(error))}", icon=":material/help:")
        return
    own, machine = found.estimate, found.machine
    words = {
        "parameters": count(own.parameters), "learned": count(own.learned), "memory": size(own.total),
        "free": "–" if machine.free is None else size(machine.free),
        "device": literal(machine.name) or t(f"live.device.{machine.kind}"),
    }  # fmt: skip
    st.caption(t("live.estimate.line", **words) + " " + _time_words(found, config.steps))
    parts = [f"{t(f'live.estimate.{name}')} {size(value)}" for name, value in own.parts.items() if value]
    st.caption(t("live.estimate.parts", parts=", ".join(parts)))
    if found.too_large:
        st.warning(prose("live", "too-large"), icon=":material/memory:")


def _time_words(found: Outlook, steps: int) -> str:
    seconds, evaluations = found.estimate.seconds, found.evaluations
    if seconds is None or evaluations is None:
        return t("live.estimate.no_time")
    words = {"step": seconds, "run": seconds * steps, "evaluations": evaluations}
    return t("live.estimate.time", **{name: duration(value) for name, value in words.items()})


def size(value: float) -> str:
    """Return bytes in words."""
    if value < GIGA:
        return t("unit.mb", value=plain(value / MEGA, 0 if value >= 10 * MEGA else 1))
    return t("unit.gb", value=plain(value / GIGA, 1))


def count(value: int) -> str:
    """Return a number of parameters in millions, or in billions from a thousand millions on."""
    if value < GIGA:
        return t("unit.million", value=plain(value / MEGA, 2 if value < 10 * MEGA else 0))
    return t("unit.billion", value=plain(value / GIGA, 1))


def duration(seconds: float) -> str:
    """Return a time with one or two digits: it is rough."""
    for limit, unit, length in ((1.0, "ms", 1e-3), (90.0, "s", 1.0), (5400.0, "min", 60.0)):
        if seconds < limit:
            return t(f"unit.{unit}", value=f"{float(f'{seconds / length:.1g}'):g}")
    return t("unit.h", value=f"{float(f'{seconds / 3600:.1g}'):g}")


def task_words(config: RunConfig) -> str:
    """Return a run's task file in words, nothing for a built-in task."""
    return t("live.model.task_file", name=Path(config.task_file).name) if config.task_file else ""


def model_words(config: RunConfig) -> str:
    """Return the model of a run in words, nothing for its task's own start."""
    key = f"live.model.built_in.{config.model}"
    name = "" if not config.model else t(key) if known(key) else config.model
    return f"{name} (LoRA {config.lora_rank})".strip() if config.lora_rank else name
