"""Every setting of the explorer, declared as data: name, kind, default, range. The URL and the widgets read this."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from app.alternatives import ALTERNATIVES
from app.asked import asked, topics
from app.bench import bench_cases
from app.words import t
from grpo_core import RECIPES, SURROGATES, AdvantageSpec, Objective, get_recipe
from grpo_core.advantages import ESTIMATORS
from grpo_core.differences import choice_names
from grpo_core.rewards import SCRIPTS
from grpo_core.surrogate_curves import surrogate_options

DEFAULT_RECIPE = "grpo_paper"


SHOWN_RECIPES = tuple(RECIPES)


@dataclass(frozen=True, kw_only=True)
class Param:
    """One setting. `name` is its key in the session and in the URL.

    `kind`: "number", "whole", "choice", "names" (several of `choices`), "numbers" (a list), "steps" (see `read_steps`)
    or "packed" (text made by `link.pack`). `default`: None with `from_recipe` means "what the recipe says". `low` and
    `high` are the slider's ends; `floor` and `ceiling`, where they lie further out, are accepted when typed.
    `optional`: None ("off") is a value of its own. `stops`: the values a slider offers; `log`: its scale.
    """

    name: str
    kind: str
    default: Any = None
    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    floor: float | None = None
    ceiling: float | None = None
    choices: tuple[Any, ...] = ()
    optional: bool = False
    from_recipe: bool = False
    stops: tuple[float, ...] = ()
    log: bool = False
    longest: int = 200  # characters that are read from a link

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for; ValueError says what is accepted."""
        if self.optional and text.strip().lower() in ("off", "none", "auto", "∞", "-", ""):
            return None
        if self.kind == "choice":
            return self._chosen(text)
        if self.kind == "packed":
            return self._packed(text)
        if self.kind == "names":
            return tuple(self._chosen(part) for part in text.split(","))
        if self.kind == "numbers":
            return tuple(self.number(part) for part in self._parts(text))
        return read_steps(text) if self.kind == "steps" else self.number(text)

    def write(self, value: Any) -> str:
        """Return the text that `parse` reads back as `value`."""
        if value is None:
            return "off"
        if self.kind == "numbers":
            return ",".join(_short(x) for x in value)
        if self.kind == "names":
            return ",".join(value)
        if self.kind == "steps":
            return "_".join(",".join(f"{_short(reward)}~{end}" for reward, end in row) for row in value)
        return str(value) if self.kind in ("choice", "whole", "packed") else _short(value)

    def _chosen(self, text: str) -> Any:
        for choice in self.choices:
            if str(choice) == text:
                return choice
        raise ValueError(t("accept.one_of", choices=", ".join(map(str, self.choices))))

    def _packed(self, text: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_-]+", text) is None or len(text) >= self.longest:
            raise ValueError(t("accept.packed"))
        return text

    def _parts(self, text: str) -> list[str]:
        parts = text.split(",")
        if not 2 <= len(parts) <= 8:
            raise ValueError(t("accept.list"))
        return parts

    def number(self, text: str) -> float | int:
        """Return one number that lies in the range; ValueError says what is accepted."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        whole = self.kind == "whole"
        low = self.low if self.floor is None else self.floor
        high = self.high if self.ceiling is None else self.ceiling
        if not math.isfinite(value) or not low <= value <= high or (whole and value != int(value)):
            key = "accept.whole" if whole else "accept.number"
            raise ValueError(t(key, low=_short(low), high=_short(high)))
        return int(value) if whole else value


Steps = tuple[tuple[tuple[float, int], ...], ...]
"""For each completion its steps: (reward, number of the step's last token, counted from 1)."""
MOST_STEPS = 8  # completions, and steps of one


def read_steps(text: str) -> Steps:
    """Return the steps in a text: completions on lines of their own (or after _), each "reward @ last token, ...".

    Rewards are rounded to four decimals, so that a link can write them. ValueError for more than MOST_STEPS of either,
    rewards beyond 100, and ends that do not increase or exceed 200.
    """
    rows = [row for row in re.split(r"[\n;_]", text) if row.strip()]
    steps = tuple(tuple(_step(cell) for cell in row.split(",")) for row in rows)
    fits = 1 <= len(steps) <= MOST_STEPS and all(len(row) <= MOST_STEPS for row in steps)
    ends = [[0, *(end for _, end in row), 201] for row in steps]
    if not fits or any(a >= b for row in ends for a, b in itertools.pairwise(row)):
        raise ValueError(t("accept.steps", most=MOST_STEPS))
    return steps


def _step(cell: str) -> tuple[float, int]:
    found = re.fullmatch(r"\s*([+-]?\d{1,3}(?:\.\d{1,17})?)\s*[@~]\s*(\d{1,3})\s*", cell.replace(chr(0x2212), "-"))
    if found is None or abs(float(found[1])) > 100:
        raise ValueError(t("accept.steps", most=MOST_STEPS))
    return round(float(found[1]), 4), int(found[2])


def _short(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _number(name: str, default: Any, low: float, high: float, step: float, **more: Any) -> Param:
    return Param(name=name, kind="number", default=default, low=low, high=high, step=step, **more)


def _whole(name: str, default: Any, low: int, high: int, **more: Any) -> Param:
    return Param(name=name, kind="whole", default=default, low=low, high=high, step=1, **more)


def _numbers(name: str, default: tuple[float, ...], low: float, high: float, step: float, **more: Any) -> Param:
    return Param(name=name, kind="numbers", default=default, low=low, high=high, step=step, **more)


def _choice(name: str, choices: tuple[Any, ...], **more: Any) -> Param:
    return Param(name=name, kind="choice", choices=choices, **{"default": choices[0], **more})


def distinct_surrogates() -> tuple[str, ...]:
    """Return the first recipe for every surrogate with other hyperparameters."""
    first: dict[Any, str] = {}
    for name, recipe in RECIPES.items():
        o = recipe.objective
        first.setdefault((o.surrogate, tuple(sorted(o.surrogate_parameters().items(), key=str))), name)
    return tuple(first.values())


_RECIPE = {"from_recipe": True, "default": None}
_EPS_STOPS = (0.0, 1e-9, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)

_FREE = {"floor": -100.0, "ceiling": 100.0}
_ADVANTAGES = (
    _choice("adv_view", ("bars", "estimators", "rates", "mixed", "prompts", "several", "steps")),
    _number("p", 0.2, 0.0, 1.0, 0.01),
    _whole("mix_g", 8, 1, 64),
    _number("miss", 0.0, 0.0, 1.0, 0.01),  # share of completions that cannot be scored
    _numbers("levels", (0.875, 0.125), 0.0, 1.0, 0.01),  # success rates of prompts that share a batch
    _choice("pool", ("one", "whitened", "group_whitened", "batch_mean", "batch_std")),
    _numbers("mc", (1.0, 0.0, 0.0, 1.0), 0.0, 1.0, 0.01, **_FREE),  # rewards of three functions: correct,
    _numbers("mf", (0.0, 1.0, 1.0, 1.0), 0.0, 1.0, 0.01, **_FREE),  # format,
    _numbers("ml", (0.0, 0.0, 0.0, 0.0), 0.0, 1.0, 0.01, **_FREE),  # length
    _numbers("mw", (1.0, 1.0, 0.0), 0.0, 2.0, 0.05, **_FREE),  # and their weights
    _choice("mfun", ("mc", "mf", "ml")),
    _choice("msrc", ("group", "example")),  # the group's own reward functions, if it recorded several
    _numbers("mgw", (1.0,) * 8, 0.0, 2.0, 0.05, **_FREE),  # and their weights
    Param(name="steps", kind="steps", default=(((1.0, 3), (0.0, 6)), ((1.0, 4), (1.0, 5))), longest=1000),
    _whole("sc", 1, 1, MOST_STEPS),
    _choice("step_base", ("all", "position")),
)
_REDUCTION = (
    _choice("red_view", ("tokens", "rules", "parts", "masks")),
    _whole("parts", 2, 1, 16),
    _whole("ranks", 1, 1, 8),
    _choice("span", ("part", "rank", "all")),
    _whole("limit", None, 1, 200, optional=True),
)
_LOGP = {"low": -40.0, "high": 0.0, "step": 0.1, "floor": -10_000.0}
_PPO = (
    _choice("ppo_view", ("critic", "memory", "trust", "dpo", "where", "rounds", "compared")),
    _choice("critic_view", ("gae", "vine")),
    _numbers("tr", (0.0, 0.0, 1.0), -1.0, 1.0, 0.05, **_FREE),
    _numbers("tv", (0.2, 0.4, 0.7), 0.0, 1.0, 0.01, **_FREE),
    _number("gamma", 1.0, 0.0, 1.0, 0.01),
    _number("lam", 0.9, 0.0, 1.0, 0.01),
    _number("boot", None, 0.0, 1.0, 0.01, optional=True, **_FREE),
    _whole("at_t", 1, 1, 8),
    _numbers("vine", (0.4, 0.5, 0.8, 0.3, 0.7), 0.0, 1.0, 0.01),
    _whole("vine_k", 9, 1, 64),
    _whole("vine_len", 512, 8, 16384, log=True),
    _number("vine_r", 1.0, 0.0, 1.0, 0.01, **_FREE),
    _choice("mem_prec", ("mixed", "bf16", "fp32")),
    _number("mem_p", 7.0, 0.1, 1000.0, 0.1, log=True),
    _number("mem_r", None, 0.1, 1000.0, 0.1, log=True, optional=True),
    _number("mem_v", None, 0.1, 1000.0, 0.1, log=True, optional=True),
    _choice("trust_view", ("bound", "step")),
    _number("alpha", 0.1, 0.0, 0.5, 0.005),
    _number("a_max", 1.0, 0.05, 10.0, 0.05, ceiling=1000.0),
    _whole("horizon", 10, 1, 100, log=True),
    _numbers("nat_p", (0.7, 0.2, 0.1), 0.0, 1.0, 0.01),
    _numbers("nat_r", (0.0, 0.2, 1.0), -1.0, 1.0, 0.01, **_FREE),
    _number("nat_d", 0.05, 1e-4, 1.0, 1e-4, log=True),
    _choice("dpo_view", ("pair", "optimum")),
    _number("dpo_w", -10.0, **_LOGP),
    _number("dpo_wr", -12.0, **_LOGP),
    _number("dpo_l", -15.0, **_LOGP),
    _number("dpo_lr", -11.0, **_LOGP),
    _number("dpo_beta", 0.1, 0.01, 2.0, 0.01, floor=1e-6, ceiling=1000.0),
    _numbers("opt_ref", (0.5, 0.3, 0.2), 0.0, 1.0, 0.01),
    _numbers("opt_r", (1.0, 0.0, 2.0), -2.0, 2.0, 0.01, **_FREE),
    _number("opt_beta", 0.5, 0.05, 10.0, 0.01, log=True, floor=1e-3, ceiling=1000.0),
    _choice("where_view", ("tokens", "chain")),
    _whole("comp", 1, 1, 64),
    _numbers("ch_p", (0.9, 0.6, 0.3), 0.0, 1.0, 0.01),
    _numbers("ch_q", (0.5, 0.5, 0.5), 0.0, 1.0, 0.01),
    _whole("it_i", 2, 1, 4),
    _whole("it_m", 3, 1, 6),
    _whole("it_mu", 2, 1, 6),
    _whole("moment", 1, 1, 200),
    _number("replay", 0.1, 0.0, 0.5, 0.01, ceiling=1.0),
)
_SAMPLING = (
    _choice("samp_view", ("dynamic", "budget", "temperature", "pass")),
    _numbers("rates", (0.02, 0.2, 0.5, 0.9, 1.0), 0.0, 1.0, 0.01),
    _choice("refill", ("keep", "resample", "retry"), default="resample"),
    _whole("batch_n", 64, 1, 256, log=True),
    _whole("budget", 256, 8, 8192, log=True),
    _numbers("probs", (0.5, 0.3, 0.15, 0.05), 0.0, 1.0, 0.01),
    _number("temp", 0.6, 0.1, 2.0, 0.01, floor=0.01, ceiling=100.0),
    _whole("top_k", None, 1, 8, optional=True),
    _number("top_p", None, 0.05, 1.0, 0.01, floor=0.001, optional=True),
    _number("t_temp", 1.0, 0.1, 2.0, 0.01, floor=0.01, ceiling=100.0),
    _whole("seq_n", 100, 1, 10_000, log=True),
    _whole("pk_n", 16, 1, 256),
    _whole("pk_c", 2, 0, 256),
    _whole("pk_k", 8, 1, 256),
)
_WEIGHT = {"low": -1.0, "high": 2.0, "step": 0.05, "optional": True, **_FREE}
_REWARDS = (
    _choice("bench", tuple(bench_cases())),
    Param(name="bench_x", kind="packed", optional=True, longest=8001),
    _choice("rew_view", ("scores", "lengths")),
    _number("w_tag", 1.0, **_WEIGHT),
    *(_number(name, None, **_WEIGHT) for name in ("w_box", "w_num", "w_any", "w_fmt", "w_lang", "w_long")),
    _choice("no_answer", ("wrong", "unscored")),
    _choice("script", tuple(SCRIPTS)),
    _whole("long_max", 60, 2, 32_768, log=True),
    _whole("long_cache", 20, 0, 32_768),
)
_LOSS = (
    _choice("surrogate", tuple(SURROGATES), **_RECIPE),
    _choice("klw", ("plain", "weighted"), **_RECIPE),
    _choice("cut", ("train", "drop"), **_RECIPE),
    _number("greedy", 0.0, 0.0, 1.0, 0.01, **_FREE),
    _whole("draw", 0, 0, 99),
    _choice("loss_view", ("tokens", "compare", "whatif", "settings")),
    _numbers("tok", None, 1.0, 100_000.0, 1.0, optional=True),  # completion and position, from 1
    _choice("other", tuple(RECIPES), default="dapo_paper"),
    Param(name="kept", kind="names", choices=choice_names(), optional=True, longest=800),  # not taken over
    _choice("heat", ("difference", "first", "second")),
    _choice("unit", ("absolute", "share")),
    _choice("alt", tuple(ALTERNATIVES), default="reduce:token_mean"),
)
_GRADIENTS = (
    _choice("grad_view", ("actions", "simplex", "size", "baseline", "lengths", "togo")),
    _numbers("pi", (1.0, 1.0, 1.0), 0.01, 1.0, 0.01, floor=1e-6),  # weights of the actions
    _numbers("rw", (0.0, 1.0, 10.0), 0.0, 10.0, 0.1, **_FREE),
    _whole("gg", 2, 1, 16, ceiling=64),
    _choice("gest", ("reinforce", "critic", "mean", "loo", "std", "trl", "greedy", "best"), default="std"),
    _choice("gunit", ("absolute", "direction")),
    _number("gbase", None, 0.0, 10.0, 0.1, optional=True, **_FREE),
    _numbers("stop", (0.5, 0.5, 0.5), 0.02, 0.98, 0.01),  # probability of ending at each position
    _numbers("srw", (0.0, 0.0, 1.0), 0.0, 1.0, 0.05, **_FREE),
    _number("rcut", 1.0, 0.0, 1.0, 0.05, **_FREE),  # reward of a completion that was cut off
    _numbers("paya", (0.2, 0.2, 0.0), 0.0, 1.0, 0.05, **_FREE),
    _numbers("pays", (0.2, 0.5, 1.0), 0.0, 1.0, 0.05, **_FREE),
)
_KL = (
    _choice("kl_view", ("curve", "distribution", "why", "trap", "offpolicy", "refresh")),
    _number("d", 0.5, -3.0, 3.0, 0.01, floor=-1000.0, ceiling=1000.0),
    _numbers("cur", (0.6, 0.4), 0.0, 1.0, 0.01),
    _numbers("ref", (0.5, 0.5), 0.0, 1.0, 0.01),
    _numbers("kl_old", (0.4, 0.6), 0.0, 1.0, 0.01),
    _choice("kl_w", ("none", "full", "detached", "clipped")),
    _number("kl_cap", 1.2, 0.1, 5.0, 0.01, floor=0.001, ceiling=1000.0),
    _number("kl_b", 0.5, 0.05, 2.0, 0.01, log=True, floor=0.001, ceiling=100.0),
    _number("kl_bs", 0.1, 0.05, 2.0, 0.01, log=True, floor=0.001, ceiling=100.0),
    _whole("kl_n", 30, 1, 200, log=True),
    _number("kl_lr", 1.0, 0.05, 5.0, 0.05, log=True, floor=0.001, ceiling=10.0),
    _whole("kl_steps", 120, 10, 200, ceiling=300),
    _numbers("kl_p0", (0.6, 0.3, 0.1), 0.01, 1.0, 0.01, floor=1e-6),
    _numbers("kl_rw", (0.0, 0.5, 1.0), 0.0, 1.0, 0.05, **_FREE),
)
_OPTIONS = (  # of surrogates, under the core's own names
    _number("weight_low", None, 0.0, 2.0, 0.01, from_recipe=True, ceiling=100.0),
    _number("weight_high", None, 0.0, 5.0, 0.01, from_recipe=True, ceiling=100.0),
    _number("tau_positive", None, 0.1, 10.0, 0.05, from_recipe=True, ceiling=100.0),
    _number("tau_negative", None, 0.1, 10.0, 0.05, from_recipe=True, ceiling=100.0),
    _number("k_positive", None, 0.0, 5.0, 0.1, from_recipe=True),
    _number("lambda_positive", None, 0.1, 5.0, 0.1, from_recipe=True),
    _number("k_negative", None, 0.0, 5.0, 0.1, from_recipe=True),
    _number("lambda_negative", None, 0.1, 5.0, 0.1, from_recipe=True),
    _number("log_epsilon_low", None, 0.0, 2.0, 0.01, from_recipe=True, ceiling=80.0),
    _number("log_epsilon_high", None, 0.0, 2.0, 0.01, from_recipe=True, ceiling=80.0),
    _number("threshold_low", None, 0.0, 1.0, 0.01, from_recipe=True),
    _number("threshold_high", None, 0.0, 1.0, 0.01, from_recipe=True),
    _number("weight_cap", None, 0.1, 20.0, 0.1, from_recipe=True, ceiling=1000.0),
    _number("dro_beta", None, 0.05, 5.0, 0.05, from_recipe=True, floor=0.001, ceiling=100.0),
    _number("share", None, 0.0001, 1.0, 0.0001, from_recipe=True, log=True),
    _number("coefficient", None, 0.0, 2.0, 0.01, from_recipe=True, ceiling=100.0),
    _number("covariance_low", None, 0.0, 10.0, 0.1, from_recipe=True, floor=-100.0, ceiling=100.0),
    _number("covariance_high", None, 0.0, 10.0, 0.1, from_recipe=True, floor=-100.0, ceiling=100.0),
)
_CLIP = (
    _choice("clip_view", ("curve", "surrogates", "quadrants", "minmax", "levels", "epochs", "graph")),
    _choice("levels_view", ("drift", "weights", "identity")),
    _choice("second", ("off", *distinct_surrogates()), default="cispo_paper"),
    _number("oldp", 0.3, 0.01, 1.0, 0.01, floor=1e-6),  # old probability of the token on the curve
    _whole("mu", 8, 1, 16, ceiling=64),
    _number("lr", 0.3, 0.01, 10.0, 0.01, log=True, floor=1e-4, ceiling=100.0),
    _number("rest", 0.2, 0.0, 0.99, 0.01, floor=0.0, ceiling=0.9999),  # probability that no completion of the group has
    _whole("pull_n", 100, 1, 256, log=True),
    _numbers("was", (0.5, 0.6, 0.9), 0.01, 1.0, 0.01),  # probability of a right step, old and new policy
    _numbers("now", (0.8, 0.6, 0.95), 0.0, 1.0, 0.01),
    *_OPTIONS,
)
_QUESTIONS = (
    _choice("topic", ("all", *topics())),
    _choice("q", tuple(asked()), default=None, optional=True),
)

PARAMS: Mapping[str, Param] = {
    param.name: param
    for param in (
        _choice("recipe", tuple(RECIPES), default=DEFAULT_RECIPE),
        # shared by all pages; the recipe gives the defaults
        _choice("estimator", tuple(ESTIMATORS), **_RECIPE),
        _choice("ddof", (0, 1), **_RECIPE),
        _number("eps", None, 0.0, 1.0, 1e-9, from_recipe=True, stops=_EPS_STOPS),
        _choice("scale", ("group", "batch", "none"), **_RECIPE),
        _choice("level", ("token", "sequence", "trajectory"), **_RECIPE),
        _number("eps_low", None, 0.0, 1.0, 0.01, from_recipe=True),
        _number("eps_high", None, 0.0, 1.0, 0.01, from_recipe=True, ceiling=10.0),
        _number("delta", None, 1.0, 10.0, 0.1, from_recipe=True, optional=True),
        _choice("kl", ("k1", "k2", "k3"), **_RECIPE),
        _number("beta", None, 0.0, 1.0, 0.01, from_recipe=True),
        _choice("reduce", ("sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"), **_RECIPE),
        Param(name="constant", kind="whole", low=1, high=4096, step=1, optional=True, log=True),
        # one page each
        *_ADVANTAGES,
        _choice("sign", ("up", "down")),
        _number("r", 1.5, 0.0, 3.0, 0.01, ceiling=1000.0),
        _number("drift", 1.01, 0.9, 1.1, 0.001, floor=0.5, ceiling=2.0),
        Param(name="drift_n", kind="whole", default=1000, low=1, high=2000, step=1, ceiling=100_000),
        *_KL,
        *_REDUCTION,
        *_CLIP,
        *_PPO,
        *_SAMPLING,
        *_REWARDS,
        *_LOSS,
        *_GRADIENTS,
        *_QUESTIONS,
    )
}

OPTIONS = tuple(param.name for param in _OPTIONS)
"""The settings that are options of a surrogate, under the core's names."""
_OPTION_DEFAULTS = {
    name: value for s in SURROGATES.values() for name, value in s.parameters.items() if name in OPTIONS
}  # fmt: skip

RECIPE_BOUND = (*tuple(name for name, param in PARAMS.items() if param.from_recipe), "constant")


@cache
def recipe_values(name: str) -> dict[str, Any]:
    """Return what a recipe says about every setting that is bound to it."""
    recipe = get_recipe(name)
    o, a = recipe.objective, recipe.advantage
    fixed = o.constant if recipe.constant_from is None else None
    return {
        "estimator": a.estimator, "ddof": a.ddof, "eps": a.eps, "scale": a.scale,
        "level": o.ratio_level, "eps_low": o.epsilon_low, "eps_high": o.epsilon_high, "delta": o.delta,
        "kl": o.kl_estimator, "beta": o.beta, "reduce": o.aggregation, "constant": fixed,
        "surrogate": o.surrogate, "klw": "weighted" if o.kl_ratio_weighted else "plain",
        "cut": "drop" if o.mask_truncated else "train",
        **_OPTION_DEFAULTS, **{name: v for name, v in o.surrogate_parameters().items() if name in _OPTION_DEFAULTS},
    }  # fmt: skip


def default(name: str, recipe: str = DEFAULT_RECIPE) -> Any:
    """Return a setting's default under a recipe."""
    return recipe_values(recipe)[name] if name in RECIPE_BOUND else PARAMS[name].default


def advantage_spec(values: Mapping[str, Any]) -> AdvantageSpec:
    """Return the advantage that the settings name; what no setting says is the recipe's."""
    own = {name: values[name] for name in ("estimator", "ddof", "eps", "scale")}
    return replace(get_recipe(values["recipe"]).advantage, **own)


def objective(values: Mapping[str, Any], *, longest: int) -> Objective:
    """Return the recipe's objective with the settings put in; an unset constant is the group's longest completion."""
    base = get_recipe(values["recipe"]).objective
    chosen = base.replace(
        surrogate=values["surrogate"],
        options=base.options if values["surrogate"] == base.surrogate else {},
        ratio_level=values["level"],
        epsilon_low=values["eps_low"],
        epsilon_high=values["eps_high"],
        delta=values["delta"],
        beta=values["beta"],
        kl_estimator=values["kl"],
        kl_ratio_weighted=values["klw"] == "weighted",
        mask_truncated=values["cut"] == "drop",
        aggregation=values["reduce"],
        constant=float(values["constant"] or max(longest, 1)),
    )
    options = surrogate_options(chosen, surrogate_settings(values))
    return chosen if options == chosen.options else chosen.replace(options=options)


def surrogate_settings(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the settings that are options of a surrogate; a cap below its floor is lifted to it."""
    own = {name: values[name] for name in OPTIONS}
    return {**own, "weight_high": max(own["weight_high"], own["weight_low"])}
