"""What a run is made of: every setting of a live run, checked in one place."""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from grpo_core.live.faults import FAULTS
from grpo_core.live.tasks import TASKS
from grpo_core.live.verifiers import FILE_VERIFIERS
from grpo_core.messages import InputError, Message

if TYPE_CHECKING:
    from grpo_core import AdvantageSpec, Objective, Recipe

DTYPES = ("auto", "float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda", "mps")
SCALES = ("recipe", "group", "batch", "none")
SURROGATES = ("recipe", "clip", "unclipped")
REWARD_SOURCES = ("verifier", "learned")
SUPERVISIONS = ("outcome", "process")
LIVE_SETTINGS = (
    "learning_rate",
    "beta",
    "epsilon_low",
    "epsilon_high",
    "temperature",
    "pace",
    "recipe",
    "group_size",
    "prompts_per_step",
    "scale_rewards",
    "surrogate",
    "inner_epochs",
    "top_p",
    "refills",
    "max_grad_norm",
    "refresh_every",
)
"""The settings that may change while a run is going on."""
RESUME_SETTINGS = (*LIVE_SETTINGS, "steps", "eval_every", "eval_prompts", "eval_samples", "checkpoint_every", "probe")
"""Those that may differ when a run goes on from a checkpoint."""
FROM_RECIPE = ("beta", "epsilon_low", "epsilon_high")
"""The settings that a recipe brings along, with the advantages' scaling and the surrogate."""


@dataclass(frozen=True)
class RunConfig:
    """Every setting of one live run; the defaults are the default run.

    recipe names an entry of grpo_core.RECIPES and decides ratio level, surrogate, reduction and advantages;
    beta and the clip range are taken from here (for_recipe fills in the recipe's own). scale_rewards "recipe"
    keeps the recipe's scaling of advantages, the other names override it; surrogate "clip" or "unclipped" overrides
    the recipe's. refills is how many times a step may draw as many prompts again to replace groups without signal
    (dynamic sampling; 0: never). top_p below 1 cuts the tails off the sampling, and the ratio goes on dividing by the
    whole distribution. verifier_failures is the share of completions that the verifier cannot score; fault builds in
    a mistake on purpose (see faults.py). refresh_every is how many steps pass until the reference becomes a copy of the
    policy (0: never). pace is in steps a second, None is full speed. Every evaluation answers eval_prompts held-out
    prompts greedily and by sampling: once, and eval_samples times at the start, at the end and at every fourth
    evaluation. A checkpoint is kept every checkpoint_every steps (0: only at a pause and at the end). probe measures,
    after each update, the log-probabilities that KL and the ratio picture need.

    model "" is the task's own start; else a built-in model, a folder, a GGUF file or a hub id (see sources.py), in the
    precision dtype. lora_rank above 0 trains an adapter of that rank and freezes the model. task_file is a JSONL file
    of prompts and answers that takes the task's place (see task_files.py), judged by verifier, a name in
    FILE_VERIFIERS, or by the Python code in verifier_file, where the operator allows it.

    reward_source "learned" trains with a small reward model in the verifier's place (see reward_model.py). Every
    iteration_steps steps (0: never) an iteration of Algorithm 1 ends: the reference becomes a copy of the policy, and
    the reward model is trained further if retrain says so, with a share of replay older examples. supervision "process"
    gives every checkable step of a thought a reward of its own (see steps.py).
    """

    task: str = "shell_game"
    recipe: str = "dr_grpo_paper"
    scale_rewards: str = "recipe"
    surrogate: str = "recipe"
    group_size: int = 8
    prompts_per_step: int = 8
    learning_rate: float = 1e-4
    beta: float = 0.0
    epsilon_low: float = 0.2
    epsilon_high: float = 0.2
    inner_epochs: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    refills: int = 0
    verifier_failures: float = 0.0
    fault: str = "none"
    seed: int = 0
    steps: int = 120
    max_new_tokens: int = 14
    max_grad_norm: float = 1.0
    refresh_every: int = 0
    pace: float | None = 5.0
    eval_every: int = 5
    eval_prompts: int = 100
    eval_samples: int = 8
    checkpoint_every: int = 25
    probe: bool = True
    device: str = "auto"
    model: str = ""
    dtype: str = "auto"
    lora_rank: int = 0
    task_file: str = ""
    verifier: str = "answer"
    verifier_file: str = ""
    reward_source: str = "verifier"
    iteration_steps: int = 0
    retrain: bool = True
    replay: float = 0.1
    supervision: str = "outcome"
    note: str = ""

    def __post_init__(self) -> None:
        """Check every setting and bring it to its proper type."""
        for field in fields(self):
            object.__setattr__(self, field.name, check_setting(field.name, getattr(self, field.name)))

    @classmethod
    def for_recipe(cls, recipe: str, **settings: Any) -> "RunConfig":
        """Take beta and the clip range from the recipe itself, unless the settings name them."""
        return cls(**with_recipe({"recipe": recipe, **settings}))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "RunConfig":
        """Build a config from plain data; a ValueError says what is accepted for an unknown or invalid setting."""
        for name in settings:
            _known(name)
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """Give the settings as plain data that JSON can hold."""
        return asdict(self)

    def changed(self, **settings: Any) -> "RunConfig":
        """Give a copy with some settings changed, checked like any other."""
        return replace(self, **settings)

    @property
    def rows(self) -> int:
        """How many completions one step samples: prompts times group size."""
        return self.prompts_per_step * self.group_size

    def warnings(self) -> tuple[str, ...]:
        """Name what is allowed but teaches nothing: "group_of_one", "learning_rate_zero"."""
        found = {"group_of_one": self.group_size == 1, "learning_rate_zero": self.learning_rate == 0.0}
        return tuple(name for name, is_so in found.items() if is_so)


