"""Tables larger than memory, and one fit over several processes.

Four measurements, each in processes of its own:

- ``memory map``: EM of an encoder on int8 rows in a ``.npy`` file, by blocks: time, and the peak of
  resident memory beside the floor (the library imported and a fit of 20,000 rows in memory done,
  from as many of which every fit of blocks starts) and the size of a block in double precision.
  ``in memory`` is the same with the rows loaded, beside the size of the rows in double precision,
  for an encoder, one whose rows have gaps, mixtures of Bernoulli, of normal items and with full
  covariances, and factor analysis; ``--plain`` names no method.
- ``parquet``: the same from a parquet file with row groups of the usual size.
- ``processes``: for each family the objective and parameters of one, two and three processes from
  one start, bytes of the largest message of an iteration, and seconds of an iteration, of a long
  fit less a short one (of a factorization fifteen updates, which read the rows some twenty times).
  Ratios of times mean something on a quiet machine with a core for each process.

Large runs: ``--rows 2000000 --items 50``, ``--parquet-rows 100000000``, ``--shared-rows 1000000``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from _bench import command_line, run

BLOCK = 65_536
SHORT = 2  # iterations of a fit whose time is taken off that of a longer one
ROW_GROUP = 2**20  # of a parquet file, as pyarrow and pandas write it
MEGABYTE = 1e6


def made(num_rows: int, num_items: int, seed: int) -> np.ndarray:
    """Rows of an encoder's kind: six latents, items of 0 and 1."""
    rng = np.random.default_rng(seed)
    loadings = np.where(np.arange(num_items) % 6 == np.arange(6)[:, None], 3.0, 0.0)
    latents = rng.random((num_rows, 6)) < 0.5
    return (rng.random((num_rows, num_items)) < 1 / (1 + np.exp(1.5 - latents @ loadings))).astype(
        np.int8
    )


def made_with_gaps(num_rows: int, num_items: int, seed: int) -> np.ndarray:
    """The same with a twentieth of the entries missing."""
    rows = made(num_rows, num_items, seed).astype(np.float64)
    rows[np.random.default_rng(seed + 1).random(rows.shape) < 0.05] = np.nan
    return rows


def made_numbers(num_rows: int, num_items: int, seed: int) -> np.ndarray:
    """Rows of three groups that lie two standard deviations apart."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((num_rows, num_items)) + 2.0 * rng.integers(0, 3, (num_rows, 1))


def write_npy(
    path: Path, num_rows: int, num_items: int, make: Callable[[int, int, int], np.ndarray] = made
) -> None:
    whole = np.lib.format.open_memmap(
        path, "w+", make(1, num_items, 0).dtype, (num_rows, num_items)
    )
    for first in range(0, num_rows, BLOCK):
        whole[first : first + BLOCK] = make(min(BLOCK, num_rows - first), num_items, first)
    whole.flush()


def write_parquet(path: Path, num_rows: int, num_items: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(f"item_{j}", pa.int8()) for j in range(num_items)])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, num_rows, ROW_GROUP):
            rows = made(min(ROW_GROUP, num_rows - first), num_items, first)
            writer.write_table(pa.table([rows[:, j] for j in range(num_items)], schema), ROW_GROUP)


IN_MEMORY = {
    "DeepDiscreteEncoder": made,
    "DeepDiscreteEncoder, with gaps": made_with_gaps,
    "Mixture of Bernoulli, 3": made,
    "Mixture of Normal, 3": made_numbers,
    "Mixture of MultivariateNormal, 3": made_numbers,
    "FactorAnalysis, 2": made_numbers,
}
WRITERS = {".npy": write_npy, ".parquet": write_parquet}


def peak() -> float:
    """Largest resident memory of this process so far, in megabytes."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024 / MEGABYTE


def one_fit(order: dict[str, Any]) -> dict[str, Any]:
    """A fit in this process, and what it took."""
    torch.set_num_threads(order["threads"] or 1)
    warnings.simplefilter("ignore")
    from inference import EM, RowBlocks, fit
    from ppl_models import (
        Bernoulli,
        DeepDiscreteEncoder,
        FactorAnalysis,
        Mixture,
        MultivariateNormal,
        Normal,
    )

    path, items, family = Path(order["path"]), order["items"], order["family"]
    models = {
        "Mixture of Bernoulli, 3": Mixture(3, Bernoulli(), items),
        "Mixture of Normal, 3": Mixture(3, Normal(), items),
        "Mixture of MultivariateNormal, 3": Mixture(3, MultivariateNormal(), items),
        "FactorAnalysis, 2": FactorAnalysis(items, 2),
    }
    model = models.get(family, DeepDiscreteEncoder(items, (6, 2), penalty=None))
    method = None if order["plain"] else EM(max_iterations=order["iterations"])
    small = path.with_name(f"small{path.suffix}")
    WRITERS[path.suffix](small, 100, items)
    fit(model, IN_MEMORY[family](20_000, items, 0), method)
    fit(model, RowBlocks.of(small, 50), method)
    floor = peak()
    began, cpu = time.perf_counter(), time.process_time()
    rows = np.load(path) if order["in_memory"] else RowBlocks.of(path, order["block_rows"])
    found = fit(model, rows, method)
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "processor": round(time.process_time() - cpu, 2),
        "iterations": found.num_iterations,
        "floor_mb": round(floor, 1),
        "peak_mb": round(peak(), 1),
        "log_likelihood": found.log_likelihood,
    }


