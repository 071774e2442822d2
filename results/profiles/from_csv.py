#!/usr/bin/env python3
"""Writes h200.json from the CSV files of one measuring run. Standard library only; run it from anywhere.

Every number of the profile is either a row of a CSV, a figure of SOURCE.md, or an assumption that its `source` calls one.
"""

import csv
import json
import math
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
RUN = "measured-2026-11-29"
WINDOWS = {"256K": 262144, "1M": 1048576}


def rows(name):
    with open(HERE / RUN / name, newline="") as file:
        yield from csv.DictReader(file)


def source(kind, note, run=None):
    return {"kind": kind, "run": run, "note": note}


def shape(row, ms):
    keys = ("q_heads", "kv_heads", "q_len", "kv_len")
    return [row["pass"], *(int(row[key]) for key in keys), round(float(row[ms]) * 1e6)]


def stand_in(count, longest, tokens, pairs):
    """Lengths longest * exp(-a i^b) with a and b chosen so that tokens and pairs come out: the real lengths were not kept."""

    def lengths(a, b):
        return [max(16.0, longest * math.exp(-a * i**b)) for i in range(count)]

    def decay(b):
        low, high = 1e-6, 50.0
        for _ in range(100):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if sum(lengths(middle, b)) > tokens else (low, middle)
        return low

    def error(b):
        found = lengths(decay(b), b)
        return abs(sum(l * l for l in found) / 2 / pairs - 1) + abs(sum(found) / tokens - 1)

    shape = min((0.02 * 150 ** (i / 399) for i in range(400)), key=error)
    return [round(l) for l in lengths(decay(shape), shape)]


def ragged():
    """Ragged calls: name, pass, heads, rows and keys of every tile, nanoseconds."""
    prefixes = {
        "cudnn-ragged-b8n8": [16384 * i for i in range(1, 9)],
        "cudnn-ragged-b8n4": [52429, 104858, 157286, 209715],
        "cudnn-ragged-b32n32": [4096 * i for i in range(1, 33)],
    }
    for row in rows("h200-attention.csv"):
        if row["kernel"] in prefixes:
            keys = prefixes[row["kernel"]]
            assert abs(sum(keys) / len(keys) - int(row["kv_len"])) < 1
            call = shape(row, "ms")
            yield {"name": row["kernel"], "pass": call[0], "q_heads": call[1], "kv_heads": call[2],
                   "q_len": [call[3]] * len(keys), "kv_len": keys, "ns": call[5]}
    documents = {}
    for row in rows("h200-masks.csv"):
        if not row["kind"].startswith("ragged-"):
            continue
        call = shape(row, "ms_median")
        if row["kind"] not in documents:
            flops = float(row["ms_median"]) * 1e-3 * float(row["tflops"]) * 1e12
            pairs = flops / ((4 if call[0] == "fwd" else 10) * 128 * call[1])
            window = WINDOWS[row["kind"].split("-")[1]]
            documents[row["kind"]] = stand_in(int(row["tiles"]), call[4], window, pairs)
        lengths = documents[row["kind"]]
        yield {"name": row["kind"], "pass": call[0], "q_heads": call[1], "kv_heads": call[2],
               "q_len": lengths, "kv_len": lengths, "ns": call[5]}


def profile():
    masks = list(rows("h200-masks.csv"))
    kind = lambda name: [shape(row, "ms_median") for row in masks if row["kind"] == name]
    return {
        "schema": 1,
        "name": "h200",
        "card": {
            "source": source("datasheet", "NVIDIA H200 SXM: 141 GB HBM3e at 4.8 TB/s, 989.4 TFLOP/s dense bf16, 132 multiprocessors"),
            "model": "NVIDIA H200",
            "memory_bytes": 141_000_000_000,
            "memory_bandwidth": "4.8 TB/s",
            "bf16_flops_per_s": 989.4e12,
            "multiprocessors": 132,
        },
        "attention": {
            "source": source("measured", "cuDNN 9.19.0, bf16, driver 580.159.04, CUDA 13.0; medians by device events; "
                             "lengths of packed windows are a stand-in with the measured count, longest document, tokens and pairs", RUN),
            "head_dim": 128,
            "launch_overhead_ns": {"forward": 11_600, "backward": 36_700},
            "bottom_right": [shape(row, "ms") for row in rows("h200-attention.csv") if row["kernel"] == "cudnn"],
            "square": kind("square"),
            "rectangle": kind("rectangle"),
            "ragged": list(ragged()),
        },
        "gemm": {
            "source": source("measured", "large bf16 matrix multiplication", RUN),
            "flops_per_s": 770e12,
        },
        "copies": {
            "source": source("assumed", "pack, merge and cast move bytes at 75% of the HBM datasheet bandwidth, 3 us a kernel"),
            "bandwidth": "3.6 TB/s",
            "launch_ns": 3_000,
        },
        "intra_node": {
            "nccl": {
                "source": source("measured", "NCCL 2.28.9 exchange between two cards, both directions at once, host launch included", RUN),
                "points_bytes_ns": [[int(row["bytes"]), round(float(row["us"]) * 1e3)]
                                    for row in rows("h200-link.csv") if row["op"] == "exchange"],
            },
            "copy_engines": {
                "source": source("assumed", f"388 GB/s each way measured in {RUN}; the latency of 10 us a call is assumed"),
                "points_bytes_ns": [[1, 10_000], [1 << 30, round(10_000 + (1 << 30) / 388)]],
            },
        },
        "network": {
            "source": source("assumed", "one 400 Gb/s port a card, 90% of it reached, no oversubscription; latency of 10 us on top of the call's"),
            "bandwidth": "400 Gb/s",
            "efficiency": 0.9,
            "latency_ns": 10_000,
            "nic": "per_card",
            "oversubscription": 1.0,
        },
        "transport": "nccl",
        "contention": {
            "nccl": {
                "source": source("measured", "attention of 59 ms and an exchange of 57 ms take 104 ms together: (59 + 57 - 104) / 59 of the "
                                 "exchange's rate while attention runs, attention itself taken as not slowed; transfers between nodes "
                                 "are assumed to behave alike", RUN),
                "compute_rate": 1.0,
                "transfer_rate": round((59 + 57 - 104) / 59, 4),
            },
            "copy_engines": {
                "source": source("measured", "attention of 118.5 ms takes 121 ms with an exchange under it, the exchange taken as not "
                                 "slowed; transfers between nodes are assumed to behave alike (posted by the network card)", RUN),
                "compute_rate": round(118.5 / 121, 4),
                "transfer_rate": 1.0,
            },
        },
        "card_speed": {
            "source": source("assumed", "all cards alike; the published spread of 256 cards, 7% between fastest and slowest, is about 0.0125"),
            "relative_sd": 0.0,
        },
    }


def render(value, indent=0):
    """JSON with one row of a table a line, so that errors can name the line."""
    pad = "  " * (indent + 1)
    if isinstance(value, dict):
        inner = ",\n".join(f"{pad}{json.dumps(key)}: {render(item, indent + 1)}" for key, item in value.items())
        return "{\n" + inner + "\n" + "  " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
        inner = ",\n".join(pad + (json.dumps(item) if isinstance(item, list) else render(item, indent + 1)) for item in value)
        return "[\n" + inner + "\n" + "  " * indent + "]"
    return json.dumps(value)


if __name__ == "__main__":
    (HERE / "h200.json").write_text(render(profile()) + "\n")