def check_setting(name: str, value: Any) -> Any:
    """Return the value in its proper type; a ValueError names the setting, the value and what is accepted."""
    _known(name)
    rule = _RULES[name]
    try:
        return rule.convert(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "{name}={value!r} is not accepted: give {accepted}", name=name, value=value, accepted=rule.accepted()
        ) from None


def check_live_setting(name: str, value: Any) -> Any:
    """As check_setting, for the settings that may change while a run is going on."""
    if name not in LIVE_SETTINGS:
        raise InputError(
            "{name!r} cannot change during a run: accepted are {accepted}", name=name, accepted=", ".join(LIVE_SETTINGS)
        )
    return check_setting(name, value)


def with_recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings to change; a recipe among them brings its own where nothing else is said.

    Its own are beta, the clip range, the scaling of the advantages and the surrogate.
    """
    if "recipe" not in settings:
        return dict(settings)
    objective = _recipe(check_setting("recipe", settings["recipe"])).objective
    own = {name: getattr(objective, name) for name in FROM_RECIPE}
    return {**own, "scale_rewards": "recipe", "surrogate": "recipe", **settings}


def check_resume_setting(name: str, value: Any) -> Any:
    """As check_setting, for the settings that may differ when a run goes on from a checkpoint."""
    if name not in RESUME_SETTINGS:
        raise InputError(
            "{name!r} cannot change when a run goes on: accepted are {accepted}",
            name=name,
            accepted=", ".join(RESUME_SETTINGS),
        )
    return check_setting(name, value)


def accepted(name: str) -> Message:
    """Say in words what a setting accepts, for a help text or a form."""
    _known(name)
    return _RULES[name].accepted()


def objective_of(config: RunConfig) -> "Objective":
    """Give the objective of a run: the recipe's, with the run's beta, clip range and length limit."""
    recipe: Recipe = _recipe(config.recipe)
    objective = recipe.with_constant(config.max_new_tokens)
    if config.surrogate != "recipe":
        objective = objective.replace(surrogate=config.surrogate, options={})
    return objective.replace(beta=config.beta, epsilon_low=config.epsilon_low, epsilon_high=config.epsilon_high)


def advantage_spec(config: RunConfig) -> "AdvantageSpec":
    """Give the advantages of a run: the recipe's, scaled as the run says where it says something."""
    spec: AdvantageSpec = _recipe(config.recipe).advantage
    return spec if config.scale_rewards == "recipe" else replace(spec, scale=config.scale_rewards)


@dataclass(frozen=True)
class _Rule:
    """How one setting is read, and what it accepts in words."""

    convert: Callable[[Any], Any]
    accepted: Callable[[], Message]


def _whole(low: int, high: int) -> _Rule:
    """A whole number in [low, high]; 8.0 and "8" are read as 8."""

    def convert(value: Any) -> int:
        number = float(_not_bool(value))
        if not number.is_integer() or not low <= number <= high:
            raise ValueError
        return int(number)

    return _Rule(convert, lambda: Message("a whole number from {low} to {high}", low=low, high=high))