def alone(order: dict[str, Any]) -> dict[str, Any]:
    """The same in a fresh process."""
    answer = Path(order["path"]).with_name("answer.json")
    subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(order), str(answer)], check=True
    )
    return json.loads(answer.read_text(encoding="utf-8"))


def memory(args: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    npy, parquet = folder / "rows.npy", folder / "rows.parquet"
    cases = [
        ("memory map", "DeepDiscreteEncoder", npy, args.rows, args.items),
        *(
            ("in memory", family, npy, args.rows, args.items)
            for family in IN_MEMORY
            if family.startswith(tuple(args.families or [""]))
        ),
    ]
    if args.parquet_rows:
        cases.append(
            ("parquet", "DeepDiscreteEncoder", parquet, args.parquet_rows, args.parquet_items)
        )
    for what, family, path, rows, items in cases:
        if what not in args.what:
            continue
        in_memory = what == "in memory"
        (
            write_parquet(path, rows, items)
            if path is parquet
            else write_npy(path, rows, items, IN_MEMORY[family])
        )
        found = alone(
            {
                "path": str(path),
                "items": items,
                "iterations": args.iterations,
                "plain": args.plain,
                "in_memory": in_memory,
                "threads": args.threads,
                "family": family,
                "block_rows": args.block_rows,
            }
        )
        block, whole = (
            min(args.block_rows, rows) * items * 8 / MEGABYTE,
            rows * items * 8 / MEGABYTE,
        )
        above = found["peak_mb"] - found["floor_mb"]
        yield {
            "what": what,
            "family": family,
            "plain": args.plain,
            "rows": rows,
            "items": items,
            **found,
            "file_mb": round(path.stat().st_size / MEGABYTE, 1),
            "float64_mb": round(whole, 1),
            "block_mb": round(block, 1),
            **(
                {"peak_in_sizes_of_the_data": round(above / whole, 2)}
                if in_memory
                else {"peak_in_blocks": round(above / block, 2)}
            ),
        }


# ---------------------------------------------------------------- processes


def families(num_rows: int) -> dict[str, tuple[Any, Any]]:
    from ppl_models import (
        Bernoulli,
        DeepDiscreteEncoder,
        FactorAnalysis,
        GaussianFactorization,
        HiddenMarkov,
        LatentAttributeModel,
        Mixture,
        MultivariateNormal,
        NegativeBinomialFactorization,
        NoisyOr,
        Normal,
        OptionsHMM,
        PoissonFactorization,
    )

    rng = np.random.default_rng(1)
    bits = made(num_rows, 18, 0)
    numbers = rng.normal(size=(num_rows, 6)) + 2.0 * (rng.random(num_rows) < 0.4)[:, None]
    amounts = rng.negative_binomial(
        2, 2 / (2 + rng.gamma(1.0, 10.0, (num_rows, 3)) @ rng.dirichlet(np.full(10, 0.3), 3))
    ) + (np.arange(10) == 0)
    sequences, steps = num_rows // 10, 10
    option = np.cumsum(rng.random((sequences, steps)) < 0.15, axis=1) % 2
    action = (rng.random(option.shape) < np.where(option, 0.9, 0.15)).astype(int)
    demonstrations = {"state": rng.integers(3, size=option.shape), "action": action}
    q_matrix = np.eye(3)[np.arange(18) % 3]
    return {
        "DeepDiscreteEncoder (18, 6, 2)": (DeepDiscreteEncoder(18, (6, 2), penalty=None), bits),
        "LatentAttributeModel 18 x 3": (LatentAttributeModel(q_matrix), bits),
        "Mixture of Bernoulli, 4": (Mixture(4, Bernoulli(), 18), bits),
        "Mixture of Normal, 3": (Mixture(3, Normal(), 6), numbers),
        "Mixture of MultivariateNormal, 3": (Mixture(3, MultivariateNormal(), 6), numbers),
        "HiddenMarkov of Normal, 2": (
            HiddenMarkov(2, Normal(), 6),
            numbers[: num_rows // 10 * 10].reshape(-1, 10, 6),
        ),
        "NoisyOr, 4": (NoisyOr(18, 4), bits),
        "FactorAnalysis, 2": (FactorAnalysis(6, 2), numbers),
        "OptionsHMM of 3 states, 2 actions, 2": (OptionsHMM(3, 2, 2), demonstrations),
        "PoissonFactorization, 3": (PoissonFactorization(10, 3), amounts),
        "NegativeBinomialFactorization, 3": (NegativeBinomialFactorization(10, 3), amounts),
        "GaussianFactorization, not negative, 3": (
            GaussianFactorization(10, 3, nonnegative=True),
            amounts,
        ),
        "program of a user's own": (two_normals, numbers),
    }


def two_normals(data: torch.Tensor) -> None:
    """Two classes of rows, as a user may write it."""
    weight = pyro.sample("weight", dist.Beta(torch.tensor(1.0, dtype=torch.float64), 1.0))
    mean = pyro.sample(
        "mean", dist.Normal(torch.zeros(2, data.shape[1], dtype=torch.float64), 10.0).to_event(2)
    )
    with pyro.plate("rows", len(data)):
        kind = pyro.sample("kind", dist.Bernoulli(weight)).unsqueeze(-1)
        centre = torch.where(kind > 0.5, mean[..., 1, :], mean[..., 0, :])
        pyro.sample("x", dist.Normal(centre, 1.0).to_event(1), obs=data)


def shared_fit(
    rank: int,
    size: int,
    num_rows: int,
    iterations: int,
    wanted: Sequence[str],
    store: str,
    queue: Any,
) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=size)
    from inference import EM, RowBlocks, fit
    from inference.structures.factorization.factorize import Factorize

    messages: list[int] = []
    plain = torch.distributed.all_reduce

    def counted(message: torch.Tensor, *others: Any, **named: Any) -> Any:
        messages.append(message.numel() * message.element_size())
        return plain(message, *others, **named)

    torch.distributed.all_reduce = counted
    found = {}
    for name, (model, rows) in families(num_rows).items():
        if wanted and not name.startswith(tuple(wanted)):
            continue
        messages.clear()
        seconds = []
        for num in (
            SHORT,
            SHORT + iterations,
        ):  # the first look at the rows and the start are in both
            method: Any = EM(
                max_iterations=num, acceleration=None, tolerance=1e-300, parameter_tolerance=1e-300
            )
            if "Factorization" in name:
                method = Factorize(max_sweeps=15 * num, tolerance=1e-300)
            blocks = RowBlocks.of(rows, BLOCK, torch.distributed.group.WORLD, split=True)
            began = time.perf_counter()
            own = fit(model, blocks, method, "random" if "Factorization" in name else None)
            seconds.append(time.perf_counter() - began)
        params = {site: value.numpy() for site, value in own.params.items()}
        found[name] = {
            "objective": own.objective,
            "params": params,
            "bytes": max(messages, default=0),
            "seconds": (seconds[1] - seconds[0]) / iterations,
            "whole": seconds[1],
        }
    queue.put((rank, found))
    torch.distributed.destroy_process_group()


def shared(args: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    by_size: dict[int, Any] = {}
    for size in args.processes:
        queue = context.Queue()
        order = (
            size,
            args.shared_rows,
            args.shared_iterations,
            args.families,
            str(folder / f"store-{size}"),
            queue,
        )
        workers = [context.Process(target=shared_fit, args=(rank, *order)) for rank in range(size)]
        for worker in workers:
            worker.start()
        found = dict(queue.get(timeout=3600) for _ in workers)
        for worker in workers:
            worker.join()
        by_size[size] = found[0]
        for name, own in found[0].items():
            first = by_size[args.processes[0]][name]
            yield {
                "what": "processes",
                "family": name,
                "rows": args.shared_rows,
                "processes": size,
                "iterations": args.shared_iterations,
                "objective": own["objective"],
                "objective_difference": abs(own["objective"] - first["objective"])
                / abs(first["objective"]),
                "parameter_difference": max(
                    float(np.abs(value - first["params"][site]).max())
                    for site, value in own["params"].items()
                ),
                "bytes_an_e_step": own["bytes"],
                "seconds_an_iteration": round(own["seconds"], 4),
                "times_as_fast": round(first["seconds"] / own["seconds"], 2),
                "whole_times_as_fast": round(first["whole"] / own["whole"], 2),
            }


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        if {"memory map", "in memory", "parquet"} & set(args.what):
            yield from memory(args, Path(name))
        if "processes" in args.what:
            yield from shared(args, Path(name))


def main(argv: Sequence[str] | None = None) -> None:
    """The measurements that the command line names."""
    kinds = ["memory map", "in memory", "parquet", "processes"]
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--what", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument(
        "--parquet-rows", type=int, default=100_000_000, help="0 for no parquet file"
    )
    parser.add_argument("--parquet-items", type=int, default=18)
    parser.add_argument("--block-rows", type=int, default=BLOCK, help="rows held at a time")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument(
        "--plain", action="store_true", help="fit(model, rows) with no method, its search and all"
    )
    parser.add_argument("--shared-rows", type=int, default=1_000_000)
    parser.add_argument(
        "--families",
        nargs="+",
        metavar="NAME",
        default=[],
        help="in memory and of the processes, by the beginnings of their names; all if not said",
    )
    parser.add_argument("--shared-iterations", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the files lie while it runs; the system's folder for such files if not said",
    )
    if "--child" in sys.argv:
        order, answer = sys.argv[-2:]
        Path(answer).write_text(json.dumps(one_fit(json.loads(order))), encoding="utf-8")
        return
    quick = {
        "rows": 200_000,
        "items": 20,
        "parquet_rows": 200_000,
        "shared_rows": 2_000,
        "shared_iterations": 3,
        "processes": [1, 2],
    }
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()
