"""Seconds and memory of one penalised EM iteration, beside the floor of two matrix products and one softmax.

One JSON line a size. The floor is timed in the same process on the same data, in chunks of the same rows: X @ eta^T
(N, J) x (J, C), a softmax over C, and r^T X (C, N) x (N, J). Run: ``python benchmarks/em_speed.py [--quick]``.
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from inference import EM, fit
from inference.structures.layers.em_steps import LayeredSteps
from inference.structures.layers.spectral import spectral_start
from ppl_models import DeepDiscreteEncoder, TruncatedLasso

SIZES = [
    (18, 6, 2, (1_000, 4_000, 16_000, 100_000, 1_000_000)),
    (54, 8, 3, (1_000, 16_000, 100_000)),
    (264, 10, 3, (1_000, 20_000)),
]


def resident() -> int:
    """Bytes resident now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


class Peak:
    """Largest resident memory while it runs, above that at the start."""

    def __enter__(self) -> Peak:
        self.start = self.most = resident()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.stop.wait(0.002):
            self.most = max(self.most, resident())

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.thread.join()

    @property
    def extra(self) -> int:
        return self.most - self.start


def floor_seconds(x: torch.Tensor, num_values: int, chunk: int, repeats: int) -> float:
    eta = torch.randn(num_values, x.shape[1], dtype=x.dtype)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        table = torch.zeros_like(eta)
        for rows in x.split(chunk):
            r = torch.softmax(rows @ eta.mT, -1)
            table += r.mT @ rows
        best = min(best, time.perf_counter() - start)
    return best


def best_seconds(action: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def measure(num_items: int, first: int, second: int, num_rows: int) -> dict:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(num_rows, num_items, generator=generator) < 0.4).double()
    model = DeepDiscreteEncoder(num_items, (first, second), penalty=TruncatedLasso.for_rows(num_rows))
    params = spectral_start(model.layers(), model.root(), x[:2000])
    steps = LayeredSteps.build(model, x, EM().chunk_elements, EM().num_inner)
    repeats = 3 if num_rows >= 100_000 else 10
    with Peak() as peak:
        statistics = steps.e_step(params)[0]
        e_step = best_seconds(lambda: steps.e_step(params), repeats)
        m_step = best_seconds(lambda: steps.m_step(statistics, params), repeats)
    num_values = 2**first
    chunk = max(1, EM().chunk_elements // num_values)
    floor = floor_seconds(x, num_values, chunk, repeats)
    whole = floor_seconds(x, num_values, num_rows, repeats) if num_rows * num_values <= 10**8 else None
    return {
        "benchmark": "em_speed",
        "sizes": [num_items, first, second],
        "num_rows": num_rows,
        "threads": torch.get_num_threads(),
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
    model = DeepDiscreteEncoder(18, (6, 2), penalty=TruncatedLasso.for_rows(4000))
    method = EM(max_iterations=10, num_relaxed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model, x[:500], method)
        seconds = best_seconds(lambda: fit(model, x, method), 3)
    return {"benchmark": "em_speed", "what": "fit, 10 iterations, (18, 6, 2), N = 4000, start included", "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only sizes up to 20,000 rows")
    quick = parser.parse_args().quick
    print(json.dumps(ten_iterations()), flush=True)
    for num_items, first, second, rows in SIZES:
        for num_rows in rows:
            if not quick or num_rows <= 20_000:
                print(json.dumps(measure(num_items, first, second, num_rows)), flush=True)


if __name__ == "__main__":
    main()
