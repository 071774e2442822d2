#!/usr/bin/env python3
"""Ulysses written by hand on all_to_all_single, with cuDNN attention of whole documents on a share of the heads, on two cards.

usage: ulysses.py --out FILE.csv [--seconds N]
"""

import measure


def to_heads(tensors, size):
    """From `[rows, heads, d]` of this rank's rows to `[tokens, heads / size, d]` of its heads: all tensors in one exchange."""
    import torch
    import torch.distributed as dist

    rows, _, width = tensors[0].shape
    of_rank = [x.shape[1] // size for x in tensors]
    by_rank = [x.view(rows, size, heads, width).transpose(0, 1) for x, heads in zip(tensors, of_rank)]
    send = torch.cat(by_rank, dim=2).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send)
    return received.view(size * rows, sum(of_rank), width).split(of_rank, dim=1)


def to_rows(tensors, size):
    """The inverse of `to_heads`."""
    import torch
    import torch.distributed as dist

    tokens, _, width = tensors[0].shape
    of_rank = [x.shape[1] for x in tensors]
    send = torch.cat(tensors, dim=1).contiguous() if len(tensors) > 1 else tensors[0].contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send)
    parts = received.view(size, tokens // size, sum(of_rank), width).split(of_rank, dim=2)
    return [part.transpose(0, 1).reshape(tokens // size, size * part.shape[2], width) for part in parts]


def body(ranks):
    import torch

    class ToHeads(torch.autograd.Function):
        """Q, K and V to heads; their gradients back to rows."""

        @staticmethod
        def forward(_, q, k, v):
            return tuple(to_heads((q, k, v), ranks.size))

        @staticmethod
        def backward(_, *gradients):
            return tuple(to_rows(gradients, ranks.size))

    class ToRows(torch.autograd.Function):
        """The output to rows; its gradient back to heads."""

        @staticmethod
        def forward(_, out):
            return to_rows((out,), ranks.size)[0]

        @staticmethod
        def backward(_, gradient):
            return to_heads((gradient.contiguous(),), ranks.size)[0]

    def inputs(case, rows, same=False):
        shapes = (case.heads, case.kv_heads, case.kv_heads, case.heads)
        return [ranks.random(rows, heads, measure.HEAD_DIM, same=same) for heads in shapes]

    def both(q, k, v, d_out):
        """Output and gradients of this rank's rows, with the events around each pass."""
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        start = ranks.start()
        of_heads = (x.transpose(0, 1).unsqueeze(0) for x in ToHeads.apply(q, k, v))
        out = ToRows.apply(measure.attend(*of_heads).squeeze(0).transpose(0, 1))
        end = ranks.end()
        start_back = ranks.start()
        gradients = torch.autograd.grad(out, (q, k, v), d_out)
        end_back = ranks.end()
        return (out, *gradients), (("forward", start, end), ("backward", start_back, end_back))

    rows = measure.CHECKED.tokens // ranks.size
    whole = inputs(measure.CHECKED, measure.CHECKED.tokens, same=True)
    theirs = measure.definition(*(x.transpose(0, 1).unsqueeze(0) for x in whole))
    mine = slice(ranks.rank * rows, (ranks.rank + 1) * rows)
    ours, _ = both(*(x[mine].contiguous() for x in whole))
    measure.check("ulysses", ours, [x.squeeze(0).transpose(0, 1)[mine] for x in theirs])
    del whole, theirs, ours
    for case in measure.CASES:
        local = inputs(case, case.tokens // ranks.size)
        ranks.time("ulysses-all-to-all", case, lambda: both(*local)[1])
        del local
        torch.cuda.empty_cache()


if __name__ == "__main__":
    measure.launch(body, 2, measure.arguments(__doc__.splitlines()[0]))
