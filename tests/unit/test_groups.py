import json
import math

import numpy as np
import pytest

from grpo_core import (
    Accounting,
    AdvantageSpec,
    Group,
    GroupBatch,
    Whitening,
    compute_advantages,
    multi_reward_advantages,
)


def make(**changes):
    fields = {
        "prompt": "2+2=",
        "tokens": (("4", "<eos>"), ("5", "5", "<eos>"), ()),
        "rewards": (1.0, 0.0, None),
        "logp": ((-0.5, -0.1), (-1.0, -2.0, -0.3), ()),
        "old_logp": ((-0.6, -0.1), (-1.0, -1.5, -0.3), ()),
        "ref_logp": ((-0.7, -0.2), (-1.1, -2.1, -0.4), ()),
        "finish": ("eos", "eos", "length"),
        "answer": "4",
        "source": "a test",
        "reward_parts": {"accuracy": (1, 0, None), "format": (0.5, None, None)},
    }
    return Group(**{**fields, **changes})


class TestGroup:
    def test_what_it_knows(self):
        group = make()
        assert group.size == 3
        assert group.lengths == (2, 3, 0)
        assert group.kind == "mixed"
        assert group.completions == ("4<eos>", "55<eos>", "")
        assert group.truncated == (False, False, True)
        assert group.rewards == (1.0, 0.0, None)
        np.testing.assert_array_equal(group.reward_array, [1.0, 0.0, np.nan])
        assert group.reward_parts == {"accuracy": (1.0, 0.0, None), "format": (0.5, None, None)}

    def test_only_tokens_that_train_count_as_length(self):
        mask = ((True, False), (True, True, False), ())
        assert make(mask=mask).lengths == (1, 2, 0)

    def test_defaults(self):
        group = Group(prompt="", tokens=(("a",),), rewards=(None,), logp=((-1.0,),))
        assert group.old_logp == group.logp
        assert group.ref_logp is None
        assert group.mask == ((True,),)
        assert group.finish == ("unknown",)
        assert group.kind == "unscored"
        assert group.truncated == (False,)

    def test_lists_and_arrays_become_tuples(self):
        group = Group(prompt="", tokens=[["a", "b"]], rewards=np.array([1]), logp=np.array([[-1.0, -2.0]]))
        assert group == Group(prompt="", tokens=(("a", "b"),), rewards=(1.0,), logp=((-1.0, -2.0),))

    def test_its_advantages(self):
        result = make().advantages(AdvantageSpec(ddof=0, eps=0.0))
        assert result.advantages.tolist() == [1.0, -1.0, 0.0]

    def test_replace_checks_again(self):
        assert make().replace(rewards=(0, 0, 0)).kind == "all-wrong"
        with pytest.raises(ValueError, match="rewards must have one entry for each of the 3 completions"):
            make().replace(rewards=(1,))

    def test_is_frozen(self):
        with pytest.raises(AttributeError):
            make().prompt = "x"

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"prompt": 3}, "prompt must be text, got 3"),
            ({"source": None}, "source must be text, got None"),
            ({"answer": 4}, "answer must be text, got 4"),
            ({"tokens": ()}, "tokens must list at least one completion"),
            ({"tokens": "abc"}, "tokens must list at least one completion"),
            ({"tokens": ("ab", "abc", "")}, r"tokens\[0\] must be a list of strings, got 'ab'"),
            ({"tokens": ((1, 2), (3, 4, 5), ())}, r"tokens\[0\] must be a list of strings"),
            ({"rewards": (1, 0)}, "rewards must have one entry for each of the 3 completions"),
            ({"rewards": (1, 0, math.nan)}, r"rewards\[2\] must be a finite number, or None"),
            ({"rewards": (1, 0, "1")}, r"rewards\[2\]"),
            ({"rewards": 3}, "rewards must have one entry"),
            ({"logp": ((-1.0,), (-1.0,) * 3, ())}, r"logp\[0\] must have one number for each of the 2 tokens"),
            ({"logp": ((-1.0, -1.0),)}, "logp must have one list for each completion"),
            ({"logp": ((-1.0, 0.5), (-1.0,) * 3, ())}, r"logp\[0\] must hold finite log-probabilities .* got \[0.5\]"),
            ({"logp": ((-1.0, math.nan), (-1.0,) * 3, ())}, r"logp\[0\] .* got \[nan\]"),
            ({"logp": ((-math.inf, -1.0), (-1.0,) * 3, ())}, r"logp\[0\] .* got \[-inf\]"),
            ({"logp": (("a", -1.0), (-1.0,) * 3, ())}, r"logp\[0\] must hold numbers"),
            ({"logp": ((None, -1.0), (-1.0,) * 3, ())}, r"logp\[0\] must hold numbers"),
            ({"old_logp": ((-1.0, -1.0), (-1.0,) * 2, ())}, r"old_logp\[1\] must have one number for each of the 3"),
            ({"ref_logp": ((-1.0, 7.0), (-1.0,) * 3, ())}, r"ref_logp\[0\] must hold finite log-probabilities"),
            ({"mask": ((1, 0), (1, 1, 1), ())}, r"mask\[0\] must hold true or false for each of the 2 tokens"),
            ({"mask": ((True, True),)}, "mask must have one list for each completion"),
            ({"finish": ("eos", "eos", "stop")}, "finish must hold one of eos, length, unknown"),
            ({"finish": ("eos",)}, "finish must hold one of"),
            ({"finish": ([], {}, ())}, "finish must hold one of"),
            ({"reward_parts": {"accuracy": (1,)}}, r"reward_parts\['accuracy'\] must have one entry for each of the 3"),
            ({"reward_parts": {"a": (1, 0, math.inf)}}, r"reward_parts\['a'\]\[2\] must be a finite number"),
        ],
    )
    def test_what_does_not_fit_is_named(self, changes, says):
        with pytest.raises(ValueError, match=says):
            make(**changes)

    def test_too_much_is_refused_before_it_costs(self):
        with pytest.raises(ValueError, match="at most 4096 completions, got 5000"):
            Group(prompt="", tokens=((),) * 5000, rewards=(None,) * 5000, logp=((),) * 5000)


