#!/usr/bin/env python3
"""Computes figures again from their stored samples, by the definitions alone, and compares them with summary.json.

usage: recompute.py DIR     (DIR as `skewbench reproduce --out DIR` left it)

Needs pyarrow. Recomputed are, of fig13, the straggler latencies of all systems and their time per token, of fig11, the scaling of Ulysses and Libra at DP = 16
with fitted linear work, and of table1, R - 1 at P = 8. Exits 0 when every value agrees to 1e-9, 1 with one line for each that does not, 2 when
there is nothing to compare.

Definitions. The latency of a wave is that of its slowest data-parallel rank, forward and backward with transfers. straggler_mean is its mean over
the waves of a step, straggler_max its maximum, each then averaged over steps; time_per_token is the sum over all waves, those of steps that only
drain a placement's queue included, over all tokens. Every micro-batch also takes linear work in proportion to
its tokens per rank, and ranks wait for each other at every micro-batch; scaling is the time of the same steps on one data-parallel rank of
Ulysses over the system's own. The linear time of a token is the one that gives Ulysses the published scaling on the
fitted point, transfers left out.
"""

import json
import math
import pathlib
import sys

import pyarrow.parquet as parquet

TOLERANCE = 1e-9
PS_PER_MS = 1e9
PS_PER_NS = 1e3
# The published point that the linear work is fitted on: Ulysses, 256K, CP = 8, DP = 16 over DP = 1.
FITTED = {"dataset": "paper-256k", "system": "ulysses", "cp": 8, "dp": 16, "scaling": 7.63}
SYSTEMS = ("ulysses", "libra")


def load(run, kind, columns):
    """Rows of a table by cell, as tuples of the columns, with the coordinates of every cell."""
    cells = {cell["cell"]: cell["coordinates"] for cell in json.loads((run / "cells.json").read_text())}
    table = parquet.read_table(run / f"{kind}.parquet", columns=["cell", *columns])
    rows = {}
    for cell, *values in zip(*(table.column(name).to_pylist() for name in ["cell", *columns])):
        rows.setdefault(cell, []).append(tuple(values))
    return [(cells[cell], content) for cell, content in rows.items()]


