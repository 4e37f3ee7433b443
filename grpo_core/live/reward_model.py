"""A learned reward model: it scores completions where no rule does, trained on what the verifier has labelled.

It is the start policy's own network with a scalar head on the last token. A run that trains with it (reward_source
"learned") asks it for every reward; the verifier's word is measured, and is what the reward model learns from: once
before the first step, and, where the run retrains, after each iteration on what the policy has written since, with
some of the older examples replayed (Algorithm 1 of DeepSeekMath). Not retrained it goes stale: the policy moves to
completions that it has never seen labelled.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_core import label_loss, preference_probability
from grpo_core.iterations import replay_shares
from grpo_core.live.config import RunConfig
from grpo_core.live.engines import Engine, Prompts
from grpo_core.live.model import Policy
from grpo_core.live.rollout import Rollout, encode, own_tokens, sample
from grpo_core.live.tasks import Problem, Score, Task
from grpo_core.messages import InputError

START_EXAMPLES = 512
"""Completions of the start policy that it learns from before the first step."""
START_UPDATES, UPDATES = 60, 40
"""Optimizer steps at the start and after each iteration."""
BATCH = 64
LEARNING_RATE = 1e-3
AT_ONCE = 256
"""So many completions are scored in one forward pass."""
NEWEST, OLDER = 8192, 8192
"""The most examples that are kept of the current iteration, and of all earlier ones together."""


Judge = Callable[[list[str], list[Problem], list[list[int]]], list[Score]]
"""Gives the verifier's scores of texts, with the problem and the token ids of each."""


@dataclass(frozen=True)
class Example:
    """Prompt and completion as token ids, and the verifier's reward, cut to [0, 1]."""

    tokens: tuple[int, ...]
    label: float


