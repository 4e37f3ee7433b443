"""Taking a run away: as one file, as a table, as a model; and bringing such a file into another store.

    python -m grpo_core.live.export RUN_ID --store FOLDER --to FILE.zip [--model]
    python -m grpo_core.live.export RUN_ID --store FOLDER --to MODEL --only-model

An export is a zip with manifest.json, config.json, metrics.jsonl, commands.jsonl and groups.jsonl, see
grpo_core.readers.grpo_lab; with the model, a folder model/ as transformers saves it.
"""

import argparse
import csv
import io
import json
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grpo_core.live.checkpoints import Checkpoint, CheckpointError, checkpoints_of
from grpo_core.live.groups import to_json
from grpo_core.live.store import ENDED, RunInfo, RunStore, RunStoreError
from grpo_core.messages import Message, Spoken, recall, remember
from grpo_core.readers import RunFormatError, grpo_lab
from grpo_core.readers.files import Files

DEPTH = 6
"""zlib level of the lines; the weights of a model are stored as they are."""


LATEST = 1e11
"""No run began or ended later: in the year 5138. Not every system can write the date of a later second."""
_TEXTS = {"run": 40, "reason": 2000, "device": 200, "name": 120, "note": 2000}
"""The texts of a manifest that a store keeps, and how long they may be."""


class ExportError(Spoken, RuntimeError):
    """What was asked for cannot be taken away; the message says why."""


def export_run(store: RunStore, run_id: str, path: Path, *, model: bool = False) -> Path:
    """Write a run as one zip file, under another name first, so that the file is whole or not there.

    model: with the model of its newest checkpoint. RunStoreError, ExportError or OSError when that is not possible.
    """
    run = store.run(run_id)
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=DEPTH) as archive:
            archive.writestr("manifest.json", json.dumps(_manifest(run), indent=1))
            archive.writestr("config.json", json.dumps(run.config.to_dict(), indent=1))
            rows = [{**row, "seq": number} for number, row in enumerate(store.metrics(run_id), 1)]
            commands = [row for row in rows if row["event"] == "command"]
            _write_lines(archive, "metrics.jsonl", (row for row in rows if row["event"] != "command"))
            _write_lines(archive, "commands.jsonl", commands)
            steps = (store.step_groups(run_id, step) for step in store.group_steps(run_id))
            _write_lines(archive, "groups.jsonl", (step for step in steps if step["groups"]))
            if model:
                _add_model(archive, store, run_id)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def import_run(path: str | os.PathLike[str], store: RunStore) -> str:
    """Bring a run that was exported into a store and give its name there; whole, or not at all.

    RunFormatError when the file is damaged, not safe, or of another version. A model in it stays in the file.
    """
    files = Files(Path(path))
    try:
        manifest = grpo_lab.read_manifest(files)
        config = files.json("config.json")
        problems: list[grpo_lab.Problem] = []
        events = grpo_lab.events(files, problems)
        blobs = {}
        for step, data in grpo_lab.group_lines(files, problems):
            blobs[step] = zlib.compress(to_json({**data, "step": step}).encode(), 1)
    finally:
        files.close()
    if problems or not isinstance(config, Mapping):
        first = problems[0] if problems else grpo_lab.Problem("config.json", 0, Message("no settings"))
        raise RunFormatError(
            "{file} is damaged: line {line} of {name} is {what} ({count} such lines). Nothing was "
            "brought in; export the run again.",
            file=files.path.name,
            line=first.line,
            name=first.where,
            what=first.what,
            count=len(problems),
        )
    return store.add_run(_brought_in(manifest), config, events, blobs)


def save_model(store: RunStore, run_id: str, folder: Path, *, step: int | None = None) -> Path:
    """Save the model of a run's newest checkpoint, or of a step's, the transformers way; an adapter is merged."""
    from grpo_core.live.model import save_policy
    from grpo_core.live.trainer import policy_of

    checkpoint = _checkpoint(store, run_id, step)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        save_policy(policy_of(checkpoint), folder)
    except (CheckpointError, ValueError) as error:
        raise ExportError("The model of run {run} cannot be saved: {error}", run=run_id, error=error) from None
    return folder


