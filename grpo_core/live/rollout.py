"""Sampling: all completions of all groups at once, with our own decode loop over a key-value cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_core import sampling_distribution
from grpo_core.live.engines import Completions, Engine, Prompts
from grpo_core.live.model import Policy


@dataclass(frozen=True)
class Rollout:
    """Sampled completions with what was known when each token was sampled.

    completions: tokens (B, T) and lengths (B,). finished (B,): ended with EOS, else cut off at the limit.
    logp (B, T): log-probability of each token under the policy when it was sampled, temperature included.
    entropy (B, T): of that distribution, in nats. Both are 0 on padding.
    """

    prompts: Prompts
    completions: Completions
    finished: Tensor
    logp: Tensor
    entropy: Tensor


def own_tokens(rollout: Rollout) -> list[list[int]]:
    """Token ids of every completion, without padding."""
    lengths = rollout.completions.lengths.tolist()
    return [row[:n] for row, n in zip(rollout.completions.tokens.tolist(), lengths, strict=True)]


def encode(policy: Policy, prompts: Sequence[str]) -> Prompts:
    """Tokenize prompts as the model wants them (Policy.prompt_text), padded on the left."""
    rows = policy.encode([policy.prompt_text(prompt) for prompt in prompts])
    longest = max(map(len, rows))
    padding = policy.tokenizer.pad_token_id
    ids = torch.tensor([[padding] * (longest - len(row)) + row for row in rows], device=policy.device)
    if all(len(row) == longest for row in rows):
        return Prompts(ids)
    real = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return Prompts(ids, real.to(policy.device))


@torch.no_grad()
def sample(
    engine: Engine,
    prompts: Prompts,
    *,
    group_size: int,
    max_new_tokens: int,
    eos: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_p: float = 1.0,
    greedy: Tensor | None = None,
) -> Rollout:
    """Sample group_size completions for every prompt; rows marked in greedy (B,) take the likeliest token.

    With top_p below 1 only the likeliest tokens that together hold at least that much are drawn; logp and entropy stay
    those of the whole distribution.

    The uniform numbers that choose the tokens are drawn first, one for every row and position: what a row becomes
    does not depend on when other rows end, nor on which engine computes the probabilities. Rows of a group that are the
    same so far are one row for the model: each distinct beginning is decoded once.
    """
    rows = prompts.ids.shape[0] * group_size
    chances = torch.rand(max_new_tokens, rows, generator=generator, device=generator.device)
    loop = _Loop(chances.to(prompts.ids.device), group_size, eos, temperature, top_p, greedy)
    logits, state = engine.begin(prompts, max_new_tokens)
    for step in range(max_new_tokens):
        loop.choose(step, logits)
        if step == max_new_tokens - 1 or len(loop.rows) == 0:
            break
        parents, tokens = loop.branch(logits.shape[1])
        if parents is not None:
            state = engine.keep(state, parents)
        logits = engine.advance(state, tokens)
    return loop.result(prompts, group_size)


class _Loop:
    """What the decode loop writes down: for each step the unfinished rows, their tokens, and what is known of those.

    rows: the unfinished ones. beginnings: for each of them, which of the model's rows holds it.
    """

    def __init__(
        self, chances: Tensor, group_size: int, eos: int, temperature: float, top_p: float, greedy: Tensor | None
    ) -> None:
        self.chances, self.eos, self.greedy = chances, eos, greedy
        self.temperature, self.top_p = temperature, top_p
        self.rows = torch.arange(chances.shape[1], device=chances.device)
        self.beginnings = self.rows // group_size
        self.tokens = self.rows
        self._model_rows = torch.arange(chances.shape[1] // group_size, device=chances.device)
        self.notes: list[tuple[Tensor, ...]] = []

    def choose(self, step: int, logits: Tensor) -> None:
        """Choose the next token of every unfinished row from the logits (N, V) of its beginning."""
        rows, at = self.rows, self.beginnings
        logp = (logits if self.temperature == 1.0 else logits / self.temperature).float().log_softmax(-1)
        weights = logp.exp()
        drawn = weights if self.top_p == 1.0 else sampling_distribution(logp, top_p=self.top_p)
        tokens = pick(drawn[at], self.chances[step, rows])
        if self.greedy is not None:
            tokens = torch.where(self.greedy[rows], logits.argmax(-1)[at], tokens)
        entropy = torch.special.entr(weights).sum(-1)[at]
        self.notes.append((rows + step * self.chances.shape[1], tokens, logp[at, tokens], entropy))
        going = (tokens != self.eos).nonzero().squeeze(1)
        self.rows, self.beginnings, self.tokens = rows[going], at[going], tokens[going]

    def branch(self, vocabulary: int) -> tuple[Tensor | None, Tensor]:
        """Find the distinct beginnings after the chosen tokens: the model's row that each continues, and its token.

        None instead of the rows where every row of the model is continued exactly once, in their order.
        """
        keys, self.beginnings = torch.unique(self.beginnings * vocabulary + self.tokens, return_inverse=True)
        parents = keys // vocabulary
        unchanged = torch.equal(parents, self._model_rows)
        self._model_rows = torch.arange(len(parents), device=parents.device)
        return (None if unchanged else parents), keys % vocabulary

    def result(self, prompts: Prompts, group_size: int) -> Rollout:
        """Put the notes in order: rows first, cut to the longest completion, EOS and zeros as padding."""
        steps, rows = len(self.notes), self.chances.shape[1]
        places, tokens, *known = (torch.cat(notes) for notes in zip(*self.notes, strict=True))

        def table(values: Tensor, padding: float) -> Tensor:
            flat = values.new_full((steps * rows,), padding)
            return flat.index_copy_(0, places, values).view(steps, rows).t().contiguous()

        lengths = (places % rows).bincount(minlength=rows)
        chosen = table(tokens, self.eos)
        finished = (chosen.gather(1, lengths[:, None] - 1) == self.eos).squeeze(1)
        completions = Completions(chosen, lengths, group_size)
        return Rollout(prompts, completions, finished, *(table(values, 0.0) for values in known))


def pick(weights: Tensor, chances: Tensor) -> Tensor:
    """Choose an index for every row of non-negative weights (R, V) by a uniform number in [0, 1) each."""
    heights = weights.cumsum(-1)
    level = (chances * heights[:, -1]).unsqueeze(1)
    found: Tensor = torch.searchsorted(heights, level, right=True).squeeze(1)
    return found.clamp(max=weights.shape[1] - 1)
