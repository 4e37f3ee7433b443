"""What the core says reaches a page in the chosen language: every template has its Chinese, values stay as they are."""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
from pathlib import Path
from string import Formatter

import pytest

from app.words import CONTENT, ENGLISH, LANGUAGES, catalogue, core_words, told
from grpo_core import Group
from grpo_core.live.config import RunConfig, accepted
from grpo_core.live.export import export_run, import_run
from grpo_core.live.store import ACTIVE, ENDED, RunStore, RunStoreError
from grpo_core.live.task_files import REASONS
from grpo_core.messages import SYSTEM, InputError, Message, message_of
from tests.app.test_languages import CJK, ENGLISH_PROSE, shown

CORE = Path(__file__).resolve().parents[2] / "grpo_core"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(CORE.rglob("*.py"))}
BUILT_IN = ("Exception", "ValueError", "TypeError", "KeyError", "RuntimeError", "ArithmeticError", "OSError")
OTHERS = tuple(name for name in LANGUAGES if name != ENGLISH)
JSON_SAYS = (
    "Expecting value", "Expecting property name enclosed in double quotes", "Expecting ':' delimiter",
    "Expecting ',' delimiter", "Unterminated string starting at", "Extra data", "Invalid control character at",
    "Invalid \\escape", "Invalid \\uXXXX escape", "Unexpected UTF-8 BOM (decode using utf-8-sig)",
    "Illegal trailing comma before end of object", "Illegal trailing comma before end of array",
)  # fmt: skip
GIVEN = {
    "broken.reason.replace('_', ' ')": [reason.replace("_", " ") for reason in REASONS],
    "busy.state": ACTIVE,
    "run.state": (*ACTIVE, *ENDED),
    "error.msg": JSON_SAYS,
    "os.strerror(error.errno)": [os.strerror(number) for number in SYSTEM],
    "error.strerror or ''": (),
    "error.strerror or str(error)": (),
    "getattr(error, 'strerror', None) or str(error)": (),
    "str(reply.get('error', 'it did not start'))": (
        "it did not start",
        "TypeError: it defines no function verify(completion, answer, prompt, **more)",
    ),
    "str(reply['error'])": (),  # in the words of the user's own verifier
    "self.args[0]": (),
    "template": (),
}
"""Templates that are no literals, and the texts that they can be."""
INSIDE = {"estimates.py", "checkpoints.py", "sandbox_child.py"}
"""Modules with errors of Python's own kinds that they catch themselves, or that another process reports."""


@pytest.fixture
def chinese(speak) -> None:
    speak("zh")


# What can be said


