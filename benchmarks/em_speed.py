"""Seconds and memory of one penalised EM iteration, beside the floor of two matrix products and one
softmax.

One JSON line a size. The floor is timed in the same process on the same data, in chunks of the same
rows: X @ eta^T (N, J) x (J, C), a softmax over C, and r^T X (C, N) x (N, J). Run: ``python
benchmarks/em_speed.py [--quick]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from _bench import Lines, Peak, command_line, fastest, run

from inference import EM, fit
from inference.structures.layers.em_steps import LayeredSteps
from inference.structures.layers.spectral import spectral_start
from ppl_models import DeepDiscreteEncoder, TruncatedLasso

SIZES = [
    (18, 6, 2, (1_000, 4_000, 16_000, 100_000, 1_000_000)),
    (54, 8, 3, (1_000, 16_000, 100_000)),
    (264, 10, 3, (1_000, 20_000)),
]


def floor_seconds(x: torch.Tensor, num_values: int, chunk: int, repeats: int) -> float:
    eta = torch.randn(num_values, x.shape[1], dtype=x.dtype)

    def products() -> None:
        table = torch.zeros_like(eta)
        for rows in x.split(chunk):
            r = torch.softmax(rows @ eta.mT, -1)
            table += r.mT @ rows

    return fastest(products, repeats)


def iteration(num_items: int, first: int, second: int, num_rows: int) -> dict:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(num_rows, num_items, generator=generator) < 0.4).double()
    model = DeepDiscreteEncoder(
        num_items, (first, second), penalty=TruncatedLasso.for_rows(num_rows), bound=15.0
    )
    params = spectral_start(model.layers(), model.root_layer(), x[:2000])
    steps = LayeredSteps.build(model, x, EM().elements_at_once(x), EM().num_inner)
    repeats = 3 if num_rows >= 100_000 else 10
    with Peak() as peak:
        statistics = steps.e_step(params)[0]
        e_step = fastest(lambda: steps.e_step(params), repeats)
        m_step = fastest(lambda: steps.m_step(statistics, params), repeats)
    num_values = 2**first
    chunk = max(1, EM().elements_at_once(x) // num_values)
    floor = floor_seconds(x, num_values, chunk, repeats)
    whole = (
        floor_seconds(x, num_values, num_rows, repeats) if num_rows * num_values <= 10**8 else None
    )
    return {
        "sizes": [num_items, first, second],
        "num_rows": num_rows,
        "seconds_e_step": e_step,
        "seconds_m_step": m_step,
        "seconds_iteration": e_step + m_step,
        "seconds_floor_chunked": floor,
        "seconds_floor_unchunked": whole,
        "ratio_to_floor": (e_step + m_step) / floor,
        "extra_bytes_at_peak": peak.extra,
    }


def ten_iterations() -> dict:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(4000, 18, generator=generator) < 0.4).double()
    model = DeepDiscreteEncoder(18, (6, 2), penalty=TruncatedLasso.for_rows(4000), bound=15.0)
    method = EM(max_iterations=10, num_relaxed=0)
    fit(model, x[:500], method)
    seconds = fastest(lambda: fit(model, x, method), 3)
    return {"what": "fit, 10 iterations, (18, 6, 2), N = 4000, start included", "seconds": seconds}


def measure(args: argparse.Namespace) -> Lines:
    yield ten_iterations()
    for num_items, first, second, rows in SIZES:
        for num_rows in rows:
            if num_rows <= args.most_rows:
                yield iteration(num_items, first, second, num_rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--most-rows", type=int, default=1_000_000, help="leave larger sizes out")
    run(parser, measure, argv, {"most_rows": 16_000})


if __name__ == "__main__":
    main()
