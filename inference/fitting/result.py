"""What a fit is to its user: a record of the estimate, and one-line doors to all that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from inference.fitting import export, rows, showing, storage
from inference.fitting.record import FitRecord
from ppl_models.parts.showing import html_table, lines_of

__all__ = ["Fit"]


@dataclass(frozen=True, eq=False)
class Fit(FitRecord):
    """A fitted model: the fields of :class:`~inference.fitting.record.FitRecord`, and what can be asked of them."""

    def __repr__(self) -> str:
        return f"Fit of {self.model_name}\n{lines_of(showing.facts_of(self))}"

    def _repr_html_(self) -> str:
        return html_table(f"Fit of {self.model_name}", showing.facts_of(self))

    # ---------------------------------------------------------------- rows

    def posterior_latents(self, data: Any) -> dict[str, Tensor]:
        """P(latent = 1 | row), (N, K) by latent site; for a categorical latent the probability of each value.

        Given the activities, where the model has such local sites: those of the rows in ``data`` are solved for.
        Where the configurations are too many to sum over, the mean of 200 Gibbs sweeps.

        Raises:
            ValueError: if ``data`` does not fit the model.
        """
        return rows.posterior_latents(self, data)

    def decode_latents(self, data: Any) -> dict[str, Tensor]:
        """The most probable value of each latent site, jointly over a layer's entries, (N, K) by latent site.

        Given the activities, where the model has such local sites: those of the rows in ``data`` are solved for.
        Where the configurations are too many to sum over, entry by entry.
        """
        return rows.decode_latents(self, data)

    def log_likelihood_rows(self, data: Any) -> Tensor:
        """Log-likelihood of each row, latents summed out, (N,); () for a program without a plate over rows.

        Given the activities, where the model has such local sites: those of the rows in ``data`` are solved for.
        Where the configurations are too many to sum over, a stochastic lower bound of it:
        :func:`inference.engines.gibbs_estimates.log_likelihood_rows`.
        """
        return rows.log_likelihood_rows(self, data)

    def reconstruct(self, data: Any) -> Tensor:
        """E[items | latents] averaged over the posterior of the latents, (N, J).

        Raises:
            ValueError: if the model's rows are not a finite mixture over one latent site.
        """
        return rows.reconstruct(self, data)

    def simulate(self, num_rows: int, seed: int = 0) -> dict[str, Tensor]:
        """Rows drawn from the fitted program: latents and items, (num_rows, ...) by site.

        Activities and the like are those of the fit where the number of rows is the same, else resampled from them.
        """
        return rows.simulate_rows(self, num_rows, seed)

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

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write the fit as a folder with ``fit.safetensors``, which holds tensors and a JSON record and no code.

        Raises:
            ValueError: if ``path`` is a file, or the model is not a dataclass of plain fields.
        """
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path, model: Callable[..., Any] | None = None) -> Fit:
        """Read a saved fit. Only this library's own record types are rebuilt; nothing in the file is executed.

        Args:
            path: the folder that :meth:`save` wrote.
            model: the program, where it is not one of this library's.

        Raises:
            ValueError: if the folder holds no such fit, or its model is unknown and not given.
        """
        return cls(**storage.read_fields(path, model))
