#!/usr/bin/env python3
"""PyTorch's context_parallel, rotating keys and values by all-gather and by all-to-all, head-tail balanced, on two cards.

usage: context_parallel.py --out FILE.csv [--seconds N]
"""

import measure

ROTATIONS = ("allgather", "alltoall")


def body(ranks):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method

    mesh = init_device_mesh("cuda", (ranks.size,), mesh_dim_names=("cp",))

    def inputs(case):
        shapes = (case.heads, case.kv_heads, case.kv_heads, case.heads)
        return [ranks.random(1, heads, case.tokens, measure.HEAD_DIM, same=True) for heads in shapes]

    def both(q, k, v, d_out):
        """Output and gradients, with the events around each pass. The backward belongs inside the context too."""
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        start = ranks.start()
        out = measure.attend(q, k, v)
        end = ranks.end()
        start_back = ranks.start()
        gradients = torch.autograd.grad(out, (q, k, v), d_out)
        end_back = ranks.end()
        return (out, *gradients), (("forward", start, end), ("backward", start_back, end_back))

    for rotation in ROTATIONS:
        set_rotate_method(rotation)
        peer = f"context-parallel-{rotation}"
        whole = inputs(measure.CHECKED)
        theirs = measure.definition(*whole)
        # The context replaces its buffers by this rank's shards.
        with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2] * 4, no_restore_buffers=set(whole)):
            ours, _ = both(*whole)
            ours = context_parallel_unshard(mesh, [x.detach() for x in ours], [2] * 4)
        measure.check(peer, ours, theirs)
    for case in measure.CASES:
        for rotation in ROTATIONS:
            set_rotate_method(rotation)
            shards = inputs(case)
            with context_parallel(mesh, buffers=shards, buffer_seq_dims=[2] * 4, no_restore_buffers=set(shards)):
                ranks.time(f"context-parallel-{rotation}", case, lambda: both(*shards)[1])
            del shards
            torch.cuda.empty_cache()


if __name__ == "__main__":
    measure.launch(body, 2, measure.arguments(__doc__.splitlines()[0]))
