"""Decoders against all supports."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import optimize
from support.files import case

from inference.structures.dictionary.decoders import (
    BackwardElimination,
    HardThresholding,
    Pursuit,
    Shrinkage,
    amounts_on,
    decode,
    unit_columns,
    without_cheapest,
)
from ppl_models.datasets import sample_sparse_codes

F64 = torch.float64


def best_support(row: np.ndarray, dictionary: np.ndarray, sparsity: int) -> float:
    """Smallest residual over all supports, by scipy's non-negative least squares."""
    return min(
        optimize.nnls(dictionary[:, list(chosen)], row)[1]
        for chosen in itertools.combinations(range(dictionary.shape[1]), sparsity)
    )


def test_supports_without_the_cheapest_entry_are_least_squares_of_the_rest() -> None:
    truth, rows, _ = case(num_rows=20, sparsity=3, angle=30.0, noise=0.1)
    gram, cross = (truth.T @ truth)[None], (rows @ truth)[None]
    chosen = torch.rand(1, 20, truth.shape[1]).argsort(-1)[..., :5]
    before = amounts_on(chosen, cross, gram)
    kept, amounts, inverse = without_cheapest(chosen, *before)
    for row, some, rest, found, given in zip(
        rows, chosen[0], kept[0], amounts[0], before[0][0], strict=True
    ):
        errors = [
            float((row - truth[:, own] @ torch.linalg.lstsq(truth[:, own], row).solution).norm())
            for own in (torch.cat([some[:i], some[i + 1 :]]) for i in range(5))
        ]
        negative = (given <= 0).nonzero().ravel()
        dropped = int(negative[0]) if len(negative) else int(np.argmin(errors))
        assert rest.tolist() == [int(one) for i, one in enumerate(some) if i != dropped]
        torch.testing.assert_close(found, torch.linalg.lstsq(truth[:, rest], row).solution)
    again = amounts_on(kept, cross, gram)
    torch.testing.assert_close((amounts, inverse), again, rtol=1e-8, atol=1e-8)


def test_decoders_against_all_supports() -> None:
    """No decoder beats the best support; the default finds it nearly always, and more often than
    the others.
    """
    truth, rows, _ = case(num_rows=60, sparsity=3, angle=30.0, noise=0.02)
    best = np.array([best_support(row, truth.numpy(), 3) for row in rows.numpy()])
    share = {}
    for decoder in (BackwardElimination(), HardThresholding(), Pursuit()):
        codes = decode(decoder, rows, truth.unsqueeze(0), 3)[0]
        assert bool((codes >= 0).all())
        assert bool(((codes > 0).sum(-1) <= 3).all())
        found = (rows - codes @ truth.T).norm(dim=-1).numpy()
        assert (found >= best - 1e-9).all()
        share[type(decoder).__name__] = (found <= best + 1e-6).mean()
        for row, code in zip(
            rows.numpy(), codes.numpy(), strict=True
        ):  # the best amounts on what it chose
            on = np.flatnonzero(code)
            amounts, _ = optimize.nnls(truth.numpy()[:, on], row)
            np.testing.assert_allclose(code[on], amounts, atol=1e-7)
    assert share["BackwardElimination"] > 0.95
    assert share["BackwardElimination"] > max(share["HardThresholding"], share["Pursuit"])


def by_the_row(
    decoder: BackwardElimination, row: np.ndarray, a: np.ndarray, k: int
) -> np.ndarray | None:
    """Backward elimination of one row: cyclic descent, then least squares on shrinking supports.

    None where too few codes are positive, so that the candidates are not determined.
    """
    gram, cross = a.T @ a, a.T @ row
    code = np.maximum(np.linalg.pinv(a) @ row, 0)
    for _ in range(decoder.num_sweeps):
        for i in range(len(code)):
            code[i] = max(0.0, code[i] + (cross[i] - gram[i] @ code) / gram[i, i])
    if (code > 0).sum() < decoder.width * k:
        return None
    chosen = list(np.argsort(-code)[: decoder.width * k])
    while len(chosen) > k:
        inverse = np.linalg.inv(gram[np.ix_(chosen, chosen)])
        amounts = inverse @ cross[chosen]
        cost = np.where(amounts > 0, amounts**2 / np.diag(inverse), 0.0)
        chosen.pop(int(cost.argmin()))
    while len(chosen):
        amounts = np.linalg.solve(gram[np.ix_(chosen, chosen)], cross[chosen])
        if (amounts >= 0).all():
            break
        chosen = [i for i, amount in zip(chosen, amounts, strict=True) if amount >= 0]
    code = np.zeros(a.shape[1])
    code[chosen] = amounts
    return code


@pytest.mark.parametrize("num_sweeps", [1, 5, 20])
def test_elimination_of_all_rows_is_elimination_of_each(num_sweeps: int) -> None:
    truth, rows, _ = case(num_rows=200, num_pairs=6, sparsity=2, angle=30.0, noise=0.05)
    decoder = BackwardElimination(num_sweeps)
    codes = decode(decoder, rows, truth.unsqueeze(0), 2)[0].numpy()
    compared = 0
    for row, code in zip(rows.numpy(), codes, strict=True):
        alone = by_the_row(decoder, row, truth.numpy(), 2)
        if alone is not None:
            compared += 1
            np.testing.assert_allclose(code, alone, atol=1e-9)
    assert compared > 100


def test_decoders_take_restarts_and_more_columns_than_items() -> None:
    generator = torch.Generator().manual_seed(0)
    dictionaries = unit_columns(torch.randn(3, 6, 14, generator=generator, dtype=F64))
    rows = sample_sparse_codes(dictionaries[1], 40, 2)[0]
    for decoder in (BackwardElimination(), HardThresholding(), Pursuit(), Shrinkage()):
        together = decode(decoder, rows, dictionaries, 2)
        assert together.shape == (3, 40, 14)
        for r in range(3):
            torch.testing.assert_close(
                together[r], decode(decoder, rows, dictionaries[r : r + 1], 2)[0]
            )
    errors = [
        float((rows - decode(decoder, rows, dictionaries, 2)[1] @ dictionaries[1].T).square().sum())
        for decoder in (BackwardElimination(), Pursuit())
    ]
    assert errors[0] < errors[1]


def test_shrinkage_is_the_papers_formula() -> None:
    truth, rows, _ = case(num_rows=30)
    codes = decode(Shrinkage(0.01), rows, truth.unsqueeze(0), 2)[0].numpy()
    np.testing.assert_allclose(
        codes, np.maximum(0, rows.numpy() @ np.linalg.pinv(truth.numpy()).T - 0.01), atol=1e-10
    )
