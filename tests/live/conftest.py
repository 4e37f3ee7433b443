"""What the live tests share: the start weights, a batch of prompts, a rollout."""

import random

import pytest
import torch

from grpo_core.live.engines import make_engine
from grpo_core.live.model import load_policy
from grpo_core.live.rollout import encode, sample
from grpo_core.live.store import RunStore
from grpo_core.live.tasks import TASKS, shell_game
from tests.runs import put_away


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def policy():
    return load_policy("shell_game", "cpu")


@pytest.fixture
def prompts(policy):
    """Prompts of one length."""
    return encode(policy, [problem.prompt for problem in TASKS["shell_game"].sample(random.Random(3), 6)])


@pytest.fixture
def padded_prompts(policy):
    """Prompts of several lengths."""
    return encode(policy, [shell_game(random.Random(i), swaps=3 + i % 4).prompt for i in range(6)])


@pytest.fixture
def draw(policy):
    """Sample from a policy's engine, by default the fast one."""

    def draw(prompts, *, engine=None, seed=0, **settings):
        settings = {"group_size": 5, "max_new_tokens": 13, "eos": policy.tokenizer.eos_token_id, **settings}
        generator = torch.Generator().manual_seed(seed)
        return sample(engine or make_engine(policy), prompts, generator=generator, **settings)

    return draw


@pytest.fixture
def store(tmp_path):
    """A run store of the test's own; no run is left going on or waiting."""
    store = RunStore(tmp_path)
    yield store
    put_away(store)