class TestGroupJson:
    @pytest.mark.parametrize(
        "group",
        [
            make(),
            make(ref_logp=None, finish=None, old_logp=None, answer=None, source="", reward_parts={}),
            make(mask=((True, False), (False, True, True), ())),
            make(prompt='<script>alert("x")</script> \u2028 \U0001f600 \\ "', rewards=(1e-300, -1e300, 0.1)),
        ],
    )
    def test_round_trip(self, group):
        data = group.to_json()
        assert Group.from_json(data) == group
        assert Group.from_json(json.dumps(data)) == group
        assert Group.from_json(json.dumps(data, ensure_ascii=False)) == group
        json.dumps(data, allow_nan=False)

    def test_defaults_are_left_out(self):
        group = Group(prompt="p", tokens=(("a",),), rewards=(1,), logp=((-1.0,),))
        assert group.to_json() == {"prompt": "p", "tokens": [["a"]], "rewards": [1.0], "logp": [[-1.0]]}

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "the group is not valid JSON"),
            ("{", "the group is not valid JSON"),
            ("[" * 100_000, "the group is not valid JSON"),
            ('{"prompt": ' * 50_000, "the group is not valid JSON"),
            ("null", "a group must be a JSON object, got NoneType"),
            ("[1, 2]", "a group must be a JSON object, got list"),
            ('"text"', "a group must be a JSON object, got str"),
            ("{}", "the group lacks logp, prompt, rewards, tokens"),
            ('{"prompt": "", "tokens": [["a"]], "rewards": [1]}', "the group lacks logp"),
        ],
    )
    def test_hostile_text(self, text, says):
        with pytest.raises(ValueError, match=says):
            Group.from_json(text)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"__class__": "os.system"}, "the group has unknown fields: __class__"),
            ({"extra": 1}, "the group has unknown fields: extra"),
            ({"tokens": {"0": ["a"]}}, "tokens must list at least one completion"),
            ({"tokens": [[["a"]]]}, r"tokens\[0\] must be a list of strings"),
            ({"tokens": None}, "tokens must list"),
            ({"rewards": [True]}, None),
            ({"rewards": ["1"]}, r"rewards\[0\] must be a finite number"),
            ({"rewards": [math.nan]}, r"rewards\[0\] must be a finite number"),
            ({"rewards": [[1]]}, "rewards"),
            ({"rewards": [10**400]}, "rewards"),
            ({"rewards": [{}]}, "rewards"),
            ({"logp": [[math.inf]]}, r"logp\[0\]"),
            ({"logp": [[-(10**400)]]}, r"logp\[0\]"),
            ({"logp": [["-1"]]}, r"logp\[0\]"),
            ({"logp": [[True]]}, r"logp\[0\]"),
            ({"logp": [[[]]]}, r"logp\[0\]"),
            ({"logp": ["a"]}, r"logp\[0\]"),
            ({"mask": [["true"]]}, r"mask\[0\]"),
            ({"mask": {}}, "mask"),
            ({"finish": ["EOS"]}, "finish"),
            ({"finish": "e"}, "finish"),
            ({"finish": [["eos"]]}, "finish"),
            ({"reward_parts": [1]}, "reward_parts must be an object"),
            ({"reward_parts": {"a": 1}}, r"reward_parts\['a'\]"),
            ({"reward_parts": None}, "reward_parts"),
            ({"prompt": ["p"]}, "prompt must be text"),
            ({"prompt": None}, "prompt must be text"),
            ({"answer": {}}, "answer must be text"),
        ],
    )
    def test_hostile_values(self, change, says):
        data = {"prompt": "p", "tokens": [["a"]], "rewards": [1.0], "logp": [[-1.0]], **change}
        for form in (data, json.dumps(data)):
            if says is None:
                Group.from_json(form)
            else:
                with pytest.raises(ValueError, match=says):
                    Group.from_json(form)

    def test_messages_do_not_repeat_the_whole_input(self):
        data = {"prompt": "p", "tokens": [["a"]], "rewards": ["z" * 10**6], "logp": [[-1.0]]}
        with pytest.raises(ValueError, match="rewards") as caught:
            Group.from_json(data)
        assert len(str(caught.value)) < 400


