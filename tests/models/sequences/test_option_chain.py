"""The distribution of whole sequences."""

from __future__ import annotations

import torch
from support.option_sequences import SIZES, case, close
from zoo.rows_options import options_truth

from inference.programs.program import Program
from ppl_models import OptionsHMM
from ppl_models.sequences.option_chain import OptionChain


def test_the_distribution_takes_batches_of_parameters() -> None:
    """One set of parameters a sequence, restarts before sequences, and a single sequence."""
    sets = [options_truth(*SIZES, seed=seed) for seed in range(7)]
    data = case(0)[2]
    names = ("initial", "low", "high", "environment")
    expected = torch.stack(
        [Program(OptionsHMM(*SIZES), data).log_marginal_rows(params) for params in sets]
    )
    stacked = [torch.stack([params[name] for params in sets]) for name in names]
    close(OptionChain(*stacked, 6).log_prob(data), expected.diagonal())
    restarts = OptionChain(*(value.unsqueeze(1) for value in stacked), 6).expand((7, 7))
    close(restarts.log_prob(data), expected)
    close(OptionChain(*(sets[2][name] for name in names), 6).log_prob(data[4]), expected[2, 4])
    assert restarts.sample().shape == (7, 7, 6, 2)
    assert OptionChain(*stacked, 6).sample((2,)).shape == (2, 7, 6, 2)
