#!/usr/bin/env python3
"""Tests on a real Slurm cluster of four nodes; scripts/slurm/test-cluster.sh starts it and runs this.

    scripts/slurm/test-cluster.sh scripts/slurm/cluster_tests.py --program target/release/skewbench [--mpi PROGRAM] [--faults FILE]

Ends with a line `N passed, N failed, N skipped`. With --faults, writes the table of faults of docs/FAULTS.md from what was seen.
"""

import argparse
import json
import os
import re
import signal
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = "paper/fig13"
PLANTED = "planted-secret-4711"
# Files of a run that may differ between identical runs.
OWN = {"timings.json", "manifest.json", "events.jsonl", ".lock"}

faults = []
passed, failed, skipped = [], [], []


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

    def command(self, out, *more, lost_after=20):
        fixed = ["--quick", "--threads", "1", "--lost-after", str(lost_after), "--out", str(out)]
        return [self.program, "run", EXPERIMENT, *fixed, *more]

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

    def ended(self, job, limit=240):
        """Waits for a job and returns the states of its tasks."""
        until = time.time() + limit
        while time.time() < until:
            text = self.run(["squeue", "--noheader", "--states=all", "--array", f"--jobs={job}", "--format=%T"]).stdout.split()
            if text and not set(text) & {"RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"}:
                return text
            time.sleep(0.3)
        raise AssertionError(f"job {job} has not ended within {limit} s")


def runs(out):
    return out / "run" / "paper-fig13"


def cells(out):
    return sum(1 for _ in (runs(out) / "cells").glob("*.cell")) if (runs(out) / "cells").is_dir() else 0


def await_cells(out, count, limit=120):
    until = time.time() + limit
    while cells(out) < count:
        assert time.time() < until, f"{cells(out)} of {count} cells after {limit} s"
        assert not (out / "summary.json").exists(), "the run was over before it could be disturbed"
        time.sleep(0.02)