class TestAccounting:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"micro_batches": 0}, "micro_batches must be a whole number of at least 1, got 0"),
            ({"generation_steps": 1.5}, "generation_steps .* got 1.5"),
            ({"processes": "2"}, "processes .* got '2'"),
            ({"tokens": -1}, "tokens must not be negative, got -1"),
        ],
    )
    def test_bad_counts_are_named(self, changes, says):
        with pytest.raises(ValueError, match=says):
            Accounting(**changes)


def arrays(**changes):
    fields = {
        "logp": np.zeros((2, 3)),
        "old_logp": np.zeros((2, 3)),
        "ref_logp": None,
        "mask": np.ones((2, 3), dtype=bool),
        "advantages": np.zeros(2),
    }
    return GroupBatch(**{**fields, **changes})


class TestGroupBatch:
    def test_from_groups_pads_and_normalises_each_group_by_itself(self):
        other = make(rewards=(4, 0, 2))
        batch = GroupBatch.from_groups([make(), other], AdvantageSpec(ddof=0, eps=0.0))
        assert batch.logp.shape == (6, 3)
        assert batch.mask.tolist() == [[True, True, False], [True, True, True], [False, False, False]] * 2
        assert batch.logp[:3].tolist() == [[-0.5, -0.1, 0.0], [-1.0, -2.0, -0.3], [0.0, 0.0, 0.0]]
        assert batch.old_logp[0].tolist() == [-0.6, -0.1, 0.0]
        assert batch.ref_logp[1].tolist() == [-1.1, -2.1, -0.4]
        root = math.sqrt(1.5)
        np.testing.assert_allclose(batch.advantages, [1, -1, 0, root, -root, 0], rtol=1e-14)
        assert batch.truncated.tolist() == [False, False, True] * 2

    def test_groups_of_different_sizes(self):
        small = Group(prompt="", tokens=(("a",), ("b",)), rewards=(3, 1), logp=((-1.0,), (-2.0,)))
        batch = GroupBatch.from_groups([small, make()], AdvantageSpec(ddof=0, eps=0.0))
        assert batch.advantages.tolist() == [1.0, -1.0, 1.0, -1.0, 0.0]
        assert batch.ref_logp is None  # not every group has a reference

    def test_torch(self):
        import torch

        batch = GroupBatch.from_groups([make()], AdvantageSpec(), xp=torch)
        assert batch.logp.dtype == torch.float64
        assert batch.mask.dtype == torch.bool
        assert batch.advantages.shape == (3,)

    def test_a_group_of_empty_completions(self):
        empty = Group(prompt="", tokens=((), ()), rewards=(1, 0), logp=((), ()))
        batch = GroupBatch.from_groups([empty], AdvantageSpec())
        assert batch.mask.shape == (2, 1)
        assert not batch.mask.any()

    def test_no_groups(self):
        with pytest.raises(ValueError, match="groups must hold at least one group"):
            GroupBatch.from_groups([], AdvantageSpec())

    @pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3)])
    def test_advantages_per_completion_or_per_token(self, shape):
        assert arrays(advantages=np.zeros(shape)).advantages.shape == shape

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"mask": np.ones((2, 3))}, "mask must be boolean"),
            ({"mask": np.ones(2, dtype=bool)}, "mask must have shape"),
            ({"logp": np.zeros((2, 4))}, r"logp must have the shape of mask, \(2, 3\), got \(2, 4\)"),
            ({"old_logp": np.zeros((3, 2))}, "old_logp must have the shape of mask"),
            ({"ref_logp": np.zeros((2, 1))}, "ref_logp must have the shape of mask"),
            ({"entropy": np.zeros(2)}, "entropy must have the shape of mask"),
            ({"advantages": np.zeros(3)}, r"advantages must be \(B,\) or \(B, T\), got \(3,\)"),
            ({"advantages": np.zeros((3, 2))}, "advantages must be"),
            ({"truncated": np.zeros(3, dtype=bool)}, "truncated must have one entry for each completion"),
        ],
    )
    def test_shapes_are_checked(self, changes, says):
        with pytest.raises(ValueError, match=says):
            arrays(**changes)


