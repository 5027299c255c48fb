"""Items drawn from the strict design, and families of encoders by the size of their first layer."""

from __future__ import annotations

from inference.programs.program import Program
from ppl_models import DeepDiscreteEncoder
from ppl_models.datasets import strict_design

BOUND = 10.0


def data_of(response, num_rows=600, top=2, seed=0):
    model = DeepDiscreteEncoder(9 * top, (3 * top, top), response)
    return Program(model, None, num_rows).simulate(strict_design(top, response), seed)["items"]
