"""The files of a log, from a folder or a zip file, read with bounds: what others made may be broken or meant to harm.

Nothing is unpacked to disk. Names that point outside, links and files that grow beyond the bounds are errors in words.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from grpo_core.messages import InputError

MAX_FILES = 10_000
MAX_BYTES = 2_000_000_000
"""Of all files together, unpacked."""
MAX_LINE = 64_000_000


class RunFormatError(InputError):
    """A file is not the log of a run, or is broken beyond use; the message says what is wrong and what helps."""


class Files:
    """The files of a folder, or of a zip file, by their names inside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._left = MAX_BYTES
        if not path.exists():
            raise RunFormatError("{path} does not exist: give a run that was saved, a zip file or a folder", path=path)
        self._zip = None if path.is_dir() else _open_zip(path)
        self.names = self._folder_names() if self._zip is None else _zip_names(self._zip, path)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def close(self) -> None:
        """Close the zip file."""
        if self._zip is not None:
            self._zip.close()

    def json(self, name: str) -> Any:
        """Read a whole file of JSON."""
        text = b"".join(self.lines(name))
        try:
            return parse(text)
        except ValueError as error:
            raise RunFormatError(
                "{name} in {file} is not JSON: {error}", name=name, file=self.path.name, error=error
            ) from None

    def lines(self, name: str) -> Iterator[bytes]:
        """Read a file line by line; RunFormatError where it is damaged or too large."""
        if name not in self.names:
            raise RunFormatError("{file} has no {name}: it is incomplete", file=self.path.name, name=name)
        try:
            with self._open(name) as file:
                while line := file.readline(MAX_LINE + 1):
                    self._count(len(line), name)
                    yield line
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise RunFormatError(
                "{name} in {file} cannot be read, it is damaged: {error}", name=name, file=self.path.name, error=error
            ) from None

    def _count(self, size: int, name: str) -> None:
        self._left -= size
        if size > MAX_LINE or self._left < 0:
            raise RunFormatError(
                "{name} in {file} is too large: at most {most} MB are read, unpacked, and {line} MB a line",
                name=name,
                file=self.path.name,
                most=MAX_BYTES // 10**6,
                line=MAX_LINE // 10**6,
            )

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        file = (self.path / name).open("rb") if self._zip is None else self._zip.open(name)
        self._left = MAX_BYTES
        with file:
            yield file

    def _folder_names(self) -> frozenset[str]:
        found = set()
        for number, path in enumerate(self.path.rglob("*")):
            if number >= MAX_FILES:
                raise RunFormatError(
                    "{path} holds more than {max_files} files: give the folder of one run",
                    path=self.path,
                    max_files=MAX_FILES,
                )
            if path.is_file() and not path.is_symlink():
                found.add(path.relative_to(self.path).as_posix())
        return frozenset(found)


def parse(text: bytes | str) -> Any:
    """Read JSON; numbers that are not finite become None. ValueError for anything else, too deep nesting included."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise InputError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise InputError("it is not UTF-8 text") from None


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise RunFormatError("{file} is no zip file that can be read: {error}", file=path.name, error=error) from None


def _zip_names(archive: zipfile.ZipFile, path: Path) -> frozenset[str]:
    entries = archive.infolist()
    if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
        raise RunFormatError(
            "{file} is too large: at most {max_files} files and {most} MB unpacked",
            file=path.name,
            max_files=MAX_FILES,
            most=MAX_BYTES // 10**6,
        )
    names = [entry.filename for entry in entries if not entry.is_dir()]
    for name in names:
        if name.startswith("/") or "\\" in name or ":" in name or ".." in PurePosixPath(name).parts:
            raise RunFormatError(
                "{file} holds a file that points outside of it, {name!r:.80}: it is not safe", file=path.name, name=name
            )
    if len(set(names)) != len(names):
        raise RunFormatError("{file} holds two files of one name: it is damaged", file=path.name)
    return frozenset(names)
