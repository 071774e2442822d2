"""The batch scripts that ship, submitted as a user submits them."""

import html
import re
from collections import Counter

from .base import EXPERIMENT, alike, fault, line_with, manifest, once, same

MANY = """title = "Many small cells"
figure = "many"
kind = "waves"
description = "Cells of one small step each: what a job array is given to count them."
steps = 1
gbs = 4
quick_steps = 1
quick_gbs = 4

[systems]
names = ["ulysses", "ulysses+sorted", "ring-zigzag", "libra-vrsp"]

[[workload]]
name = "paper-256k"
cp = 4

[sweep]
dp = [1, 2]

[sweep.set]
seed = {seeds}

[plot]
metrics = ["straggler_mean"]
x = "seed"
"""
# Cells of a seed there.
OF_SEED = 8


def sweep(test):
    out = test.work / "array"
    states, said = test.script("sweep", ["--array-size", "4"], EXPERIMENT, out, "--quick", "--lost-after", "20")
    assert states == ["COMPLETED"] * 4, (states, said)
    same(test, out)
    tasks = {i["launch"]["process"]["job"]["array_task"] for i in manifest(out)["invocations"]}
    assert tasks <= {0, 1, 2, 3} and tasks, tasks


def many(test):
    """A job array that is large for what it computes: no cell twice, none lost."""
    tasks, wanted = test.scale
    study, out, alone = (test.work / name for name in ["many.toml", "many", "many-alone"])
    study.write_text(MANY.format(seeds=list(range(1, wanted // OF_SEED + 1))))
    states, said = test.script("sweep", ["--array-size", str(tasks)], study, out, "--lost-after", "120", limit=1200)
    wrong = sorted({line for line in said.splitlines() if "error" in line})
    assert states == ["COMPLETED"] * tasks, (Counter(states), wrong[:20], said[-500:])
    told = manifest(out, study.stem)
    assert told["planned"] == wanted // OF_SEED * OF_SEED, told["planned"]
    once(out, study.stem)
    workers = {i["launch"]["process"]["job"]["array_task"] for i in told["invocations"]}
    done = test.run([test.program, "run", str(study), "--out", str(alone)], limit=1200)
    assert done.returncode == 0, done.stderr
    alike(out, alone)
    print(f"{told['planned']} cells, {tasks} tasks, of which {len(workers)} computed some")


def reproduce(test):
    out, alone = test.work / "figures", test.work / "figures-alone"
    asked = ["--quick", "--figure", "fig15"]
    states, said = test.script("reproduce", ["--nodes", "4"], out, *asked, "--lost-after", "20")
    assert states == ["COMPLETED"], (states, said)
    done = test.run([test.program, "reproduce", "--out", str(alone), *asked])
    assert done.returncode == 0, done.stderr
    alike(out, alone)
    assert "rank 3: n4" in said, said


def without_cards(test):
    """What measures on cards, where a job gets nodes that have none."""
    out = test.work / "compared"
    states, said = test.script("compare", ["--gpus-per-node", "1"], "cards/two-cards", out)
    assert states == ["FAILED"] and not (out / "summary.json").exists(), (states, said)
    seen = line_with(said, "error: ", "libcuda.so.1")
    out = test.work / "calibrated"
    states, said = test.script("calibrate", ["--nodes", "2", "--gpus-per-node", "1"], out)
    assert states == ["FAILED"] and not list(out.glob("*.json")), (states, said)
    ended = [line_with(said, f"{node}: ended with 11") for node in ["n1", "n2"]]
    assert said.count("libcuda.so.1") == 4, said
    fault(
        "nodes of `compare.sbatch` or `calibrate.sbatch` have no card, or no driver in the container",
        f"`{seen}`; of each node of `calibrate.sbatch` also `{ended[0]}`; Slurm's `FAILED`",
        "nothing was measured, and no profile is written",
    )


def throttled(test):
    """What a report says of cards that were held back while they were measured: those of the run that ships."""
    page = (test.alone / "measured.html").read_text()
    text = html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</(p|li|td|div)>", "\n", page)))
    seen = line_with(text, ": Card 0: at", "sw_power_cap at")
    fault(
        "a card throttles while it is measured",
        f"`measured.html`: `{seen}`; of one that was too hot or badly supplied also around which systems",
        "all samples, and `states.csv` with what NVML told before and after each wave",
    )
