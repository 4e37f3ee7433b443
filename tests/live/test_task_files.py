"""Tasks from a user's file: what is read, what is listed as broken, who judges, and that such a run trains."""

import json
import random

import pytest

from grpo_core.live.config import RunConfig
from grpo_core.live.task_files import (
    MAX_BYTES,
    MAX_KEPT,
    FileTask,
    TaskFile,
    keep_upload,
    parse_tasks,
    read_tasks,
    task_of,
)
from grpo_core.live.tasks import Score, is_held_out
from grpo_core.live.trainer import train
from grpo_core.live.verifiers import FILE_VERIFIERS

FAST = {"pace": None, "eval_prompts": 10, "device": "cpu", "steps": 2}


def lines(*entries) -> bytes:
    return b"\n".join(e if isinstance(e, bytes) else json.dumps(e).encode() for e in entries)


def sums(count: int) -> bytes:
    pairs = [(a, b) for a in range(40) for b in range(40)][:count]
    return lines(
        *({"prompt": f"{a}+{b}=", "answer": str(a + b), "level": "easy" if a < 5 else "hard"} for a, b in pairs)
    )


@pytest.fixture
def write(tmp_path):
    def write(data: bytes):
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(data)
        return str(path)

    return write


def test_good_lines_train_and_broken_ones_are_listed_with_number_and_reason():
    found = parse_tasks(
        lines(
            b"\xef\xbb\xbf" + json.dumps({"prompt": "7+5=", "answer": 12}).encode(),
            b"",
            b'{"prompt": "half',
            b"[1, 2]",
            {"answer": "3"},
            {"prompt": ["a", "b"], "answer": "3"},
            {"prompt": "  ", "answer": "3"},
            {"prompt": "no answer"},
            {"prompt": "no answer", "answer": None},
            {"prompt": "not a number", "answer": True},
            b'{"prompt": "caf\xe9", "answer": "3"}',
            {"prompt": "x" * 20_001, "answer": "3"},
            {"prompt": "7+5=", "answer": "13"},
            b'{"prompt": "nan", "answer": NaN}',
            b"[" * 100_000,
            {"prompt": "<b>*3*</b> $x$", "answer": "0.5", "level": 2, "topic": "maths"},
        )
    )
    assert [(p.prompt, p.answer) for p in found.problems] == [("7+5=", "12"), ("nan", "nan"), ("<b>*3*</b> $x$", "0.5")]
    assert [(b.line, b.reason) for b in found.broken] == [
        (3, "not_json"), (4, "not_object"), (5, "no_prompt"), (6, "no_prompt"), (7, "no_prompt"), (8, "no_answer"),
        (9, "no_answer"), (10, "no_answer"), (11, "not_utf8"), (12, "too_long"), (13, "repeated"), (15, "not_json"),
    ]  # fmt: skip
    assert (found.problems[2].level, found.problems[2].more) == ("2", {"topic": "maths"})


def test_windows_line_ends_and_verifiers_without_answers():
    data = b'{"prompt": "a"}\r\n{"prompt": "b"}\r\n'
    assert len(parse_tasks(data).problems) == 0
    assert len(parse_tasks(data, verifier="format").problems) == 2
    assert len(parse_tasks(data, own_code=True).problems) == 2


def test_of_many_broken_lines_only_the_first_are_kept():
    found = parse_tasks(b"x\n" * 5000)
    assert (len(found.broken), found.broken_count) == (1000, 5000)


def test_the_split_depends_on_neither_order_nor_seed():
    data = sums(200)
    train_part, held_out = parse_tasks(data).split
    turned = parse_tasks(b"\n".join(reversed(data.split(b"\n")))).split
    assert {p.prompt for p in held_out} == {p.prompt for p in turned[1]}
    assert {p.prompt for p in held_out} == {p.prompt for p in train_part + held_out if is_held_out(p.prompt)}
    assert 8 <= len(held_out) <= 35
    task = FileTask("file", 0, "answer", tasks=parse_tasks(data))
    other = FileTask("file", 0, "answer", tasks=TaskFile(parse_tasks(data).problems[::-1], (), 0))
    assert task.held_out(5) == other.held_out(5)
    drawn = task.sample(random.Random(0), 500)
    assert not {p.prompt for p in drawn} & {p.prompt for p in held_out}
    step = task.sample(random.Random(1), 8)
    assert len({p.prompt for p in step}) == 8


