"""What runs in a verifier's process: a script of the standard library alone, started by sandbox.py with python -I.

Arguments: the limits as JSON, and the path of a Python file that defines verify(), or "" for regular expressions. One
JSON question a line comes in, one JSON answer a line goes out. What the user's code prints goes nowhere.
"""

import inspect
import json
import math
import os
import re
import runpy
import sys
from collections.abc import Callable
from typing import Any


def main(limits: dict[str, float], path: str) -> None:
    """Load verify() and answer until the questions end."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def say(reply: dict[str, Any]) -> None:
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()

    limit(limits)
    try:
        verify = load(path) if path else matches
    except BaseException as error:  # also SystemExit: the file is not ours
        say({"error": told(error)})
        return
    say({"ready": True})
    for line in questions:
        asked = json.loads(line)
        number = asked["number"]
        more_time(limits)
        try:
            say({"number": number, "reward": reward(verify(**asked["question"]))})
        except MemoryError:
            say({"number": number, "error": "MemoryError: over the memory limit"})
        except BaseException as error:
            say({"number": number, "error": told(error)})


def load(path: str) -> Callable[..., Any]:
    """Run a file and give its verify(), which is told what it has names for."""
    verify = runpy.run_path(path).get("verify")
    if not callable(verify):
        raise TypeError("it defines no function verify(completion, answer, prompt, **more)")
    names = inspect.signature(verify).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values()):
        return verify
    return lambda **told: verify(**{name: value for name, value in told.items() if name in names})


def matches(completion: str, answer: str, **_: Any) -> float:
    """1.0 when the completion matches the pattern somewhere."""
    return float(re.search(answer, completion) is not None)


def reward(value: Any) -> float | None:
    """A verifier's result as a number; TypeError for what is none."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"verify() returned {number}")
    return number


def told(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error)[:200]}".splitlines()[0]


def limit(limits: dict[str, float]) -> None:
    """Set the limits of this process, where the system has them."""
    try:
        import resource
    except ImportError:
        return
    most = {"AS": limits["memory"], "NOFILE": limits["files"], "FSIZE": limits["file_bytes"], "CORE": 0}
    for name, value in most.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(value), int(value)))


def more_time(limits: dict[str, float]) -> None:
    """Give CPU time for one more answer."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + limits["cpu_seconds"])
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if most < 0 else min(seconds, most), most))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
