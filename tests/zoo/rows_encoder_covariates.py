"""Rows of the zoo's table for encoders whose deepest latents depend on covariates; rows are given
with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from scipy.special import expit
from zoo.row import F64, Params, Row
from zoo.rows_encoder import encoder_log_likelihood

from ppl_models import (
    Bernoulli,
    Blocks,
    Covariates,
    DeepDiscreteEncoder,
    NegativeBinomial,
    Normal,
    Poisson,
)

KNOWN = Covariates(("age", "sex"), ((), ("female", "male")), units=((1.0, 1.5), (0.5, 0.5)))


def log_likelihood_given(
    columns: tuple[str, ...],
    sizes: tuple[int, ...],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    """One row at a time: the chances of its deepest latents by its number and its category, then
    the sum over all configurations.
    """
    num_items, out = len(columns), []
    for row in data:
        terms = np.array([1.0, row[num_items], row[num_items + 1] == 1])
        chances = expit(params["coefficients"] @ terms)
        out.append(
            encoder_log_likelihood(
                columns, sizes, {**params, "proportions": chances}, row[None, :num_items]
            )[0]
        )
    return np.array(out)


def rows_given(
    columns: tuple[str, ...], truth: Params, missing: float, num_rows: int, seed: int
) -> torch.Tensor:
    """Items with gaps, and behind them a number, which some rows share, and one of two
    categories.
    """
    rng = np.random.default_rng(seed)
    given = np.stack([rng.normal(1.0, 1.5, num_rows).round(1), rng.integers(0, 2, num_rows)], 1)
    odds = np.c_[np.ones(num_rows), given] @ truth["coefficients"].numpy().T
    depth = sum(name.startswith("loadings") for name in truth)
    for d in range(depth, 0, -1):
        bits = (rng.random(odds.shape) < expit(odds)).astype(float)
        odds = truth[f"intercepts_{d}"].numpy() + bits @ truth[f"loadings_{d}"].numpy().T
    dispersion, items = iter(truth.get("dispersion", torch.zeros(0)).tolist()), []
    for j, family in enumerate(columns):
        if family == "Bernoulli":
            items.append(rng.random(num_rows) < expit(odds[:, j]))
        elif family == "Poisson":
            items.append(rng.poisson(np.exp(odds[:, j])))
        elif family == "NegativeBinomial":
            items.append(
                rng.poisson(
                    np.exp(odds[:, j]) * rng.gamma(size := next(dispersion), 1 / size, num_rows)
                )
            )
        else:
            items.append(rng.normal(odds[:, j], np.sqrt(next(dispersion))))
    table = np.stack(items, 1).astype(float)
    gone = rng.random(table.shape) < missing
    gone[np.arange(num_rows), np.arange(num_rows) % len(columns)] = False
    return torch.from_numpy(np.concatenate([np.where(gone, np.nan, table), given], 1))


def encoder_given(
    name: str,
    columns: tuple[str, ...],
    sizes: tuple[int, ...],
    response: object,
    loading: float,
    missing: float,
    recovery_rows: int | None = None,
) -> Row:
    """Pure items of every latent, one after another; deepest latents that depend on both
    covariates.
    """
    model = DeepDiscreteEncoder(
        len(columns), sizes, response=response, penalty=None, covariates=KNOWN
    )  # type: ignore[arg-type]
    truth: Params = {
        "coefficients": torch.tensor([[-0.9, 0.8, 1.0], [0.7, -0.6, 0.4]], dtype=F64)[: sizes[-1]]
    }
    shapes = {
        "coefficients": tuple(truth["coefficients"].shape),
        "items": (len(columns) + len(KNOWN.names),),
    }  # drawn beside the covariates
    for d, (children, parents) in enumerate(
        zip((len(columns), *sizes), sizes, strict=False), start=1
    ):
        truth[f"loadings_{d}"] = (
            loading * torch.eye(parents, dtype=F64).repeat(-(-children // parents), 1)[:children]
        )
        truth[f"intercepts_{d}"] = (
            0.1 * torch.arange(children, dtype=F64) / children - truth[f"loadings_{d}"].sum(-1) / 2
        )
        shapes |= {
            f"loadings_{d}": (children, parents),
            f"intercepts_{d}": (children,),
            f"latents_{d}": (parents,),
        }
    num_dispersed = model.response.num_dispersed(len(columns))
    if num_dispersed:
        truth["dispersion"] = 1.5 + 0.1 * torch.arange(num_dispersed, dtype=F64)
        shapes["dispersion"] = (num_dispersed,)
    by_hand = partial(log_likelihood_given, columns, sizes)
    return Row(
        name,
        model,
        truth,
        shapes,
        by_hand,
        missing,
        recovery_rows,
        data=partial(rows_given, columns, truth, missing),
    )


def encoders_given() -> list[Row]:
    mixed = Blocks((Bernoulli(), 2), (Poisson(), 1), (NegativeBinomial(), 1), (Normal(), 1))
    columns = ("Bernoulli", "Bernoulli", "Poisson", "NegativeBinomial", "Normal")
    return [
        encoder_given(
            "encoder-covariates-recovers",
            ("Bernoulli",) * 8,
            (2,),
            Bernoulli(),
            4.0,
            0.0,
            recovery_rows=2000,
        ),
        encoder_given("encoder-covariates-missing", columns, (3, 2), mixed, 1.2, 0.2),
    ]