def shared(folder):
    """Bytes of all files that identical runs share."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in OWN
    }


def manifest(out):
    return json.loads((runs(out) / "manifest.json").read_text())


def events(out):
    return [json.loads(line) for line in (runs(out) / "events.jsonl").read_text().splitlines()]


def same(test, out):
    """The run is complete, sound, and has the bytes of one process; so has its summary."""
    ours, alone = shared(runs(out)), shared(runs(test.alone))
    assert ours.keys() == alone.keys(), ours.keys() ^ alone.keys()
    differ = [name for name in ours if ours[name] != alone[name]]
    assert not differ, f"{differ} differ"
    assert (out / "summary.json").read_bytes() == (test.alone / "summary.json").read_bytes(), "summary.json differs"
    ours = (out / "data").rglob("*")
    for path in (p for p in ours if p.is_file()):
        other = test.alone / "data" / path.relative_to(out / "data")
        assert path.read_bytes() == other.read_bytes(), f"data/{path.name} differs"
    done = test.run([test.program, "results", "check", str(runs(out))])
    assert done.returncode == 0, done.stdout + done.stderr
    assert not out.with_name(out.name + "-claims").exists(), "claims are left"
    computed = [e["cell"] for e in events(out) if e["event"] == "cell_finished"]
    assert len(computed) == len(set(computed)) == manifest(out)["planned"], "a cell was done twice, or none"


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
    text = re.sub(r"\b(StepId=)\d+\.\d+", r"\1J.S", text)
    return re.sub(r"\b\d+ s\b", "T s", text).strip()


def line_with(text, *parts):
    for line in text.splitlines():
        if all(part in line for part in parts):
            return plain(line)
    raise AssertionError(f"no line with {parts} in:\n{text}")


def fault(what, seen, survives):
    faults.append((what, seen, survives))


# ---------------------------------------------------------------- sweeps


def one_process(test):
    done = test.run(test.command(test.alone))
    assert done.returncode == 0, done.stderr
    safe(test.alone)


def four_nodes(test):
    out = test.work / "nodes"
    done = test.run(["srun", "-N4", "-n4", *test.command(out)])
    assert done.returncode == 0, done.stderr
    same(test, out)
    safe(out)
    for rank in range(4):
        assert done.stderr.count(f"rank {rank}: n{rank + 1}, process ") == 1, done.stderr
    launches = [i["launch"] for i in manifest(out)["invocations"]]
    assert sorted(l["process"]["rank"] for l in launches) == [0, 1, 2, 3]
    assert {l["process"]["host"] for l in launches} == {"n1", "n2", "n3", "n4"}
    assert {l["process"]["launcher"] for l in launches} == {"slurm"}
    first = next(l for l in launches if l["process"]["rank"] == 0)
    assert [p["host"] for p in first["placements"]] == ["n1", "n2", "n3", "n4"]


def several_a_node(test):
    out = test.work / "packed"
    done = test.run(["srun", "-N2", "-n6", "--ntasks-per-node=3", *test.command(out)])
    assert done.returncode == 0, done.stderr
    same(test, out)
    local = sorted((i["launch"]["process"]["host"], i["launch"]["process"]["local_rank"]) for i in manifest(out)["invocations"])
    assert local == [("n1", 0), ("n1", 1), ("n1", 2), ("n2", 0), ("n2", 1), ("n2", 2)], local


def array(test):
    out = test.work / "array"
    words = " ".join(test.command(out, "--share"))
    job, path = test.submit(f"exec srun {words}\n", "--array=0-3", "-n1")
    states = test.ended(job)
    assert set(states) == {"COMPLETED"}, (states, [p.read_text() for p in test.work.glob(path.name + "*.out")])
    same(test, out)
    tasks = {i["launch"]["process"]["job"]["array_task"] for i in manifest(out)["invocations"]}
    assert tasks <= {0, 1, 2, 3} and tasks, tasks


def rank_killed(test):
    out = test.work / "killed"
    step = test.start(["srun", "-N4", "-n4", "--kill-on-bad-exit=0", *test.command(out)])
    await_cells(out, 4)
    victim = next(
        json.loads(p.read_text())["launch"]["placements"][0]["pid"] for p in (runs(out) / "workers").glob("00002-*.json")
    )
    os.kill(victim, signal.SIGKILL)
    _, err = step.communicate(timeout=240)
    assert "Killed" in err, err
    same(test, out)
    taken = [e for e in events(out) if e["event"] == "cell_taken_over"]
    assert all(e["from"]["rank"] == 2 for e in taken), taken
    seen = line_with(err, "task 2: Killed")
    fault(
        "a rank of a sweep is killed",
        f"`{seen}`; if it had a cell: `cell C was job J rank 2 on n3 (process P)'s; its process ended`",
        "every finished cell; another rank computes the one under way; the run ends with the bytes of an undisturbed one",
    )


def cancelled(test):
    out = test.work / "cancelled"
    words = " ".join(test.command(out))
    job, path = test.submit(f"srun {words}\n", "-N4", "-n4")
    await_cells(out, 5)
    assert test.run(["scancel", job]).returncode == 0
    states = test.ended(job)
    assert states == ["CANCELLED"], states
    kept = cells(out)
    assert kept >= 5 and not (out / "summary.json").exists()
    done = test.run(["srun", "-N4", "-n4", *test.command(out)])
    assert done.returncode == 0, done.stderr
    said = re.search(r"reusing (\d+) finished cells", done.stderr)
    assert said and int(said[1]) >= kept, done.stderr
    same(test, out)
    fault(
        "`scancel` of a job",
        "Slurm's `CANCELLED`; the next submission says `reusing N finished cells`",
        "every finished cell; cells under way are computed by the next submission; same bytes",
    )


def told_to_stop(test):
    """What Slurm does ahead of the time limit with --signal=TERM@60."""
    out = test.work / "limit"
    step = test.start(["srun", "-N4", "-n4", *test.command(out)])
    await_cells(out, 4)
    began = time.time()
    job = test.run(["squeue", "--noheader", "--format=%A"]).stdout.split()[0]
    assert test.run(["scancel", "--signal=TERM", f"{job}"]).returncode == 0
    _, err = step.communicate(timeout=60)
    assert time.time() - began < 30, "it took longer than 30 s"
    assert step.returncode == 130, (step.returncode, err)
    seen = line_with(err, "interrupted")
    done = test.run(["srun", "-N4", "-n4", *test.command(out)])
    assert done.returncode == 0, done.stderr
    same(test, out)
    fault(
        "the time limit, with SIGTERM ahead of it",
        f"`{seen}`, exit code 130 within 30 s",
        "every finished cell; cells under way are given back at once; the next submission goes on; same bytes",
    )


def requeued(test):
    out = test.work / "requeued"
    words = " ".join(test.command(out))
    job, path = test.submit(f"srun {words}\n", "-N4", "-n4", "--requeue")
    await_cells(out, 5)
    assert test.run(["scontrol", "requeue", job]).returncode == 0
    # A requeued job waits for a moment before it may start again.
    test.run(["scontrol", "update", f"JobId={job}", "StartTime=now"])
    time.sleep(2)
    until = time.time() + 240
    while not (out / "summary.json").exists():
        assert time.time() < until, "the requeued job has not ended"
        time.sleep(0.3)
    states = test.ended(job)
    assert states == ["COMPLETED"], states
    same(test, out)
    restarts = {i["launch"]["process"]["job"]["restart"] for i in manifest(out)["invocations"]}
    assert restarts == {0, 1}, restarts
    fault(
        "a job is requeued (`scontrol requeue`, preemption, a node that fails)",
        "the second turn says `reusing N finished cells`, and of a cell that was under way: `its job was requeued`, `it gave the cell back` or `its process ended`",
        "every finished cell; claims of the first turn count no more; same bytes",
    )


def stalled(test):
    """A process whose node or file system hangs for longer than --lost-after, and comes back."""
    out = test.work / "stalled"
    command = test.command(out, "--share", lost_after=3)
    first = test.start(command)
    await_cells(out, 2)
    os.kill(first.pid, signal.SIGSTOP)
    time.sleep(4)
    second = test.run(command)
    os.kill(first.pid, signal.SIGCONT)
    _, err = first.communicate(timeout=120)
    assert second.returncode == 0, second.stderr
    same(test, out)
    seen = line_with(second.stderr, "it has been silent for")
    fault(
        "a process, its node or the shared folder hangs for longer than `--lost-after`",
        f"others: `{seen}`",
        "every finished cell; others compute the one under way; the process that hung drops what it computed when it comes back; same bytes",
    )


def clocks(test):
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        return "libfaketime is not installed"
    out = test.work / "clocks"
    env = {**test.env, "LD_PRELOAD": str(library), "FAKETIME": "+5h", "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    other = test.start(test.command(out, "--share"), env)
    here = test.run(test.command(out, "--share"))
    _, err = other.communicate(timeout=240)
    assert here.returncode == 0 and other.returncode == 0, here.stderr + err
    same(test, out)
    assert not [e for e in events(out) if e["event"] == "cell_taken_over"], "a clock decided who is lost"
    fault(
        "clocks of nodes differ, here by five hours",
        "nothing; times in `events.jsonl` are each node's own",
        "everything: only times of the shared file system are compared",
    )
    return None


def full_folder(test):
    small = test.work / "small"
    small.mkdir()
    mounted = test.run(["mount", "-t", "tmpfs", "-o", "size=200k,mode=700", "tmpfs", str(small)])
    if mounted.returncode != 0:
        return "tmpfs cannot be mounted here"
    try:
        out = small / "full"
        done = test.run(test.command(out, "--share"))
        assert done.returncode == 10, (done.returncode, done.stderr)
        seen = line_with(done.stderr, "No space left on device")
        assert test.run(["mount", "-o", "remount,size=200m", str(small)]).returncode == 0
        done = test.run(test.command(out, "--share"))
        assert done.returncode == 0, done.stderr
        same(test, out)
        seen = re.sub(r"(cells?/)?[0-9a-f]{24}\S*", "FILE", seen)
        fault(
            "the shared folder is full",
            f"`{re.sub(r'(write|create a file in|create|sync) [^:]*:', 'write FILE:', seen)}`, exit code 10",
            "every finished cell; once there is room the same command goes on; same bytes",
        )
    finally:
        test.run(["umount", str(small)])
    return None


def torn(test):
    out = test.work / "torn"
    step = test.start(test.command(out, "--share"))
    await_cells(out, 6)
    os.kill(step.pid, signal.SIGKILL)
    step.communicate()
    names = sorted((runs(out) / "cells").glob("*.cell"))
    names[0].write_bytes(names[0].read_bytes()[:-9])
    shutil.copy(names[1], names[2])
    check = test.run([test.program, "results", "check", str(runs(out))])
    text = check.stdout + check.stderr
    torn_line, copied = line_with(text, names[0].stem, "checksum"), line_with(text, names[2].stem, "holds cell")
    done = test.run(test.command(out, "--share"))
    assert done.returncode == 0, done.stderr
    ours, alone = shared(runs(out)), shared(runs(test.alone))
    assert ours == alone
    short = lambda line: re.sub(r"[0-9a-f]{24}", "C", line).lstrip("error: ")
    fault(
        "files of results are torn or copied over each other",
        f"`results check`: `{short(torn_line)}`, `{short(copied)}`",
        "every whole file; the cells of the others are computed again; same bytes",
    )


# ---------------------------------------------------------------- other launchers


def mpirun(test):
    if not shutil.which("mpirun"):
        return "mpirun is not installed"
    out = test.work / "mpirun"
    command = ["mpirun", "--oversubscribe", "-n", "3", *test.command(out)]
    done = test.run(command)
    assert done.returncode == 0, done.stderr
    same(test, out)
    assert {i["launch"]["process"]["launcher"] for i in manifest(out)["invocations"]} == {"openmpi"}
    return None


def torch_variables(test):
    out = test.work / "torch"
    of = lambda rank: {**test.env, "RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "MASTER_PORT": "29500"}
    other = test.start(test.command(out), of("1"))
    done = test.run(test.command(out), env=of("0"))
    _, err = other.communicate(timeout=120)
    assert done.returncode == 0 and other.returncode == 0, done.stderr + err
    same(test, out)


def two_of_one_rank(test):
    out = test.work / "twice"
    env = {**test.env, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "29501"}
    first = test.start(test.command(out), env)
    time.sleep(2)
    second = test.run(test.command(out), env=env)
    first.kill()
    first.communicate()
    assert second.returncode == 10, (second.returncode, second.stderr)
    fault(
        "two launches that both think they are the one, each with a rank 0",
        f"`{line_with(second.stderr, 'two processes are rank 0')}`, exit code 10",
        "the first launch",
    )


def bad_variables(test):
    done = test.run(test.command(test.work / "none"), env={**test.env, "RANK": "0"})
    assert done.returncode == 10 and not (test.work / "none").exists(), done.stderr
    partial = line_with(done.stderr, "WORLD_SIZE")
    env = {**test.env, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "OMPI_COMM_WORLD_RANK": "1"}
    env |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    done = test.run(test.command(test.work / "none"), env=env)
    assert done.returncode == 10 and not (test.work / "none").exists(), done.stderr
    fault(
        "variables of a launcher are partial or contradict each other",
        f"`{partial}`; `{line_with(done.stderr, 'contradict')}`; exit code 10",
        "everything: nothing is written",
    )


# ---------------------------------------------------------------- MPI

VERIFY = ["verify", "--backend", "cpu", "--seed", "3", "--format", "json", "--cases"]
LAUNCHERS = {
    "a process a node": ["srun", "--mpi=pmix", "-N4", "-n4"],
    "several a node": ["srun", "--mpi=pmix", "-N2", "-n6"],
    "mpirun": ["mpirun", "--oversubscribe", "-n", "4"],
}


def without_mpi(test):
    done = test.run(["srun", "-N2", "-n2", test.program, *VERIFY, "1"])
    assert done.returncode == 11 and "--features mpi" in done.stderr, done.stderr


def mpi_same(test):
    """The same plans, verified with the ranks in one process and in several: the same errors to the last bit."""
    if not test.mpi:
        return "no program with the feature mpi"
    alone = test.run([test.mpi, *VERIFY, "4"])
    assert alone.returncode == 0 and len(json.loads(alone.stdout)) > 10, alone.stderr
    for name, launcher in LAUNCHERS.items():
        done = test.run([*launcher, test.mpi, *VERIFY, "4"])
        assert done.returncode == 0, f"{name}: {done.stderr}"
        assert done.stdout == alone.stdout, f"{name}: {done.stdout}\n{alone.stdout}"
    return None


def mpi_starts(test):
    """16 processes on this host, from srun to the end of the first program."""
    if not test.mpi:
        return "no program with the feature mpi"
    began = time.time()
    done = test.run(["srun", "--mpi=pmix", "-N4", "-n16", test.mpi, *VERIFY, "1", "--system", "ulysses"])
    assert done.returncode == 0, done.stderr
    print(f"16 processes verified a first case {time.time() - began:.1f} s after srun was called")
    return None


def disturbed(test, launcher, how):
    """Disturbs rank 2 of a long verification; seconds until all ended, and what they said."""
    step = test.start([*launcher, test.mpi, *VERIFY, "100000", "--system", "libra"])
    ranks = lambda: {pid: rank for pid, rank in processes(test.mpi) if rank is not None}
    until = time.time() + 60
    while len(ranks()) < 4:
        assert time.time() < until, "the ranks did not start"
        time.sleep(0.1)
    time.sleep(3)
    victim = next(pid for pid, rank in ranks().items() if rank == 2)
    began = time.time()
    os.kill(victim, how)
    out, err = step.communicate(timeout=90)
    took = time.time() - began
    assert step.returncode != 0
    for pid in ranks():
        os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"process {pid} outlived its launch")
    return took, out + err


def processes(program):
    """Processes of a program with their ranks."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            env = dict(v.split(b"=", 1) for v in (folder / "environ").read_bytes().split(b"\0") if b"=" in v)
        except OSError:
            continue
        if words[0].decode(errors="replace") == program:
            rank = env.get(b"OMPI_COMM_WORLD_RANK") or env.get(b"SLURM_PROCID")
            yield int(folder.name), None if rank is None else int(rank)


