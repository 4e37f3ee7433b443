"""Log-probabilities of chosen tokens: the value and gradient of log_softmax, with less memory."""

from __future__ import annotations

import pytest
import torch

from grpo_core.live import logprobs
from grpo_core.live.logprobs import token_logps


def plain(logits, tokens, temperature=1.0):
    return (logits / temperature).log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


@pytest.fixture
def tokens():
    return torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def logits():
    return torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class TestTokenLogps:
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    @pytest.mark.parametrize("chunk", [1, 30, 1 << 22])
    def test_value_and_gradient(self, logits, tokens, temperature, chunk, monkeypatch):
        monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        weights = torch.linspace(-1, 2, 15, dtype=torch.float64).view(3, 5)
        a, b = token_logps(ours, tokens, temperature=temperature), plain(theirs, tokens, temperature)
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        (a * weights).sum().backward()
        (b * weights).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)

    def test_gradcheck(self, logits, tokens):
        torch.autograd.gradcheck(lambda z: token_logps(z, tokens, temperature=0.7), (logits.requires_grad_(),))

    def test_bfloat16_is_computed_in_float32(self, logits, tokens):
        half = logits.bfloat16().requires_grad_()
        result = token_logps(half, tokens)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, plain(half.detach().float(), tokens), rtol=1e-6, atol=1e-6)
        result.sum().backward()
        assert half.grad.dtype == torch.bfloat16

    def test_minus_infinity_elsewhere(self, logits, tokens):
        masked = logits.clone()
        masked[..., 10] = -torch.inf
        masked.requires_grad_()
        result = token_logps(masked, tokens.clamp(max=9))
        result.sum().backward()
        assert torch.isfinite(result).all()
        assert torch.isfinite(masked.grad).all()

    def test_keeps_no_second_copy_of_the_logits(self, logits, tokens):
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
            token_logps(logits.bfloat16().requires_grad_(), tokens)
        assert sorted(kept) == [15, 15, 15 * 11]