def metrics_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a run's events as CSV, one line a step; what was evaluated after a step stands in its line as eval/...

    Only numbers: neither texts nor lists. A number that a step does not have is left empty.
    """
    lines: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["event"] in ("step", "eval"):
            prefix = "eval/" if row["event"] == "eval" else ""
            numbers = {prefix + k: v for k, v in row.items() if _is_number(v) and k not in ("step", "seq")}
            lines.setdefault(int(row["step"]), {"step": int(row["step"])}).update(numbers)
    columns = list(dict.fromkeys(name for line in lines.values() for name in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, sorted(columns, key=lambda name: name.startswith("eval/")), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines[step] for step in sorted(lines))
    return out.getvalue()


def _manifest(run: RunInfo) -> dict[str, Any]:
    names = ("state", "reason", "created", "started", "ended", "device", "step", "steps", "name", "note")
    about = {name: getattr(run, name) for name in names}
    own = {"format": grpo_lab.NAME, "version": grpo_lab.VERSION, "run": run.id}
    return remember({**own, **about, "changed": dict(run.changed)})


def _brought_in(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says that a store keeps; what is of the wrong kind is left out."""
    found: dict[str, Any] = {}
    for name, value in recall(manifest).items():
        if name in ("created", "started", "ended") and _is_number(value) and 0 <= value <= LATEST:
            found[name] = float(value)
        elif name in ("step", "steps") and _is_number(value) and 0 <= value <= grpo_lab.MAX_STEP:
            found[name] = int(value)
        elif name in _TEXTS and isinstance(value, str):
            found[name] = value if len(value) <= _TEXTS[name] else value[: _TEXTS[name]]
    state = manifest.get("state")
    found["state"] = state if state in ENDED else "stopped"
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write_lines(archive: zipfile.ZipFile, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    with archive.open(name, "w", force_zip64=True) as file:
        for row in rows:
            file.write(to_json(remember(row)).encode() + b"\n")


def _add_model(archive: zipfile.ZipFile, store: RunStore, run_id: str) -> None:
    with tempfile.TemporaryDirectory(dir=store.folder) as folder:
        for path in sorted(save_model(store, run_id, Path(folder)).rglob("*")):
            if path.is_file():
                archive.write(path, f"model/{path.relative_to(folder).as_posix()}", zipfile.ZIP_STORED)


def _checkpoint(store: RunStore, run_id: str, step: int | None) -> Checkpoint:
    run = store.run(run_id)
    kept = checkpoints_of(store.folder, run_id)
    there = kept.all() if kept else []
    found = [one for one in there if step is None or one.step == step]
    if not found:
        wanted = "" if step is None else Message(" of step {step}", step=step)
        steps = ", ".join(str(one.step) for one in there)
        known = Message(": there are those of the steps {steps}", steps=steps) if there else ""
        wait = Message("; it keeps one when it is paused") if run.active else ""
        raise ExportError(
            "Run {run} has no checkpoint{wanted}, so that its model is not there{known}{wait}.",
            run=run_id,
            wanted=wanted,
            known=known,
            wait=wait,
        )
    return found[-1]


def main(arguments: list[str] | None = None) -> int:
    """Take a run away as the options say; exit status 0, or 2 when that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m grpo_core.live.export", description="Take a run away as one file.")
    parser.add_argument("run_id")
    parser.add_argument("--store", required=True, help="the run store: a folder or a URL")
    parser.add_argument("--to", required=True, type=Path, help="the zip file, or with --only-model the folder")
    parser.add_argument("--model", action="store_true", help="with the model of the newest checkpoint")
    parser.add_argument("--only-model", action="store_true", help="nothing but the model, as transformers loads it")
    options = parser.parse_args(arguments)
    try:
        store = RunStore(options.store)
        if options.only_model:
            print(save_model(store, options.run_id, options.to))
        else:
            print(export_run(store, options.run_id, options.to, model=options.model))
    except (RunStoreError, ExportError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
