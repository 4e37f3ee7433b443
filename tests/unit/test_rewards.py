import math
from fractions import Fraction

import numpy as np
import pytest

from grpo_core import Group
from grpo_core.answers import MODES, extract_answer, normalise_answer, same_answer
from grpo_core.rewards import (
    SCRIPTS,
    VERIFIERS,
    RewardComponent,
    Sample,
    accuracy_reward,
    format_reward,
    gold_anywhere_reward,
    language_reward,
    overlong_penalty,
    reward_parts,
    score_completions,
)

GOOD = "<think>2 and 2 make 4</think>\n<answer>4</answer>"
LONG = 1_000_000
HOSTILE = {
    "open tags": "<answer>" * LONG,
    "closed tags": "</answer>" * LONG,
    "pairs": "<answer>1</answer>" * LONG,
    "open thoughts": "<think>" * LONG,
    "open boxes": r"\boxed{" * LONG,
    "braces": r"\boxed{" + "{" * LONG,
    "closed braces": "}" * LONG + r"\boxed{" + "{}" * LONG,
    "backslashes": r"\boxed{" + "\\" * LONG,
    "spaces": "<answer>" + " " * LONG + "x</answer>",
    "digits": "<answer>" + "9" * LONG + "</answer>",
    "commas": "<answer>1" + ",000" * LONG + "</answer>",
    "dollars": "<answer>" + "$" * LONG + "</answer>",
    "signs": "1" + "-" * LONG,
    "zero bytes": "\x00" * LONG,
    "surrogates": "\ud800" * LONG,
}


class TestExtractAnswer:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            (GOOD, "4"),
            ("<answer> 1/2 </answer>", "1/2"),
            (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
            (r"\boxed{1}, no, \boxed{a\}b}", r"a\}b"),
            (r"<answer>\boxed{3}</answer>", r"\boxed{3}"),
            ("<answer>5</answer> again <answer>5.0</answer>", "5.0"),
            # Only what is said after thinking counts
            ("<think>it is <answer>9</answer></think><answer>4</answer>", "4"),
            (r"<think>\boxed{9}</think>\boxed{4}", "4"),
            ("it is 9</think><answer>4</answer>", "4"),
        ],
    )
    def test_found(self, text, answer):
        assert extract_answer(text).answer == answer

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "no answer is marked"),
            ("the answer is 4", "no answer is marked"),
            ("<think>it is 4</think>", "no answer is marked"),
            ("<think>it is <answer>4</answer>", "the thinking never ends"),
            ("<answer>4</answer> or <answer>5</answer>", "2 answers that differ"),
            ("<answer>4", "an answer tag has no partner"),
            ("4</answer>", "an answer tag has no partner"),
            ("<answer>3 <answer>4</answer>", "an answer tag has no partner"),
            ("<answer> </answer>", "the answer is empty"),
            (r"\boxed{}", "the answer is empty"),
            (r"\boxed{{4}", "the braces of the box never close"),
            (r"<answer>4</answer><answer> \boxed{4}", "an answer tag has no partner"),
        ],
    )
    def test_no_answer_and_why(self, text, problem):
        found = extract_answer(text)
        assert found.answer is None
        assert found.problem == problem

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("first 3, then 1,000.", "1,000"),
            ("x = 5-3", "3"),
            ("it is -3", "-3"),
            ("about 2.50 or 7/2", "7/2"),
            ("none", None),
        ],
    )
    def test_last_number_is_asked_for_by_name(self, text, answer):
        assert extract_answer(text).answer is None
        assert extract_answer(text, modes=["last_number"]).answer == answer

    def test_modes_are_tried_in_order_and_a_broken_answer_ends_the_search(self):
        text = r"\boxed{1} <answer>2</answer> 3"
        first = [extract_answer(text, modes=[mode, *MODES]) for mode in MODES]
        assert [(found.mode, found.answer) for found in first] == [
            ("answer_tag", "2"), ("boxed", "1"), ("last_number", "3")
        ]  # fmt: skip
        assert extract_answer("<answer>2 3", modes=MODES).answer is None

    @pytest.mark.parametrize(
        ("text", "modes", "says"),
        [
            (None, MODES, "text must be text, got NoneType"),
            (4, MODES, "text must be text, got int 4"),
            (b"4", MODES, "text must be text, got bytes"),
            ("4", ["guess"], "modes must be a list of 'answer_tag', 'boxed', 'last_number', got"),
            ("4", "boxed", "modes must be a list"),
        ],
    )
    def test_bad_input_is_named(self, text, modes, says):
        with pytest.raises(ValueError, match=says):
            extract_answer(text, modes=modes)