def speakers() -> set[str]:
    """Return what makes a message: Message, and the exceptions that are raised with a template."""
    found = {"Message", "Spoken", "_require"}
    kinds = [node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for _ in kinds:
        found |= {one.name for one in kinds if {base.id for base in one.bases if isinstance(base, ast.Name)} & found}
    return found


def texts_of(node: ast.expr, constants: dict[str, ast.expr]) -> list[str]:
    """Return the texts that an expression can be."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return texts_of(node.body, constants) + texts_of(node.orelse, constants)
    if isinstance(node, ast.Name) and node.id in constants:
        return texts_of(constants[node.id], constants)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in constants:
        return [text for value in constants[node.value.id].values for text in texts_of(value, constants)]
    return list(GIVEN[ast.unparse(node)])


def bare(template: str) -> str:
    """Return a template as a message keeps it: its fields without conversions and formats."""
    escaped = ((text.replace("{", "{{").replace("}", "}}"), name) for text, name, _, _ in Formatter().parse(template))
    return "".join(text + ("" if name is None else f"{{{name}}}") for text, name in escaped)


def templates() -> set[str]:
    """Return every template in the core's source, as a message keeps it."""
    found, makers = set(), speakers()
    for tree in TREES.values():
        assigned = [
            node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ]
        constants = {node.targets[0].id: node.value for node in assigned}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                first = node.args[node.func.id in ("_require", "_FailedError")]
                found |= {bare(text) if node.keywords else text for text in texts_of(first, constants)}
    return found


def test_the_core_raises_nothing_in_english_only():
    plain = [
        f"{path.name}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and path.name not in INSIDE
        if isinstance(node.exc.func, ast.Name) and node.exc.func.id in BUILT_IN
    ]
    assert plain == [], "raise grpo_core.messages.InputError, or an error that is Spoken, with a template"


@pytest.mark.parametrize("name", OTHERS)
def test_every_message_of_the_core_is_translated_and_no_other(name):
    assert sorted(templates() - set(core_words(name))) == []
    assert sorted(set(core_words(name)) - templates()) == []


@pytest.mark.parametrize("name", OTHERS)
def test_a_translation_has_the_fields_of_its_template(name):
    parts = {
        text: [sorted(set(re.findall(r"\{\w+\}", side))) for side in (text, own)]
        for text, own in core_words(name).items()
    }
    assert {text: both for text, both in parts.items() if both[0] != both[1]} == {}


def test_translations_are_chinese():
    for text, own in core_words("zh").items():
        assert CJK.search(own) or not re.search(r"[A-Za-z]{3}", re.sub(r"\{\w+\}", "", own)), text
        assert not ENGLISH_PROSE.search(own), own


@pytest.mark.parametrize("name", OTHERS)
def test_no_template_is_translated_twice(name):
    found = re.findall(r'^msgid "(.+)"$', (CONTENT / name / "errors.po").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == len(set(found)) == len(core_words(name))


def test_the_app_shows_no_error_as_the_core_worded_it():
    raw = re.compile(r"literal\(str\(error|=str\(error\)")
    shows = [path.name for path in (CORE.parent / "app").rglob("*.py") if raw.search(path.read_text(encoding="utf-8"))]
    assert shows == [], "app.words.told(error) says it in the language of the page"


# Saying it


def refused(make) -> Exception:
    with pytest.raises((ValueError, RunStoreError)) as found:
        make()
    return found.value


WRONG = [
    lambda: RunConfig.from_dict({"group_size": 0}),
    lambda: RunConfig.from_dict({"pace": -1}),
    lambda: RunConfig.from_dict({"recipe": "gropo"}),
    lambda: RunConfig.from_dict({"grup_size": 8}),
    lambda: Group.from_json("{"),
    lambda: Group.from_json({"prompt": "x", "tokens": [["a"]], "rewards": [1], "logp": [[0.5]]}),
    lambda: Group.from_json({"prompt": "x", "tokens": [["a"]], "rewards": ["x"], "logp": [[-1]]}),
]


@pytest.mark.parametrize("make", WRONG)
def test_english_is_as_the_core_says_it(make):
    assert told(refused(make)) == str(refused(make))


@pytest.mark.parametrize("make", WRONG)
def test_an_error_is_told_in_chinese_with_its_values(make, chinese):
    error = refused(make)
    text = told(error)
    assert CJK.search(text)
    assert not ENGLISH_PROSE.search(text)
    assert all(value in text for value in error.message.values.values() if not isinstance(value, Message))


@pytest.mark.parametrize("name", ["group_size", "learning_rate", "pace", "recipe", "probe", "model", "task_file"])
def test_what_a_setting_accepts_is_told_in_chinese(name, chinese):
    assert CJK.search(told(accepted(name)))


def test_a_value_that_is_a_template_or_has_braces_stays_as_it_is(chinese):
    evil = "{accepted} true or false {0} __class__"
    error = refused(lambda: RunConfig.from_dict({"recipe": evil}))
    assert repr(evil) in told(error)
    assert told(Message("{kind}: {error}", kind="x", error="true or false")) == "x：true or false"


def test_what_has_no_translation_stays_as_it_stands(chinese):
    assert told("words of another program {x}") == "words of another program {x}"
    assert told(Message("a new {what}", what="sentence")) == "a new sentence"
    assert told(KeyError("x")) == "'x'"
    assert told("") == ""


def test_an_older_run_store_tells_what_it_can(chinese):
    """It kept the English text alone: what has no values in it is found by that."""
    assert told("It was taken out of the line before it began.") == "它在开始之前就被移出了队列。"


def test_the_system_and_json_are_told_in_chinese(tmp_path, chinese):
    assert told(refused_by_the_system(tmp_path)) == f"没有这个文件或文件夹（错误 2）：'{tmp_path / 'nothing'}'"
    error = refused(lambda: json.loads("[1,"))
    assert message_of(error) == str(error)
    assert told(InputError("the group is not valid JSON: {error}", error=error)).endswith("第 1 行第 4 列，字符 3）")


def refused_by_the_system(folder: Path) -> OSError:
    with pytest.raises(OSError, match="No such file") as found:
        (folder / "nothing").open()
    return found.value


# On the pages


def no_english(at) -> str:
    """Nothing on the page is an English sentence; return all errors, notes and captions, escapes taken off."""
    assert not at.exception, [e.value for e in at.exception]
    for text in shown(at):
        assert not ENGLISH_PROSE.search(text), text
    parts = (*at.error, *at.warning, *at.info, *at.caption)
    return "\n".join(element.value for element in parts).replace("\\", "")


@pytest.mark.parametrize(
    ("pasted", "says"),
    [
        ("{", "不是合法的 JSON（第 1 行）"),
        ('{"prompt": "x", "evil": 1}', "这个组缺少 logp, rewards, tokens"),
        (
            '{"prompt": "x", "tokens": [["a"]], "rewards": [[1]], "logp": [[-1]]}',
            "rewards 必须为每个回复给一个数或 None",
        ),
        ('[{"tokens": ["a"], "reward": 1, "logp": [7]}]', "第 1 行：|有限的对数概率"),
        ("length,reward\n1,inf", "第 2 行"),
    ],
)
def test_a_bad_paste_is_refused_in_chinese(open_page, speak, pasted, says):
    speak("zh")
    at = open_page("advantages", {"lang": "zh"})
    at.button(key="open-group").click().run()
    at.text_area(key="paste-text").set_value(pasted).run()
    at.button(key="paste-take").click().run()
    assert len(at.error) == 1
    assert re.search(says, no_english(at))


def test_a_paste_of_markup_stays_text(open_page, speak):
    speak("zh")
    at = open_page("advantages", {"lang": "zh"})
    at.button(key="open-group").click().run()
    data = {"prompt": "x", "tokens": [["a"]], "rewards": ["<b>**bold**</b> $x$"], "logp": [[-1]]}
    at.text_area(key="paste-text").set_value(json.dumps(data)).run()
    at.button(key="paste-take").click().run()
    assert "得到 '<b>**bold**</b> $x$'" in no_english(at)
    assert "\\<b\\>\\*\\*bold\\*\\*" in at.error[0].value


@pytest.mark.parametrize("query", [{"gx": "AAAA"}, {"eps": "x"}, {"run": "nowhere"}])
def test_a_bad_link_is_told_in_chinese(open_page, query):
    at = open_page("live" if "run" in query else "advantages", {"lang": "zh", **query})
    no_english(at)


def test_a_bad_setting_is_told_in_chinese(open_page, speak):
    speak("zh")
    at = open_page("live", {"lang": "zh"})
    at.text_input(key="live-set-learning_rate").set_value("fast <i>").run()
    assert "learning_rate='fast <i>' 不可接受：需要0 到 1 的数" in no_english(at)
    at.button(key="live-start").click().run()
    assert "learning_rate='fast <i>' 不可接受" in no_english(at)


REASON = Message("Step {step} cannot be taken: {error}. Everything up to step {last} is kept. {advice}",
    step=3, error=Message("the loss is {loss}", loss=float("nan")), last=2,
    advice=Message("Begin again with a learning rate below {rate:g}.", rate=0.5))  # fmt: skip


def test_a_failed_run_says_why_in_the_language_of_the_page(open_page, tmp_path):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9))
    end = {"event": "end", "step": 2, "seconds": 1.0, "state": "failed", "reason": REASON}
    store.add_event(run_id, end)
    assert store.run(run_id).reason == str(REASON)
    at = open_page("live", {"lang": "zh", "run": run_id})
    assert "第 3 步无法完成：损失是 nan。到第 2 步为止的内容都保留着。请用低于 0.5 的学习率重新开始。" in no_english(at)
    at = open_page("live", {"run": run_id})
    assert str(REASON) in at.error[0].value.replace("\\", "")


