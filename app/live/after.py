"""What can follow a run: going on from a checkpoint, and taking away what it has written."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app import live_form
from app.live import models
from app.live.orders import refuse, say_refused, show
from app.live_reader import Look, Reader, Row
from app.words import t, told
from grpo_core.live import runner
from grpo_core.live.checkpoints import checkpoints_of
from grpo_core.live.store import RunStore, RunStoreError

DIVERGED = "diverged"
SHARE = 0.5  # of the learning rate, when a run goes on from before its loss was no number
PATIENCE = 120.0  # seconds that writing a model may take


def ending(source: Reader, look: Look) -> Row:
    """Return the event with which a run ended, {} if it has none: a worker that was killed leaves none."""
    try:
        found: Row = look.once("ending", lambda: source.store.last_event(look.run.id, "end"))
    except RunStoreError:
        return {}
    return found


def go_on(source: Reader, look: Look) -> None:
    """Draw the button with which a run that has ended goes on, as its end suggests."""
    if look.run.active:
        return
    name, words, changes = way_on(look, ending(source, look))
    icon, note = ":material/restart_alt:", t("live.go_on_help")
    if st.button(t(f"live.{name}", **words), key="live-go-on", icon=icon, help=note):
        resume(source, look.run.id, changes)


def way_on(look: Look, end: Row) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the label of the way on, what stands in it, and the settings that change on it."""
    run = look.run
    if end.get("cause") == DIVERGED and "checkpoint" in end:
        rate = SHARE * run.config.learning_rate
        return "resume_half", {"step": end["checkpoint"], "rate": live_form.compact(rate)}, {"learning_rate": rate}
    if run.state == "finished":
        return "resume_more", {"steps": run.steps}, {"steps": 2 * run.steps}
    return "resume", {}, {}


def resume(source: Reader, run_id: str, changes: Mapping[str, Any]) -> None:
    """Let a run go on from its checkpoint and show it; a refusal is said on the page."""
    try:
        models.check_paths(source.store.run(run_id).config)
        runner.resume_run(run_id, source.store, changes)
    except (ValueError, RuntimeError) as error:
        refuse(told(error))
        say_refused()
        return
    show(run_id)


# Taking away


def downloads(source: Reader, look: Look) -> None:
    """Draw the menu of what can be taken away; each file is made when it is asked for."""
    run_id, store = look.run.id, source.store
    with st.popover(t("live.take"), icon=":material/download:", key="live-take"):
        _download("export", f"{run_id}.zip", "application/zip", lambda: exported(store, run_id))
        _download("csv", f"{run_id}.csv", "text/csv", lambda: table(store, run_id))
        _download("groups_csv", f"{run_id}-groups.csv", "text/csv", lambda: completions(source, look))
        _download("trl", f"{run_id}.py", "text/x-python", lambda: script(look))
        kept = checkpoints_of(store.folder, run_id)
        if kept is not None and kept.all():
            _download("model", f"{run_id}-model.zip", "application/zip", lambda: with_model(store, run_id))


def _download(name: str, file: str, mime: str, make: Callable[[], Any]) -> None:
    st.download_button(
        t(f"live.take.{name}"), data=make, file_name=f"grpo-lab-{file}", mime=mime, on_click="ignore",
        key=f"live-take-{name}", help=t(f"live.take.{name}_help"), width="stretch",
    )  # fmt: skip


def exported(store: RunStore, run_id: str) -> bytes:
    """Return a run as one file."""
    from grpo_core.live.export import export_run

    with tempfile.TemporaryDirectory() as folder:
        return export_run(store, run_id, Path(folder) / "run.zip").read_bytes()


def with_model(store: RunStore, run_id: str) -> bytes:
    """Return a run as one file with the model in it. In a process of its own: pages load no torch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.zip"
        command = [sys.executable, "-m", "grpo_core.live.export", run_id, "--store", store.url, "--to", str(path)]
        root = Path(__file__).resolve().parents[2]
        subprocess.run([*command, "--model"], cwd=root, check=True, capture_output=True, timeout=PATIENCE)
        return path.read_bytes()


def table(store: RunStore, run_id: str) -> str:
    """Return a run's numbers as CSV, one line a step."""
    from grpo_core.live.export import metrics_csv

    return metrics_csv(store.metrics(run_id))


def script(look: Look) -> str:
    """Return the run's settings as a script for TRL's trainer."""
    from grpo_core.live.trl_script import trl_script

    return trl_script(look.run.config, title=look.run.id)


def completions(source: Reader, look: Look) -> str:
    """Return the completions of the newest step as CSV, one line each."""
    from app.widgets import Table

    found = source.groups(look.run.id, look.step)["groups"]
    names = ("rewards", "advantages", "lengths", "finish", "completions")
    rows = [
        (index, group["prompt"], *values)
        for index, group in enumerate(found, start=1)
        for values in zip(*(group[name] for name in names), strict=True)
    ]
    return Table(("group", "prompt", "reward", "advantage", "tokens", "end", "completion"), rows).csv()
