"""A group comes back from JSON as it went, and nothing but ValueError ever comes of bad JSON."""

import contextlib
import json

from hypothesis import example, given
from hypothesis import strategies as st

from grpo_core import AdvantageSpec, Group, GroupBatch

LOGPS = st.floats(-1e6, 0.0)
SCORES = st.one_of(st.none(), st.floats(-1e9, 1e9))


@st.composite
def groups(draw):
    tokens = draw(st.lists(st.lists(st.text(max_size=4), max_size=4), min_size=1, max_size=4))

    def numbers():
        return [draw(st.lists(LOGPS, min_size=len(row), max_size=len(row))) for row in tokens]

    size = len(tokens)
    return Group(
        prompt=draw(st.text(max_size=20)),
        tokens=tokens,
        rewards=draw(st.lists(SCORES, min_size=size, max_size=size)),
        logp=numbers(),
        old_logp=draw(st.sampled_from([None, numbers()])),
        ref_logp=draw(st.sampled_from([None, numbers()])),
        mask=draw(st.sampled_from([None, [[draw(st.booleans()) for _ in row] for row in tokens]])),
        finish=draw(st.lists(st.sampled_from(["eos", "length", "unknown"]), min_size=size, max_size=size)),
        answer=draw(st.one_of(st.none(), st.text(min_size=1, max_size=5))),
        source=draw(st.text(max_size=5)),
        reward_parts={"a": draw(st.lists(SCORES, min_size=size, max_size=size))},
    )


@given(groups())
def test_json_round_trip(group):
    assert Group.from_json(json.dumps(group.to_json())) == group
    assert Group.from_json(group.to_json()) == group


@given(groups())
def test_every_valid_group_becomes_a_batch(group):
    batch = GroupBatch.from_groups([group, group], AdvantageSpec())
    assert batch.mask.shape[0] == 2 * group.size
    assert batch.mask.sum() == 2 * sum(group.lengths)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
    ),
    max_leaves=12,
)
FIELDS = sorted(Group.__dataclass_fields__)


@given(JSON)
@example({"prompt": "", "tokens": [[]], "rewards": [[1]], "logp": [[]]})
def test_any_json_is_a_group_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        Group.from_json(data)


@given(groups(), st.sampled_from(FIELDS), JSON)
def test_any_value_in_any_field_is_accepted_or_a_value_error(group, field, value):
    data = {**group.to_json(), field: value}
    with contextlib.suppress(ValueError):
        accepted = Group.from_json(data)
        assert Group.from_json(accepted.to_json()) == accepted


@given(st.text(max_size=60))
def test_any_text_is_a_group_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        Group.from_json(text)
