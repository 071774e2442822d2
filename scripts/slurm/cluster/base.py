"""What tests on a cluster share: a clean environment, jobs, and what a folder of results must hold."""

import json
import os
import re
import socket
import stat
import subprocess
import time
from pathlib import Path

EXPERIMENT = Path(__file__).resolve().parent / "systems.toml"
PLANTED = "planted-secret-4711"
# Files that may differ between identical runs: what happened when and for how long, and what a report says of that.
OWN = {"timings.json", "manifest.json", "events.jsonl", ".lock"}
OWN |= {"planning.html", "planning-time.csv", "planning-time.parquet", "planning-time-table.tex"}
# How a page says, in the command of a run, that it is shared.
SHARING = re.compile(rb" --(share|lost-after \d+)\b")

# Rows of docs/FAULTS.md: what happens, what the user sees, what survives.
faults = []


def clean_environment():
    """The environment without a launcher's variables, with planted secrets."""
    env = {k: v for k, v in os.environ.items() if k in {"PATH", "HOME", "SLURM_CONF", "LANG", "LD_LIBRARY_PATH"}}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for name in ["HF_TOKEN", "NCCL_SECRET_KEY", "SLURM_JWT_TOKEN", "SKEWBENCH_PASSWORD"]:
        env[name] = PLANTED
    return env


class Test:
    def __init__(self, args, work):
        self.program, self.mpi, self.work, self.env = args.program, args.mpi, work, clean_environment()
        self.check = args.mpi_check
        self.scale = tuple(map(int, args.scale.split("x")))

    def command(self, out, *more, lost_after=20):
        fixed = ["--quick", "--threads", "1", "--lost-after", str(lost_after), "--out", str(out)]
        return [self.program, "run", str(EXPERIMENT), *fixed, *more]

    def run(self, command, limit=300, env=None, **more):
        return subprocess.run(
            command, env=env or self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit, **more
        )

    def start(self, command, env=None):
        return subprocess.Popen(
            command, env=env or self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def submit(self, script, *options):
        """Submits a batch script and returns the job's number."""
        path = self.work / f"job-{time.time_ns()}.sh"
        path.write_text("#!/bin/bash\n" + script)
        done = self.run(["sbatch", "--parsable", f"--output={path}.%a.out", *options, str(path)])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split(";")[0], path

    def script(self, name, options, *arguments, limit=240):
        """Submits a script that ships, as a user does; the states of its tasks and what they printed."""
        fill = ["--program", self.program, "--cpus-per-task", "1", *options]
        done = self.run([self.program, "slurm", "submit", *fill, name, *map(str, arguments)])
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        states = self.ended(job, limit)
        return states, "".join(path.read_text() for path in sorted(Path.cwd().glob(f"skewbench-{job}*.out")))

    def ended(self, job, limit=240):
        """Waits for a job and returns the states of its tasks."""
        until = time.time() + limit
        while time.time() < until:
            text = self.run(["squeue", "--noheader", "--states=all", "--array", f"--jobs={job}", "--format=%T"]).stdout.split()
            if text and not set(text) & {"RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"}:
                return text
            time.sleep(0.3)
        raise AssertionError(f"job {job} has not ended within {limit} s")


def runs(out, study=EXPERIMENT.stem):
    return out / "run" / study


def cells(out):
    return sum(1 for _ in (runs(out) / "cells").glob("*.cell")) if (runs(out) / "cells").is_dir() else 0


def await_cells(out, count, limit=120):
    until = time.time() + limit
    while cells(out) < count:
        assert time.time() < until, f"{cells(out)} of {count} cells after {limit} s"
        assert not (out / "summary.json").exists(), "the run was over before it could be disturbed"
        time.sleep(0.02)


def shared(folder):
    """Bytes of all files that identical runs share; pages without how processes were told to share cells."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in OWN)
    return {str(p.relative_to(folder)): SHARING.sub(b"", p.read_bytes()) for p in files}


def manifest(out, study=EXPERIMENT.stem):
    return json.loads((runs(out, study) / "manifest.json").read_text())


def events(out, study=EXPERIMENT.stem):
    return [json.loads(line) for line in (runs(out, study) / "events.jsonl").read_text().splitlines()]


def alike(ours, alone):
    """Two folders of results, with their reports, have the same bytes."""
    ours, alone = shared(ours), shared(alone)
    assert ours.keys() == alone.keys(), ours.keys() ^ alone.keys()
    differ = [name for name in ours if ours[name] != alone[name]]
    assert not differ, f"{differ} differ"
    assert "index.html" in ours and "summary.json" in ours, "there is no report"


def same(test, out):
    """The run is complete and sound; it and the pages, tables and figures of its report have the bytes of one process."""
    alike(out, test.alone)
    done = test.run([test.program, "results", "check", str(runs(out))])
    assert done.returncode == 0, done.stdout + done.stderr
    once(out)


def once(out, study=EXPERIMENT.stem):
    """Every cell was done, and none twice."""
    assert not out.with_name(out.name + "-claims").exists(), "claims are left"
    computed = [e["cell"] for e in events(out, study) if e["event"] == "cell_finished"]
    # Of a cell that was stored just before another process sealed the run, the log may lack the line.
    assert len(computed) == len(set(computed)), "a cell was done twice"
    assert manifest(out, study)["finished"] == manifest(out, study)["planned"], "a cell is missing"


def safe(out):
    """No secret is stored, and folders are their owner's."""
    for path in out.rglob("*"):
        if path.is_file():
            assert PLANTED.encode() not in path.read_bytes(), f"{path} holds a planted secret"
    for path in [out, out / "run", runs(out)]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, f"{path} is open to others"


def plain(text):
    """A message without what differs from run to run."""
    text = re.sub(r"process \d+", "process P", text)
    text = re.sub(r"job \d+", "job J", text)
    text = re.sub(r"/\S*/", "", text)
    text = re.sub(r"cell [0-9a-f]{24}", "cell C", text)
    text = re.sub(r"\.tmp-\w+", ".tmp-X", text)
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
    text = re.sub(r"\bn[1-4]\b", "NODE", text)
    text = re.sub(r"\b(rank|task) \d+", r"\1 R", text)
    text = re.sub(r"\bPID \d+", "PID P", text)
    text = re.sub(r"\b(StepId=)\d+\.\d+", r"\1J.S", text)
    return re.sub(r"\b\d+ s\b", "T s", text).strip()


def line_with(text, *parts):
    for line in text.splitlines():
        if all(part in line for part in parts):
            return plain(line)
    raise AssertionError(f"no line with {parts} in:\n{text}")


def fault(what, seen, survives):
    faults.append((what, seen, survives))
