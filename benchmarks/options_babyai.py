"""Options of BabyAI's planner beside the sub-tasks it was at, which the model never sees: adjusted
Rand index, held-out score.

Needs the recorded demonstrations (see ``load_unlock_pickup``). One JSON line a model; the line
"states alone" scores the best that a labelling by the state could do, each state given its
commonest sub-task. Run: ``python benchmarks/options_babyai.py [--options 1 2 3 4] [--restarts
10]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run
from papers.babyai import load_unlock_pickup
from sklearn.metrics import adjusted_rand_score

from inference import EM, fit
from inference.inspection.options import log_likelihood_parts
from ppl_models import OptionsHMM

NUM_TRAIN = 240


def measure(args: argparse.Namespace) -> Lines:
    recorded = load_unlock_pickup()
    data, task = recorded.sequences.packed, recorded.sequences.option
    inside = task >= 0
    state = data[..., 0][inside].numpy()
    commonest = np.array(
        [np.bincount(task[inside].numpy()[state == s], minlength=4).argmax() for s in range(24)]
    )
    alone = adjusted_rand_score(task[inside], commonest[state])
    yield {"labels": "states alone, given the sub-tasks", "adjusted_rand": round(float(alone), 3)}
    method = EM(max_iterations=500, tolerance=1e-6, parameter_tolerance=1e-3)
    for num_options in args.options:
        for stickiness in args.stickiness:
            model = OptionsHMM(24, 6, num_options, stickiness=stickiness)
            result = fit(model, data[:NUM_TRAIN], method, num_restarts=args.restarts)
            path = result.decode_latents(data)["options"]
            held = log_likelihood_parts(result, data[NUM_TRAIN:]).actions.sum()
            steps = int(inside[NUM_TRAIN:].sum())
            line = {
                "options": num_options,
                "stickiness": stickiness,
                "bic": round(result.bic, 1),
                "iterations": result.num_iterations,
            }
            line |= {
                "adjusted_rand": round(float(adjusted_rand_score(task[inside], path[inside])), 3)
            }
            line |= {
                "held_out_actions_per_step": round(float(held) / steps, 4),
                "seconds": round(result.seconds, 1),
            }
            table = torch.zeros(4, num_options, dtype=torch.long)
            table.index_put_((task[inside], path[inside]), torch.tensor(1), accumulate=True)
            yield line | {"task_by_option": table.tolist()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--options", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--stickiness", type=float, nargs="+", default=[0.0, 5.0, 20.0])
    parser.add_argument("--restarts", type=int, default=10)
    run(parser, measure, argv, {"options": [2], "stickiness": [5.0], "restarts": 2})


if __name__ == "__main__":
    main()
