#!/usr/bin/env python3
"""The roof: cuDNN attention on the heads that each rank of Ulysses runs, without any exchange, and large bf16 products.

usage: kernel_alone.py --out FILE.csv [--seconds N]

Every card of the machine, at most two, measures at the same time. A row of `gemm` is a square product: `tokens` rows, columns and inner
elements; heads are 0.
"""

import measure

GEMM_SIZES = (8_192, 16_384)


def body(ranks):
    import torch

    def inputs(case, share):
        """This rank's heads, token-major as after an exchange."""
        shapes = (case.heads, case.kv_heads, case.kv_heads, case.heads)
        tensors = [ranks.random(case.tokens, heads // share, measure.HEAD_DIM) for heads in shapes]
        return [x.transpose(0, 1).unsqueeze(0) for x in tensors]

    def both(q, k, v, d_out):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        start = ranks.start()
        out = measure.attend(q, k, v)
        end = ranks.end()
        start_back = ranks.start()
        gradients = torch.autograd.grad(out, (q, k, v), d_out)
        end_back = ranks.end()
        return (out, *gradients), (("forward", start, end), ("backward", start_back, end_back))

    def product(a, b):
        start = ranks.start()
        c = a @ b
        end = ranks.end()
        return c, (("product", start, end),)

    small = inputs(measure.CHECKED, 1)
    measure.check("kernel-alone", both(*small)[0], measure.definition(*small))
    a, b = ranks.random(512, 512), ranks.random(512, 512)
    expected = a.double() @ b.double()
    error = (torch.linalg.vector_norm(product(a, b)[0] - expected) / torch.linalg.vector_norm(expected)).item()
    if not error <= measure.TOLERANCE:
        raise ValueError(f"gemm: relative error {error:.3g}, at most {measure.TOLERANCE} is right")
    for size in GEMM_SIZES:
        a, b = ranks.random(size, size), ranks.random(size, size)
        case = measure.Case(size, heads=0, kv_heads=0, ranks=1)
        ranks.time("gemm", case, lambda: product(a, b)[1])
    del a, b
    for case in measure.CASES:
        local = inputs(case, case.ranks)
        ranks.time("kernel-alone", case, lambda: both(*local)[1])
        del local
        torch.cuda.empty_cache()


def main():
    import torch

    options = measure.arguments(__doc__.splitlines()[0])
    measure.launch(body, max(1, min(2, torch.cuda.device_count())), options)


if __name__ == "__main__":
    main()
