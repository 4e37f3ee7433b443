"""Verifiers in a process of their own: right, raising, hanging, dying and greedy ones. They really do it."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_core.live.config import RunConfig
from grpo_core.live.sandbox import ALLOW, Limits, Sandbox
from grpo_core.live.store import process_exists
from grpo_core.live.task_files import task_of
from grpo_core.live.trainer import train

QUICK = Limits(seconds=2.0, memory=600_000_000)


def question(completion="12", answer="12", **more):
    return {"completion": completion, "prompt": "7+5=", "answer": answer, "length": 3, **more}


@pytest.fixture
def sandbox(tmp_path):
    """Make a sandbox of Python code; closed after the test."""
    made = []

    def sandbox(code, limits=QUICK):
        path = tmp_path / f"verifier{len(made)}.py"
        path.write_text(code)
        made.append(Sandbox(path, limits))
        return made[-1]

    yield sandbox
    for one in made:
        one.close()


def counts(sandbox):
    return {kind.removeprefix("verifier/"): int(n) for kind, n in sandbox.troubles().items() if n}


def test_a_verifier_scores(sandbox):
    code = "def verify(completion, answer, prompt, topic=None, **more):\n"
    code += (
        "    return None if topic == 'poem' else completion == answer and prompt == '7+5=' and more['length'] == 3\n"
    )
    own = sandbox(code)
    assert own.scores([question(), question("13"), question(topic="poem")]) == [1.0, 0.0, None]
    assert counts(own) == {}


def test_a_verifier_is_told_what_it_has_names_for(sandbox):
    own = sandbox("def verify(completion, answer):\n    return len(completion) / len(answer)")
    assert own.scores([question("123", "12", number=7)]) == [1.5]


def test_one_that_raises_leaves_the_completion_unscored(sandbox):
    code = "def verify(completion, **more):\n    print('noise')\n"
    code += "    return {'1': 1, 'x': 'text', 'n': float('nan')}[completion]"
    own = sandbox(code)
    assert own.scores([question("1"), question("oops"), question("x"), question("n"), question("1")]) == [
        1.0, None, None, None, 1.0,
    ]  # fmt: skip
    assert counts(own) == {"raised": 3}
    assert "nan" in own.reason


def test_one_that_hangs_is_killed_with_what_it_started_and_the_next_is_asked(sandbox, tmp_path):
    code = f"""import os, subprocess, sys, time
def verify(completion, **more):
    if completion == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
    return 1.0
"""
    own = sandbox(code, Limits(seconds=3.0))
    assert own.scores([question(), question("hang"), question()]) == [1.0, None, 1.0]
    assert counts(own) == {"hung": 1}
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        until_gone(pid)


def until_gone(pid):
    end = time.monotonic() + 60
    while process_exists(pid) and not zombie(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def zombie(pid):
    """A killed grandchild may wait for the system to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_one_that_computes_for_ever_or_catches_everything_is_stopped_too(sandbox):
    code = """def verify(completion, **more):
    while completion == "spin":
        try:
            sum(range(1000))
        except BaseException:
            pass
    return 0.5
"""
    own = sandbox(code)
    assert own.scores([question("spin"), question()]) == [None, 0.5]
    assert counts(own) == {"hung": 1}


def test_cpu_time_is_limited_where_the_clock_allows_more(sandbox):
    own = sandbox(
        "def verify(completion, **more):\n    while completion == 'spin': pass\n    return 1",
        Limits(seconds=60.0, cpu_seconds=1),
    )
    assert own.scores([question(), question("spin"), question()]) == [1.0, None, 1.0]
    assert counts(own) == {"died": 1}


def test_one_that_eats_memory_is_stopped(sandbox):
    own = sandbox(
        "def verify(completion, **more):\n    return len(bytearray(int(completion)))", Limits(memory=400_000_000)
    )
    assert own.scores([question("1000"), question("4000000000"), question("10")]) == [1000.0, None, 10.0]
    assert counts(own) == {"raised": 1}
    assert "memory" in own.reason.lower()


def test_a_file_cannot_fill_the_disk(sandbox):
    own = sandbox(
        "def verify(**more):\n    with open('big', 'wb') as file:\n        file.write(bytes(5000))\n    return 1",
        replace(QUICK, file_bytes=4096),
    )
    assert own.scores([question("a")]) == [None]
    assert counts(own) == {"raised": 1}
    assert "too large" in own.reason


def test_open_files_are_limited(sandbox):
    own = sandbox(
        "import os\ndef verify(**more):\n    return [open(os.devnull) for _ in range(500)] and 1", Limits(files=32)
    )
    assert own.scores([question()]) == [None]
    assert "Too many open files" in own.reason