def test_why_a_run_failed_travels_with_its_file(tmp_path, chinese):
    (tmp_path / "other").mkdir()
    store, other = RunStore(tmp_path), RunStore(tmp_path / "other")
    run_id = store.create_run(RunConfig(steps=9))
    store.add_event(run_id, {"event": "end", "step": 2, "seconds": 1.0, "state": "failed", "reason": REASON})
    moved = import_run(export_run(store, run_id, tmp_path / "run.zip"), other)
    for reason in (other.run(moved).reason, other.last_event(moved, "end")["reason"]):
        assert reason == REASON
        assert told(reason) == told(REASON) != str(REASON)


def test_a_store_of_an_older_version_opens_and_shows_its_english(tmp_path, chinese):
    store = RunStore(tmp_path)
    run_id = store.create_run(RunConfig(steps=9))
    store.set_state(run_id, "failed", REASON)
    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.execute("ALTER TABLE runs DROP COLUMN said")
    db.close()
    reason = RunStore(tmp_path).run(run_id).reason
    assert told(reason) == reason == str(REASON)


def test_a_refused_file_of_a_run_is_told_in_chinese(tmp_path, chinese):
    (tmp_path / "other.zip").write_bytes(b"PK no zip")
    error = refused(lambda: import_run(tmp_path / "other.zip", RunStore(tmp_path)))
    assert told(error).startswith("other.zip 不是可以读取的 zip 文件")


def test_english_pages_need_no_catalogue_of_the_core():
    assert core_words(ENGLISH) == {}
    assert not any(text in catalogue() for text in core_words("zh"))
