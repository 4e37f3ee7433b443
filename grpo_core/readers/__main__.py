"""Read a log: python -m grpo_core.readers PATH prints one JSON object a line.

Each has a "kind": first "run", then its "problem"s, "metrics", "group"s and "finding"s.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from typing import Any

from grpo_core.diagnosis import Finding
from grpo_core.live.groups import to_json
from grpo_core.readers import Run, RunFormatError, open_run


def main(arguments: list[str] | None = None) -> int:
    """Print a log; exit status 0, or 2 when it cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m grpo_core.readers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("path", help="a run that was saved: a zip file or a folder")
    parser.add_argument("--no-groups", action="store_true", help="leave the groups out")
    options = parser.parse_args(arguments)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        for line in describe(open_run(options.path), groups=not options.no_groups):
            print(to_json(line))
    except RunFormatError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


def describe(run: Run, *, groups: bool = True) -> Iterator[dict[str, Any]]:
    """Give all that was read as plain data."""
    head = {"format": run.format, "name": run.name, "settings": dict(run.settings)}
    yield {"kind": "run", **head, "lines": len(run.rows), "group_steps": len(run.steps), "problems": len(run.problems)}
    for problem in run.problems:
        yield {"kind": "problem", "where": problem.where, "line": problem.line, "what": problem.what}
    for row in run.metrics():
        yield {"kind": "metrics", **row}
    for group in run.groups() if groups else ():
        yield {"kind": "group", **group.to_json()}
    for finding in run.findings():
        yield {"kind": "finding", **_plain(finding)}


def _plain(finding: Finding) -> dict[str, Any]:
    evidence = {
        role: {"metric": reading.metric, "first": reading.first, "last": reading.last, "value": reading.value}
        for role, reading in finding.evidence.items()
    }
    data = {"rule": finding.rule, "status": finding.status, "name": finding.name, "severity": finding.severity}
    return {**data, "metric": finding.metric, "evidence": evidence, "missing": list(finding.missing)}


if __name__ == "__main__":
    sys.exit(main())