class TestNormaliseAnswer:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("12", 12), (" +12. ", 12), ("-3", -3), ("−3", -3), ("007", 7), ("１２", 12),
            ("0.5", Fraction(1, 2)), (".5", Fraction(1, 2)), ("5.", 5), ("2.50", Fraction(5, 2)),
            ("1/2", Fraction(1, 2)), ("1 / 2", Fraction(1, 2)), ("-4/6", Fraction(-2, 3)),
            (r"\frac{1}{2}", Fraction(1, 2)), (r"-\dfrac12", Fraction(-1, 2)), (r"\tfrac{1,000}{4}", 250),
            ("1,000", 1000), ("1{,}000", 1000), (r"1\,000", 1000), ("1,234,567.5", Fraction(2469135, 2)), ("1e3", 1000),
            ("$5", 5), (r"\$5.00", 5), ("$5$", 5), (r"\(5\)", 5), ("$$5$$.", 5), (r"\boxed{\text{ 5 }}", 5),
        ],
    )  # fmt: skip
    def test_numbers(self, text, number):
        assert normalise_answer(text) == number
        assert isinstance(normalise_answer(text), Fraction)

    @pytest.mark.parametrize(
        ("text", "same"),
        [
            ("1,5", "1,5"), ("1,00", "1,00"), ("12,34", "12,34"), ("50%", "50%"), ("1 1/2", "1 1/2"), ("1/0", "1/0"),
            ("1/2/3", "1/2/3"), ("5²", "5²"), ("1_000", "1_000"), ("1e9999", "1e9999"), ("nan", "nan"), ("inf", "inf"),
            ("New  York.", "new york"), ("( 1, 2 )", "(1,2)"), (r"\left(1, 2\right)", "(1,2)"), ("x = 5", "x=5"),
            (r"\leftarrow", r"\leftarrow"), (r"\text{a}+\text{b}", r"\text{a}+\text{b}"), ("5...", "5..."), ("", ""),
        ],
    )  # fmt: skip
    def test_text(self, text, same):
        assert normalise_answer(text) == same

    def test_equality_is_never_containment(self):
        assert same_answer("24/2", "12.0")
        assert not same_answer("312", "12")
        assert not same_answer("12 or 13", "12")
        assert not same_answer("", "12")
        assert not same_answer("0.333", "1/3")


class TestAccuracy:
    @pytest.mark.parametrize(
        ("text", "gold", "reward"),
        [
            (GOOD, "4", 1.0),
            (GOOD, "4.0", 1.0),
            (GOOD, "5", 0.0),
            ("<answer>1/2</answer>", "0.5", 1.0),
            ("<answer>1,000</answer>", "1000", 1.0),
            ("<answer>312</answer>", "12", 0.0),
            ("<answer>12</answer>", "312", 0.0),
            ("<answer>Paris</answer>", "paris", 1.0),
            ("4", "4", 0.0),
            ("", "4", 0.0),
            ("<answer>1</answer><answer>4</answer>", "4", 0.0),
            ("<answer></answer>", "4", 0.0),
        ],
    )
    def test_scores(self, text, gold, reward):
        assert accuracy_reward(text, gold) == reward

    @pytest.mark.parametrize("gold", [None, "", "  "])
    def test_without_a_gold_answer_it_cannot_decide(self, gold):
        assert accuracy_reward(GOOD, gold) is None
        assert gold_anywhere_reward(GOOD, gold) is None

    def test_cut_off_is_not_wrong(self):
        cut = "<think>first, 2 and 2"
        assert accuracy_reward(cut, "4") == 0.0
        assert accuracy_reward(cut, "4", unanswered=None) is None
        assert accuracy_reward(GOOD, "5", unanswered=None, wrong=-1.0) == -1.0

    def test_lenient_modes_misread(self):
        text = "<think>...</think>The answer is 4, see page 12"
        assert accuracy_reward(text, "12", modes=["last_number"]) == 1.0
        assert accuracy_reward(text, "12") == 0.0

    def test_gold_anywhere_can_be_cheated(self):
        everything = " ".join(map(str, range(100)))
        for text in ("312", everything, "<think>12?</think><answer>7</answer>"):
            assert gold_anywhere_reward(text, "12") == 1.0
            assert accuracy_reward(text, "12") == 0.0
        assert gold_anywhere_reward("1 2", "12") == 0.0