def mpi_rank_killed(test):
    if not test.mpi:
        return "no program with the feature mpi"
    took, text = disturbed(test, LAUNCHERS["mpirun"], signal.SIGKILL)
    assert took < 30, took
    seen = line_with(text, "rank 2", "signal 9")
    took, text = disturbed(test, ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-N4", "-n4"], signal.SIGKILL)
    assert took < 30, took
    slurm = line_with(text, "n3", "task 2", "Killed")
    fault(
        "a rank of programs over MPI is killed",
        f"`mpirun`: `{seen}`; `srun --kill-on-bad-exit=1`: `{slurm}`; all end within 30 s",
        "nothing is stored by `verify`; it is run again",
    )
    return None


def mpi_rank_hangs(test):
    if not test.mpi:
        return "no program with the feature mpi"
    took, text = disturbed(test, ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-N4", "-n4"], signal.SIGSTOP)
    assert took < 30, took
    fault(
        "a rank of programs over MPI hangs, or its node is gone",
        f"`{line_with(text, 'error: rank 2 on n3', 'silent')}`; all end within 30 s",
        "nothing is stored by `verify`; it is run again",
    )
    return None


TESTS = [
    one_process,
    four_nodes,
    several_a_node,
    array,
    rank_killed,
    cancelled,
    told_to_stop,
    requeued,
    stalled,
    clocks,
    full_folder,
    torn,
    mpirun,
    torch_variables,
    two_of_one_rank,
    bad_variables,
    without_mpi,
    mpi_same,
    mpi_starts,
    mpi_rank_killed,
    mpi_rank_hangs,
]


def faults_text():
    """docs/FAULTS.md."""
    cell = lambda text: text.replace("|", "\\|")
    rows = "\n".join(f"| {cell(a)} | {cell(b)} | {cell(c)} |" for a, b, c in faults)
    return f"""# Faults

What happens when something goes wrong on a cluster. Every row is what a test saw on a Slurm cluster of four nodes on one host; `scripts/slurm/cluster_tests.py --faults docs/FAULTS.md` writes this page, and fails where the page that is here says something else. J, S, P, C, N and T stand for numbers of jobs and steps, processes, cells, counts and times.

| fault | what the user sees | what survives |
|---|---|---|
{rows}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpi", help="program with the feature mpi")
    parser.add_argument("--faults", type=Path, help="page of faults to write")
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    args.program = str(Path(args.program).resolve())
    args.mpi = args.mpi and str(Path(args.mpi).resolve())
    with tempfile.TemporaryDirectory(prefix="skewbench-tests-") as folder:
        test = Test(args, Path(folder))
        test.alone = test.work / "alone"
        os.chdir(folder)
        for one in TESTS:
            if args.only and one.__name__ not in args.only and one is not one_process:
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
