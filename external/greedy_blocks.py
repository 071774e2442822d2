"""A system in a language that is not Rust: query blocks, heaviest first, each to the least loaded rank.

It reads one JSON object a line on standard input and answers each with one line on standard output; anything else goes to
standard error. Python's standard library alone. docs/ADD-A-SYSTEM.md describes the protocol.
"""

import heapq
import json
import sys

HELLO = {
    "type": "hello",
    "protocol": 1,
    "name": "greedy-blocks",
    "version": "1.0.0",
    "plans": True,
    "scope": "pool",
    "options": [
        {
            "name": "block",
            "kind": "integer",
            "default": 4096,
            "min": 1,
            "max": 2**31,
            "summary": "query tokens of a block",
        }
    ],
}


def blocks_of(lengths, size):
    """(unmasked pairs, first row, one past the last row) of every block of a packed sequence of documents."""
    rows = sum(lengths)
    pairs = [0] * -(-rows // size)
    start = 0
    for length in lengths:
        row = start
        while row < start + length:
            end = min(start + length, (row // size + 1) * size)
            # Row i of a document sees i + 1 keys.
            first, last = row - start, end - start
            pairs[row // size] += (last * (last + 1) - first * (first + 1)) // 2
            row = end
        start += length
    return [(p, i * size, min(rows, (i + 1) * size)) for i, p in enumerate(pairs)]


def plan(request):
    """Every block to the rank with the least work so far."""
    size = request["options"]["block"]
    blocks = [(p, s, a, b) for s, lengths in enumerate(request["sequences"]) for p, a, b in blocks_of(lengths, size)]
    ranks = [(0, rank) for rank in range(request["ranks"])]
    assigned = []
    for pairs, seq, start, end in sorted(blocks, key=lambda block: (-block[0], block[1:])):
        load, rank = ranks[0]
        heapq.heapreplace(ranks, (load + pairs, rank))
        assigned.append({"seq": seq, "start": start, "end": end, "workers": [rank]})
    return {"assignment": {"blocks": assigned, "pieces": 4}}


for line in sys.stdin:
    request = json.loads(line)
    answer = HELLO if request["type"] == "hello" else {"id": request["id"], **plan(request)}
    print(json.dumps(answer), flush=True)
