"""What this machine has and does, without torch: free memory, the GPU that a run would take, how fast it computes."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from grpo_core.live.estimates import GPUS, Speed


@dataclass(frozen=True)
class Machine:
    """A device: "cpu" or "cuda", its name, bytes of memory in all and free (None: unknown), and its speed if known."""

    kind: str
    name: str
    memory: int | None
    free: int | None
    speed: Speed | None


def this_machine(wish: str = "auto") -> Machine:
    """The device that a run would take: the first CUDA GPU where there is one and the CPU is not asked for."""
    gpu = None if wish in ("cpu", "mps") else _gpu(int(time.monotonic() // 10))
    if gpu is not None:
        return gpu
    total, free = host_memory()
    return Machine("cpu", "", total, free, cpu_speed())


@lru_cache(maxsize=1)
def _gpu(_: int) -> Machine | None:
    """Ask the driver's own tool, at most every ten seconds."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    fields = "--query-gpu=name,memory.total,memory.free"
    try:
        found = subprocess.run(
            [tool, fields, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
        name, total, free = (part.strip() for part in found.splitlines()[0].rsplit(",", 2))
        memory, room = (int(float(part) * 2**20) for part in (total, free))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    speed = next((speed for part, speed in GPUS.items() if part in name), None)
    return Machine("cuda", name, memory, room, speed)


def host_memory() -> tuple[int | None, int | None]:
    """Bytes of the machine's memory in all and free, where the system says so in Linux's way."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return found["MemTotal"], found["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return None, None


@lru_cache(maxsize=1)
def cpu_speed() -> Speed:
    """Measure one core for some milliseconds, and take the cores that a run takes (model.use_threads).

    The matrices are so small that NumPy's library uses one thread and each product stays in the cache.
    """
    a = np.ones((48, 48), dtype=np.float32)
    b = np.ones(4_000_000, dtype=np.float32)
    product = min(_timed(lambda: [a @ a for _ in range(100)]) for _ in range(8)) / 100
    copy = min(_timed(b.copy) for _ in range(4))
    cores = max(1, (os.cpu_count() or 2) - 1)
    return Speed(operations=cores * 2 * 48**3 / product, bandwidth=2 * b.nbytes / copy, overhead=1e-5)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
