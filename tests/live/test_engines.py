"""Sampling and log-probabilities: the fast path, the general path, and plain transformers agree."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.live import packed
from grpo_core.live.engines import Completions, GeneralEngine, make_engine
from grpo_core.live.gpt2 import Gpt2Engine
from grpo_core.live.llama import LlamaEngine
from grpo_core.live.model import Policy
from grpo_core.live.rollout import encode, pick


def plain_logps(policy, prompts, completions, temperature=1.0):
    """Every row as one full sequence through transformers' own forward: nothing shared, no cache."""
    size = completions.group_size
    mask = torch.ones_like(prompts.ids, dtype=torch.bool) if prompts.mask is None else prompts.mask
    rows = []
    for i, (tokens, length) in enumerate(zip(completions.tokens, completions.lengths.tolist(), strict=True)):
        prompt = prompts.ids[i // size][mask[i // size]]
        logits = policy.model(torch.cat([prompt, tokens[:length]])[None]).logits[0] / temperature
        logp = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, tokens[:length, None]).squeeze(1)
        rows.append(torch.nn.functional.pad(logp, (0, tokens.shape[0] - length)))
    return torch.stack(rows)


def gradient(policy, logp):
    policy.model.zero_grad()
    pull = torch.sin(torch.arange(logp.numel(), dtype=logp.dtype)).view(logp.shape)
    (logp * pull).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()])


