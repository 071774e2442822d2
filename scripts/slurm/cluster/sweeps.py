"""Cells of a study that several processes share, disturbed in every way that a cluster knows."""

import json
import os
import re
import shutil
import signal
import time
import tomllib
from pathlib import Path

from .base import EXPERIMENT, await_cells, cells, events, fault, line_with, manifest, plain, runs, safe, same, shared


def one_process(test):
    """All systems in one process: what the cluster's reports are compared with."""
    listed = test.run([test.program, "systems", "--format", "json"])
    known = {row["name"] for row in json.loads(listed.stdout)}
    assert set(tomllib.loads(EXPERIMENT.read_text())["systems"]["names"]) == known, known
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
        f"`{seen}`; if it had a cell: `cell C was job J rank R on NODE (process P)'s; its process ended`",
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
    until = time.time() + 240
    while not (out / "summary.json").exists():
        # It starts when its first turn's credentials have expired, after some seconds.
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
    claimed = lambda: {p.name.partition(".")[0] for p in out.with_name("stalled-claims").glob("claimed/[0-9a-f]*")}
    done = lambda: {p.name.partition(".")[0] for p in (runs(out) / "cells").glob("*.cell")}
    while True:
        os.kill(first.pid, signal.SIGSTOP)
        if claimed() - done():
            break
        # It was stopped between two cells.
        os.kill(first.pid, signal.SIGCONT)
        time.sleep(0.01)
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
        # Which file it is that finds no room differs.
        seen = "error: cannot ...: " + seen[seen.index("No space left on device") :]
        fault(
            "the shared folder is full",
            f"`{seen}`, with action and file, exit code 10",
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


def slow_folder(test):
    """Every write that must reach the disk takes a twentieth of a second longer, in one of two processes."""
    if not shutil.which("strace"):
        return "strace is not installed"
    out = test.work / "slow"
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:delay_exit=50000"]
    other = test.start([*slow, *test.command(out, "--share")])
    here = test.run(test.command(out, "--share"))
    _, err = other.communicate(timeout=240)
    assert here.returncode == 0 and other.returncode == 0, here.stderr + err
    same(test, out)
    assert not [e for e in events(out) if e["event"] == "cell_taken_over"], "a slow process was taken for lost"
    fault(
        "the shared folder is slow, for one node or all",
        "nothing, as long as a process can write once in `--lost-after` seconds; cells take longer",
        "everything; nobody is taken for lost",
    )
    return None


KILLER = """import json, os, signal, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["type"] != "hello":
        os.kill(os.getppid(), signal.SIGKILL)
    print(json.dumps({"type": "hello", "protocol": 1, "name": "killer", "version": "1", "plans": True}), flush=True)
"""


def deadly_cell(test):
    """A cell that ends every process that computes it, as one does that needs more memory than nodes have."""
    folder, out = test.work / "deadly", test.work / "deadly" / "out"
    (folder / "external").mkdir(parents=True)
    (folder / "external" / "killer.py").write_text(KILLER)
    (folder / "external" / "killer.toml").write_text('name = "killer"\ncommand = ["python3", "killer.py"]\n')
    names = ["--set", 'systems.names=["ulysses", "killer"]', "--set", "bandwidth_band=false"]
    turns = 0
    while not (out / "summary.json").exists():
        turns += 1
        assert turns < 6, done.stdout + done.stderr
        done = test.run(["srun", "-N4", "-n4", "--kill-on-bad-exit=0", *test.command(out, *names)], cwd=folder)
    rows = [row for row in json.loads((out / "summary.json").read_text()) if row["status"] == "failed"]
    assert rows and {row["system"] for row in rows} <= {"killer", "killer / ulysses"}, rows
    reason = rows[0]["reason"]
    assert re.search(r"3 processes ended without a word .*: (job \d+ rank \d on n\d \(process \d+\)(, )?){3}", reason), reason
    # The step has the highest code of its ranks, that of one that was killed.
    done = test.run(test.command(out, *names), cwd=folder)
    assert done.returncode == 21, (done.returncode, done.stderr)
    seen = plain(reason)
    fault(
        "a cell ends every process that computes it, as one does that needs more memory than a node has",
        f"after the third: a failed row, `{seen}`; exit code 21",
        "every other cell; `--requeue` tries the cell again",
    )


def node_gone(test):
    """A node dies with all that runs on it. The last test: the node does not come back."""
    out = test.work / "gone"
    step = test.start(["srun", "-N4", "-n4", "--no-kill", *test.command(out)])
    await_cells(out, 4)
    daemon = int((Path(os.environ["CLUSTER_FOLDER"]) / "spool" / "n4.slurmd").read_text())
    rank = next(json.loads(p.read_text())["launch"]["placements"][0]["pid"] for p in (runs(out) / "workers").glob("00003-*.json"))
    parent = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    for victim in [daemon, parent, rank]:
        os.kill(victim, signal.SIGKILL)
    until = time.time() + 60
    while not (out / "summary.json").exists():
        assert time.time() < until, "the other ranks have not ended the study"
        time.sleep(0.1)
    took = time.time() - until + 60
    assert took < 30, took
    # Slurm keeps the step until it is sure that the node is gone, long after the study has ended.
    time.sleep(1)
    test.run(["scancel", "--user=root"])
    step.send_signal(signal.SIGTERM)
    step.communicate(timeout=60)
    same(test, out)
    fault(
        "a node is gone",
        "of a cell that it had: `cell C was job J rank R on NODE (process P)'s; its process ended`, on other hosts `it has been silent for T s`; Slurm's own words once it has noticed",
        "every finished cell; another rank computes the one under way; same bytes",
    )
