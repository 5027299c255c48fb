"""Section 3.3.2 of Nguyen et al.: how many signatures four synthetic sets of breast tumours have.

Protocol "paper": fits of 2 to 13 signatures, judged by component discrepancies (ACDC), the paper's
BIC and parallel analysis; the paper's numbers of restarts and draws are not stated. Protocol
"ours": ``select_components(PoissonFactorization, counts)``. Twelve signatures made the counts.
Needs the folder of data.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from inference.acdc import acdc
from inference.selection import compare_criteria, fit_grid, select_components
from papers.cells import Cell, Setting, Study, Table, published
from ppl_models import PoissonFactorization
from ppl_models.datasets import load_breast
from ppl_models.datasets.mutational_signatures import FILE, SYNTHETIC_BREAST

NAME = "signatures"
VERSIONS = {"paper": 1, "plain": 1}  # raised where numbers have changed
SIZES = range(2, 14)
RESTARTS, DRAWS, CHANNELS = 10, 4, 96


def replicate(data: str, what: str, seed: int) -> dict[str, Any]:
    """Numbers of signatures chosen, and how far the main one is from the true twelve."""
    counts = load_breast(data).counts
    true = published("acdc")["breast"]["num_components"]
    if what == "plain":
        answer = select_components(PoissonFactorization, counts, SIZES, seed=seed)
        return {"apart": abs(answer.num_components - true), "chosen": answer.num_components}
    fits = fit_grid(partial(PoissonFactorization, CHANNELS), counts, SIZES, RESTARTS, seed)
    result = acdc(fits, counts, seed=seed, num_draws=DRAWS)
    rivals = compare_criteria(fits, counts, result)["chosen"]
    return {
        "apart": abs(result.chosen - true),
        "chosen": result.chosen,
        "bic": int(rivals["BIC (thesis)"]),
        "parallel analysis": int(rivals["parallel analysis"]),
    }


def _cells() -> list[Cell]:
    own = published("acdc")["breast"]
    best = own["num_components"] - max(own["acdc"])
    out = []
    for data in SYNTHETIC_BREAST:
        paper, plain = (
            Setting(
                NAME,
                {"data": data, "what": what},
                10,
                120.0,
                VERSIONS[what],
                tolerance=0.5,
                file=FILE,
            )
            for what in ("paper", "plain")
        )
        row, digits = data.replace("_", " "), 1
        both, one = {"paper": paper, "ours": plain}, {"paper": paper}
        out += [
            Cell(row, "signatures away from the true twelve", "apart", best, both, "mean", "less",
                 digits=digits),
            Cell(row, "chosen by BIC", "bic", max(SIZES), one, "mean", "alike", digits=digits),
            Cell(row, "chosen by parallel analysis", "parallel analysis", own["parallel_analysis"],
                 one, "mean", "alike", digits=digits),
        ]  # fmt: skip
    return out


STUDY = Study(
    NAME,
    "Nguyen, Li, Lai, Paschalidis and Huggins, Beyond Predictive Accuracy, section 3.3.2",
    "Paper: ACDC, BIC and parallel analysis on fits of 2 to 13 signatures; the paper's ACDC chooses"
    " 7 or 8, its BIC the largest number compared. Ours: `select_components`.",
    (
        Table(
            "Figs. 3.3, E.1",
            "number of signatures chosen, by data set (twelve made the counts)",
            _cells(),
        ),
        Table(
            "Fig. 3.4",
            "number of materials chosen, Urban (five are true)",
            [
                Cell(
                    "Urban",
                    name.replace("_", " "),
                    name,
                    published("acdc")["urban"][name],
                    {},
                    digits=0,
                )
                for name in ("acdc", "bic", "parallel_analysis")
            ],
            missing="No settings yet: the scene is not among the data of the project.",
        ),
    ),
    replicate,
)
