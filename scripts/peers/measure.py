"""What the peers share: cases, device timing, the check against unsharded attention, and the CSV file.

Times are those of device events of each rank's stream. Before each timed pass the stream sleeps, so that the host runs ahead as it does in
training, and all ranks meet in a one-element all-reduce, so that they start together. Passes are timed apart; inputs are random.
"""

import argparse
import csv
import dataclasses
import os
import pathlib
import tempfile
import time

COLUMNS = (
    "peer", "pass", "tokens", "heads", "kv_heads", "ranks", "rank", "sample", "ns", "torch", "cudnn", "nccl", "card",
)
HEAD_DIM = 128
WARM_UPS = 3
LEAST_SAMPLES, MOST_SAMPLES = 10, 30
# Cycles that a stream sleeps before a timed pass, a few milliseconds.
HEAD_START = 10_000_000
# Largest relative error (Frobenius norm) against attention in f32; bf16 results that are right stay below half of it.
TOLERANCE = 1e-2
# Exit status of a script that needs more cards than there are.
TOO_FEW_CARDS = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """One causal document of `tokens` tokens whose attention `ranks` cards share."""

    tokens: int
    heads: int = 16
    kv_heads: int = 16
    ranks: int = 2


CASES = (Case(65_536), Case(262_144))
# Small enough for attention in f32 from its definition.
CHECKED = Case(2_048, heads=4, kv_heads=4)


def arguments(description):
    """The arguments that every script takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE.csv", help="file of raw samples")
    parser.add_argument("--seconds", type=float, default=25.0, help="time to spend on timed passes (default 25)")
    return parser.parse_args()


def samples_within(seconds, seconds_a_sample):
    """How many samples fit, within the least and the most that are taken."""
    return max(LEAST_SAMPLES, min(MOST_SAMPLES, int(seconds / max(seconds_a_sample, 1e-6))))


def write(path, rows):
    """Writes rows as a CSV file, as a whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    os.replace(beside, path)


def read(path):
    """Rows of a file that `write` left, each a list of texts."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise ValueError(f"{path}: the header is not {','.join(COLUMNS)}")
    return rows[1:]


class Ranks:
    """One rank's view of the group: its card, its clock, and what it has measured."""

    def __init__(self, rank, size, seconds, store):
        import torch
        import torch.distributed as dist

        self.rank, self.size, self.seconds = rank, size, seconds
        torch.cuda.set_device(rank)
        self.device = torch.device("cuda", rank)
        torch.manual_seed(1 + rank)
        if size > 1:
            dist.init_process_group(
                "nccl", init_method=f"file://{store}", rank=rank, world_size=size, device_id=self.device
            )
        self._token = torch.zeros(1, device=self.device)
        self.versions = (
            torch.__version__,
            torch.backends.cudnn.version(),
            ".".join(str(part) for part in torch.cuda.nccl.version()),
            torch.cuda.get_device_name(self.device),
        )
        self.rows = []

    def random(self, *shape, same=False):
        """bf16 numbers on the card; with `same` the same on every rank."""
        import torch
        import torch.distributed as dist

        numbers = torch.randn(*shape, device=self.device, dtype=torch.bfloat16)
        if same and self.size > 1:
            dist.broadcast(numbers, src=0)
        return numbers

    def start(self):
        """Enqueues the head start and the meeting of ranks; returns the event from which time counts."""
        import torch
        import torch.distributed as dist

        torch.cuda._sleep(HEAD_START)
        if self.size > 1:
            dist.all_reduce(self._token)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def end(self):
        """The event up to which time counts."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def time(self, peer, case, once):
        """Times `once()`, which returns pairs of a pass's name and its two events, and keeps the samples."""
        import torch
        import torch.distributed as dist

        began = time.monotonic()
        for _ in range(WARM_UPS):
            once()
            torch.cuda.synchronize()
        count = samples_within(self.seconds, (time.monotonic() - began) / WARM_UPS)
        if self.size > 1:
            agreed = torch.tensor([count], device=self.device)
            dist.broadcast(agreed, src=0)
            count = int(agreed.item())
        for sample in range(count):
            passes = once()
            torch.cuda.synchronize()
            for name, start, end in passes:
                ns = round(start.elapsed_time(end) * 1e6)
                where = (case.tokens, case.heads, case.kv_heads, case.ranks, self.rank, sample)
                self.rows.append((peer, name, *where, ns, *self.versions))

    def finish(self, out):
        """Gathers the samples of all ranks and writes them."""
        import torch.distributed as dist

        rows = self.rows
        if self.size > 1:
            gathered = [None] * self.size
            dist.all_gather_object(gathered, self.rows)
            rows = [row for of_rank in gathered for row in of_rank]
            dist.destroy_process_group()
        if self.rank == 0:
            write(out, rows)


def attend(q, k, v):
    """Causal attention of `[1, heads, tokens, head_dim]` by cuDNN alone: no other backend may step in."""
    import torch.nn.functional as functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def definition(q, k, v, d_out):
    """Output and gradients of causal attention in f32, from its definition."""
    import torch

    q, k, v = (x.float().detach().requires_grad_() for x in (q, k, v))
    keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    out = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values
    return (out, *torch.autograd.grad(out, (q, k, v), d_out.float()))


def check(peer, ours, theirs):
    """Refuses results that are not those of the definition."""
    import torch

    for name, ours_one, theirs_one in zip(("O", "dQ", "dK", "dV"), ours, theirs, strict=True):
        error = (torch.linalg.vector_norm(ours_one.float() - theirs_one) / torch.linalg.vector_norm(theirs_one)).item()
        # Also true for NaN.
        if not error <= TOLERANCE:
            raise ValueError(f"{peer}: {name} is wrong: relative error {error:.3g}, at most {TOLERANCE} is right")


def launch(body, ranks, options):
    """Runs `body(ranks, out)` in one process for each card. Ends the process with `TOO_FEW_CARDS` where they do not suffice."""
    import torch
    import torch.multiprocessing as multiprocessing

    cards = torch.cuda.device_count()
    if cards < ranks:
        print(f"needs {ranks} cards and there are {cards}", flush=True)
        raise SystemExit(TOO_FEW_CARDS)
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        multiprocessing.spawn(_rank, args=(body, ranks, options.seconds, store, options.out), nprocs=ranks)


def _rank(rank, body, size, seconds, store, out):
    ranks = Ranks(rank, size, seconds, store)
    body(ranks)
    ranks.finish(out)