class Replay:
    """Examples by iteration, oldest first; the last iteration is the one that is being collected."""

    def __init__(self) -> None:
        self.rounds: list[list[Example]] = [[]]

    def add(self, examples: Sequence[Example]) -> None:
        """Add to the current iteration, of which the newest examples are kept."""
        self.rounds[-1] = [*self.rounds[-1], *examples][-NEWEST:]

    def close(self) -> None:
        """End the current iteration; the earlier ones are thinned evenly where they have become too many."""
        most = max(1, OLDER // len(self.rounds))
        self.rounds = [_thinned(examples, most) for examples in self.rounds if examples] + [[]]

    def draw(self, count: int, *, replay: float, chances: torch.Generator) -> list[Example]:
        """Draw examples with replacement, from each iteration its share (grpo_core.replay_shares)."""
        there = [examples for examples in self.rounds if examples]
        shares = torch.from_numpy(replay_shares(len(there), replay=replay))
        rounds = torch.multinomial(shares, count, replacement=True, generator=chances).tolist()
        places = torch.rand(count, generator=chances, dtype=torch.float64).tolist()
        return [there[i][int(place * len(there[i]))] for i, place in zip(rounds, places, strict=True)]

    def __len__(self) -> int:
        return sum(map(len, self.rounds))


class RewardModel:
    """Scores completions; reward = sigma(score), the probability that the verifier would call it right.

    policy: where the network is copied from. The seed decides the head's first weights and all that is drawn.
    """

    def __init__(self, policy: Policy, *, seed: int, replay: float) -> None:
        if policy.learned and len(policy.learned) < sum(1 for _ in policy.model.parameters()):
            raise InputError("reward_source='learned' copies a whole model: give lora_rank=0")
        self.chances = torch.Generator().manual_seed(seed)
        self.body: Any = policy.copy().model.base_model.requires_grad_(True)
        width = int(policy.model.get_input_embeddings().embedding_dim)
        self.head = torch.nn.Linear(width, 1, device=policy.device, dtype=torch.float32)
        torch.nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight.copy_(0.02 * torch.randn(1, width, generator=self.chances))
        self.device, self.share, self.replay = policy.device, replay, Replay()

    # --- what it says -----------------------------------------------------------------------------

    @torch.no_grad()
    def judge(self, rollout: Rollout, scores: Sequence[Score]) -> list[Score]:
        """Give scores with this model's rewards in place of the verifier's, which are kept as `verified`.

        Completions of a group that are the same get the very same reward.
        """
        rows, same = rollout.completions.distinct
        tokens = sequences(rollout, rows.tolist())
        found = torch.cat([self.scores(tokens[i : i + AT_ONCE]) for i in range(0, len(tokens), AT_ONCE)])
        rewards = preference_probability(found, torch.zeros_like(found)).double()[same].cpu().numpy().round(6)
        return [replace(s, reward=float(r), verified=s.reward) for s, r in zip(scores, rewards, strict=True)]

    def scores(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Scores (N,), any real numbers, of prompts with their completions."""
        lengths = torch.tensor([len(row) for row in tokens], device=self.device)
        longest = max(map(len, tokens))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens], device=self.device)
        real = torch.arange(longest, device=self.device) < lengths[:, None]
        states = self.body(input_ids=ids, attention_mask=real.long(), use_cache=False).last_hidden_state
        last = states[torch.arange(len(tokens), device=self.device), lengths - 1]
        found: Tensor = self.head(last.float()).squeeze(1)
        return found

    # --- what it learns ---------------------------------------------------------------------------

    def remember(self, rollout: Rollout, scores: Sequence[Score]) -> None:
        """Keep completions that the verifier has labelled."""
        self.replay.add(examples_of(rollout, scores))

    def fit(self, updates: int | None = None) -> dict[str, float]:
        """Train further on the current iteration and on replayed examples, then begin the next iteration.

        updates are UPDATES unless said otherwise. Gives the mean loss and accuracy of the last updates, on the
        examples trained on.
        """
        count = len(self.replay.rounds[-1])
        updates = UPDATES if updates is None else updates
        parameters = [*self.body.parameters(), *self.head.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0)
        found = [self._step(optimizer, parameters) for _ in range(updates if len(self.replay) else 0)][-10:]
        self.replay.close()
        if not found:
            return {"examples": 0.0}
        losses, right = zip(*found, strict=True)
        return {"examples": float(count), "reward_model/loss": fmean(losses), "reward_model/accuracy": fmean(right)}

    def _step(self, optimizer: torch.optim.Optimizer, parameters: list[Any]) -> tuple[float, float]:
        chosen = self.replay.draw(BATCH, replay=self.share, chances=self.chances)
        labels = torch.tensor([example.label for example in chosen], device=self.device)
        scores = self.scores([example.tokens for example in chosen])
        loss = label_loss(scores, labels).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return float(loss.detach()), agreement(scores.detach(), labels)

    # --- checkpoints ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Tensor]:
        """Give all that it is made of as tensors: weights, random numbers, examples."""
        weights = {f"body.{name}": tensor for name, tensor in self.body.state_dict().items()}
        weights |= {f"head.{name}": tensor for name, tensor in self.head.state_dict().items()}
        found = {"chances": self.chances.get_state(), **weights}
        for i, examples in enumerate(self.replay.rounds):
            longest = max([len(example.tokens) for example in examples], default=0)
            rows = [[*example.tokens, *[-1] * (longest - len(example.tokens))] for example in examples]
            found[f"rounds.{i}.tokens"] = torch.tensor(rows, dtype=torch.int32).reshape(len(examples), longest)
            found[f"rounds.{i}.labels"] = torch.tensor([example.label for example in examples], dtype=torch.float64)
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a snapshot; KeyError or RuntimeError when it belongs to another model."""
        self.chances.set_state(tensors["chances"])
        self.body.load_state_dict(_under(tensors, "body."))
        self.head.load_state_dict(_under(tensors, "head."))
        count = sum(name.endswith(".labels") for name in tensors)
        self.replay.rounds = [
            list(_examples(tensors[f"rounds.{i}.tokens"], tensors[f"rounds.{i}.labels"])) for i in range(count)
        ]


def reward_model_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Compare the rewards that trained with what the verifier says; nothing where the verifier's are what trained.

    reward_exact: the verifier's mean reward. reward_model/accuracy: how often the two are on the same side of 1/2.
    reward_model/loss: label_loss, on completions that the model was not trained on.
    """
    known = [(score.reward, score.verified) for score in scores if score.verified is not None]
    if not known:
        return {}
    rewards, labels = np.array(known, dtype=float).T
    labels = labels.clip(0.0, 1.0)
    chance = rewards.clip(1e-6, 1 - 1e-6)
    logits = np.log(chance) - np.log1p(-chance)
    return {
        "reward_exact": float(np.mean([verified for _, verified in known])),
        "reward_model/accuracy": agreement(torch.from_numpy(logits), torch.from_numpy(labels)),
        "reward_model/loss": float(label_loss(logits, labels).mean()),
    }


def agreement(scores: Tensor, labels: Tensor) -> float:
    """The share of scores on the labels' side: above 0 where the label is above 1/2."""
    return float(((scores > 0) == (labels > 0.5)).double().mean())


def sequences(rollout: Rollout, rows: Sequence[int]) -> list[list[int]]:
    """Token ids of some completions with their prompts before them, without padding."""
    size, own, prompts = rollout.completions.group_size, own_tokens(rollout), prompt_tokens(rollout.prompts)
    return [[*prompts[row // size], *own[row]] for row in rows]


def prompt_tokens(prompts: Prompts) -> list[list[int]]:
    """Token ids of prompts without padding."""
    rows, lengths = prompts.ids.tolist(), prompts.lengths.tolist()
    return [row[len(row) - length :] for row, length in zip(rows, lengths, strict=True)]


def examples_of(rollout: Rollout, scores: Sequence[Score]) -> list[Example]:
    """Give the completions that the verifier could label; scores are the verifier's own."""
    labelled = [i for i, score in enumerate(scores) if score.reward is not None]
    labels = [min(1.0, max(0.0, float(scores[i].reward or 0.0))) for i in labelled]
    return [Example(tuple(row), y) for row, y in zip(sequences(rollout, labelled), labels, strict=True)]


def reward_model_of(config: RunConfig, policy: Policy) -> RewardModel | None:
    """Give the reward model of a run, not yet trained; None where the verifier's rewards train."""
    if config.reward_source == "verifier":
        return None
    return RewardModel(policy, seed=config.seed, replay=config.replay)


def first_labels(
    model: RewardModel, config: RunConfig, policy: Policy, engine: Engine, task: Task, judge: Judge
) -> dict[str, float]:
    """Train the model for the first time, on completions of the policy as it is; gives what fit gives.

    The random numbers are its own: what the run draws does not depend on where its rewards come from.
    """
    prompts = random.Random(f"reward model {config.seed}")
    for _ in range(-(-START_EXAMPLES // config.rows)):
        problems = task.sample(prompts, config.prompts_per_step)
        rollout = sample(
            engine,
            encode(policy, [problem.prompt for problem in problems]),
            group_size=config.group_size,
            max_new_tokens=config.max_new_tokens,
            eos=policy.tokenizer.eos_token_id,
            generator=model.chances,
            temperature=config.temperature,
        )
        rows = own_tokens(rollout)
        each = [problem for problem in problems for _ in range(config.group_size)]
        model.remember(rollout, judge(policy.texts(rows), each, rows))
    return model.fit(START_UPDATES)


def _thinned(examples: list[Example], most: int) -> list[Example]:
    """At most so many of the examples, evenly spread."""
    if len(examples) <= most:
        return examples
    return [examples[i * len(examples) // most] for i in range(most)]


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _examples(tokens: Tensor, labels: Tensor) -> Iterator[Example]:
    for row, label in zip(tokens.tolist(), labels.tolist(), strict=True):
        yield Example(tuple(token for token in row if token >= 0), label)
