"""Fit of a model: the record of the estimate, and one-line doors to every question."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.base import drawing
from inference.fitting import export, labels as known, posterior, predict, storage, tabular
from inference.fitting.columns import Names
from inference.fitting.posterior import posterior_latents
from inference.fitting.problem import in_blocks
from inference.fitting.record import FitRecord
from inference.fitting.repr import facts_of
from ppl_models.data.frames import as_given
from ppl_models.parts.repr import html_table, lines_of
from ppl_models.parts.validation import Seed

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from inference.base.drawing import Figure
    from inference.fitting.export import ArvizData
    from inference.fitting.record import FitRecord


@dataclass(frozen=True, eq=False)
class Fit(FitRecord):
    """Fitted model: a :class:`~inference.fitting.record.FitRecord` and its questions."""

    def __repr__(self) -> str:
        return f"Fit of {self.model_name}\n{lines_of(facts_of(self))}"

    def _repr_html_(self) -> str:
        return html_table(f"Fit of {self.model_name}", facts_of(self))

    # ---------------------------------------------------------------- rows

    def posterior_latents(
        self, data: Any, out: str | Path | None = None, labels: Any = None
    ) -> dict[str, Tensor]:
        """Posterior P(latent = 1 | row), (N, K) by site; probabilities of a categorical one.

        Given the activities, where the model has such local sites: those of the rows in ``data``
        are solved for. Where the configurations are too many to sum over, the mean of 16 chains
        of Gibbs sweeps; of noisy-OR networks of more than 16 latents an approximation, which may be
        off by a tenth, for rows of more than 10 ones.

        Args:
            data: the rows, or :class:`~inference.base.streaming.row_blocks.RowBlocks`.
            out: a folder, in which ``<site>.npy`` is written of each latent site; None for memory.
            labels: what is known of these rows, as ``fit`` takes it; None for nothing.

        Raises:
            ValueError: if ``data`` or ``labels`` do not fit the model.
        """
        if labels is not None:
            if out is not None:
                raise ValueError("posterior_latents: out or labels were expected, got both")
            return known.posterior_given_labels(self, data, labels)
        return posterior.posterior_latents(self, data, out)

    def decode_latents(self, data: Any) -> dict[str, Tensor]:
        """Most probable values of the latents, (N, K) by site.

        Of a user's program jointly over all its latents, and of chains: the path of Viterbi (1967,
        doi:10.1109/TIT.1967.1054010), which means nothing behind the end of a sequence.
        Of other families, and beside continuous latents that are integrated, each site by itself,
        jointly over the entries of a layer.

        Given the activities, where the model has such local sites: those of the rows in ``data``
        are solved for. Where the configurations are too many to sum over, entry by entry.
        """
        return posterior.decode_latents(self, data)

    def log_likelihood_rows(self, data: Any, out: str | Path | None = None) -> Tensor:
        """Log-likelihood of each row, latents summed out, (N,); () without a plate over rows.

        Given the activities, where the model has such local sites: those of the rows in ``data``
        are solved for. Where the configurations are too many to sum over, an estimate of it by
        annealed importance sampling:
        :func:`inference.engines.gibbs_estimates.log_likelihood_rows`; of such rows of a noisy-OR
        network a lower bound.

        Args:
            data: as :meth:`posterior_latents`; out: a folder, in which ``log_likelihood.npy`` is
                written; None for memory.
        """
        return posterior.log_likelihood_rows(self, data, out)

    def reconstruct(self, data: Any) -> Tensor:
        """Expected entries given the row's latents, (N, J).

        Of a number its mean (of a yes-or-no item the probability of yes), of an item with
        categories the code of the most probable one; entries that are missing have an expectation
        too.

        Raises:
            ValueError: for a model of which such expectations are not known.
        """
        return posterior.reconstruct(self, data)

    def fill_missing(self, data: Any) -> Any:
        """Impute missing entries; see :func:`inference.fitting.predict.fill_missing`."""
        return as_given(data, predict.fill_missing(self, data))

    def simulate(self, num_rows: int, seed: Seed = 0) -> dict[str, Tensor]:
        """Rows drawn from the fitted program: latents and items, (num_rows, ...) by site.

        Activities and the like are those of the fit where the number of rows is the same, else
        resampled from them.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> {site: tuple(rows.shape) for site, rows in classes.simulate(3).items()}
            {'assignments': (3,), 'items': (3, 4)}
        """
        return posterior.simulate_rows(self, num_rows, seed)

    def to_arviz(
        self,
        data: Any = None,
        num_predictive: int | None = None,
        seed: Seed = 0,
        names: Any = None,
        num_prior: int = 0,
    ) -> ArvizData:
        """ArviZ object with named dims; see :func:`inference.fitting.export.to_arviz`.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.to_arviz(answers).posterior["weights"].dims
            ('chain', 'draw', 'component')
        """
        return export.to_arviz(self, data, num_predictive, seed, names, num_prior)

    # ---------------------------------------------------------------- tables and predictions

    def summary(
        self,
        data: Any = None,
        level: float = 0.95,
        names: Names | None = None,
        always: bool = False,
    ) -> pd.DataFrame:
        """Summary of estimates by name, with errors and intervals if any: a pandas frame.

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

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.summary(answers)["estimate"].head(3).round(1)
            weights[0]           0.7
            weights[1]           0.3
            probability[0, 0]    0.2
            Name: estimate, dtype: float64
        """
        data = in_blocks(self.model, data)
        with self.threads():
            return drawing.ask("estimates", "summary_of", self, data, level, names, always)

    def plot(self, data: Any = None, names: Names | None = None) -> Figure:
        """Plot the fit as one figure; see :func:`inference.plots.overview.plot_fit`.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.plot(answers).savefig("picture.png")
        """
        figure: Figure = drawing.draw("plot_fit", self, data, names)
        return figure

    def report(
        self,
        path: str | Path,
        data: Any = None,
        image_shape: tuple[int, int] | None = None,
        names: Names | None = None,
        reference: pd.DataFrame | None = None,
    ) -> Path:
        """Write one page in HTML; see :func:`inference.report.write_report`.

        Args:
            path: the file, or an existing folder, for ``report.html`` in it.
            data: the rows of the fit, which checks and intervals need.
            image_shape: (height, width) where the items are pixels; names: as for :meth:`summary`.
            reference: signatures that those of a factorization are matched with, such as COSMIC's:
                a frame of the columns of the data (as rows) by signatures.

        Returns:
            The file written.

        Raises:
            ValueError: if ``data`` does not fit the model, ``image_shape`` does not hold the items,
                or ``reference`` has not their rows.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.report("page.html", answers).name
            'page.html'
        """
        rows = in_blocks(self.model, data)
        with self.threads():
            written: Path = drawing.ask(
                "report",
                "write_report",
                self,
                rows,
                path,
                image_shape,
                names=names,
                reference=reference,
            )
        return written

    @property
    def frames(self) -> dict[str, pd.Series | pd.DataFrame]:
        """Frames of the estimates by site, under the names of items, latents and categories."""
        return tabular.frames_of(self)

    def to_xarray(self, names: Names | None = None) -> xr.Dataset:
        """Estimates as an ``xarray.Dataset`` with named dims."""
        return tabular.to_xarray(self, names)

    def posterior_frame(self, data: Any, names: Names | None = None) -> Any:
        """Posterior of each row as a frame: probabilities, and the most probable values.

        A frame of the library that ``data`` are a frame of, such as polars; else of pandas.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.posterior_frame(answers).round(2).head(2)
               P(assignments=0)  P(assignments=1)  assignments
            0              0.00              1.00            1
            1              0.21              0.79            1
        """
        return as_given(data, tabular.posterior_frame(self, data, names))

    def predict(self, data: Any, site: str | None = None, labels: Any = None) -> np.ndarray:
        """Most probable class of each row, or its bits; given ``labels`` of some rows too.

        With labels the most probable value of each latent (each step of a sequence) by itself.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.predict([[0, 0, 0, 0], [1, 1, 1, 1]])
            array([0, 1])
        """
        if labels is not None:
            return known.predicted_given_labels(self, data, labels, site)
        return predict.predicted(self, data, site)

    def predict_proba(self, data: Any, site: str | None = None, labels: Any = None) -> np.ndarray:
        """Class probabilities of each row, or P(bit = 1 | row); given ``labels`` of some too."""
        if labels is not None:
            return known.probabilities_given_labels(self, data, labels, site)
        return predict.probabilities(self, data, site)

    def accuracy(self, data: Any, labels: Any, site: str | None = None) -> float:
        """Share of labels of held-back rows that the prediction without them agrees with.

        Example:
            >>> import numpy as np
            >>> from inference import fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> group = rng.choice([0, 0, 1], 200)
            >>> answers = (rng.random((200, 4)) < np.where(group, 0.9, 0.2)[:, None]).astype(int)
            >>> some = np.where(np.arange(200) < 10, group, -1)
            >>> classes = fit(Mixture(2), answers, labels=some)
            >>> classes.accuracy(answers, np.where(some == -1, group, -1)) > 0.9
            True
        """
        return known.accuracy(self, data, labels, site)

    def score(self, data: Any) -> float:
        """Mean log-likelihood of a row, latents summed out.

        Of a noisy-OR network of more than 16 latents that of a row of more than 10 ones is a lower
        bound.
        """
        return predict.score(self, data)

    # ---------------------------------------------------------------- criteria

    @property
    def aic(self) -> float:
        """AIC: -2 log-likelihood + 2 a free parameter; smaller is better."""
        return aic(self)

    @property
    def aicc(self) -> float:
        """AICc: AIC for few rows, which must exceed the free parameters by two."""
        return aicc(self)

    @property
    def sabic(self) -> float:
        """Sample-size adjusted BIC; see :func:`inference.fitting.result.sabic`."""
        return sabic(self)

    @property
    def caic(self) -> float:
        """Consistent AIC: BIC + the number of free parameters."""
        return caic(self)

    def icl(self, data: Any) -> float:
        """ICL: BIC + twice the entropy of the rows' classes."""
        return icl(self, data)

    def entropy_r2(self, data: Any) -> float:
        """Entropy R2: separation of the rows' classes, 0 to 1."""
        return entropy_r2(self, data)

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Save the fit as a folder with ``fit.safetensors``: tensors, a JSON record, no code.

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

        Example:
            >>> import numpy as np
            >>> from inference import Fit, fit
            >>> from ppl_models import Mixture
            >>> rng = np.random.default_rng(0)
            >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
            >>> classes = fit(Mixture(2), answers)
            >>> classes.save("folder")
            >>> Fit.load("folder").log_likelihood == classes.log_likelihood
            True
        """
        return cls(**storage.read_fields(path, model))


def aic(fit: FitRecord, price: float = 2.0) -> float:
    """AIC: -2 log-likelihood + ``price`` a free parameter; 2 is AIC, 3 AIC3.

    Raises:
        ValueError: here and in all criteria below, for a model whose parameters are no price, such
            as weights of networks.
    """
    fit.check_criterion("aic")
    return -2 * fit.log_likelihood + price * fit.num_parameters


def aicc(fit: FitRecord) -> float:
    """AICc: AIC for few rows.

    Raises:
        ValueError: where there are not at least two rows more than free parameters.
    """
    fit.check_criterion("aicc")
    rows, size = _rows(fit), fit.num_parameters
    if rows - size < 2:
        raise ValueError(
            f"aicc: at least two rows more than free parameters were expected, got {rows:,} rows"
            f" and {size:,} parameters"
        )
    return aic(fit) + 2 * size * (size + 1) / (rows - size - 1)


def sabic(fit: FitRecord) -> float:
    """Sample-size adjusted BIC: BIC with the number of rows adjusted.

    Raises:
        ValueError: where parameters are read from different numbers of rows, for which no such
            adjustment is known.
    """
    fit.check_criterion("sabic")
    if fit.bic_price is not None:
        raise ValueError(
            f"sabic: the parameters of {fit.model_name} are read from different numbers of steps,"
            " and no adjustment is known for these; use bic"
        )
    return -2 * fit.log_likelihood + fit.num_parameters * math.log((_rows(fit) + 2) / 24)


def caic(fit: FitRecord) -> float:
    """Consistent AIC: BIC and one more for every free parameter."""
    fit.check_criterion("caic")
    return fit.bic + fit.num_parameters


def icl(fit: FitRecord, data: Any) -> float:
    """ICL: BIC and twice the entropy of the classes of the rows, as far as labels leave any.

    Args:
        fit: of a model with one latent of several values a row; data: the rows of the fit.

    Raises:
        ValueError: for any other model, or data of other rows.
    """
    fit.check_criterion("icl")
    return fit.bic + 2 * _entropy("icl", fit, data, fit.labels)[0]


def entropy_r2(fit: FitRecord, data: Any) -> float:
    """Entropy R2: 1 where every row's class is certain, 0 where none is.

    The posterior takes the estimates for the truth and is too sure where rows are few;
    ``inference.inspection.class_accuracy`` corrects for that.

    Args, Raises: as :func:`icl`.
    """
    entropy, num_classes = _entropy("entropy_r2", fit, data)
    rows = fit.num_rows if fit.row_weights is None else float(fit.row_weights.sum())
    return 1 - entropy / (rows * math.log(num_classes))


def _rows(fit: FitRecord) -> float:
    return fit.num_observations or fit.num_rows


def _entropy(
    caller: str, fit: FitRecord, data: Any, labels: Mapping[str, Tensor] | None = None
) -> tuple[float, int]:
    """Entropy E of the classes of the rows given their labels, and the number of classes."""
    sites = list((fit.latents or {}).items())
    if len(sites) != 1 or sites[0][1][0] != 1 or sites[0][1][1] < 2 or fit.structure.local_sites:
        raise ValueError(
            f"{caller}: it is defined for one latent of several values a row, which"
            f" {fit.model_name} does not have"
        )
    ((name, _),) = sites
    shares = posterior_latents(fit, data)[name].double()
    if shares.dim() != 2 or len(shares) != fit.num_rows:
        raise ValueError(
            f"{caller}: the {fit.num_rows:,} rows of the fit were expected, got {len(shares):,}"
        )
    if shares.shape[1] == 1:  # one bit, whose probability stands alone
        shares = torch.cat([1 - shares, shares], 1)
    if labels:
        said = labels[name].to(shares).reshape(shares.shape)
        shares = torch.softmax(shares.log() + said, -1)
    entropies = -torch.special.xlogy(shares, shares).sum(-1)  # (N,)
    return (
        float(
            entropies.sum()
            if fit.row_weights is None
            else fit.row_weights.to(entropies) @ entropies
        ),
        shares.shape[1],
    )
