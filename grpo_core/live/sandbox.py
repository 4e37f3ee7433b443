"""Verifiers in a process of their own: code of the user's, or patterns that may take for ever.

The process gets one question at a time and must answer within a limit of wall-clock time, CPU time, memory, open files
and bytes of a file; it sees none of our environment variables. One that raises leaves its completion unscored; one that
hangs, dies or talks nonsense is killed with whatever it started, and a new one is asked the next question. This keeps
mistakes away from the training. It is no jail: code still reads the files that this user can read, so that only an
operator can allow it (GRPO_LAB_ALLOW_CODE=1).
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo_core.messages import InputError, Spoken

ALLOW = "GRPO_LAB_ALLOW_CODE"
KINDS = ("raised", "hung", "died", "not_asked")
"""What can go wrong with a completion: verify() raised or returned no number; it took too long; its process died (of
the CPU limit, for instance); the time for this step was used up before its turn."""
_CHILD = Path(__file__).with_name("sandbox_child.py")
_MAX_REPLY = 65_536


def code_allowed() -> bool:
    """Whether the operator lets verifier files run."""
    return os.environ.get(ALLOW, "") == "1"


@dataclass(frozen=True)
class Limits:
    """Seconds for one answer, to start, for all answers of a call; CPU seconds an answer; bytes of memory; open files;
    bytes of a file that it writes.
    """

    seconds: float = 2.0
    start_seconds: float = 20.0
    call_seconds: float = 30.0
    cpu_seconds: int = 2
    memory: int = 2_000_000_000
    files: int = 64
    file_bytes: int = 10_000_000


class _FailedError(Spoken):
    """The process gave no answer; the kind is one of KINDS."""

    def __init__(self, kind: str, template: str, /, **values: Any) -> None:
        super().__init__(template, **values)
        self.kind = kind


class Sandbox:
    """One verifier process, started when it is needed. path: a Python file with verify(), None for regular expressions.

    verify(completion, answer, prompt, **more) gives a number, True or False, or None for "cannot say".
    """

    def __init__(self, path: Path | None, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer, self._number = b"", 0
        self._counts: Counter[str] = Counter()
        self._told: set[str] = set()
        self.reason = ""
        """What the last failure was, in its own words: untrusted text."""
        self._end: Callable[[], Any] = lambda: None

    def start(self) -> None:
        """Start the process; ValueError when the file cannot be loaded or defines no verify()."""
        try:
            self._begin()
        except _FailedError as error:
            name = self._path.name if self._path else "regex"
            raise InputError("the verifier file {name} cannot be used: {error}", name=name, error=error) from None

    def scores(self, questions: Sequence[Mapping[str, Any]]) -> list[float | None]:
        """Ask about every completion; None where it cannot say, and where something went wrong, which is counted."""
        until = time.monotonic() + self._limits.call_seconds
        found: list[float | None] = []
        for question in questions:
            if time.monotonic() >= until:
                self._note("not_asked", f"the {self._limits.call_seconds:g} seconds for one step were used up")
                found.append(None)
                continue
            try:
                found.append(self._ask(question))
            except _FailedError as error:
                self._note(error.kind, str(error))
                found.append(None)
        return found

    def troubles(self) -> dict[str, float]:
        """How many completions met each kind of trouble since the last call."""
        found = {f"verifier/{kind}": float(self._counts[kind]) for kind in KINDS}
        self._counts.clear()
        return found

    def close(self) -> None:
        """End the process and whatever it started."""
        self._process, self._buffer = None, b""
        self._end()

    def _note(self, kind: str, reason: str) -> None:
        if kind not in self._told:
            print(f"A completion stays unscored, the verifier {kind}: {reason[:300]}", file=sys.stderr, flush=True)
        self._told.add(kind)
        self._counts[kind] += 1
        self.reason = reason[:300]

    # --- one process ------------------------------------------------------------------------------

    def _begin(self) -> None:
        limits = json.dumps(asdict(self._limits))
        command = [sys.executable, "-I", str(_CHILD), limits, str(self._path or "")]
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LANG") if name in os.environ}
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        folder = tempfile.mkdtemp(prefix="grpo-lab-verifier-")
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
            env={**kept, **threads}, start_new_session=True,
        )  # fmt: skip
        self._buffer = b""
        self._end = weakref.finalize(self, _kill, process, folder)
        reply = self._reply(self._limits.start_seconds)
        if reply.get("ready") is not True:
            self.close()
            raise _FailedError("died", str(reply.get("error", "it did not start")))

    def _ask(self, question: Mapping[str, Any]) -> float | None:
        if self._process is None:
            self._begin()
        assert self._process is not None
        assert self._process.stdin is not None
        self._number += 1
        try:
            self._process.stdin.write(json.dumps({"number": self._number, "question": question}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.close()
            raise _FailedError("died", "the verifier's process has ended") from None
        reply = self._reply(self._limits.seconds)
        if reply.get("number") != self._number:
            self.close()
            raise _FailedError("died", "the verifier's process answered another question")
        if "error" in reply:
            raise _FailedError("raised", str(reply["error"]))
        value = reply.get("reward")
        return None if value is None else float(value)

    def _reply(self, seconds: float) -> dict[str, Any]:
        """Wait for one line of JSON; a process that sends none in time, or something else, is killed."""
        line = self._line(time.monotonic() + seconds)
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            self.close()
            raise _FailedError("died", "the verifier's process sent something that is no answer")
        return reply

    def _line(self, until: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not ready.select(max(0.0, until - time.monotonic())):
                    self.close()
                    raise _FailedError("hung", "no answer within {seconds:g} seconds", seconds=self._limits.seconds)
                part = os.read(self._process.stdout.fileno(), _MAX_REPLY)
                self._buffer += part
                if not part or len(self._buffer) > _MAX_REPLY:
                    self.close()
                    raise _FailedError(
                        "died", "the verifier's process ended: out of its memory or CPU time, or by itself"
                    )
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _kill(process: "subprocess.Popen[bytes]", folder: str) -> None:
    """Kill a process with its whole session (nobody has waited for it: the number is still its own), and tidy up."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    shutil.rmtree(folder, ignore_errors=True)