@pytest.mark.parametrize("prompts", [("a", "b"), ("a", "b", "c"), ("1", "2", "3", "4", "5")])
def test_each_part_of_a_tiny_file_gets_a_prompt(prompts):
    train_part, held_out = parse_tasks(lines(*({"prompt": p, "answer": "1"} for p in prompts))).split
    assert train_part
    assert held_out
    assert len(train_part) + len(held_out) == len(prompts)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "0 usable prompts and 0 lines that are not"),
        (b'{"prompt": "a", "answer": "1"}', "1 usable prompts"),
        (b"prompt,answer\n1,2\n", "2 lines that are not, line 1 first: not json"),
        (b"x" * (MAX_BYTES + 1), "larger than 20 MB"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_needed(write, data, expected):
    with pytest.raises(ValueError, match=expected):
        read_tasks(write(data))


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path, "a\0b"):
        with pytest.raises(ValueError, match="cannot be read"):
            read_tasks(path)


def test_an_upload_is_kept_once_under_a_name_of_its_content(tmp_path):
    path = keep_upload(sums(9), tmp_path)
    assert keep_upload(sums(9), tmp_path) == path
    assert path.read_bytes() == sums(9)
    assert keep_upload(sums(8), tmp_path) != path
    assert len(list((tmp_path / "tasks").iterdir())) == 2
    with pytest.raises(ValueError, match="larger than"):
        keep_upload(b"x" * (MAX_BYTES + 1), tmp_path)
    with (tmp_path / "tasks" / "large.jsonl").open("wb") as file:
        file.truncate(MAX_KEPT)
    with pytest.raises(ValueError, match="is full"):
        keep_upload(sums(7), tmp_path)
    assert keep_upload(sums(9), tmp_path) == path


@pytest.mark.parametrize(
    ("verifier", "completion", "answer", "expected"),
    [
        ("answer", "<answer>12</answer>", "12.0", 1.0),
        ("answer", r"so \boxed{13}", "12", 0.0),
        ("answer", "it is 12", "12", 0.0),
        ("number", "it is 12", "12", 1.0),
        ("number", "12 or 13", "12", 0.0),
        ("whole", " 12 ", "12", 1.0),
        ("whole", "is 12", "12", 0.0),
        ("contains", "312", "12", 1.0),
        ("format", "<think>a</think><answer>b</answer>", "", 1.0),
        ("format", "b", "", 0.0),
    ],
)
def test_verifiers_for_files(verifier, completion, answer, expected):
    assert FILE_VERIFIERS[verifier](completion, answer) == expected


def test_a_file_trains_and_is_evaluated_by_its_own_verifier(write):
    path = write(sums(300))
    config = RunConfig(task_file=path, verifier="contains", max_new_tokens=20, **FAST)
    events = list(train(config))
    assert events[-1]["state"] == "finished"
    evaluation, step = events[1], events[2]
    assert {part["value"] for part in evaluation["strata"] if part["by"] == "level"} <= {"easy", "hard"}
    assert {part["by"] for part in evaluation["strata"]} <= {"level", "length"}
    assert evaluation["prompts"] == 10
    for group in step["groups"]:
        a, _, b = group["prompt"].removesuffix("=").partition("+")
        assert group["answer"] == str(int(a) + int(b))
        for text, reward in zip(group["completions"], group["rewards"], strict=True):
            assert reward == float(group["answer"] in text)
    again = list(train(config))
    assert [e["reward"] for e in again if e["event"] == "step"] == [e["reward"] for e in events if e["event"] == "step"]


def test_prompts_that_leave_no_room_are_refused(write):
    path = write(lines({"prompt": "short", "answer": "1"}, {"prompt": "x" * 90, "answer": "1"}))
    with pytest.raises(
        ValueError, match=r"longest prompt has 91 tokens and 14 new ones .* room for 96: lower max_new_tokens"
    ):
        next(train(RunConfig(task_file=path, **FAST)))


def test_accuracy_counts_full_rewards_only():
    class Half(FileTask):
        pass

    task = Half("file", 0, "format", tasks=parse_tasks(sums(5)))
    judged = task.judge(["<think>a</think><answer>b</answer>", "b"], task.held_out(1) * 2)
    assert judged == [Score(1.0, 1.0, 1.0), Score(0.0, 0.0, 0.0)]


def test_a_verifier_file_needs_a_task_file():
    with pytest.raises(ValueError, match="give task_file too"):
        task_of(RunConfig(verifier_file="v.py"))
