"""Sampling: all completions of all groups at once, with our own decode loop over a key-value cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_core import sampling_distribution
from grpo_core.live.engines import Completions, Engine, Prompts
from grpo_core.live.model import Policy

COMPACT = 0.6
"""The batch is cut down to its unfinished rows when they are fewer than this share of it."""


@dataclass(frozen=True)
class Rollout:
    """Sampled completions with what was known when each token was sampled.

    completions: tokens (B, T) and lengths (B,). finished (B,): ended with EOS, else cut off at the limit.
    logp (B, T): log-probability of each token under the policy when it was sampled, temperature included.
    entropy (B, T): of that distribution, in nats. sampled_logp (B, T): under the distribution that was really drawn
    from, where top-p makes it another one, else None. All are 0 on padding.
    """

    prompts: Prompts
    completions: Completions
    finished: Tensor
    logp: Tensor
    entropy: Tensor
    sampled_logp: Tensor | None = None


def encode(policy: Policy, prompts: Sequence[str]) -> Prompts:
    """Tokenize prompts, with the start-of-text token where the tokenizer has one, padded on the left."""
    start = policy.tokenizer.bos_token or ""
    rows = policy.tokenizer([start + prompt for prompt in prompts], add_special_tokens=False)["input_ids"]
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

    With top_p below 1 only the likeliest tokens that together hold at least that much are drawn.

    The uniform numbers that choose the tokens are drawn first, one for every row and position: what a row
    becomes does not depend on when other rows end, nor on which engine computes the probabilities.
    """
    rows = prompts.ids.shape[0] * group_size
    chances = torch.rand(max_new_tokens, rows, generator=generator, device=generator.device)
    loop = _Loop(chances.to(prompts.ids.device), eos, temperature, top_p, greedy)
    logits, state = engine.begin(prompts, group_size, max_new_tokens)
    for step in range(max_new_tokens):
        tokens, going = loop.choose(step, logits)
        left = int(going.sum())
        if left == 0 or step == max_new_tokens - 1:
            break
        if left < COMPACT * len(tokens):
            kept = going.nonzero().squeeze(1)
            state, tokens = engine.keep(state, kept), tokens[kept]
            loop.keep(kept)
        logits = engine.advance(state, tokens)
    return loop.result(prompts, group_size)


class _Loop:
    """What the decode loop writes down: for each step the rows at hand, their tokens, and what is known of those."""

    def __init__(self, chances: Tensor, eos: int, temperature: float, top_p: float, greedy: Tensor | None) -> None:
        self.chances, self.eos, self.greedy = chances, eos, greedy
        self.temperature, self.top_p = temperature, top_p
        self.rows = torch.arange(chances.shape[1], device=chances.device)
        self.going = torch.ones_like(self.rows, dtype=torch.bool)
        self.whole = True
        self.notes: list[tuple[Tensor, ...]] = []

    def choose(self, step: int, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choose a token for every row at hand; give the tokens and which rows go on after them."""
        chances = self.chances[step] if self.whole else self.chances[step, self.rows]
        logp = (logits if self.temperature == 1.0 else logits / self.temperature).float().log_softmax(-1)
        weights = logp.exp()
        drawn = weights if self.top_p == 1.0 else sampling_distribution(logp, top_p=self.top_p)
        tokens = pick(drawn, chances)
        if self.greedy is not None:
            tokens = torch.where(self.greedy[self.rows], logits.argmax(-1), tokens)
        taken = logp.gather(1, tokens.unsqueeze(1)).squeeze(1)
        places = self.rows if step == 0 else self.rows + step * self.chances.shape[1]
        note: tuple[Tensor, ...] = (places, self.going, tokens, taken, torch.special.entr(weights).sum(-1))
        if self.top_p < 1.0:
            note += (drawn.gather(1, tokens.unsqueeze(1)).squeeze(1).log(),)
        self.notes.append(note)
        self.going = self.going & (tokens != self.eos)
        return tokens, self.going

    def keep(self, kept: Tensor) -> None:
        """Go on with some of the rows at hand."""
        self.rows, self.going, self.whole = self.rows[kept], self.going[kept], False

    def result(self, prompts: Prompts, group_size: int) -> Rollout:
        """Put the notes in order: rows first, cut to the longest completion, EOS and zeros as padding."""
        steps, rows = len(self.notes), self.chances.shape[1]
        places, own, tokens, *known = (torch.cat(notes) for notes in zip(*self.notes, strict=True))
        places = places[own]

        def table(values: Tensor, padding: float) -> Tensor:
            flat = values.new_full((steps * rows,), padding)
            return flat.index_copy_(0, places, values[own]).view(steps, rows).t().contiguous()

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
