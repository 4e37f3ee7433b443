"""Tasks from a file of the user's own: JSONL, one object a line with a prompt and an answer.

    {"prompt": "What is 7 + 5?", "answer": "12", "level": "easy"}

"level" is optional and splits the evaluation; other fields are kept for a verifier of the user's and otherwise ignored.
Lines that cannot be used are listed with their numbers and the reason, the others train. One prompt in ten is held out,
by a hash of its text, so that neither the order of the lines nor a seed changes the split. Loads no torch.
"""

import hashlib
import json
import math
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from grpo_core.live.config import RunConfig
from grpo_core.live.sandbox import Limits, Sandbox, code_allowed
from grpo_core.live.tasks import TASKS, Problem, Score, Task, format_score, is_held_out
from grpo_core.live.verifiers import FILE_VERIFIERS, WITHOUT_ANSWER
from grpo_core.messages import InputError, Message

MAX_BYTES = 20_000_000
MAX_KEPT = 200_000_000
"""Bytes of all uploaded files together."""
MAX_TEXT = 20_000
MAX_BROKEN = 1000
"""Of more broken lines than this only the number is kept."""
REASONS = ("not_utf8", "not_json", "not_object", "no_prompt", "no_answer", "bad_pattern", "too_long", "repeated")


@dataclass(frozen=True)
class Broken:
    """A line that cannot be used: its number, from 1, and one of REASONS."""

    line: int
    reason: str


@dataclass(frozen=True)
class FileProblem(Problem):
    """A prompt of a file with its answer, level and other fields; it has no worked steps."""

    level: str = ""
    more: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def moves(self) -> int:
        """Nothing is known of its difficulty."""
        return 0


@dataclass(frozen=True)
class TaskFile:
    """What stands in a file: the problems, the broken lines (at most MAX_BROKEN of broken_count)."""

    problems: tuple[FileProblem, ...]
    broken: tuple[Broken, ...]
    broken_count: int

    @cached_property
    def split(self) -> tuple[list[FileProblem], list[FileProblem]]:
        """Problems to train on and held-out ones; each part gets at least one."""
        held_out = [problem for problem in self.problems if is_held_out(problem.prompt)]
        train = [problem for problem in self.problems if not is_held_out(problem.prompt)]
        for part, other in ((train, held_out), (held_out, train)):
            if not part and len(other) > 1:
                first = min(other, key=lambda problem: hashlib.sha256(problem.prompt.encode()).digest())
                part.append(first)
                other.remove(first)
        return train, held_out


def parse_tasks(data: bytes, *, verifier: str = "answer", own_code: bool = False) -> TaskFile:
    """Read a file's bytes. An answer is needed unless the verifier asks for none or is code of the user's."""
    answers = not own_code and verifier not in WITHOUT_ANSWER
    problems: dict[str, FileProblem] = {}
    broken: list[Broken] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        found = _problem(line, answers, pattern=not own_code and verifier == "regex")
        if isinstance(found, FileProblem) and found.prompt in problems:
            found = "repeated"
        if isinstance(found, str):
            broken.append(Broken(number, found))
        else:
            problems[found.prompt] = found
    return TaskFile(tuple(problems.values()), tuple(broken[:MAX_BROKEN]), len(broken))


def _problem(line: bytes, answers: bool, *, pattern: bool) -> FileProblem | str:
    """The problem of a line, or the reason why there is none."""
    try:
        entry = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "not_utf8"
    except (ValueError, RecursionError):
        return "not_json"
    if not isinstance(entry, dict):
        return "not_object"
    prompt, answer = _text(entry.get("prompt")), _text(entry.get("answer"))
    if not prompt.strip():
        return "no_prompt"
    if answers and not answer.strip():
        return "no_answer"
    if len(line) > 4 * MAX_TEXT or len(prompt) > MAX_TEXT or len(answer) > MAX_TEXT:
        return "too_long"
    if pattern and not _compiles(answer):
        return "bad_pattern"
    more = {name: value for name, value in entry.items() if name not in ("prompt", "answer", "level")}
    return FileProblem(prompt, answer, "", _text(entry.get("level"))[:40], more)


def _compiles(pattern: str) -> bool:
    """Whether a text is a regular expression; looking is safe, only matching can take for ever."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _text(value: Any) -> str:
    """A text as it stands, a number as it is written; nothing for what is neither."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def read_tasks(path: str | os.PathLike[str], *, verifier: str = "answer", own_code: bool = False) -> TaskFile:
    """Read a file; ValueError where it cannot be used: missing, too large, fewer than two good lines."""
    place = Path(path).expanduser()
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = Message(getattr(error, "strerror", None) or str(error))
        raise InputError(
            "the task file {path!r} cannot be read ({reason}): give the path of a JSONL file",
            path=str(path),
            reason=reason,
        ) from None
    return usable(parse_tasks(_small(data), verifier=verifier, own_code=own_code))


