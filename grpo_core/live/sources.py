"""Where a model comes from: a built-in one, a folder on this machine, or a hub id. Loads no torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from grpo_core.messages import InputError, Message

ASSETS = Path(__file__).parent / "assets"
BUILT_IN: Mapping[str, int] = MappingProxyType(
    {"shell_game": 109_696, "shell_game_wide": 416_000, "shell_game_unskilled": 109_696}
)
"""The models that come with the program, each a folder under assets/, and how many parameters they have."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_GGUF = "?gguf="


@dataclass(frozen=True)
class Source:
    """One model: the name it was asked for by, and its folder, or its hub id; gguf: a file in there with weights."""

    name: str
    folder: Path | None
    hub: str = ""
    gguf: str = ""

    @property
    def built_in(self) -> bool:
        """Whether it comes with the program."""
        return self.name in BUILT_IN

    @property
    def place(self) -> str:
        """The folder or hub id as transformers takes it."""
        return str(self.folder) if self.folder is not None else self.hub


def find_source(name: str) -> Source:
    """Say where a model is: the name of a built-in one, a folder with config.json, a GGUF file, or a hub id.

    "folder?gguf=file" names a GGUF file in a folder or hub repository. ValueError where there is nothing of the kind.
    """
    if name in BUILT_IN:
        return Source(name, ASSETS / name)
    place, _, gguf = name.strip().partition(_GGUF)
    path = Path(place).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        path, gguf = path.parent, path.name
    if place and path.is_dir():
        wanted = path / (gguf or "config.json")
        if wanted.is_file() and wanted.resolve().is_relative_to(path.resolve()):
            return Source(name, path, "", gguf)
        raise InputError(
            "the model folder {path} has no {file}: {accepted}", path=path, file=wanted.name, accepted=_ACCEPTED
        )
    if _HUB_ID.fullmatch(place) and not place.endswith((".json", ".jsonl", ".py", ".safetensors", ".bin")):
        return Source(name, None, place, gguf)
    raise InputError("there is no model at {name!r}: {accepted}", name=name, accepted=_ACCEPTED)


_ACCEPTED = Message(
    "give a built-in one ({names}; python -m grpo_core.live.warm_start makes others), a folder that transformers has "
    "saved (config.json, model.safetensors, tokenizer.json), a .gguf file, or a hub id like org/name",
    names=", ".join(BUILT_IN),
)
