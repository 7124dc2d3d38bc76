"""Many campaigns, one seed after the other, and the table of them.

python tests/faults/nightly.py --runs 100 --seconds 60 --out build/nightly

Each run is a process of its own. After each one its line is in OUT.jsonl, and the tables in OUT.md are made anew, so
that a night that was cut short is not lost. A seed that is in OUT.jsonl with the same seconds is not run again. The
files of a run that found something are kept.
"""

# ruff: noqa: T201  (a command prints)

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

__all__ = ["summary", "table"]

_CAMPAIGN = Path(__file__).with_name("campaign.py")
#: Seconds that a run may take beyond those with faults.
_BEYOND = 900.0
_LOST = "answered without a guarantee"


#: Columns of the two tables.
_OF_A_RUN = (
    *("seed", "servers", "messages", "faults that hit", "kinds", "bytes of the file lost", "lost where allowed"),
    *("the oldest of these, s", "handled again", "all handled after, s", "wrong"),
)
_OF_ALL = (
    *("servers", "runs", "messages", "faults that hit", "lost or doubled where it must not be", "lost where allowed"),
    *("the oldest of these, s", "handled again", "runs with anything wrong"),
)


def _head(columns):
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]


def lost(row):
    """Messages that were answered without a guarantee and are gone, as they may be."""
    return sum(number for what, number in row["allowed_by_kind"].items() if what.startswith(_LOST))


def _age(row):
    return ", ".join(f"{age:.2f} ({why.removeprefix('lost ')})" for why, age in sorted(row["oldest"].items()))


def _most(ages):
    """The most of each."""
    out = {}
    for why, age in (pair for each in ages for pair in each.items()):
        out[why] = max(age, out.get(why, 0.0))
    return out


def table(rows):
    """Each run: a table in Markdown."""
    lines = _head(_OF_A_RUN)
    for row in sorted(rows, key=lambda row: row["seed"]):
        wrong = "; ".join(row["wrong"]).replace("|", "/") or "0"
        cells = [
            row["seed"], row["servers"], f"{row['messages']:,}", row["hit"], len(row["faults"]), f"{row['bytes']:,}",
            lost(row), _age(row), row["allowed_by_kind"].get("handled again", 0), row["healed"], wrong,
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(rows):
    """All runs: a table in Markdown by kind of servers, and one by kind of fault."""
    lines = _head(_OF_ALL)
    kinds = sorted({(row["topology"], row["appendfsync"]) for row in rows})
    for kind in [*kinds, None]:
        of = [row for row in rows if kind in {None, (row["topology"], row["appendfsync"])}]
        harmed = sum("LOST" in each or "more than once" in each for row in of for each in row["wrong"])
        cells = [
            "all" if kind is None else ", `appendfsync ".join(kind) + "`",
            len(of),
            f"{sum(row['messages'] for row in of):,}",
            f"{sum(row['hit'] for row in of):,}",
            harmed,
            f"{sum(map(lost, of)):,}",
            _age({"oldest": _most([row["oldest"] for row in of])}),
            f"{sum(row['allowed_by_kind'].get('handled again', 0) for row in of):,}",
            sum(bool(row["wrong"]) for row in of),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    faults = Counter()
    for row in rows:
        faults.update(row["faults"])
    return "\n".join(
        [
            *lines,
            "",
            "| fault | hit |",
            "|---|---|",
            *(f"| {name} | {number:,} |" for name, number in faults.most_common()),
        ]
    )


def _run(seed, seconds):
    """Run one seed; gives its line, also where it ended without one."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    options = ("--seed", str(seed), "--seconds", str(seconds), "--json", "--keep", str(folder / "run"))
    with subprocess.Popen(
        [sys.executable, str(_CAMPAIGN), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as campaign:
        try:
            said, complaints = campaign.communicate(timeout=seconds + _BEYOND)
            row = json.loads(said)
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            why = (
                repr(error) if isinstance(error, subprocess.TimeoutExpired) else complaints.strip().rpartition("\n")[2]
            )
            row = {
                "seed": seed, "servers": "?", "topology": "?", "appendfsync": "?", "messages": 0, "hit": 0,
                "in_vain": 0, "bytes": 0, "healed": 0, "allowed": "", "oldest": {}, "faults": {},
                "allowed_by_kind": {}, "wrong": [f"the run itself failed: {why}"],
            }  # fmt: skip
        finally:
            # Told to end, it ends what it started.
            campaign.terminate()
    if row["wrong"]:
        print(f"kept in {folder}")
    else:
        shutil.rmtree(folder)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=100, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--out", type=Path, default=Path("build/nightly"), help="files to write, without their ends")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kept, page = options.out.with_suffix(".jsonl"), options.out.with_suffix(".md")
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for seed in range(options.first, options.first + options.runs):
        if any(row["seed"] == seed and row["seconds"] == options.seconds for row in rows):
            continue
        row = {**_run(seed, options.seconds), "seconds": options.seconds}
        rows = [each for each in rows if each["seed"] != seed] + [row]
        kept.write_text("".join(json.dumps(each) + "\n" for each in rows))
        page.write_text(f"{summary(rows)}\n\n{table(rows)}\n")
        print(
            f"seed {seed}, {row['servers']}: {row['hit']} faults, {row['messages']:,} messages, "
            f"{row['wrong'] or 'well'}"
        )
        sys.stdout.flush()
    print(f"\n{summary(rows)}\n\n{table(rows)}\n\nwritten to {page} and {kept}")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
