"""Train without a browser: python -m grpo_core.live --steps 30 --seed 0 prints one JSON object an event.

With --store FOLDER the run is kept in a run store too, where the Live page shows it; --resume RUN_ID lets one of its
runs go on from its last checkpoint.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, NoReturn

from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig, accepted
from grpo_core.live.groups import light_group, to_json

GROUPS = ("text", "full", "none")


class _Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        if message.startswith("unrecognized arguments"):
            options = [name for action in self._actions for name in action.option_strings]
            message += "; accepted are " + ", ".join(options)
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Train as the options say; exit status 0, 1 for a failed run, 2 for a wrong option, 130 when interrupted."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    groups, store, resume = (options.pop(name) for name in ("groups", "store", "resume"))
    if resume is not None and store is None:
        parser.error("--resume needs the run store that holds the run: give --store FOLDER")
    try:
        config = _config(options) if resume is None else None
        given = {} if resume is None else _given(options)
    except ValueError as error:
        name, _, rest = str(error).partition("=")
        parser.error(f"--{name.replace('_', '-')}={rest}")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the training without a complaint
    if store is not None:
        return _train_in_store(parser, store, config, resume, given, groups)
    assert config is not None
    return _print_events(parser, config, groups)


def _train_in_store(
    parser: _Parser, where: str, config: RunConfig | None, resume: str | None, changes: dict[str, Any], groups: str
) -> int:
    """Train a new run of a store, or let one of its runs go on, in this process."""
    from grpo_core.live import worker
    from grpo_core.live.runner import reopen_run
    from grpo_core.live.store import RunStore, RunStoreError

    try:
        store = RunStore(where)
        run_id = store.create_run(config, exclusive=True) if config else reopen_run(str(resume), store, changes)
    except (ValueError, RunStoreError) as error:
        parser.error(str(error))
    status = worker.work(run_id, store, lambda event: print(to_json(_shown(event, groups)), flush=True))
    return 130 if worker.LEAVING.is_set() else status


def _print_events(parser: _Parser, config: RunConfig, groups: str) -> int:
    from grpo_core.live.trainer import train

    interrupt = _Interrupt()
    state = ""
    try:
        for event in train(config, interrupt):
            print(to_json(_shown(event, groups)), flush=True)
            state = event.get("state", "")
    except ValueError as error:
        parser.error(str(error))
    return 130 if interrupt.happened else int(state == "failed")


class _Interrupt:
    """Ctrl-C as a stop command, so that the last line is still the end event; a second one ends at once."""

    def __init__(self) -> None:
        self.happened = self._told = False
        signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: Any) -> None:
        self.happened = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __call__(self) -> Iterator[Command]:
        """Give the stop command once."""
        if self.happened and not self._told:
            self._told = True
            yield Command("stop")


def _shown(event: dict[str, Any], groups: str) -> dict[str, Any]:
    """Give an event with as much of its groups as was asked for."""
    if groups == "full" or "groups" not in event:
        return event
    if groups == "none":
        return {name: value for name, value in event.items() if name != "groups"}
    return {**event, "groups": [light_group(group) for group in event["groups"]]}


def _config(options: dict[str, str | None]) -> RunConfig:
    """Read the settings that were given; a recipe brings its own beta and clip range."""
    given = {"pace": None, **_given(options)}
    if "recipe" in given:
        return RunConfig.for_recipe(given.pop("recipe"), **given)
    return RunConfig(**given)


def _given(options: dict[str, str | None]) -> dict[str, Any]:
    """Give the settings that were given, words as what they mean."""
    given: dict[str, Any] = {name: text for name, text in options.items() if text is not None}
    words: dict[str, dict[str | None, Any]] = {"probe": {"true": True, "false": False}, "pace": {"none": None}}
    return {name: words.get(name, {}).get(text, text) for name, text in given.items()}


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m grpo_core.live",
        description="Train a small language model with GRPO and print one JSON object an event, one a line.",
        allow_abbrev=False,
    )
    for field in fields(RunConfig):
        default = "none" if field.name == "pace" else field.default
        assert field.default is not MISSING
        text = f"{accepted(field.name)} (default: {default})".replace("%", "%%")
        parser.add_argument("--" + field.name.replace("_", "-"), metavar="X", help=text)
    parser.add_argument(
        "--groups", choices=GROUPS, default="text", help="groups with texts, with every token, or none (default: text)"
    )
    parser.add_argument("--store", metavar="FOLDER", help="also keep the run in this run store (a folder or a URL)")
    parser.add_argument(
        "--resume", metavar="RUN_ID", help="go on with a run of the store; settings given beside it differ from here on"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
