"""The numbers in the answers of the Questions page, each computed in the very view that the answer's link opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from app import lens as lenses
from app.asked import asked
from app.bench import bench_cases
from app.explain import clip, clip_epochs, gradients, loss, reduction
from app.explain import kl as divergence
from app.lens import Lens
from app.numbers import plain, short, signed
from app.places import Place, place
from app.views.advantages import prompts, several, steps
from app.views.ppo import critic, memory, where
from app.views.rewards import scores
from app.views.sampling import budget, dynamic, passk, temperature
from app.words import cached, section
from grpo_core import weighted_sum
from grpo_core.policies import angle

Numbers = Mapping[str, str]


@dataclass(frozen=True)
class Asked:
    """One question, with its answer and the place that shows it."""

    id: str
    topic: str
    question: str
    answer: str
    place: Place

    def holds(self, words: str) -> bool:
        """Return whether every one of these words stands in the question or its answer."""
        text = f"{self.question} {self.answer}".casefold()
        return all(word in text for word in words.casefold().split())


@cached
def question(name: str) -> Asked:
    """Return a question with the numbers put into its answer."""
    entry = asked()[name]
    where_ = place(entry)
    ask, _, answer = section("questions", name).partition("\n\n")
    if name in NUMBERS:
        answer = answer.format(**NUMBERS[name](where_.lens()))
    return Asked(name, entry["topic"], ask, answer, where_)


def questions(topic: str = "all", words: str = "") -> list[Asked]:
    """Return the questions of a topic that hold these words."""
    own = [question(name) for name, entry in asked().items() if topic in ("all", entry["topic"])]
    return [one for one in own if one.holds(words)]


# Loss


def _policy(lens: Lens) -> float:
    return float(weighted_sum(-lens.terms.objective, lens.terms.weights))


def _pulls(lens: Lens) -> Numbers:
    own = np.abs(np.asarray(lens.gradients.total))
    return {
        "loss": plain(float(lens.terms.loss)),
        "count": str(int((own > 1e-12).sum())),
        "total": str(sum(lens.lengths)),
        "size": plain(float(own.sum())),
    }


def _negative(lens: Lens) -> Numbers:
    other = lenses.look(lens.group, {**lens.values, "reduce": "sequence_mean"})
    lengths, advantages = lens.lengths, lens.advantages
    long, brief = int(np.argmax(lengths)), int(np.argmin(lengths))
    return {
        "loss": signed(float(lens.terms.loss)), "other": signed(float(other.terms.loss)),
        "long": str(lengths[long]), "brief": str(lengths[brief]), "up": signed(float(advantages[long])),
    }  # fmt: skip


def _rises(lens: Lens) -> Numbers:
    kl = float(weighted_sum(lens.terms.kl, lens.terms.weights))
    beta = lens.objective.beta
    return {"policy": plain(_policy(lens)), "kl": plain(kl, 4), "beta": short(beta), "part": plain(beta * kl, 4)}


def _kl_only(lens: Lens) -> Numbers:
    pull = -np.asarray(lens.gradients.total)
    up, down = (int((sign * pull > 1e-12).sum()) for sign in (1, -1))
    return {"beta": short(lens.objective.beta), "up": str(up), "down": str(down)}


def _credit(lens: Lens) -> Numbers:
    path = critic.trajectory(lens)
    return {
        "group": signed(float(path.group)),
        "first": signed(path.advantages[0]),
        "last": signed(path.advantages[-1]),
    }


# Ratio and clip


def _slopes(lens: Lens) -> Numbers:
    slopes = lenses.graph_slopes(clip.probe(lens).advantage, lens.values)
    return {"frozen": signed(slopes["frozen"], 2), "shared": plain(slopes["shared"], 2)}


def _range(lens: Lens) -> tuple[float, float]:
    return 1 - lens.values["eps_low"], 1 + lens.values["eps_high"]


def _updates(lens: Lens) -> Numbers:
    both = clip_epochs.run(lens)
    low, high = _range(lens)
    shares = both.clipped.clip_ratios
    return {
        "low": short(low), "high": short(high), "total": str(both.size), "updates": str(both.updates),
        "far": plain(float(both.clipped.ratios[-1, both.farthest]), 2), "outside": str(int(both.outside.sum())),
        "first": str(int(np.argmax(shares > 0)) + 1 if shares.any() else both.updates),
    }  # fmt: skip


def _unbounded(lens: Lens) -> Numbers:
    at = clip.probe(lens)
    far, _ = lenses.at_ratio(10 * at.ratio, at.advantage, lens.values)
    bounded, flat = lenses.at_ratio(at.ratio, at.advantage, {**lens.values, "delta": 2.0})
    return {
        "ratio": short(at.ratio), "objective": signed(at.objective, 2), "slope": signed(at.slope, 2),
        "far": short(10 * at.ratio), "far_value": signed(far, 2), "delta": short(2.0),
        "bounded": signed(bounded, 2), "flat": plain(flat, 0),
    }  # fmt: skip


def _higher(lens: Lens) -> Numbers:
    at, rare = clip.probe(lens), 0.01
    _, before = lenses.at_ratio(at.ratio, at.advantage, {**lens.values, "eps_high": 0.2})
    return {
        "ratio": short(at.ratio), "slope": signed(at.slope, 2), "before": plain(before, 0),
        "rare": short(rare), "narrow": plain(rare * 1.2, 4), "wide": plain(rare * _range(lens)[1], 4),
    }  # fmt: skip


def _levels(lens: Lens) -> Numbers:
    token, tokens = lens.values["drift"], lens.values["drift_n"]
    ratios = lenses.drift(token, tokens)
    return {
        "token": short(token), "tokens": str(tokens), "sequence": short(round(ratios["sequence"], 6)),
        "trajectory": plain(ratios["trajectory"], 2), "percent": short(round(100 * (token - 1), 6)),
        "bits": plain(2.0**-8, 4),
    }  # fmt: skip


# Advantages


def _extremes(lens: Lens) -> Numbers:
    centred = lenses.look(lens.group, {**lens.values, "scale": "none"}).advantages
    scored = [r for r in lens.group.rewards if r is not None]
    return {
        "best": signed(float(lens.advantages.max()), 2), "worst": signed(float(lens.advantages.min()), 2),
        "plain_best": signed(float(centred.max()), 4), "gap": short(round(max(scored) - min(scored), 6)),
    }  # fmt: skip


def _unscored(lens: Lens) -> Numbers:
    as_zero = lens.group.replace(rewards=tuple(0.0 if r is None else r for r in lens.group.rewards))
    wrong = lenses.look(as_zero, lens.values).advantages
    missing = lens.group.rewards.index(None)
    return {
        "own": plain(float(lens.advantages[missing]), 0), "wrong": signed(float(wrong[missing]), 2),
        "best": signed(float(lens.advantages.max()), 2), "lifted": signed(float(wrong.max()), 2),
    }  # fmt: skip


def _which_std(lens: Lens) -> Numbers:
    paper, sample = (
        lenses.look(lens.group, {**lens.values, "ddof": ddof, "eps": 0.0}).advantages.max() for ddof in (0, 1)
    )
    return {"paper": signed(float(paper)), "sample": signed(float(sample)), "factor": plain(float(paper / sample))}


def _sum_first(lens: Lens) -> Numbers:
    own = several.several(lens)
    pair = several.collision(own)
    assert pair is not None
    return several.notice(own)[1]


def _batch(lens: Lens) -> Numbers:
    one = prompts.batch(lens)
    return {**prompts.notice(one)[1], "own_easy": plain(float(one.separate.advantages[one.easy].mean()), 0)}


def _batch_std(lens: Lens) -> Numbers:
    one = prompts.batch(lens)
    spread = np.asarray(one.separate.std)
    return {
        "own": signed(float(one.separate.advantages.min()), 2), "pooled": signed(float(one.advantages.min()), 2),
        "std": plain(float(spread[spread > 0].min()), 2), "all": plain(float(np.max(one.compared.divisor)), 2),
        "prompts": str(len(one.rewards)),
    }  # fmt: skip


def _steps(lens: Lens) -> Numbers:
    return steps.notice(steps.supervised(lens))[1]


def _group_size(lens: Lens) -> Numbers:
    ways, at = budget.splits(lens)
    most, large = max(ways, key=lambda way: way.mixed_groups), ways[-1]
    return {
        "budget": str(lens.values["budget"]), "groups": str(ways[at].prompts), "size": str(ways[at].group_size),
        "mixed": plain(ways[at].mixed_groups, 0), "most": str(most.group_size), "large": str(large.group_size),
        "share": plain(100 * ways[at].mixed_groups / ways[at].prompts, 0),
    }  # fmt: skip


def _direction(lens: Lens) -> Numbers:
    problem = gradients.bandit(lens)
    std, mean = gradients.report("std", problem), gradients.report("mean", problem)
    true = ", ".join(signed(x, 2) for x in std.true)
    return {
        "rewards": ", ".join(short(r) for r in problem.rewards), "angle": plain(gradients.angle(std), 0),
        "straight": plain(gradients.angle(mean), 0), "true": true, "size": str(problem.size),
    }  # fmt: skip


def _inclusion(lens: Lens) -> Numbers:
    problem = gradients.bandit(lens)
    eight = gradients.report("mean", gradients.Bandit(problem.probs, problem.rewards, 8))
    own, loo = (gradients.report(name, problem) for name in ("mean", "loo"))
    return {
        "size": str(problem.size), "scale": plain(own.scale, 2), "loo": plain(loo.scale, 0),
        "eight": plain(eight.scale, 3),
    }  # fmt: skip


# KL


def _expected(lens: Lens) -> Numbers:
    both = lenses.distributions(lens.values["cur"], lens.values["ref"])
    seen = both.estimates["k3"]
    return {
        "exact": plain(both.exact, 4), "k3": plain(both.expected["k3"], 4), "k2": plain(both.expected["k2"], 4),
        "least": plain(float(seen.min()), 4), "most": plain(float(seen.max()), 4),
    }  # fmt: skip


def _spike(lens: Lens) -> Numbers:
    d = lens.values["d"]
    own = lenses.kl_at([d, -d])["k3"]
    return {"d": short(d), "up": plain(float(own[0]), 0), "down": plain(float(own[1]), 0)}


def _trap(lens: Lens) -> Numbers:
    one = divergence.trap(lens)
    assert one is not None
    return {"angle": plain(angle(one.mean, one.forward), 0)}


def _stale(lens: Lens) -> Numbers:
    one = divergence.off_policy(lens)
    assert one is not None
    return {
        "plain": plain(float(one.found["none"].value)), "exact": plain(one.both.exact),
        "angle": plain(one.angle("detached"), 0),
    }  # fmt: skip


def _refresh(lens: Lens) -> Numbers:
    one = divergence.refresh(lens)
    return {
        "refreshed": plain(float(one.paths.from_start[1, -1]), 2), "count": str(len(one.refreshes)),
        "limit": plain(one.limit(one.beta)[1], 2), "smaller": plain(one.limit(one.smaller)[1], 2),
    }  # fmt: skip


def _where(lens: Lens) -> Numbers:
    one = where.placed(lens)
    assert one is not None
    return {"plain": signed(one.advantage, 2), "shaped": signed(one.shaped_advantage, 2), "beta": short(one.beta)}


def _no_reference(lens: Lens) -> Numbers:
    with_kl = lenses.look(lens.group, {**lens.values, "beta": 0.04})
    return {"loss": signed(float(lens.terms.loss)), "with_kl": signed(float(with_kl.terms.loss))}


# Averaging


def _rules(lens: Lens) -> Numbers:
    _, _, losses, _ = reduction.rules(lens)
    own = dict(zip(reduction.RULES, losses, strict=False))
    return {
        "sequence": signed(float(own["sequence_mean"])), "token": signed(float(own["token_mean"])),
        "brief": str(min(lens.lengths)), "long": str(max(lens.lengths)),
    }  # fmt: skip


def _bias(lens: Lens) -> Numbers:
    large, small = reduction.heaviest(lens)
    return {
        "large": plain(large, 4), "small": plain(small, 4), "factor": plain(large / small, 0),
        "brief": str(min(lens.lengths)), "long": str(max(lens.lengths)),
    }  # fmt: skip


def _parts(lens: Lens) -> Numbers:
    own = lenses.split(lens, lens.values["parts"])
    return {"means": signed(own.mean_of_means), "pooled": signed(own.pooled), "parts": str(len(own.tokens))}


def _truncated(lens: Lens) -> Numbers:
    kept = lenses.look(lens.group, {**lens.values, "cut": "train"})
    return {
        **_pulls(lens), "cut": str(sum(lens.group.truncated)),
        "kept": plain(float(np.abs(np.asarray(kept.gradients.total)).sum())),
    }  # fmt: skip


def _two_meanings(lens: Lens) -> Numbers:
    return {
        "cut": str(sum(lens.group.truncated)), "size": str(lens.group.size),
        "clipped": str(int((lens.terms.saturated & lens.terms.mask).sum())), "total": str(sum(lens.lengths)),
    }  # fmt: skip


# Sampling, rewards


def _mismatch(lens: Lens) -> Numbers:
    one = temperature.drawn(lens)
    return {
        "temp": short(one.temperature), "ratio": plain(float(one.result.ratio[one.focus])),
        "sequence": temperature.ratio_text(one.sequence), "tokens": str(one.tokens),
        "kept": plain(float(one.result.mean_ratio), 2), "never": str(int((one.result.sampled == 0).sum())),
    }  # fmt: skip


def _dynamic(lens: Lens) -> Numbers:
    one = dynamic.batch(lens)
    return {
        "wanted": str(one.wanted), "draws": plain(one.result.draws, 0), "wasted": plain(100 * (1 - one.efficiency), 0),
        "factor": plain(float(one.result.factor[dynamic.focus(one)]), 1),
    }  # fmt: skip


def _pass(lens: Lens) -> Numbers:
    samples, right, k = passk.counts(lens)
    value, _ = passk.both(samples, right, k)
    return {
        "samples": str(samples),
        "right": str(right),
        "k": str(k),
        "one": plain(right / samples),
        "pass": plain(value),
    }


def _scores(lens: Lens) -> Numbers:
    own = scores.scored(lens, bench_cases()[lens.values["bench"]])
    assert own is not None
    best = int(np.argmax(own.advantages))
    paid = [i for i, right in enumerate(own.right) if not right and own.advantages[i] > 0]
    return {
        "paid": str(len(paid)), "number": str((paid or [best])[0] + 1), "size": str(len(own.totals)),
        "advantage": signed(float(own.advantages[(paid or [best])[0]]), 2),
    }  # fmt: skip


# Recipes


def _differing(lens: Lens) -> Numbers:
    found = loss.comparison(lens)
    names = [loss.choice_name(d.name) for d in found.acting]
    return {
        "count": str(len(found.acting)), "names": ", ".join(names), "changed": str(found.pair.changed),
        "total": str(sum(lens.lengths)),
    }  # fmt: skip


def _memory(lens: Lens) -> Numbers:
    totals = {name: memory.total(lens, name) for name in ("ppo", "grpo_model", "grpo_free")}
    return {
        **{name: memory.gigabytes(value) for name, value in totals.items()},
        "saved": plain(100 * (1 - totals["grpo_model"] / totals["ppo"]), 0), "billions": short(lens.values["mem_p"]),
    }  # fmt: skip


NUMBERS: Mapping[str, Callable[[Lens], Numbers]] = {
    "loss-zero": _pulls, "loss-negative": _negative, "loss-rises": _rises, "zero-std-moves": _kl_only,
    "credit": _credit, "exp-detach": _slopes, "clip-zero": _updates, "clip-one-epoch": _updates,
    "unbounded": _unbounded, "clip-keeps": _updates, "clip-higher": _higher, "sequence-ratio": _levels,
    "ratio-bf16": _levels, "group-size": _group_size, "divide-std": _extremes, "std-direction": _direction,
    "self-mean": _inclusion, "unscored": _unscored, "minority": _extremes, "which-std": _which_std,
    "k3-kl": _expected, "kl-gradient": _trap, "k3-stale": _stale, "kl-refresh": _refresh, "kl-spike": _spike,
    "kl-where": _where, "no-reference": _no_reference,
    "token-mean": _rules, "length-bias": _bias, "micro-batches": _parts, "all-truncated": _truncated,
    "clipped-truncated": _two_meanings, "temperature": _mismatch, "top-p": _mismatch, "dynamic": _dynamic,
    "pass-k": _pass, "hacking": _scores, "parser": _scores, "trl-dapo": _differing, "dr-grpo": _differing,
    "memory": _memory, "sum-normalise": _sum_first, "reward-std": _batch, "mixed-prompts": _batch,
    "batch-std": _batch_std,
    "step-rewards": _steps,
}  # fmt: skip
"""The questions whose answers carry numbers, each with the function that computes them."""
