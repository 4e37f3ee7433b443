"""Sampling: all completions of all groups at once, with our own decode loop over a key-value cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_core.live.engines import Completions, Engine, Prompts
from grpo_core.live.model import Policy

COMPACT = 0.6
"""The batch is cut down to its unfinished rows when they are fewer than this share of it."""


@dataclass(frozen=True)
class Rollout:
    """Sampled completions with what was known when each token was sampled.

    completions: tokens (B, T) and lengths (B,). finished (B,): ended with EOS, else cut off at the limit.
    logp (B, T): log-probability of each token under the distribution it was sampled from (temperature
    included). entropy (B, T): of that distribution, in nats. Both are 0 on padding.
    """

    prompts: Prompts
    completions: Completions
    finished: Tensor
    logp: Tensor
    entropy: Tensor


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
    greedy: Tensor | None = None,
) -> Rollout:
    """Sample group_size completions for every prompt; rows marked in greedy (B,) take the likeliest token.

    The uniform numbers that choose the tokens are drawn first, one for every row and position: what a row
    becomes does not depend on when other rows end, nor on which engine computes the probabilities.
    """
    rows = prompts.ids.shape[0] * group_size
    chances = torch.rand(max_new_tokens, rows, generator=generator, device=generator.device)
    loop = _Loop(prompts.ids.new_full((max_new_tokens, rows), eos), chances.to(prompts.ids.device), eos)
    logits, state = engine.begin(prompts, group_size, max_new_tokens)
    for step in range(max_new_tokens):
        tokens, going = loop.choose(step, logits, temperature, greedy)
        left = int(going.sum())
        if left == 0 or step == max_new_tokens - 1:
            break
        if left < COMPACT * len(tokens):
            kept = going.nonzero().squeeze(1)
            state, tokens = engine.keep(state, kept), tokens[kept]
            loop.keep(kept)
        logits = engine.advance(state, tokens)
    return loop.result(prompts, group_size, step + 1)


class _Loop:
    """What the decode loop writes down: tokens, log-probabilities, entropies, and who is still going."""

    def __init__(self, tokens: Tensor, chances: Tensor, eos: int) -> None:
        self.tokens, self.chances, self.eos = tokens, chances, eos
        self.logp = chances.new_zeros(chances.shape)
        self.entropy = chances.new_zeros(chances.shape)
        self.lengths = tokens.new_zeros(tokens.shape[1])
        self.going = torch.ones_like(self.lengths, dtype=torch.bool)
        self.rows = torch.arange(tokens.shape[1], device=tokens.device)

    def choose(self, step: int, logits: Tensor, temperature: float, greedy: Tensor | None) -> tuple[Tensor, Tensor]:
        """Choose a token for every row at hand; give the tokens and which rows go on."""
        going = self.going[self.rows]
        logp = (logits if temperature == 1.0 else logits / temperature).float().log_softmax(-1)
        weights = logp.exp()
        tokens = pick(weights, self.chances[step, self.rows])
        if greedy is not None:
            tokens = torch.where(greedy[self.rows], logits.argmax(-1), tokens)
        taken = logp.gather(1, tokens[:, None]).squeeze(1)
        spread = -(weights * logp.clamp(min=-1e4)).sum(-1)
        self.tokens[step, self.rows] = torch.where(going, tokens, self.eos)
        self.logp[step, self.rows] = taken * going
        self.entropy[step, self.rows] = spread * going
        self.lengths[self.rows] += going
        going = going & (tokens != self.eos)
        self.going[self.rows] = going
        return tokens, going

    def keep(self, kept: Tensor) -> None:
        """Go on with some of the rows at hand."""
        self.rows = self.rows[kept]

    def result(self, prompts: Prompts, group_size: int, steps: int) -> Rollout:
        """Turn the notes around: rows first, cut to the longest completion."""
        tokens, logp, entropy = (x[:steps].t().contiguous() for x in (self.tokens, self.logp, self.entropy))
        return Rollout(prompts, Completions(tokens, self.lengths, group_size), ~self.going, logp, entropy)


def pick(weights: Tensor, chances: Tensor) -> Tensor:
    """Choose an index for every row of non-negative weights (R, V) by a uniform number in [0, 1) each."""
    heights = weights.cumsum(-1)
    level = (chances * heights[:, -1]).unsqueeze(1)
    found: Tensor = torch.searchsorted(heights, level, right=True).squeeze(1)
    return found.clamp(max=weights.shape[1] - 1)