def small_llama(policy, **changes):
    """A Llama with random weights in which two query heads share a key head, with the policy's tokenizer."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"vocab_size": 54, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = LlamaConfig(**{**sizes, **special, "num_key_value_heads": 2, "max_position_embeddings": 64, **changes})
    return Policy(LlamaForCausalLM(config).eval(), policy.tokenizer, policy.device)


def lay_out(monkeypatch, *, together):
    """Let attention take one layout whatever it costs: one block costs less than two, or more."""
    monkeypatch.setattr(packed, "attention_cost", lambda blocks, *_: len(blocks) if together else -len(blocks))


@pytest.fixture(params=["gpt2", "llama"])
def either(request, policy):
    """A model of each architecture that is written out."""
    return policy if request.param == "gpt2" else small_llama(policy)


@pytest.fixture(params=["one length", "several lengths"])
def any_prompts(request, prompts, padded_prompts):
    return prompts if request.param == "one length" else padded_prompts


def test_the_built_in_model_takes_the_fast_path_and_others_the_general_one(policy):
    assert isinstance(make_engine(policy), Gpt2Engine)
    assert isinstance(make_engine(small_llama(policy)), LlamaEngine)
    assert isinstance(make_engine(policy, general=True), GeneralEngine)
    policy.model.config.attn_pdrop = 0.1
    assert isinstance(make_engine(policy), GeneralEngine)
    assert isinstance(make_engine(small_llama(policy, attention_bias=True)), GeneralEngine)


def test_half_precision_takes_the_general_path(policy, prompts, draw):
    policy.model.bfloat16()
    engine = make_engine(policy)
    rollout = draw(prompts, engine=engine)
    logp = engine.logps(engine.plan(prompts, rollout.completions))
    torch.testing.assert_close(logp, rollout.logp, atol=0.2, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 1.7, 0.3])
def test_both_paths_sample_the_same_tokens(either, any_prompts, draw, temperature):
    paths = [make_engine(either), make_engine(either, general=True)]
    fast, general = (draw(any_prompts, temperature=temperature, seed=5, engine=engine) for engine in paths)
    assert torch.equal(fast.completions.tokens, general.completions.tokens)
    assert torch.equal(fast.completions.lengths, general.completions.lengths)
    assert torch.equal(fast.finished, general.finished)
    torch.testing.assert_close(fast.logp, general.logp, atol=1e-5, rtol=0)
    torch.testing.assert_close(fast.entropy, general.entropy, atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", ["together", "apart", "general"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_shared_prompts_give_the_values_and_gradients_of_full_rows(
    either, any_prompts, draw, path, temperature, monkeypatch
):
    lay_out(monkeypatch, together=path == "together")
    engine = make_engine(either, general=path == "general")
    rollout = draw(any_prompts, temperature=temperature, seed=1, engine=engine)
    plan = engine.plan(any_prompts, rollout.completions)
    assert path == "general" or len(plan.blocks) == {"together": 1, "apart": 2}[path]
    logp = engine.logps(plan, temperature=temperature)
    full = plain_logps(either, any_prompts, rollout.completions, temperature)
    torch.testing.assert_close(logp, full, atol=1e-5, rtol=0)
    torch.testing.assert_close(logp, rollout.logp, atol=1e-5, rtol=0)
    shared, rows = gradient(either, logp), gradient(either, full)
    assert (shared - rows).norm() < 1e-5 * rows.norm()


def test_completions_stand_apart_where_their_group_would_make_a_long_sequence(policy, prompts):
    tokens, engine = torch.randint(3, 54, (6 * 40, 40), generator=torch.Generator().manual_seed(0)), make_engine(policy)
    plans = [
        engine.plan(prompts, Completions(tokens[: 6 * size, :length], torch.full((6 * size,), length), size))
        for size, length in ((4, 6), (40, 40))
    ]
    assert [len(plan.blocks) for plan in plans] == [1, 2]


@pytest.mark.parametrize("together", [True, False])
def test_completions_of_one_token_need_no_second_forward(policy, prompts, together, monkeypatch):
    lay_out(monkeypatch, together=together)
    completions = Completions(torch.full((12, 1), policy.tokenizer.eos_token_id), torch.ones(12).long(), 2)
    full = plain_logps(policy, prompts, completions)
    for general in (False, True):
        engine = make_engine(policy, general=general)
        torch.testing.assert_close(engine.logps(engine.plan(prompts, completions)), full, atol=1e-5, rtol=0)


def test_greedy_rows_are_what_generate_gives(policy, any_prompts, draw):
    rollout = draw(any_prompts, group_size=1, greedy=torch.ones(6, dtype=torch.bool))
    mask = torch.ones_like(any_prompts.ids) if any_prompts.mask is None else any_prompts.mask.long()
    out = policy.model.generate(any_prompts.ids, attention_mask=mask, max_new_tokens=13, do_sample=False)
    theirs = policy.tokenizer.batch_decode(out[:, any_prompts.ids.shape[1] :], skip_special_tokens=True)
    assert policy.texts(rollout.completions.tokens.tolist()) == theirs


def test_what_a_row_becomes_does_not_depend_on_the_others(policy, prompts, draw):
    mixed = draw(prompts, greedy=torch.tensor([True] + [False] * 29))
    sampled = draw(prompts)
    assert torch.equal(mixed.completions.lengths[1:], sampled.completions.lengths[1:])
    for row, other, n in zip(
        mixed.completions.tokens[1:], sampled.completions.tokens[1:], sampled.completions.lengths[1:], strict=True
    ):
        assert torch.equal(row[:n], other[:n])


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_rows_that_share_a_beginning_stay_what_they_are_alone(policy, prompts, draw, temperature):
    for seed in range(12):
        rollout = draw(prompts, group_size=8, temperature=temperature, seed=seed)
        engine = make_engine(policy)
        logp = engine.logps(engine.plan(prompts, rollout.completions), temperature=temperature)
        torch.testing.assert_close(rollout.logp, logp, atol=1e-5, rtol=0)


def test_the_same_completion_in_two_groups_is_two_distinct_ones():
    tokens = torch.tensor([[5, 2, 2], [5, 2, 9], [5, 6, 2], [5, 6, 2], [5, 2, 2], [5, 6, 2]])
    completions = Completions(tokens, torch.tensor([2, 2, 3, 3, 2, 3]), 3)
    rows, same = completions.distinct
    assert rows.tolist() == [0, 2, 3, 4]
    assert same.tolist() == [0, 0, 1, 2, 3, 2]


def test_a_rollout_says_how_each_completion_ended(policy, prompts, draw):
    rollout = draw(prompts, max_new_tokens=3)
    eos = policy.tokenizer.eos_token_id
    for row, n, done in zip(
        rollout.completions.tokens.tolist(), rollout.completions.lengths.tolist(), rollout.finished, strict=True
    ):
        assert (row[n - 1] == eos) == bool(done)
        assert eos not in row[: n - 1]
        assert done or n == 3
    assert 0 < int(rollout.finished.sum()) < 30
    assert not rollout.logp[~rollout.completions.mask].any()
    assert not rollout.entropy[~rollout.completions.mask].any()


def test_tokens_are_picked_in_proportion():
    weights = torch.tensor([0.5, 0.0, 0.25, 0.25, 0.0])
    counts = pick(weights.expand(4096, 5), torch.arange(4096) / 4096).bincount(minlength=5)
    assert counts.tolist() == [2048, 0, 1024, 1024, 0]
    assert pick(weights[None], torch.tensor([1 - 2**-24])).item() == 3


def test_no_gradient_reaches_the_embedding_of_padding(policy, draw):
    """As in transformers, also where a completion holds that token: it may be sampled like any other."""
    llama = small_llama(policy)
    prompts = encode(llama, ["1:12=", "4:13,24=", "5:23="])
    tokens = torch.randint(0, 3, (6, 5), generator=torch.Generator().manual_seed(0))
    engine = make_engine(llama)
    engine.logps(engine.plan(prompts, Completions(tokens, torch.tensor([5, 1, 3, 4, 2, 5]), 2))).sum().backward()
    slopes = llama.model.model.embed_tokens.weight.grad
    assert not slopes[0].any()
    assert slopes[1].any()
