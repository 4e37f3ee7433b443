"""Messages: the English as it was, the template and values beside it, and what others wrote is not trusted."""

import copy
import json
import pickle

import pytest

from grpo_core import Group
from grpo_core.live.config import RunConfig
from grpo_core.messages import InputError, Message, message_from, message_of, recall, remember

NESTED = Message("{name}={value!r:.6} is bad: {why}", name="x", value="{y} long text", why=Message("give {n:g}", n=2.0))


def test_a_message_is_its_english_text_and_keeps_what_it_was_made_from():
    assert NESTED == "x='{y} l is bad: give 2"
    assert NESTED.template == "{name}={value} is bad: {why}"
    assert NESTED.values == {"name": "x", "value": "'{y} l", "why": "give 2"}
    assert NESTED.values["why"].template == "give {n}"


def test_braces_of_a_template_stay_and_those_of_a_value_are_text():
    assert Message("{{a}} is {a}", a="{b}") == "{a} is {b}"
    assert Message("{{a}} is {a}", a="{b}").template == "{{a}} is {a}"
    assert Message("a text {with} braces") == "a text {with} braces"


@pytest.mark.parametrize("make", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_messages_and_their_errors_can_be_copied(make):
    assert make(NESTED).to_data() == NESTED.to_data()
    error = make(InputError("{name} is {value!r}", name="a", value="b"))
    assert (str(error), error.message.template) == ("a is 'b'", "{name} is {value}")


def test_an_error_inside_an_error_stays_a_message():
    inner = InputError("{name} is missing", name="rewards")
    assert Message("line {line}: {error}", line=3, error=inner).values["error"].template == "{name} is missing"


def test_what_json_and_the_system_say_has_parts(tmp_path):
    with pytest.raises(json.JSONDecodeError) as broken:
        json.loads('{"a": ')
    found = message_of(broken.value)
    assert found == str(broken.value)
    assert found.values["what"] == broken.value.msg
    with pytest.raises(OSError, match="No such file") as missing:
        (tmp_path / "nothing").open()
    found = message_of(missing.value)
    assert found == str(missing.value)
    assert found.values["file"] == repr(str(tmp_path / "nothing"))


def test_plain_data_beside_a_text_brings_its_message_back():
    kept = json.loads(json.dumps(remember({"event": "end", "reason": NESTED, "step": 3})))
    assert kept["reason"] == str(NESTED)
    found = recall(kept)
    assert found == {"event": "end", "reason": NESTED, "step": 3}
    assert found["reason"].values["why"].template == "give {n}"
    assert recall({"reason": "an old store"}) == {"reason": "an old store"}


def deep(levels):
    return "end" if not levels else {"template": "{a}", "values": {"a": deep(levels - 1)}}


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        [],
        {},
        {"template": 3, "values": {}},
        {"template": "{a}", "values": {"a": 3}},
        {"template": "{a}", "values": {}},
        {"template": "another text", "values": {}},
        {"template": "{", "values": {"a": "b"}},
        {"template": "{a.__class__}", "values": {"a": "b"}},
        {"template": "{a!r}", "values": {"a": "b"}},
        {"template": "{a:>1000000000000}", "values": {"a": "b"}},
        deep(500),
    ],
)
def test_data_that_does_not_fit_the_text_is_left_out(data):
    found = message_from(data, "end")
    assert found == "end"
    assert not isinstance(found, Message)
    assert recall({"reason": "end", "said": {"reason": data}}) == {"reason": "end"}
    assert recall({"reason": "end", "said": data}) == {"reason": "end"}


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: RunConfig.from_dict({"group_size": 0}), {"name": "group_size", "value": "0"}),
        (lambda: RunConfig.from_dict({"grup_size": 8}), {"name": "'grup_size'", "hint": " (did you mean group_size?)"}),
        (lambda: Group("p", (("a",),), ("x",), ((-1.0,),)), {"name": "rewards[0]", "value": "'x'"}),
        (lambda: Group.from_json("{"), {"error": "Expecting property name"}),
    ],
)
def test_an_error_of_the_core_names_its_values(make, values):
    with pytest.raises(InputError) as refused:
        make()
    for name, text in values.items():
        assert refused.value.message.values[name].startswith(text)
        assert text in str(refused.value)
