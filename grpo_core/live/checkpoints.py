"""Checkpoints: all that a run needs to go on as if it had not stopped, one safetensors file each.

A file holds the trained weights, the optimizer's moments, the reference's weights where it was refreshed and the state
of the torch generator as tensors; and as JSON in its header the step, the settings, the state of Python's random
numbers, and how many events the run had given. Nothing is ever unpickled. A file is written under another name and
then renamed: whenever the process dies, a file with a checkpoint's name is a whole checkpoint.

Reading a list of checkpoints loads no torch.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from grpo_core.messages import Spoken

VERSION = 1
KEEP = 3
"""The newest checkpoints that are kept ..."""
KEEP_BYTES = 512_000_000
"""... as far as they fit in this many bytes together; the newest one always is."""
FALLEN = 0.5
"""A checkpoint counts as bad when its accuracy is below this share of the best one's."""


class CheckpointError(Spoken, RuntimeError):
    """A checkpoint cannot be read or does not fit; the message says which and why."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk: where it is, and its header.

    step: steps taken. events: how many events the run had given before. accuracy: the sampled accuracy of the last
    evaluation, None when there was none. state: everything else, see trainer.Run.snapshot.
    """

    path: Path
    step: int
    events: int
    accuracy: float | None
    state: Mapping[str, Any] = field(compare=False)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    def tensors(self) -> dict[str, Any]:
        """Load the tensors, onto the CPU; CheckpointError when the file is damaged."""
        from safetensors.torch import load_file

        try:
            return dict(load_file(self.path))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                "The checkpoint {file} cannot be read: {error}", file=self.path.name, error=error
            ) from None


class Checkpoints:
    """The checkpoints of one run in a folder, which is made when the first one is saved."""

    def __init__(self, folder: Path, *, keep: int = KEEP) -> None:
        self.folder, self.keep = folder, keep
        self.seconds = 0.0
        """How long the last save took."""

    def save(self, tensors: Mapping[str, Any], state: Mapping[str, Any]) -> Path:
        """Write a checkpoint and remove those that are no longer needed; an OSError leaves the older ones as they are.

        state needs step, events and accuracy.
        """
        from safetensors.torch import save_file

        began = time.perf_counter()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{int(state['step']):08d}.safetensors"
        unfinished = path.with_suffix(".unfinished")
        try:
            save_file(dict(tensors), unfinished, metadata={"state": json.dumps({"version": VERSION, **state})})
            os.replace(unfinished, path)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise OSError(str(error)) from None
        finally:
            unfinished.unlink(missing_ok=True)
        self._tidy()
        self.seconds = time.perf_counter() - began
        return path

    def all(self) -> list[Checkpoint]:
        """List the checkpoints that can be read, oldest first."""
        found = (_read(path) for path in sorted(self.folder.glob("step-*.safetensors")))
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def newest(self) -> Checkpoint | None:
        """Give the newest checkpoint."""
        return next(reversed(self.all()), None)

    def good(self) -> Checkpoint | None:
        """Give the newest checkpoint whose accuracy has not fallen to less than half of the best one's.

        A run whose loss is no number any more was mostly lost some steps before: its newest weights are finite and
        useless.
        """
        return _good(self.all())

    def drop_after(self, step: int) -> None:
        """Remove the checkpoints of later steps: the run goes on from here, and will take other ones."""
        for checkpoint in self.all():
            if checkpoint.step > step:
                checkpoint.path.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Keep the newest ones, the last good one and the best one."""
        there = self.all()
        kept, room = {_best(there), _good(there)}, KEEP_BYTES
        for number, checkpoint in enumerate(reversed(there)):
            room -= checkpoint.size
            if number == 0 or (number < self.keep and room >= 0):
                kept.add(checkpoint)
        for checkpoint in there:
            if checkpoint not in kept:
                checkpoint.path.unlink(missing_ok=True)


def checkpoints_of(folder: Path | None, run_id: str) -> Checkpoints | None:
    """Give the checkpoints of a run, by the folder of its store; None for a store without a folder."""
    return None if folder is None else Checkpoints(folder / run_id / "checkpoints")


def _read(path: Path) -> Checkpoint | None:
    """Read a checkpoint's header; None when it is damaged or of another version."""
    try:
        with safe_open(path, framework="numpy") as file:
            state = json.loads((file.metadata() or {})["state"])
        if state["version"] != VERSION:
            return None
        return Checkpoint(path, int(state["step"]), int(state["events"]), state["accuracy"], state)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None


def _best(there: list[Checkpoint]) -> Checkpoint | None:
    """Give the newest of those with the highest accuracy."""
    return max(there, key=lambda one: (one.accuracy or 0.0, one.step), default=None)


def _good(there: list[Checkpoint]) -> Checkpoint | None:
    """Give the newest one that is not far below the best."""
    best = _best(there)
    least = FALLEN * (best.accuracy or 0.0) if best else 0.0
    return next((one for one in reversed(there) if one.accuracy is None or one.accuracy >= least), None)