@pytest.mark.parametrize("ending", ["os._exit(3)", "sys.exit()", "os.kill(os.getpid(), 11)"])
def test_one_that_dies_is_started_again(sandbox, ending):
    own = sandbox(
        f"import os, sys\ndef verify(completion, **more):\n    {ending} if completion == 'x' else None\n    return 1"
    )
    assert own.scores([question("x"), question("12")]) == [None, 1.0]
    assert sum(counts(own).values()) == 1


def test_nonsense_on_the_answers_pipe_is_not_believed(sandbox):
    code = """import os
def verify(completion, **more):
    for fd in range(3, 12):
        try:
            os.write(fd, completion.encode() + b"\\n")
        except OSError:
            pass
    return 1
"""
    own = sandbox(code)
    lies = ['{"number": 99, "reward": 5}', "no json", "[1]", "x" * 100_000]
    assert own.scores([question(lie) for lie in lies]) == [None] * 4
    assert counts(own) == {"died": 4}


def test_the_time_for_a_step_is_limited(sandbox):
    own = sandbox("import time\ndef verify(**more):\n    time.sleep(600)", Limits(seconds=0.3, call_seconds=0.5))
    assert own.scores([question() for _ in range(20)]) == [None] * 20
    found = counts(own)
    assert found["hung"] + found["not_asked"] == 20
    assert found["hung"] <= 3


def test_it_sees_nothing_of_our_environment(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    own = sandbox("import os\ndef verify(**more):\n    return 'SECRET_TOKEN' in os.environ or 'HOME' in os.environ")
    assert own.scores([question()]) == [0.0]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def verify(:", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("x = 1", r"defines no function verify\(completion"),
        ("import sys\nsys.exit()", "SystemExit"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused_at_the_start(sandbox, code, expected):
    with pytest.raises(ValueError, match=expected):
        sandbox(code).start()


def test_it_ends_with_the_program(sandbox):
    own = sandbox("def verify(**more): return 1")
    own.start()
    pid = own._process.pid
    own._end()
    until_gone(pid)


def test_a_pattern_that_takes_for_ever_is_stopped():
    own = Sandbox(None, Limits(seconds=2.0))
    try:
        evil = question("a" * 40 + "!", "^(a+)+$")
        assert own.scores([question("it is 12.", r"\b12\b"), evil, question("112", r"\b12\b")]) == [1.0, None, 0.0]
        assert counts(own) == {"hung": 1}
    finally:
        own.close()


# In a run


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(9) for b in range(9)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_code_is_refused_unless_the_operator_allowed_it(tmp_path, tasks, monkeypatch):
    trace = tmp_path / "ran"
    own = tmp_path / "own.py"
    own.write_text(f"open({str(trace)!r}, 'w')\ndef verify(**more): return 1")
    for value in (None, "0", "true"):
        monkeypatch.delenv(ALLOW, raising=False) if value is None else monkeypatch.setenv(ALLOW, value)
        with pytest.raises(ValueError, match="GRPO_LAB_ALLOW_CODE=1"):
            task_of(RunConfig(task_file=tasks, verifier_file=str(own)))
    assert not trace.exists()


def test_a_run_goes_on_when_its_verifier_fails_now_and_then(tmp_path, tasks, monkeypatch):
    monkeypatch.setenv(ALLOW, "1")
    own = tmp_path / "own.py"
    own.write_text(
        "import os\ndef verify(completion, answer):\n"
        "    if len(completion) == 1: os._exit(1)\n"
        "    if completion.startswith('<answer>'): raise RuntimeError(answer)\n"
        "    return len(completion) / 10\n"
    )
    config = RunConfig(
        task_file=tasks, verifier_file=str(own), steps=2, pace=None, eval_prompts=4, eval_samples=1, prompts_per_step=3,
        device="cpu", max_new_tokens=20,
    )  # fmt: skip
    events = list(train(config))
    assert events[-1]["state"] == "finished"
    steps = [event for event in events if event["event"] == "step"]
    unscored = sum(reward is None for step in steps for group in step["groups"] for reward in group["rewards"])
    assert unscored == sum(
        len(text) == 1 or text.startswith("<answer>")
        for step in steps for group in step["groups"] for text in group["completions"]
    )  # fmt: skip
    assert unscored > 0
    for group in (group for step in steps for group in step["groups"]):
        known = zip(group["rewards"], group["reward_parts"]["accuracy"], strict=True)
        assert all((reward is None) == (part is None) for reward, part in known)
    evaluations = [event for event in events if event["event"] == "eval"]
    assert sum(event.get("unscored", 0) for event in evaluations) > 0  # not judged is not wrong
    assert sum(step["verifier/died"] for step in steps) > 0
    assert sum(step["verifier/raised"] for step in steps) > 0
    assert os.environ[ALLOW] == "1"
