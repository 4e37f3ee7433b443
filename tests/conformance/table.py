"""Print how far our losses are from the trainers' own: `python -m tests.conformance.table`."""

from __future__ import annotations

import collections

from tests.conformance.trl_cases import cases, differences


def trl_rows() -> list[tuple[str, int, float, float, float, float]]:
    """Return (loss type, settings compared, value and gradient difference in float64, and as TRL runs)."""
    by_type: dict[str, list[tuple[float, ...]]] = collections.defaultdict(list)
    for case in cases():
        as_shipped = differences(case, precision="float32", seeds=2)
        by_type[case.loss_type].append((*differences(case), *as_shipped))
    return [(name, len(rows), *(max(column) for column in zip(*rows, strict=True))) for name, rows in by_type.items()]


def main() -> None:
    """Print the table."""
    print("TRL 1.16.0, largest relative difference        float64 throughout        as TRL runs")
    print(f"{'loss type':<12}{'settings':>10}{'value':>22}{'gradient':>12}{'value':>14}{'gradient':>12}")
    for name, count, value, gradient, shipped_value, shipped_gradient in trl_rows():
        print(f"{name:<12}{count:>10}{value:>22.1e}{gradient:>12.1e}{shipped_value:>14.1e}{shipped_gradient:>12.1e}")


if __name__ == "__main__":
    main()
