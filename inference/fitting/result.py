"""What a fit is to its user: a record of the estimate, and one-line doors to all that can be asked
of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from inference.base import drawing
from inference.fitting import criteria, export, impute, posterior, predict, storage, tabular
from inference.fitting.names import Names
from inference.fitting.record import FitRecord
from inference.fitting.repr import facts_of
from ppl_models.parts.repr import html_table, lines_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Fit(FitRecord):
    """A fitted model: the fields of :class:`~inference.fitting.record.FitRecord`, and what can be
    asked of them.
    """

    def __repr__(self) -> str:
        return f"Fit of {self.model_name}\n{lines_of(facts_of(self))}"

    def _repr_html_(self) -> str:
        return html_table(f"Fit of {self.model_name}", facts_of(self))

    # ---------------------------------------------------------------- rows

    def posterior_latents(self, data: Any, out: str | Path | None = None) -> dict[str, Tensor]:
        """P(latent = 1 | row), (N, K) by latent site; for a categorical latent the probability of
        each value.

        Given the activities, where the model has such local sites: those of the rows in ``data``
        are solved for. Where the configurations are too many to sum over, the mean of 200 Gibbs
        sweeps.

        Args:
            data: the rows, or :class:`~inference.base.streaming.row_blocks.RowBlocks`.
            out: a folder, in which ``<site>.npy`` is written of each latent site; None for memory.

        Raises:
            ValueError: if ``data`` does not fit the model.
        """
        return posterior.posterior_latents(self, data, out)

    def decode_latents(self, data: Any) -> dict[str, Tensor]:
        """The most probable value of each latent site, jointly over a layer's entries, (N, K) by
        latent site.

        Given the activities, where the model has such local sites: those of the rows in ``data``
        are solved for. Where the configurations are too many to sum over, entry by entry.
        """
        return posterior.decode_latents(self, data)

    def log_likelihood_rows(self, data: Any, out: str | Path | None = None) -> Tensor:
        """Log-likelihood of each row, latents summed out, (N,); () for a program without a plate
        over rows.

        Given the activities, where the model has such local sites: those of the rows in ``data``
        are solved for. Where the configurations are too many to sum over, a stochastic lower bound
        of it: :func:`inference.engines.gibbs_estimates.log_likelihood_rows`.

        Args:
            data: as :meth:`posterior_latents`; out: a folder, in which ``log_likelihood.npy`` is
                written; None for memory.
        """
        return posterior.log_likelihood_rows(self, data, out)

    def reconstruct(self, data: Any) -> Tensor:
        """Every entry as one expects it of its row, latents averaged over their posterior, (N, J);
        see :func:`inference.fitting.posterior.reconstruct`.

        Of a number its mean (of a yes-or-no item the probability of yes), of an item with
        categories the code of the most probable one; entries that are missing have an expectation
        too.

        Raises:
            ValueError: for a model of which such expectations are not known.
        """
        return posterior.reconstruct(self, data)

    def fill_missing(self, data: Any) -> Any:
        """The data with what the fit expects in place of every missing entry; see
        :func:`inference.fitting.impute.fill_missing`.
        """
        return impute.fill_missing(self, data)

    def simulate(self, num_rows: int, seed: int = 0) -> dict[str, Tensor]:
        """Rows drawn from the fitted program: latents and items, (num_rows, ...) by site.

        Activities and the like are those of the fit where the number of rows is the same, else
        resampled from them.
        """
        return posterior.simulate_rows(self, num_rows, seed)

    def to_arviz(
        self,
        data: Any = None,
        num_predictive: int | None = None,
        seed: int = 0,
        names: Any = None,
        num_prior: int = 0,
    ) -> Any:
        """ArviZ object with named dims; see :func:`inference.fitting.export.to_arviz`."""
        return export.to_arviz(self, data, num_predictive, seed, names, num_prior)

    # ---------------------------------------------------------------- tables and predictions

    def summary(
        self,
        data: Any = None,
        level: float = 0.95,
        names: Names | None = None,
        always: bool = False,
    ) -> pd.DataFrame:
        """Every estimate by its name, with its error and interval where there is one: a pandas
        frame.

        Posterior draws have intervals at hand. A point estimate needs ``data``, the rows of the
        fit, for standard errors; the column ``interval`` says where each interval comes from, or
        why there is none (a penalty shrank the estimates, activities of the rows were fitted, ...).

        Args:
            data: the rows of the fit; None for what is known without them.
            level: of the intervals.
            names: names of the entries by dim, for example ``{"component": ["low", "high"]}``.
            always: work standard errors out however long that takes.

        Raises:
            ValueError: if the level is not in (0, 1), or ``data`` or ``names`` do not fit the
                model.
        """
        return drawing.ask("estimates", "summary_of", self, data, level, names, always)

    def plot(self, data: Any = None, names: Names | None = None) -> Any:
        """One picture of what was found, a matplotlib figure; see
        :func:`inference.plots.overview.plot_fit`.
        """
        return drawing.draw("plot_fit", self, data, names)

    def report(
        self,
        path: str | Path,
        data: Any = None,
        image_shape: tuple[int, int] | None = None,
        names: Names | None = None,
    ) -> Path:
        """One page in HTML with estimates, pictures and checks; see
        :func:`inference.report.write_report`.

        Args:
            path: the file, or an existing folder, for ``report.html`` in it.
            data: the rows of the fit, which checks and intervals need.
            image_shape: (height, width) where the items are pixels; names: as for :meth:`summary`.

        Returns:
            The file written.

        Raises:
            ValueError: if ``data`` does not fit the model, or ``image_shape`` does not hold the
                items.
        """
        written: Path = drawing.ask(
            "report", "write_report", self, data, path, image_shape, names=names
        )
        return written

    @property
    def frames(self) -> dict[str, pd.Series | pd.DataFrame]:
        """The estimates by site, for pandas, under the names of items, latents and categories; see
        :func:`inference.fitting.tabular.frames_of`.
        """
        return tabular.frames_of(self)

    def to_xarray(self, names: Names | None = None) -> xr.Dataset:
        """The estimates as an ``xarray.Dataset`` with named dims; see
        :func:`inference.fitting.tabular.to_xarray`.
        """
        return tabular.to_xarray(self, names)

    def posterior_frame(self, data: Any, names: Names | None = None) -> pd.DataFrame:
        """One line a row under the index of ``data``: probabilities of the latents, and the most
        probable ones; see :func:`inference.fitting.tabular.posterior_frame`.
        """
        return tabular.posterior_frame(self, data, names)

    def predict(self, data: Any, site: str | None = None) -> np.ndarray:
        """The most probable class of each row, or its bits; see
        :func:`inference.fitting.predict.predicted`.
        """
        return predict.predicted(self, data, site)

    def predict_proba(self, data: Any, site: str | None = None) -> np.ndarray:
        """P(class | row), or P(bit = 1 | row) of each bit; see
        :func:`inference.fitting.predict.probabilities`.
        """
        return predict.probabilities(self, data, site)

    def score(self, data: Any) -> float:
        """The mean log-likelihood of a row, latents summed out; see
        :func:`inference.fitting.predict.score`.
        """
        return predict.score(self, data)

    # ---------------------------------------------------------------- criteria

    @property
    def aic(self) -> float:
        """-2 log-likelihood + 2 a free parameter; smaller is better."""
        return criteria.aic(self)

    @property
    def aicc(self) -> float:
        """AIC for few rows; refused where there are fewer than two rows more than free
        parameters.
        """
        return criteria.aicc(self)

    @property
    def sabic(self) -> float:
        """BIC with the number of rows adjusted; see :func:`inference.fitting.criteria.sabic`."""
        return criteria.sabic(self)

    @property
    def caic(self) -> float:
        """BIC + the number of free parameters."""
        return criteria.caic(self)

    def icl(self, data: Any) -> float:
        """BIC + twice the entropy of the rows' classes; see
        :func:`inference.fitting.criteria.icl`.
        """
        return criteria.icl(self, data)

    def entropy_r2(self, data: Any) -> float:
        """How well the rows' classes are told apart, 0 to 1; see
        :func:`inference.fitting.criteria.entropy_r2`.
        """
        return criteria.entropy_r2(self, data)

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write the fit as a folder with ``fit.safetensors``, which holds tensors and a JSON record
        and no code.

        Raises:
            ValueError: if ``path`` is a file, or the model is not a dataclass of plain fields.
        """
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path, model: Callable[..., Any] | None = None) -> Fit:
        """Read a saved fit.

        Only this library's own record types are rebuilt; nothing in the file is executed.

        Args:
            path: the folder that :meth:`save` wrote.
            model: the program, where it is not one of this library's.

        Raises:
            ValueError: if the folder holds no such fit, or its model is unknown and not given.
        """
        return cls(**storage.read_fields(path, model))
