"""Estimator of scikit-learn for a model of the zoo.

For pipelines, grids of settings, and cross-validation by the log-likelihood of held-out rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from inference.base.diagnostics import as_array
from inference.base.structure import Capability, Method
from inference.engines.online_em import OnlineEM
from inference.fitting.columns import observed_sites
from inference.fitting.continued import ContinuedFit
from inference.fitting.fit import fit
from inference.fitting.predict import one_latent, whole_numbers
from inference.fitting.problem import takes_sparse
from inference.fitting.result import Fit
from inference.fitting.tabular import latent_features
from inference.programs.arguments import program_name
from inference.structures.registry import structure_of
from ppl_models.data.frames import as_frame, check_index
from ppl_models.data.tables import checks_data
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import is_integer

__all__ = ["ZooEstimator"]
__dir__ = _promised(__name__)

NESTED = ("model", "method")  # parameters that are records with parameters of their own


def _has_classes(estimator: ZooEstimator) -> bool:
    """Test for discrete latents to predict; True before a fit, which decides it."""
    if not hasattr(estimator, "fit_"):
        return True
    return bool(estimator.fit_.latents or estimator.fit_.decode_latents(estimator._first_row))


def _takes_batches(estimator: ZooEstimator) -> bool:
    """Test for a model whose M-step wants no more than sums over rows."""
    model = _closed(estimator.model)
    return model is not None and Capability.BLOCKS in structure_of(model).capabilities


def _scores_new_rows(estimator: ZooEstimator) -> bool:
    """Test for a model of which nothing is fitted to the rows that are scored."""
    model = _closed(estimator.model)
    return model is None or not structure_of(model).local_sites


def _closed(model: Any) -> Any:
    """Model of a small table where it is open, which says what its steps want; None if none is."""
    if not getattr(model, "waits_for_data", False):
        return model
    try:
        return model.for_data(np.eye(4)[:, :3])
    except ValueError:
        return None


class ZooEstimator(TransformerMixin, DensityMixin, BaseEstimator):
    """Estimator with the methods of ``GaussianMixture``, and ``transform``.

    Behind them is :func:`inference.fit`.

    X is a table with one row a unit: an array, a data frame of any library, or a sparse matrix
    where the model takes one. NaN is a missing entry where the model takes them. As everywhere in
    scikit-learn the columns of a frame must stand as they did in ``fit``. ``score`` is the mean
    log-likelihood of a row, so that ``cross_val_score`` and ``GridSearchCV`` judge by rows that
    were held out. Settings of the model and of the engine are reached by two underscores::

        estimator = ZooEstimator(Mixture(num_components=2, component=Normal()))
        GridSearchCV(estimator, {"model__num_components": [1, 2, 3, 4]}).fit(X)

    ``predict``, ``predict_proba``, ``fit_predict`` and ``sample`` go away with the fit of a model
    without discrete latents. ``sample_weight`` goes by metadata routing, and is refused by models
    that do not take weights.

    With ``semi_supervised=True`` y holds what is known of the classes, as the estimators of
    ``sklearn.semi_supervised`` have it: whole numbers from 0 or names, -1 (None among names) where
    the class of a row is not known. ``predict`` speaks of these classes, ordered as ``classes_``.

    Args:
        model: a zoo model, or any Pyro program whose data are one table: its argument, or its
            arguments by the names of the columns.
        method, init, num_restarts: as :func:`inference.fit` has them.
        random_state: its seed; None or a ``RandomState`` draws one in each call of ``fit``.
        site: the latent that ``predict`` and ``predict_proba`` speak of, which may be left out
            where there is one.
        semi_supervised: whether y holds labels, as above; False ignores it.
        label_error: chance that a label is wrong, or "estimate"; see :func:`inference.fit`.
        fixed, tied, on_iteration: known parameters, equal ones, and a function that is called after
            every iteration; see :func:`inference.fit`.

    Attributes:
        fit_: the :class:`inference.Fit`.
        n_features_in_, feature_names_in_: the columns seen in ``fit``.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        method: Method | None = None,
        *,
        init: Any = None,
        num_restarts: int | None = None,
        random_state: Any = 0,
        site: str | None = None,
        semi_supervised: bool = False,
        label_error: float | str = 0.0,
        fixed: Any = None,
        on_iteration: Any = None,
        tied: Any = None,
    ) -> None:
        self.model = model
        self.method = method
        self.init = init
        self.num_restarts = num_restarts
        self.random_state = random_state
        self.site = site
        self.semi_supervised = semi_supervised
        self.label_error = label_error
        self.fixed = fixed
        self.on_iteration = on_iteration
        self.tied = tied

    fit_: Fit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> ZooEstimator:
        """Fit the model to the rows of X, and to labels y where ``semi_supervised``.

        Args:
            X: the table.
            y: what is known of the classes, where ``semi_supervised``; ignored elsewhere.
            sample_weight: how many rows each row stands for, (N,); None for one.

        Raises:
            ValueError: as :func:`inference.fit`.
        """
        table = as_frame(self._table(X, reset=True))
        if hasattr(self, "_continued"):
            del self._continued
        try:
            self.fit_ = fit(
                self.model,
                table,
                self.method,
                self.init,
                self.num_restarts,
                self._seed(),
                weights=sample_weight,
                labels=y if self.semi_supervised else None,
                label_error=cast("Any", self.label_error if self.semi_supervised else 0.0),
                fixed=self.fixed,
                tied=self.tied,
                on_iteration=self.on_iteration,
            )
        except ValueError as error:
            if self.n_features_in_ > 1:
                raise
            raise ValueError(f"{error}; X has 1 feature(s)") from error
        self._first_row = table[:1]
        return self

    @available_if(_takes_batches)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> ZooEstimator:
        """Go on with a batch of rows by stepwise EM (:class:`inference.OnlineEM`).

        The first batch is fitted as by ``fit`` and should be large enough to show all classes. What
        came before a call of ``fit`` is forgotten. ``method=EM(start=OnlineEM(rate=...))`` sets the
        rate at which batches are. ``fit_`` is that of all rows so far, its log-likelihood an
        estimate from the last batch. Classes keep their numbers from batch to batch.

        Args:
            X: the rows; y: ignored; sample_weight: as ``fit`` has them.

        Raises:
            ValueError: as ``fit``; with ``semi_supervised``, ``fixed`` or ``tied``.
        """
        if self.semi_supervised or self.fixed is not None or self.tied is not None:
            raise ValueError(
                "partial_fit: semi_supervised=False, fixed=None and tied=None were expected"
            )
        if issparse(X):
            X = X.toarray()
        if not hasattr(self, "_continued"):
            self.fit(X, y, sample_weight)
            table = as_frame(self._table(X))
            self._continued = ContinuedFit.begin(self.fit_, table, sample_weight)
            return self
        table = as_frame(self._table(X))
        online = getattr(self.method, "start", None) or OnlineEM()
        self._continued = self._continued.renewed(table, sample_weight, online)
        self.fit_ = self._continued.fit
        return self

    @available_if(_has_classes)
    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """``fit``, then ``predict`` of the same rows; y as there."""
        return self.fit(X, y, sample_weight).predict(X)

    @available_if(_has_classes)
    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (N,), or its bits, (N, K)."""
        table = self._table(X)
        codes = self.fit_.predict(table, self.site)
        return self._names[codes] if self._names is not None else codes

    @property
    def classes_(self) -> np.ndarray:
        """Names of the classes, of a fit with labels; numbers where labels were numbers."""
        check_is_fitted(self)
        if self.fit_.labels is None:
            raise AttributeError("classes_: a fit with labels was expected")
        return self._names if self._names is not None else np.arange(self._num_values)

    @property
    def _num_values(self) -> int:
        (table, *_) = (self.fit_.labels or {}).values()
        return int(table.shape[-1])

    @property
    def _names(self) -> np.ndarray | None:
        """Names of the values of the one latent that labels name; those without one by number."""
        for names in (self.fit_.label_names or {}).values():
            others = range(len(names), self._num_values)
            return np.array([*names, *map(str, others)], dtype=object)
        return None

    @available_if(_has_classes)
    def predict_proba(self, X: Any) -> np.ndarray:
        """P(class | row), or P(bit = 1 | row) of each bit, (N, K)."""
        table = self._table(X)
        return self.fit_.predict_proba(table, self.site)

    def transform(self, X: Any) -> np.ndarray:
        """Return probabilities of all latents of each row, and its continuous latents, (N, F)."""
        table = self._table(X)
        columns = latent_features(self.fit_, table)
        return np.column_stack(list(columns.values()))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of what ``transform`` gives; ``input_features`` is ignored."""
        check_is_fitted(self)
        return np.asarray(list(latent_features(self.fit_, self._first_row)), dtype=object)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-likelihood of each row, latents summed out, (N,)."""
        table = self._table(X)
        values: np.ndarray = self.fit_.log_likelihood_rows(table).double().cpu().numpy()
        return values

    @available_if(_scores_new_rows)
    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of a row; y is ignored.

        Not of a factorization, whose activities are fitted to each row that is scored, so that
        cross-validation would take the most components; ``score_samples`` is given these.
        """
        table = self._table(X)
        return self.fit_.score(table)

    def bic(self, X: Any, sample_weight: Any = None) -> float:
        """BIC: -2 log-likelihood of X + log N a free parameter, N the number of rows in ``fit``.

        Args:
            X: the rows; sample_weight: as in ``fit``, where it was given.

        Raises:
            ValueError: without the weights of a weighted fit, of which N is the sum; for weights
                with another index than the rows.
        """
        return self.fit_.price - 2 * self._log_likelihood("bic", X, sample_weight)

    def aic(self, X: Any, sample_weight: Any = None) -> float:
        """AIC: -2 log-likelihood of X + 2 a free parameter; arguments as of ``bic``."""
        return 2 * self.fit_.num_parameters - 2 * self._log_likelihood("aic", X, sample_weight)

    def _log_likelihood(self, caller: str, X: Any, sample_weight: Any) -> float:
        rows = self.score_samples(X)
        if sample_weight is None and self.fit_.row_weights is not None:
            raise ValueError(
                f"{caller}: sample_weight was expected, as fit had it, got none; fit_.{caller} is"
                " that of the rows of the fit"
            )
        if sample_weight is None:
            return float(rows.sum())
        check_index(f"{caller}: sample_weight", sample_weight, X)
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.shape != rows.shape:
            raise ValueError(
                f"{caller}: sample_weight: one number for each of the {len(rows):,} rows was"
                f" expected, got shape {weights.shape}"
            )
        if (wrong := ~(np.isfinite(weights) & (weights >= 0))).any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{caller}: sample_weight: finite numbers of at least zero were expected, got"
                f" {weights[row]:g} in row {row}"
            )
        return float(rows @ weights)

    @available_if(_has_classes)
    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows, (n, J), and the latent that ``predict`` speaks of, (n,).

        Drawn with the seed of ``random_state``, each call the same rows where it is an integer.
        """
        check_is_fitted(self)
        drawn = self.fit_.simulate(n_samples, self._seed())
        sites = observed_sites(self.fit_, self._first_row)
        latent = one_latent("sample", self.fit_, list(self.fit_.latents or ()), self.site)
        codes = whole_numbers(drawn[latent])
        return np.column_stack([as_array(drawn[name]) for name in sites]), (
            codes if self._names is None else self._names[codes]
        )

    # ---------------------------------------------------------------- what scikit-learn asks

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return settings by name; with ``deep`` those of the model and the engine too.

        Such as ``model__num_components``.
        """
        settings: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name in NESTED:
                record = settings[name]
                if dataclasses.is_dataclass(record):
                    settings |= {
                        f"{name}__{field.name}": getattr(record, field.name)
                        for field in dataclasses.fields(record)
                        if field.init
                    }
        return settings

    def set_params(self, **params: Any) -> ZooEstimator:
        """Change settings; those of the model and the engine make a new record, which checks them.

        Raises:
            ValueError: for a name that is no setting.
        """
        settings = self.get_params()
        for name in params:
            if name not in settings and not any(
                name.startswith(f"{nested}__") and nested in params for nested in NESTED
            ):
                raise ValueError(
                    f"ZooEstimator: {name!r} is no setting of this estimator; they are"
                    f" {', '.join(settings)}"
                )
        plain = {name: value for name, value in params.items() if "__" not in name}
        super().set_params(**plain)
        for name in NESTED:
            changes = {
                key.removeprefix(f"{name}__"): value
                for key, value in params.items()
                if key.startswith(f"{name}__")
            }
            if changes:
                setattr(self, name, dataclasses.replace(getattr(self, name), **changes))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        model = _closed(self.model)
        tags.input_tags.sparse = model is not None and takes_sparse(model, self.method)
        return tags

    def _seed(self) -> int:
        """Seed of the next draw."""
        if is_integer(self.random_state):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _table(self, X: Any, reset: bool = False) -> Any:
        if not reset:
            check_is_fitted(self)
        if type(X) in (tuple, dict) and not (  # a sparse matrix of keys is a dict
            isinstance(self.model, type) or checks_data(self.model)
        ):
            raise ValueError(
                "X: a table with one row a unit was expected, got a"
                f" {type(X).__name__} of arguments of {program_name(self.model)}: give a data frame"
                " whose columns are named as these, or fit(model, data), which takes them as"
                " they are"
            )
        if hasattr(type(X), "columns"):  # a data frame, whose columns the model checks by name
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=2 if reset else 1,  # one row tells nothing of latents
        )
