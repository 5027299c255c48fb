"""``ppl-models fit pmf``: the distribution asked for, and the folder it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import run
from support.counts import counts

from inference import Fit
from ppl_models import (
    GaussianFactorization,
    NegativeBinomialFactorization,
    PoissonFactorization,
    Unmixing,
)

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(
        "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
    )
    path = tmp_path / "counts.csv"
    pd.DataFrame(counts(4)[:30], columns=[f"c{j}" for j in range(16)]).to_csv(path, index=False)
    return path


@pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)
@pytest.mark.parametrize(
    ("distribution", "model"),
    [
        ("poisson", PoissonFactorization(16, 2)),
        ("nb-linear", NegativeBinomialFactorization(16, 2, variance="linear")),
        ("nb-quadratic", NegativeBinomialFactorization(16, 2)),
        ("normal", GaussianFactorization(16, 2)),
        ("normal-nonnegative", GaussianFactorization(16, 2, nonnegative=True)),
        ("mixed", Unmixing(16, 2)),
        ("mixed-correlated", Unmixing(16, 2, "correlated")),
    ],
)
def test_the_distribution_asked_for(table, tmp_path, distribution, model):
    out = tmp_path / "out"
    done = run(
        "fit",
        "pmf",
        table,
        "--components",
        2,
        "--distribution",
        distribution,
        "--out",
        out,
        "--restarts",
        1,
        "--no-progress",
    )
    assert done.exit_code == 0, done.stderr
    fit = Fit.load(out / "fit")
    assert fit.model == model
    site = "endmembers" if isinstance(model, Unmixing) else "signatures"
    assert {entry.name for entry in out.iterdir()} == {
        "fit",
        "posterior.nc",
        "posterior.csv",
        f"{site}.csv",
        *(["activities.csv"] if site == "signatures" else []),
        "report.html",
        "summary.json",
    }
    signatures = pd.read_csv(out / f"{site}.csv", index_col="column")
    assert signatures.index.tolist() == list(fit.item_names)
    np.testing.assert_allclose(signatures.to_numpy().T, fit.params[site])
    assert "log_likelihood" in pd.read_csv(out / "posterior.csv")


def test_usage_is_for_poisson_counts(table, tmp_path):
    told = run(
        "fit",
        "pmf",
        table,
        "--components",
        2,
        "--usage",
        "--distribution",
        "normal",
        "--out",
        tmp_path / "out",
    )
    assert told.exit_code == 2
    assert "--usage: signatures may be absent from Poisson counts only" in told.stderr


def test_the_old_name_of_the_distribution_warns(table, tmp_path):
    out = ("--law", "normal", "--usage", "--out", tmp_path / "out")
    told = run("fit", "pmf", table, "--components", 2, *out)
    assert told.exit_code == 2
    assert "warning: --law is deprecated: write --distribution" in told.stderr
    assert "--distribution normal was asked for" in " ".join(told.stderr.split())