def _real(low: float, high: float, *, above: bool = False, optional: bool = False) -> _Rule:
    """A real number in [low, high], or in (low, high] when above; None too when optional."""

    def convert(value: Any) -> float | None:
        if value is None and optional:
            return None
        number = float(_not_bool(value))
        if not math.isfinite(number) or not low <= number <= high or (above and number == low):
            raise ValueError
        return number

    ends = {"low": low, "high": high}
    inside = Message(
        "a number from {low:g} to {high:g}" if not above else "a number above {low:g} up to {high:g}", **ends
    )
    return _Rule(convert, lambda: Message("{accepted}, or none", accepted=inside) if optional else inside)


def _one_of(names: Iterable[str]) -> _Rule:
    """One of a few names."""

    def convert(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return _Rule(convert, lambda: Message("one of {names}", names=", ".join(names)))


def _flag(value: Any) -> bool:
    """True or False and nothing else."""
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    """A short text."""
    if not isinstance(value, str) or len(value) > 500:
        raise ValueError
    return value


def _not_bool(value: Any) -> Any:
    """Refuse True and False where a number is meant: Python would read them as 1 and 0."""
    if isinstance(value, bool):
        raise TypeError
    return value


def _recipe(name: Any) -> Any:
    """Look a recipe up in the core."""
    from grpo_core import get_recipe

    return get_recipe(name)


def _recipe_name(value: Any) -> str:
    """Read the name of a recipe of the core."""
    return str(_recipe(value).name)


def _recipe_names() -> Message:
    """List the recipes; looked up only when asked for, so that importing this module stays cheap."""
    from grpo_core import RECIPES

    return Message("one of {names}", names=", ".join(RECIPES))


def _known(name: str) -> None:
    """Raise unless the name is a setting, with the nearest one as a hint."""
    if name in _RULES:
        return
    near = difflib.get_close_matches(str(name), _RULES, n=1)
    hint = Message(" (did you mean {name}?)", name=near[0]) if near else ""
    raise InputError(
        "unknown setting {name!r}{hint}: accepted are {accepted}", name=name, hint=hint, accepted=", ".join(_RULES)
    )


_RULES: dict[str, _Rule] = {
    "task": _one_of(TASKS),
    "recipe": _Rule(_recipe_name, _recipe_names),
    "scale_rewards": _one_of(SCALES),
    "surrogate": _one_of(SURROGATES),
    "group_size": _whole(1, 64),
    "prompts_per_step": _whole(1, 64),
    "learning_rate": _real(0.0, 1.0),
    "beta": _real(0.0, 100.0),
    "epsilon_low": _real(0.0, 1.0),
    "epsilon_high": _real(0.0, 100.0),
    "inner_epochs": _whole(1, 64),
    "temperature": _real(1e-3, 10.0),  # logits divided by less can leave the range of float32
    "top_p": _real(0.0, 1.0, above=True),
    "refills": _whole(0, 16),
    "verifier_failures": _real(0.0, 1.0),
    "fault": _one_of(FAULTS),
    "seed": _whole(0, 2**31 - 1),
    "steps": _whole(1, 100_000),
    "max_new_tokens": _whole(1, 4096),
    "max_grad_norm": _real(0.0, 1e6, above=True),
    "refresh_every": _whole(0, 100_000),
    "pace": _real(0.0, 1000.0, above=True, optional=True),
    "eval_every": _whole(1, 100_000),
    "eval_prompts": _whole(1, 2000),
    "eval_samples": _whole(1, 64),
    "checkpoint_every": _whole(0, 100_000),
    "probe": _Rule(_flag, lambda: Message("true or false")),
    "device": _one_of(DEVICES),
    "model": _Rule(_text, lambda: Message("a built-in model, a folder or a hub id, at most 500 characters")),
    "dtype": _one_of(DTYPES),
    "lora_rank": _whole(0, 1024),
    "task_file": _Rule(_text, lambda: Message("the path of a JSONL file, at most 500 characters")),
    "verifier": _one_of(FILE_VERIFIERS),
    "verifier_file": _Rule(_text, lambda: Message("the path of a Python file, at most 500 characters")),
    "reward_source": _one_of(REWARD_SOURCES),
    "iteration_steps": _whole(0, 100_000),
    "retrain": _Rule(_flag, lambda: Message("true or false")),
    "replay": _real(0.0, 1.0),
    "supervision": _one_of(SUPERVISIONS),
    "note": _Rule(_text, lambda: Message("a text of at most 500 characters")),
}
