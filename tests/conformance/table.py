"""Print how far our losses are from the trainers' own: `python -m tests.conformance.table`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.conformance import recorded_cases as recorded
from tests.conformance.trl_cases import cases, differences

Row = tuple[float, ...]


def _largest(rows: Iterable[tuple[str, Row]]) -> dict[str, tuple[int, Row]]:
    """Return name -> (number of rows, the largest of each column)."""
    grouped: dict[str, list[Row]] = collections.defaultdict(list)
    for name, row in rows:
        grouped[name].append(row)
    return {name: (len(group), tuple(map(max, zip(*group, strict=True)))) for name, group in grouped.items()}


def trl_rows() -> dict[str, tuple[int, Row]]:
    """Return loss type -> (settings compared, (value, gradient) in float64 throughout and as TRL runs)."""
    shipped = {"precision": "float32", "seeds": 2}
    return _largest((case.loss_type, (*differences(case), *differences(case, **shipped))) for case in cases())


def recorded_rows(
    package: Mapping[str, Any], name_of: Callable[[Mapping[str, Any]], str]
) -> dict[str, tuple[int, Row]]:
    """Return loss -> (settings compared, (value, gradient)) of a recorded trainer, its KL terms and advantages too."""
    losses = ((name_of(r), recorded.loss_differences(package, r)) for r in package["losses"])
    kl = ((f"KL {r['kind']}", recorded.kl_differences(package, r)) for r in package["kl"])
    advantages = (
        (f"advantages {r['estimator']}", (recorded.advantage_difference(package, r),)) for r in package["advantages"]
    )
    return {**_largest(losses), **_largest(kl), **_largest(advantages)}


def show(title: str, columns: tuple[str, ...], rows: Mapping[str, tuple[int, Row]]) -> None:
    """Print one table."""
    print(f"\n{title}")
    print(f"{'':<42}{'settings':>9}" + "".join(f"{name:>12}" for name in columns))
    for name, (count, numbers) in rows.items():
        print(f"{name:<42}{count:>9}" + "".join(f"{number:>12.1e}" for number in numbers))


def main() -> None:
    """Print the tables."""
    print("Largest difference of value and gradient, relative to TRL's, verl's and OpenRLHF's own.")
    columns = ("value", "gradient")
    show("TRL 1.16.0: float64 throughout | as it runs", columns * 2, trl_rows())
    show("verl 0.9.1, recorded", columns, recorded_rows(recorded.VERL, lambda r: r["mode"]))
    kind = "policy_loss_type"
    show(
        "OpenRLHF 0.11.2, recorded",
        columns,
        recorded_rows(recorded.OPENRLHF, lambda r: str(r["options"].get(kind, "ppo"))),
    )


if __name__ == "__main__":
    main()