class TestFormat:
    @pytest.mark.parametrize(
        ("text", "reward"),
        [
            (GOOD, 1.0),
            ("  " + GOOD + "\n", 1.0),
            ("<think>2 < 3</think><answer>nonsense</answer>", 1.0),
            ("", 0.0),
            ("4", 0.0),
            ("<answer>4</answer>", 0.0),
            ("<think>?</think>4", 0.0),
            ("<think> </think><answer>4</answer>", 0.0),
            ("<think>?</think><answer> </answer>", 0.0),
            ("<answer>4</answer><think>?</think>", 0.0),
            ("Sure! " + GOOD, 0.0),
            (GOOD + " Bye", 0.0),
            ("<think>?</think> so <answer>4</answer>", 0.0),
            ("<think>?</think><answer>4</answer><answer>5</answer>", 0.0),
            ("<think>a<think>b</think><answer>4</answer>", 0.0),
            ("<think>?<answer>4</answer></think>", 0.0),
        ],
    )
    def test_scores(self, text, reward):
        assert format_reward(text) == reward

    def test_a_thought_opened_by_the_prompt(self):
        text = GOOD.removeprefix("<think>")
        assert (format_reward(text), format_reward(text, think_opened=True)) == (0.0, 1.0)
        assert format_reward(GOOD, think_opened=True) == 0.0

    def test_right_format_with_a_wrong_answer(self):
        assert (format_reward(GOOD), accuracy_reward(GOOD, "5")) == (1.0, 0.0)


class TestLanguage:
    @pytest.mark.parametrize(
        ("text", "script", "share"),
        [
            ("hello", "latin", 1.0),
            ("hello 你好", "latin", 5 / 7),
            ("hello 你好", "chinese", 2 / 7),
            ("Ｈｅｌｌｏ", "latin", 1.0),
            ("すし寿司スシ", "japanese", 1.0),
            ("안녕 привет", "korean", 2 / 8),
            ("안녕 привет", "cyrillic", 6 / 8),
            (r"<think>所以 \frac{1}{2} \alpha</think><answer>好</answer>", "chinese", 1.0),
            ("αβγ", "greek", 1.0),
            ("مرحبا", "arabic", 1.0),
            ("שלום", "hebrew", 1.0),
            ("नमस", "devanagari", 1.0),
            ("สวสด", "thai", 1.0),
        ],
    )
    def test_share_of_letters(self, text, script, share):
        assert language_reward(text, script=script) == pytest.approx(share, rel=1e-14)

    @pytest.mark.parametrize("text", ["", "1 + 1 = 2", "<answer></answer>", r"\frac{1}{2}"])
    def test_without_letters_it_cannot_decide(self, text):
        assert language_reward(text) is None

    def test_scripts_do_not_overlap(self):
        sample = "aß你すア안дαاאकก"
        shares = {script: language_reward(sample, script=script) for script in SCRIPTS if script != "japanese"}
        assert sum(shares.values()) + 2 / 12 == pytest.approx(1.0)  # the two kana


class TestOverlong:
    @pytest.mark.parametrize(
        ("length", "penalty"),
        [
            (0, 0),
            (12000, 0),
            (16000, 0),
            (16384, 0),
            (18000, -0.39453125),
            (20000, -0.8828125),
            (20480, -1),
            (21000, -1),
        ],
    )
    def test_cases(self, length, penalty):
        assert float(overlong_penalty(length, max_length=20480, cache=4096)) == penalty

    def test_arrays(self, backend):
        lengths = backend.array([70, 90, 100, 130])
        backend.check(overlong_penalty(lengths, max_length=100, cache=20), [0, -0.5, -1, -1])
        # verl: the slope goes on, and has a factor
        backend.check(overlong_penalty(lengths, max_length=100, cache=20, factor=2.0, capped=False), [0, -1, -2, -5])
        backend.check(overlong_penalty(lengths, max_length=100, cache=0), [0, 0, 0, -1])

    def test_against_trl(self):
        from trl.rewards import get_soft_overlong_punishment

        lengths = [0, 79, 80, 81, 95, 100, 101, 500]
        for cache in (0, 20, 100):
            theirs = get_soft_overlong_punishment(100, cache)([[1] * n for n in lengths])
            np.testing.assert_allclose(overlong_penalty(lengths, max_length=100, cache=cache), theirs, rtol=1e-14)

    @pytest.mark.parametrize(
        ("length", "options", "says"),
        [
            (-1, {}, "length must be at least 0 tokens, got -1"),
            (float("nan"), {}, "length must be at least 0 tokens"),
            ("x", {}, "length must be numbers"),
            (1, {"cache": 200}, "cache must be between 0 and 100, got 200"),
            (1, {"max_length": 0}, "max_length must be finite and above 0"),
            (1, {"cache": 0, "capped": False}, "cache must be above 0 unless the penalty is capped"),
            (1, {"factor": -1}, "factor must be finite and at least 0"),
        ],
    )
    def test_bad_input_is_named(self, length, options, says):
        with pytest.raises(ValueError, match=says):
            overlong_penalty(length, **{"max_length": 100, "cache": 20, **options})


