#!/usr/bin/env python3
"""Times all PyTorch peers, each in processes of its own, and writes the raw samples of every rank into one CSV file.

usage: run_all.py --out FILE.csv [--seconds N]

A peer that fails prints its traceback and the others go on. Exits 0 when all peers that the machine has cards for gave samples, 1 when one
failed or nothing was measured. Needs PyTorch 2.11 with CUDA; takes less than two minutes on two H200.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import measure

SCRIPTS = ("kernel_alone.py", "context_parallel.py", "ulysses.py")
# Times that a peer may take what it was given, start-up and checks included.
PATIENCE = 4.0
START_UP_SECONDS = 60.0


def run(script, out, seconds, limit):
    """Runs a script and returns its exit status, or None where it had to be stopped."""
    command = [sys.executable, str(script), "--out", str(out), "--seconds", str(seconds)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Its ranks too; nothing is left where all have ended.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def run_all(scripts, out, seconds):
    """Runs scripts one after another and joins what they measured; returns how many failed and how many gave samples."""
    rows, failed, good = [], 0, 0
    # A script times two cases; context_parallel.py times them for two rotations.
    share = seconds / (2 * (len(scripts) + 1))
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts:
            began = time.monotonic()
            part = pathlib.Path(folder) / f"{script.stem}.csv"
            status = run(script, part, share, START_UP_SECONDS + PATIENCE * seconds)
            took = f"after {time.monotonic() - began:.0f} s"
            if status == measure.TOO_FEW_CARDS:
                print(f"{script.name}: skipped, too few cards", file=sys.stderr)
            elif status != 0:
                failed += 1
                why = "it did not end" if status is None else f"exit status {status}"
                print(f"{script.name}: failed {took}, {why}", file=sys.stderr)
            else:
                good += 1
                rows.extend(measure.read(part))
                print(f"{script.name}: done {took}", file=sys.stderr)
    if rows:
        measure.write(out, rows)
    return failed, good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE.csv", help="file of raw samples")
    parser.add_argument("--seconds", type=float, default=60.0, help="time to spend on timed passes (default 60)")
    options = parser.parse_args()
    folder = pathlib.Path(__file__).resolve().parent
    failed, good = run_all([folder / name for name in SCRIPTS], options.out, options.seconds)
    return 1 if failed or not good else 0


if __name__ == "__main__":
    sys.exit(main())
