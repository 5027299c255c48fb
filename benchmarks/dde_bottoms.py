"""How items depend on attributes that a Q-matrix gives: each alone, all together (DINA), or pairs
(GDM), by BIC on real data.

TIMSS 2019 (Lee and Gu 2025, arXiv:2501.01414, section 6.3): answers of 435 students to 29 items,
each with two of seven skills, alone and jointly with log times, a layer (7, 1); and K. Tatsuoka's
fraction subtraction, 536 students, 15 items, five skills, a layer (5, 1), in the version of the R
package CDM. One JSON line a model, with the guessing and slipping probabilities of the conjunctive
models. Needs ``timss2019_dde.npz`` and ``fraction_subtraction.npz`` (``PPL_MODELS_DATA``). Run:
``python benchmarks/dde_bottoms.py [--starts 8]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run

from inference import EM, fit
from inference.identifiability import check_identifiability
from ppl_models import Additive, Bernoulli, Blocks, DeepDiscreteEncoder, ExpDINA, ExpGDM, Normal
from ppl_models.datasets import load_timss
from ppl_models.datasets.fetch import local_file


def tables() -> list[tuple[str, np.ndarray, np.ndarray, object]]:
    """Name, items, Q-matrix and response family of each data set."""
    timss = load_timss()
    path = local_file("fraction_subtraction.npz")
    if path is None:
        raise FileNotFoundError(
            "fraction_subtraction.npz was expected in the folder that PPL_MODELS_DATA names"
        )
    file = np.load(path)
    both = np.concatenate([timss.correct, timss.log_seconds], 1)
    blocks = Blocks((Bernoulli(), 29), (Normal(), 29))
    return [
        (
            "fraction subtraction",
            file["fracsub15_x"].astype(float),
            file["fracsub15_q"].astype(int),
            Bernoulli(),
        ),
        ("TIMSS answers", timss.correct, timss.q_matrix, Bernoulli()),
        ("TIMSS answers and times", both, np.concatenate([timss.q_matrix] * 2), blocks),
    ]


def measure(args: argparse.Namespace) -> Lines:
    method = EM(max_iterations=args.iterations, tolerance=1e-8, parameter_tolerance=1e-3)
    for name, items, q_matrix, response in tables():
        for bottom in (Additive(), ExpDINA(), ExpGDM(order=2)):
            graphs = (q_matrix.tolist(), None)
            model = DeepDiscreteEncoder(
                len(q_matrix),
                (q_matrix.shape[1], 1),
                response,
                graphs=graphs,
                bottom=bottom,
                bound=15.0,
            )
            result = fit(model, items, method, num_restarts=args.starts)
            reached = result.restarts.log_likelihood
            line = {"data": name, "bottom": repr(bottom), "starts": args.starts}
            line |= {
                "log_likelihood": result.log_likelihood,
                "parameters": result.num_parameters,
                "bic": result.bic,
            }
            line |= {"starts_within_0.1_of_the_best": int((reached > reached.max() - 0.1).sum())}
            line |= {
                "iterations": result.num_iterations,
                "converged": result.converged,
                "seconds": result.seconds,
            }
            line["verdict"] = check_identifiability(result).layers[0].verdict
            if isinstance(bottom, ExpDINA):
                line["guess_slip"] = model.guess_slip(result.params).numpy().round(3).tolist()
            yield line


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=1000)
    run(parser, measure, argv, {"starts": 1, "iterations": 10})


if __name__ == "__main__":
    main()