class TestComposition:
    COMPONENTS = (
        RewardComponent(verifier="accuracy"),
        RewardComponent(verifier="format", weight=0.1),
        RewardComponent(verifier="language", weight=0.5, options={"script": "chinese"}),
    )

    def test_every_component_is_kept(self):
        (report,) = score_completions([Sample("<think>所以</think><answer>4</answer>", gold="5")], self.COMPONENTS)
        assert report.parts == {"accuracy": 0.0, "format": 1.0, "language": 1.0}
        assert report.weights == {"accuracy": 1.0, "format": 0.1, "language": 0.5}
        assert report.reward == pytest.approx(0.6)
        assert report.unscored == ()

    def test_what_cannot_decide_drops_out_and_is_not_zero(self):
        samples = [Sample("<answer>4</answer>", gold="4"), Sample("<answer>4</answer>")]
        components = [self.COMPONENTS[0], self.COMPONENTS[2]]
        first, second = score_completions(samples, components)
        assert (first.reward, first.unscored) == (1.0, ("language",))
        assert (second.reward, second.unscored) == (None, ("accuracy", "language"))

    def test_a_weight_of_zero_still_scores(self):
        component = RewardComponent(verifier="format", weight=0.0)
        assert score_completions([Sample("x")], [component])[0].reward == 0.0

    def test_overlong_and_names(self):
        components = [
            RewardComponent(verifier="overlong", name="long", options={"max_length": 100, "cache": 20}),
            RewardComponent(verifier="gold_anywhere", name="lenient"),
            RewardComponent(verifier="accuracy", name="strict", options={"modes": ["boxed"]}),
        ]
        (report,) = score_completions([Sample("12", gold="1", length=90)], components)
        assert report.parts == {"long": -0.5, "lenient": 1.0, "strict": 0.0}
        assert report.reward == 0.5

    def test_the_parts_fit_a_group(self):
        samples = [Sample(text, gold="4") for text in (GOOD, "", "<answer>4</answer>")]
        reports = score_completions(samples, self.COMPONENTS)
        parts = reward_parts(reports)
        assert parts == {"accuracy": (1.0, 0.0, 1.0), "format": (1.0, 0.0, 0.0), "language": (0.0, None, None)}
        tokens = tuple((sample.text or "EOS",) for sample in samples)
        group = Group(
            prompt="2 + 2 =",
            tokens=tokens,
            rewards=tuple(report.reward for report in reports),
            logp=((-1.0,),) * 3,
            reward_parts=parts,
        )
        assert group.reward_parts == parts
        assert group.rewards == (1.1, 0.0, 1.0)

    def test_nothing_to_score(self):
        assert score_completions([], self.COMPONENTS) == []
        assert reward_parts([]) == {}

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: RewardComponent(verifier="magic"), "verifier must be one of 'accuracy', 'format'"),
            (lambda: RewardComponent(verifier="format", weight=math.inf), "weight must be a finite number, got inf"),
            (
                lambda: RewardComponent(verifier="format", options={"x": 1}),
                r"options of 'format' are \['think_opened'\]",
            ),
            (lambda: Sample(None), "text must be text, got NoneType"),
            (lambda: Sample("x", gold=4), "gold must be text, got int 4"),
            (lambda: score_completions([Sample("x")], []), "components must be at least one"),
            (
                lambda: score_completions([Sample("x")], [RewardComponent(verifier="format")] * 2),
                "each with a name of its own",
            ),
            (
                lambda: score_completions([Sample("x")], [RewardComponent(verifier="overlong")]),
                "length must be given, in tokens, for the verifier 'overlong'",
            ),
            (lambda: language_reward("x", script="klingon"), "script must be one of 'latin', 'chinese'"),
            (lambda: accuracy_reward("x", 4), "gold must be text"),
            (lambda: format_reward(None), "text must be text"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_scored_in_linear_time(name):
    """A million repetitions: with a quadratic step anywhere this test would not end."""
    sample = Sample(HOSTILE[name], gold="12", length=LONG)
    components = [RewardComponent(verifier=verifier) for verifier in VERIFIERS]
    components.append(RewardComponent(verifier="accuracy", name="lenient", options={"modes": MODES}))
    (report,) = score_completions([sample], components)
    assert report.parts["accuracy"] == 0.0
    assert report.parts["format"] == 0.0
    assert report.reward is not None
