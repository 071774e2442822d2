"""Launchers other than Slurm, and variables that do not fit."""

import shutil
import time

from .base import fault, line_with, manifest, same


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
    meeting = out.with_name(out.name + "-claims") / "meeting"
    until = time.time() + 60
    while not list(meeting.glob("*.json")):
        assert time.time() < until, "the first launch does not wait for its other rank"
        time.sleep(0.05)
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
