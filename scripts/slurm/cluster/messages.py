"""Programs whose ranks are processes that MPI connects."""

import json
import os
import signal
import time
from pathlib import Path

from .base import fault, line_with

VERIFY = ["verify", "--backend", "cpu", "--seed", "3", "--format", "json", "--cases"]
SRUN = ["srun", "--mpi=pmix", "--kill-on-bad-exit=1"]
LAUNCHERS = {
    "a process a node": [*SRUN, "-N4", "-n4"],
    "several a node": [*SRUN, "-N2", "-n6"],
    "mpirun": ["mpirun", "--oversubscribe", "-n", "4"],
}


def without_mpi(test):
    done = test.run(["srun", "-N2", "-n2", test.program, *VERIFY, "1"])
    assert done.returncode == 11 and "--features mpi" in done.stderr and "skewbench-mpi" in done.stderr, done.stderr


def mpi_same(test):
    """The same plans, verified with the ranks in one process and in several: the same errors to the last bit."""
    if not test.mpi:
        return "no program over MPI"
    alone = test.run([test.mpi, *VERIFY, "2"])
    assert alone.returncode == 0 and len(json.loads(alone.stdout)) > 10, alone.stderr
    for name, launcher in LAUNCHERS.items():
        done = test.run([*launcher, test.mpi, *VERIFY, "2"])
        assert done.returncode == 0, f"{name}: {done.stderr}"
        assert done.stdout == alone.stdout, f"{name}: {done.stdout}\n{alone.stdout}"
    return None


def mpi_starts(test):
    """16 processes on this host, from srun to the end of the first program: below 10 s."""
    if not test.mpi:
        return "no program over MPI"
    # The limit is one of a host that does nothing else.
    load, times = os.getloadavg()[0], []
    for _ in range(3):
        began = time.time()
        done = test.run([*SRUN, "-N4", "-n16", test.mpi, *VERIFY, "1", "--system", "ulysses"])
        assert done.returncode == 0, done.stderr
        times.append(time.time() - began)
        if times[-1] < 10:
            break
    print(f"16 processes verified a first case {min(times):.1f} s after srun was called, at a load of {load:.0f} before")
    assert min(times) < 10 or load > 2 * os.cpu_count(), times
    return None


def mpi_names(test):
    """What processes with a card each tell each other over MPI, without the cards, and what agreeing on a wave's end takes."""
    if not test.check:
        return "no mpi_check"
    for name, launcher in {"mpirun": ["mpirun", "--oversubscribe", "-n", "2"], "srun": [*SRUN, "-N1", "-n4"]}.items():
        done = test.run([*launcher, test.check])
        assert done.returncode == 0 and "names of communicators" in done.stdout, f"{name}: {done.stdout}{done.stderr}"
        print(f"{name}: {done.stdout.strip()}")
    done = test.run([*SRUN, "-N2", "-n2", test.check])
    assert done.returncode != 0, done.stdout
    line_with(done.stderr, "error: rank 0 runs on n1, rank 1 on n2; cards of one session are those of one host")
    return None


def disturbed(test, launcher, how):
    """Disturbs rank 2 of a long verification; seconds until all ended, and what they said."""
    step = test.start([*launcher, test.mpi, *VERIFY, "100000", "--system", "libra"])
    ranks = lambda: {pid: rank for pid, rank in processes(test.mpi) if rank is not None}
    until = time.time() + 60
    while sum(map(connected, ranks())) < 4:
        assert time.time() < until, "the ranks did not start"
        time.sleep(0.1)
    # Some cases.
    time.sleep(0.5)
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


def connected(pid):
    """Whether a process has its thread of MPI, which it starts when it is connected with the others."""
    for name in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            if name.read_text() == "mpi\n":
                return True
        except OSError:
            # Threads of programs come and go.
            continue
    return False


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
        return "no program over MPI"
    took, text = disturbed(test, LAUNCHERS["mpirun"], signal.SIGKILL)
    assert took < 30, took
    seen = line_with(text, "rank 2", "signal 9")
    took, text = disturbed(test, LAUNCHERS["a process a node"], signal.SIGKILL)
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
        return "no program over MPI"
    took, text = disturbed(test, LAUNCHERS["a process a node"], signal.SIGSTOP)
    assert took < 30, took
    fault(
        "a rank of programs over MPI hangs, or its node is gone",
        f"`{line_with(text, 'error: rank 2 on n3', 'silent')}`; all end within 30 s",
        "nothing is stored by `verify`; it is run again",
    )
    return None