def _small(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise InputError("the task file is larger than {most} MB: split it", most=MAX_BYTES // 10**6)
    return data


def usable(tasks: TaskFile) -> TaskFile:
    """Give a file's tasks; ValueError unless at least one prompt can train and one be held out."""
    if len(tasks.problems) >= 2:
        return tasks
    first = tasks.broken[0] if tasks.broken else None
    said = Message(", line {line} first: {reason}", line=first.line, reason=_reason(first)) if first else ""
    raise InputError(
        "the task file has {usable} usable prompts and {broken} lines that are not{said}; it "
        'needs two or more lines like {{"prompt": "What is 7 + 5?", "answer": "12"}}',
        usable=len(tasks.problems),
        broken=tasks.broken_count,
        said=said,
    )


def _reason(broken: Broken) -> Message:
    return Message(broken.reason.replace("_", " "))


def keep_upload(data: bytes, folder: Path) -> Path:
    """Keep an uploaded file in a folder, under a name that follows from its content; give the path.

    ValueError for a file that is too large, and when the folder is full: runs that are kept may need what is in it.
    """
    path = folder / "tasks" / f"{hashlib.sha256(_small(data)).hexdigest()[:16]}.jsonl"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        if sum(other.stat().st_size for other in path.parent.glob("*.jsonl")) + len(data) > MAX_KEPT:
            raise InputError(
                "{folder} is full ({most} MB): remove task files that no run needs",
                folder=path.parent,
                most=MAX_KEPT // 10**6,
            )
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(data)
        os.replace(unfinished, path)
    return path


# --- the task of a run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileTask(Task):
    """Prompts of a file, judged by a verifier of verifiers.py or, in a sandbox, by a pattern or the user's code."""

    tasks: TaskFile = field(default_factory=lambda: TaskFile((), (), 0))
    sandbox: Sandbox | None = None

    def sample(self, rng: random.Random, count: int, *, held_out: bool = False) -> list[Problem]:
        """Draw different prompts where there are enough."""
        pool: Sequence[Problem] = self.tasks.split[held_out]
        return rng.sample(pool, count) if count <= len(pool) else rng.choices(pool, k=count)

    def held_out(self, count: int) -> list[Problem]:
        """The first held-out prompts, in the order of their hashes: the same whatever the order of the lines."""
        ordered = sorted(self.tasks.split[1], key=lambda problem: hashlib.sha256(problem.prompt.encode()).digest())
        return list(ordered[:count])

    def scores(self, completions: Sequence[str], problems: Sequence[Problem], lengths: Sequence[int]) -> list[Score]:
        """Judge completions; accuracy is 1 for a reward of at least 1 (nan: unscored), format that of the tags."""
        judge = FILE_VERIFIERS.get(self.verifier)
        if self.sandbox is not None:
            rows = zip(completions, problems, lengths, strict=True)
            rewards = self.sandbox.scores([_question(*row) for row in rows])
        else:
            assert judge is not None
            rewards = [judge(text, problem.answer) for text, problem in zip(completions, problems, strict=True)]
        pairs = zip(rewards, completions, strict=True)
        return [Score(reward, _solved(reward), format_score(text)) for reward, text in pairs]

    def longest(self, count: int) -> list[Problem]:
        """The prompts of the most characters."""
        return list(sorted(self.tasks.problems, key=lambda problem: -len(problem.prompt))[:count])

    def judge(self, completions: Sequence[str], problems: Sequence[Problem]) -> list[Score]:
        """For the evaluation: a completion is right when its reward is at least 1; None stays None."""
        found = self.scores(completions, problems, [0] * len(completions))
        return [replace(score, reward=None if score.reward is None else score.accuracy) for score in found]

    def troubles(self) -> dict[str, float]:
        """What the verifier could not do since the last call, by kind; nothing for those that run right here."""
        return {} if self.sandbox is None else self.sandbox.troubles()


def _solved(reward: float | None) -> float:
    """1 for a reward of at least 1, else 0; nan for a completion that could not be scored."""
    return math.nan if reward is None else float(reward >= 1.0)


def _question(completion: str, problem: Problem, length: int) -> dict[str, Any]:
    more = problem.more if isinstance(problem, FileProblem) else {}
    return {**more, "completion": completion, "prompt": problem.prompt, "answer": problem.answer, "length": length}


def task_of(config: RunConfig) -> Task:
    """Give the task of a run: a built-in one, or that of its file. ValueError where file or verifier cannot be used."""
    base = TASKS[config.task]
    if not config.task_file:
        if config.verifier_file:
            raise InputError("a verifier file judges the prompts of a task file: give task_file too")
        return base
    own = bool(config.verifier_file)
    tasks = read_tasks(config.task_file, verifier=config.verifier, own_code=own)
    sandbox = None
    if own:
        sandbox = own_verifier(config.verifier_file)
    elif FILE_VERIFIERS[config.verifier] is None:
        sandbox = Sandbox(None, Limits())
    return FileTask("file", 0, config.verifier, base.start, tasks, sandbox)


def own_verifier(path: str) -> Sandbox:
    """Start a verifier of the user's; ValueError unless the operator allowed code and the file defines verify()."""
    if not code_allowed():
        raise InputError(
            "verifier files run code on this machine and are not allowed here: the operator allows "
            "them with the environment variable GRPO_LAB_ALLOW_CODE=1"
        )
    place = Path(path).expanduser()
    if not place.is_file():
        raise InputError(
            "there is no verifier file {path!r}: give the path of a Python file that defines verify()", path=path
        )
    sandbox = Sandbox(place.resolve(), Limits())
    sandbox.start()
    return sandbox
