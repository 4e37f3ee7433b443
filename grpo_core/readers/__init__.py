"""Readers: logs of training runs, from disk, as groups, metrics and findings.

>>> open_run("nowhere.zip")
Traceback (most recent call last):
...
grpo_core.readers.files.RunFormatError: nowhere.zip does not exist: give a run that was saved, a zip file or a folder
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo_core.readers import grpo_lab
from grpo_core.readers.files import Files, RunFormatError
from grpo_core.readers.runs import Problem, Run

__all__ = ["FORMATS", "Format", "Problem", "Run", "RunFormatError", "open_run"]


@dataclass(frozen=True)
class Format:
    """One kind of log: its name, how it is recognised, how it is read."""

    name: str
    matches: Callable[[Files], bool]
    read: Callable[[Files], Run]


FORMATS: tuple[Format, ...] = (Format(grpo_lab.NAME, grpo_lab.matches, grpo_lab.read),)
"""All that can be read; the first that matches does."""


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the log of a run, a file or a folder: .groups(), .metrics(), .findings() and .problems.

    What is broken in it is left out and listed in .problems. RunFormatError, which is a ValueError, when it is no log
    of a known format, damaged as a whole, or not safe to read.
    """
    files = Files(Path(path).expanduser())
    known = next((one for one in FORMATS if one.matches(files)), None)
    if known is None:
        names = ", ".join(one.name for one in FORMATS)
        raise RunFormatError(
            "{file} is no log of a known format: accepted are {names}", file=files.path.name, names=names
        )
    return known.read(files)
