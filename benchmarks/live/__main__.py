"""python -m benchmarks.live: our step and TRL's on the same work, alternately in one run, and seconds to 90 %.

Everything is measured in this process with the same number of threads. TRL's step is timed from its on_step_begin
to its on_step_end callback: sampling, rewards, loss, backward and optimizer, without data loading and logging. Beside
it stands what the arithmetic alone needs (arithmetic.py).
"""

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from benchmarks.live import accuracy, decode, side_by_side

PARTS = ("trl", "decode", "accuracy")
MODELS = ("shell_game", "shell_game_wide", "llama")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=PARTS, help="one part instead of all three")
    parser.add_argument(
        "--model", choices=MODELS, default=MODELS[0],
        help="of the trl part: 0.1 M or 0.4 M parameters, or a Llama of 3 M with random weights (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=60, help="steps of each trainer (default 60)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch (default 1, as a live run has)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the accuracy part (default 3)")
    options = parser.parse_args()
    parts = [options.only] if options.only else list(PARTS)
    if "trl" in parts:
        for beta in (0.0, 0.04):
            side_by_side.report(beta=beta, steps=options.steps, threads=options.threads, model=options.model)
    if "decode" in parts:
        decode.report(threads=options.threads)
    if "accuracy" in parts:
        accuracy.report(seeds=options.seeds)


if __name__ == "__main__":
    main()
