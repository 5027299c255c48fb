"""One fit that several processes share: latent classes of a table that need not fit into memory.

On a laptop, two processes, with rows that the script makes by itself:

    torchrun --nproc_per_node 2 examples/fit_shared.py --out classes

With rows of your own (a .npy or .parquet file, or a folder of parquet files, of 0 and 1, empty
where missing), which every process opens and takes its share of:

    torchrun --nproc_per_node 2 examples/fit_shared.py answers.parquet --classes 4 --out classes

On a cluster, the same line in each of four machines that see the file, with the name of the first
one; under Slurm it is the last line of a job of four nodes:

    srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $(scontrol show
    hostnames | head -1):29500 \\
        --rdzv_id $SLURM_JOB_ID examples/fit_shared.py /scratch/answers.parquet --classes 4 --out
        classes --checkpoint classes.ckpt

Called again after it was interrupted, it goes on from the checkpoint. Without torchrun it is a fit
of one process.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

from inference import EM, RowBlocks, fit
from ppl_models import Bernoulli, Mixture


def made_rows(path: Path, num_rows: int = 100_000, num_items: int = 10) -> Path:
    """A table of three classes, as a .npy file of small integers."""
    rng = np.random.default_rng(0)
    chances = rng.uniform(0.1, 0.9, (3, num_items))
    np.save(
        path,
        (rng.random((num_rows, num_items)) < chances[rng.integers(3, size=num_rows)]).astype(
            np.int8
        ),
    )
    return path


def main() -> None:
    """Read the command line, join the other processes, fit, and let the first process save the
    fit.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows",
        nargs="?",
        type=Path,
        help=".npy, .parquet, or a folder of parquet files; rows are made if left out",
    )
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("classes"), help="folder of the fit")
    parser.add_argument(
        "--checkpoint", type=Path, help="file from which an interrupted fit goes on"
    )
    args = parser.parse_args()

    torch.set_num_threads(1)  # one thread a process; start as many processes as there are cores
    group = None
    if "RANK" in os.environ:  # torchrun tells every process its number
        torch.distributed.init_process_group("gloo")
        group = torch.distributed.group.WORLD
    is_first = group is None or torch.distributed.get_rank() == 0
    if args.rows is None:
        args.rows = args.out.with_suffix(".npy")
        if is_first:
            made_rows(args.rows)
        if group is not None:
            torch.distributed.barrier()

    blocks = RowBlocks.of(args.rows, group=group, split=group is not None)
    num_items = next(iter(blocks)).shape[1]
    found = fit(
        Mixture(args.classes, Bernoulli(), num_items),
        blocks,
        EM(),
        num_restarts=5,
        checkpoint=args.checkpoint,
        progress=is_first,
    )
    if is_first:
        found.save(args.out)
        print(
            f"{found.num_rows:,} rows in {found.seconds:.1f} s, log-likelihood"
            f" {found.log_likelihood:.2f}, shares of the classes",
            found.params["weights"].tolist(),
        )
    if group is not None:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