class TestAdvantagesOfAnyEstimator:
    """A group brings what an estimator may need beside the rewards: lengths, reward parts, the greedy reward."""

    def test_lengths(self):
        spec = AdvantageSpec(estimator="length_weighted")
        group = ragged(2, 8)
        expected = compute_advantages([0.0, 1.0], spec, lengths=np.array([2, 8])).advantages
        np.testing.assert_array_equal(group.advantages(spec).advantages, expected)
        np.testing.assert_array_equal(GroupBatch.from_groups([group], spec).advantages, expected)

    def test_whitening_over_the_tokens_of_all_groups(self):
        spec = AdvantageSpec(estimator="reward", whitening=Whitening(ddof=0, eps=0.0))
        advantages = GroupBatch.from_groups([ragged(2, 8), ragged(3, 3, 3)], spec).advantages
        lengths, rewards = np.array([2, 8, 3, 3, 3]), np.array([0.0, 1.0, 0.0, 1.0, 0.0])
        mean = (lengths * rewards).sum() / lengths.sum()
        std = np.sqrt((lengths * (rewards - mean) ** 2).sum() / lengths.sum())
        np.testing.assert_allclose(advantages, (rewards - mean) / std, rtol=1e-12)

    def test_reward_parts(self):
        spec = AdvantageSpec(reward_aggregation="normalize_then_sum")
        parts = {"right": (1.0, 0.0, 0.0), "form": (0.0, 0.1, None)}
        group = ragged(1, 1, 1).replace(rewards=(1.0, 0.1, 0.0), reward_parts=parts)
        stacked = np.array([[1.0, 0.0], [0.0, 0.1], [0.0, np.nan]])
        expected = multi_reward_advantages(stacked, spec).advantages
        np.testing.assert_allclose(group.advantages(spec).advantages, expected, rtol=1e-12)
        np.testing.assert_allclose(GroupBatch.from_groups([group], spec).advantages, expected, rtol=1e-12)

    def test_without_parts_the_reward_is_the_only_function(self):
        spec = AdvantageSpec(reward_aggregation="normalize_then_sum")
        expected = multi_reward_advantages(np.array([[0.0], [1.0]]), spec).advantages
        np.testing.assert_allclose(ragged(2, 8).advantages(spec).advantages, expected, rtol=1e-12)

    def test_groups_with_other_parts_cannot_be_mixed(self):
        spec = AdvantageSpec(reward_aggregation="normalize_then_sum")
        other = ragged(1, 1).replace(reward_parts={"right": (0.0, 1.0)})
        with pytest.raises(ValueError, match="reward_parts"):
            GroupBatch.from_groups([ragged(1, 1), other], spec)

    def test_greedy_reward(self):
        spec = AdvantageSpec(estimator="greedy_baseline")
        assert ragged(1, 1).advantages(spec, greedy_reward=0.25).advantages.tolist() == [-0.25, 0.75]
        batch = GroupBatch.from_groups([ragged(1, 1), ragged(2, 2)], spec, greedy_rewards=[0.0, 1.0])
        assert batch.advantages.tolist() == [0.0, 1.0, -1.0, 0.0]
        with pytest.raises(ValueError, match="greedy_rewards"):
            ragged(1, 1).advantages(spec)


def ragged(*lengths: int) -> Group:
    """Return a group of completions of these lengths with rewards 0, 1, 0, 1, ..."""
    return Group(
        prompt="p", tokens=tuple(("x",) * n for n in lengths), logp=tuple((-1.0,) * n for n in lengths),
        rewards=tuple(float(i % 2) for i in range(len(lengths))),
    )  # fmt: skip