def steps_of(rows, value):
    """The slowest rank of every wave, by step: a list of lists. `rows` start with step and wave."""
    waves = {}
    for row in rows:
        key = row[0], row[1]
        waves[key] = max(waves.get(key, 0), value(row))
    steps = {}
    for (step, _), latency in sorted(waves.items()):
        steps.setdefault(step, []).append(latency)
    return [steps[step] for step in sorted(steps)]


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def latencies(run):
    """straggler_mean and straggler_max in milliseconds and time_per_token in nanoseconds, of every cell."""
    # Steps that only drain a placement's queue, and those in which it fills: the longest delay, at most half of the steps.
    counts = []
    for _, rows in load(run, "steps", ["step", "drain", "late_steps_max"]):
        regular = sum(not drain for _, drain, _ in rows)
        counts.append((regular, min(max(late for _, _, late in rows), regular // 2)))
    cells = []
    for (at, rows), (regular, warm_up) in zip(load(run, "samples", ["step", "wave", "forward_ps", "backward_ps", "tokens"]), counts):
        everything = steps_of(rows, lambda row: row[2] + row[3])
        steps = everything[warm_up:regular]
        tokens = sum(row[4] for row in rows)
        cells.append((at, steps, math.fsum(wave for step in everything for wave in step) / tokens))
    for at, steps, per_token in cells:
        where = {"dataset": at["dataset"], "system": at["system"], "dp": at["dp"], "cp": at["cp"], "p": at["p"], "pass": "both"}
        yield {**where, "metric": "straggler_mean"}, mean(mean(step) for step in steps) / PS_PER_MS
        yield {**where, "metric": "straggler_max"}, mean(max(step) for step in steps) / PS_PER_MS
        yield {**where, "metric": "time_per_token"}, per_token / PS_PER_NS


def scalings(run):
    """Scaling at DP = 16 over one data-parallel rank of Ulysses, with fitted linear work."""
    columns = ["step", "wave", "forward_ps", "backward_ps", "forward_compute_ps", "backward_compute_ps"]
    samples = load(run, "samples", columns)

    def cell(dataset, system, cp, dp):
        return next(((at, rows) for at, rows in samples
                     if (at["dataset"], at["system"], at["cp"], at["dp"]) == (dataset, system, cp, dp)), None)

    def charged(row):
        return row[2] + row[3]

    def left_out(row):
        return row[4] + row[5]

    # (A1 + n1 L) / (A16 + n16 L) = scaling, solved for the linear time L of a micro-batch.
    at, rows = cell(FITTED["dataset"], FITTED["system"], FITTED["cp"], FITTED["dp"])
    many = steps_of(rows, left_out)
    one = steps_of(cell(FITTED["dataset"], FITTED["system"], FITTED["cp"], 1)[1], left_out)
    attention = [math.fsum(wave for step in steps for wave in step) for steps in (one, many)]
    waves = [sum(len(step) for step in steps) for steps in (one, many)]
    target = FITTED["scaling"]
    linear = (target * attention[1] - attention[0]) / (waves[0] - target * waves[1])
    per_token = linear * FITTED["cp"] / at["window_tokens"]

    for at, rows in samples:
        if at["dp"] != 16 or at["system"] not in SYSTEMS:
            continue
        base = cell(at["dataset"], "ulysses", at["cp"], 1)
        if base is None:
            continue
        work = per_token * at["window_tokens"] / at["cp"]
        for transfers, value in (("charged", charged), ("left_out", left_out)):
            ours, theirs = steps_of(rows, value), steps_of(base[1], value)
            n = min(len(ours), len(theirs))
            time = [math.fsum(wave + work for step in steps[:n] for wave in step) for steps in (ours, theirs)]
            where = {"dataset": at["dataset"], "system": at["system"], "dp": 16, "cp": at["cp"], "p": at["p"]}
            yield {**where, "metric": "scaling", "linear": "fitted", "base": "shared", "transfers": transfers}, time[1] / time[0]


def imbalances(run):
    """R - 1 at P = 8: mean over steps of every grouping."""
    for at, rows in load(run, "balance", ["pool", "grouping", "r_minus_1"]):
        by_grouping = {}
        for pool, grouping, r_minus_1 in rows:
            if pool == 8:
                by_grouping.setdefault(grouping, []).append(r_minus_1)
        for grouping, values in by_grouping.items():
            yield {"dataset": at["dataset"], "system": grouping, "metric": "r_minus_1", "p": 8}, mean(values)


def summary_value(summary, figure, where):
    """The one row of a figure at these coordinates."""
    rows = [row for row in summary if row["figure"] == figure
            and all({**row["at"], **row}.get(key) == value for key, value in where.items())]
    return rows[0]["value"] if len(rows) == 1 else None


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    study = pathlib.Path(sys.argv[1])
    summary = json.loads((study / "summary.json").read_text())
    # Each figure with how many values it must at least give: two datasets, each with two metrics, or two ways to charge transfers.
    jobs = (("fig13", latencies, 2 * 2 * 2), ("fig11", scalings, 2 * 2 * len(SYSTEMS)), ("table1", imbalances, 2 * 2))
    agreed, differing = 0, []
    for figure, recompute, least in jobs:
        run = study / "run" / f"paper-{figure}"
        if not run.is_dir():
            continue
        compared = 0
        for where, value in recompute(run):
            stored = summary_value(summary, figure, where)
            if stored is None:
                # The run also holds cells that the figure does not show.
                continue
            compared += 1
            if math.isclose(value, stored, rel_tol=TOLERANCE):
                agreed += 1
            else:
                differing.append(f"{figure} {where}: recomputed {value!r}, summary.json has {stored!r}")
        if compared < least:
            differing.append(f"{figure}: only {compared} values could be compared, {least} were expected")
    for line in differing:
        print(line, file=sys.stderr)
    if differing:
        return 1
    if agreed == 0:
        print(f"{study}: no figure that this script recomputes", file=sys.stderr)
        return 2
    print(f"{agreed} values recomputed from samples agree with summary.json to {TOLERANCE:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
