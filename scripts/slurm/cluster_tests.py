#!/usr/bin/env python3
"""Tests on a real Slurm cluster of four nodes; scripts/slurm/test-cluster.sh starts it and runs this.

    scripts/slurm/test-cluster.sh scripts/slurm/cluster_tests.py --program target/release/skewbench [--mpi PROGRAM] [--mpi-check PROGRAM] [--faults FILE] [--only TEST]... [--scale TASKSxCELLS]

Ends with a line `N passed, N failed, N skipped`. With --faults, writes the table of faults of docs/FAULTS.md from what was seen.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from cluster import base, launchers, messages, scripts, sweeps

TESTS = [
    sweeps.one_process,
    sweeps.four_nodes,
    sweeps.several_a_node,
    scripts.sweep,
    scripts.many,
    scripts.reproduce,
    sweeps.rank_killed,
    sweeps.cancelled,
    sweeps.told_to_stop,
    sweeps.requeued,
    sweeps.stalled,
    sweeps.clocks,
    sweeps.full_folder,
    sweeps.torn,
    sweeps.slow_folder,
    sweeps.deadly_cell,
    scripts.without_cards,
    scripts.throttled,
    launchers.mpirun,
    launchers.torch_variables,
    launchers.two_of_one_rank,
    launchers.bad_variables,
    messages.without_mpi,
    messages.mpi_same,
    messages.mpi_starts,
    messages.mpi_names,
    messages.mpi_rank_killed,
    messages.mpi_rank_hangs,
    sweeps.node_gone,
]


def faults_text():
    """docs/FAULTS.md."""
    cell = lambda text: text.replace("|", "\\|")
    rows = "\n".join(f"| {cell(a)} | {cell(b)} | {cell(c)} |" for a, b, c in base.faults)
    return f"""# Faults

What happens when something goes wrong on a cluster. Every row is what a test saw on a Slurm cluster of four nodes on one host; `scripts/slurm/cluster_tests.py --faults docs/FAULTS.md` writes this page, and fails where the page that is here says something else. J, S, R, P, C, N and T stand for numbers of jobs, steps, ranks, processes, cells, counts and times, HOST and NODE for names of hosts.

| fault | what the user sees | what survives |
|---|---|---|
{rows}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpi", help="program over MPI")
    parser.add_argument("--mpi-check", help="example mpi_check")
    parser.add_argument("--faults", type=Path, help="page of faults to write")
    parser.add_argument("--scale", default="12x160", metavar="TASKSxCELLS", help="job array of many cells [%(default)s]")
    parser.add_argument("--only", action="append", default=[], metavar="TEST")
    args = parser.parse_args()
    passed, failed, skipped = [], [], []
    args.program = str(Path(args.program).resolve())
    args.faults = args.faults and args.faults.resolve()
    args.mpi = args.mpi and str(Path(args.mpi).resolve())
    args.mpi_check = args.mpi_check and str(Path(args.mpi_check).resolve())
    with tempfile.TemporaryDirectory(prefix="skewbench-tests-") as folder:
        test = base.Test(args, Path(folder))
        test.alone = test.work / "alone"
        os.chdir(folder)
        for one in TESTS:
            if args.only and one.__name__ not in args.only and one is not sweeps.one_process:
                continue
            began = time.time()
            try:
                reason = one(test)
            except Exception as error:  # every failure is a failed test, and the next one runs
                failed.append(one.__name__)
                print(f"FAILED {one.__name__}: {type(error).__name__}: {str(error)[-3000:]}", flush=True)
            else:
                if reason:
                    skipped.append(one.__name__)
                    print(f"SKIPPED {one.__name__}: {reason}", flush=True)
                else:
                    passed.append(one.__name__)
                    print(f"ok {one.__name__} in {time.time() - began:.1f} s", flush=True)
    if args.faults and not failed and not skipped:
        before = args.faults.read_text() if args.faults.exists() else None
        args.faults.write_text(faults_text())
        if before is not None and before != faults_text():
            failed.append("faults")
            print(f"FAILED faults: {args.faults} said something else; it is rewritten", flush=True)
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
