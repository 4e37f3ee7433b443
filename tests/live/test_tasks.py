"""The shell game: prompts, answers, the held-out part, and the verifiers."""

import random

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from grpo_core.live.model import TAGS, load_policy, make_tokenizer
from grpo_core.live.tasks import TASKS, Problem, Score, exact, follow, is_held_out, shell_game


def test_the_ball_is_followed():
    assert follow(2, [(1, 3), (2, 4), (1, 2), (2, 5), (3, 4)]) == [2, 4, 4, 4, 3]


def test_a_problems_answer_is_where_the_ball_ends():
    rng = random.Random(1)
    for _ in range(200):
        problem = shell_game(rng, swaps=5)
        start, _, rest = problem.prompt.removesuffix("=").partition(":")
        cups = ["", "", "", "", "", ""]
        cups[int(start)] = "ball"
        for swap in rest.split(","):
            a, b = int(swap[0]), int(swap[1])
            assert a < b
            cups[a], cups[b] = cups[b], cups[a]
        assert cups.index("ball") == int(problem.answer) == int(problem.steps[-1])
        assert len(problem.steps) == 5


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_held_out_prompts_are_never_trained_on(task):
    held_out = {problem.prompt for problem in task.held_out(200)}
    assert len(held_out) == 200
    assert all(is_held_out(prompt) for prompt in held_out)
    trained = {problem.prompt for problem in task.sample(random.Random(0), 5000)}
    assert not any(is_held_out(prompt) for prompt in trained)
    assert not trained & held_out


def test_held_out_prompts_are_the_same_every_time():
    task = TASKS["shell_game"]
    assert task.held_out(50) == task.held_out(50)


def test_a_small_task_gives_what_held_out_prompts_it_has():
    few = TASKS["shell_game_short"].held_out(1000)
    assert 300 < len({problem.prompt for problem in few}) == len(few) < 700


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<answer>4</answer>", Score(1, 1, 1)),
        ("<think>24455</think><answer>4</answer>", Score(1, 1, 1)),
        ("<answer>5</answer>", Score(0, 0, 1)),
        ("<think>4</think><answer>5</answer>", Score(0, 0, 1)),
        ("4", Score(0, 0, 0)),
        ("", Score(0, 0, 0)),
        ("<answer></answer>", Score(0, 0, 1)),
        ("<answer>4", Score(0, 0, 0)),
        ("<answer>4</answer>4", Score(0, 1, 0)),
        ("<answer>4</answer><answer>5</answer>", Score(0, 0, 0)),
        ("<think>44", Score(0, 0, 0)),
        ("<answer>45</answer>", Score(0, 0, 1)),
    ],
)
def test_the_exact_verifier_keeps_accuracy_and_format_apart(completion, expected):
    assert exact(completion, "4") == expected


@pytest.mark.parametrize(
    ("task", "completion", "expected"),
    [
        ("shell_game_lenient", "<think>12345", Score(1, 0, 0)),
        ("shell_game_lenient", "<answer>5</answer>", Score(0, 0, 1)),
        ("shell_game_format", "<answer>5</answer>", Score(1, 0, 1)),
        ("shell_game_mostly_format", "<answer>5</answer>", Score(1, 0, 1)),
        ("shell_game_mostly_format", "<answer>4</answer>", Score(1.1, 1, 1)),
        ("shell_game_mostly_format", "<answer>4</answer>4", Score(0, 1, 0)),
        ("shell_game_length_bonus", "<answer>4</answer>", Score(1.8, 1, 1)),
        ("shell_game_length_bonus", "4444", Score(0.8, 0, 0)),
    ],
)
def test_the_other_verifiers_change_the_reward_only(task, completion, expected):
    assert TASKS[task].score(completion, Problem("1:14=", "4", "4"), length=4) == expected


def test_a_task_may_have_prompts_of_several_lengths():
    problems = TASKS["shell_game_mixed"].sample(random.Random(0), 200)
    assert {len(problem.steps) for problem in problems} == {3, 4, 5, 6}


@pytest.mark.parametrize(
    ("prompt", "steps", "moves"), [("1:23,24,35=", "111", 0), ("1:12,34,25=", "225", 2), ("5:15,15,15=", "151", 3)]
)
def test_difficulty_is_how_often_the_ball_moves(prompt, steps, moves):
    assert Problem(prompt, steps[-1], steps).moves == moves


def test_the_tokenizer_is_saved_and_loaded_the_transformers_way(tmp_path):
    tokenizer = make_tokenizer()
    assert len(tokenizer) == 54
    text = "<bos>2:13,24=<think>24</think><answer>4</answer><eos>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids)[:3] == ["<bos>", "2", ":"]
    assert sum(token in TAGS for token in tokenizer.convert_ids_to_tokens(ids)) == 4
    kept = tokenizer.decode(ids, skip_special_tokens=True)
    assert kept == "2:13,24=<think>24</think><answer>4</answer>"
    tokenizer.save_pretrained(tmp_path)
    for kind in (PreTrainedTokenizerFast, AutoTokenizer):
        again = kind.from_pretrained(tmp_path)
        assert again(text)["input_ids"] == ids
        assert (again.pad_token, again.eos_token, again.padding_side) == ("<pad>", "<eos>", "left")


def test_texts_are_those_of_the_tokenizer():
    policy = load_policy("shell_game", "cpu")
    rows = policy.tokenizer(["<think>12</think><answer>2</answer><eos>", "4<eos>", "a b<pad>c"])["input_ids"]
    assert policy.texts(rows) == policy.tokenizer.batch_decode(rows, skip_special_tokens=True)
    assert policy.token_texts(rows)[1] == ["4", "<eos>"]


def test_missing_weights_say_how_to_make_them():
    with pytest.raises(ValueError, match=r"python -m grpo_core\.live\.warm_start"):
        load_policy("no such start")
