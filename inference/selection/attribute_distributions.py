r"""Likelihood-ratio tests of nested distributions of the attributes.

Beside AIC, BIC and the prediction of unseen rows.

The items stay as they are; the distributions differ. Of two nested ones with maxima :math:`\ell_0
\le \ell_1` the ratio is :math:`2 (\ell_1 - \ell_0)`. Its distribution under the smaller one is
:math:`\chi^2` with the difference in free parameters only if the smaller one lies *inside* the
larger one:

Independent attributes, or a graph, in all profiles; a graph in a larger graph
    Inside while every profile has a positive probability; with profiles so rare that some are
    expected in fewer than five rows, :math:`\chi^2` is a poor approximation.
A trait in all profiles
    The same, and no slope may be zero.
A hierarchy in all profiles
    Never: its missing profiles have probability zero, the edge of what a probability can be.
Independent attributes in a trait
    Never: all slopes are then zero, where the likelihood has no slope in them (only products of two
    slopes matter).

Elsewhere the ratio is held against those of data sets drawn from the smaller distribution, with
items and distribution estimated anew in each (:func:`inference.selection.likelihood_ratio_test`).
The table says which was done.

Source: S. G. Self and K.-Y. Liang (1987), doi:10.1080/01621459.1987.10478472 (parameters on an
edge); J. Templin and L. Bradshaw (2014), doi:10.1007/s11336-013-9362-0 (a hierarchy tested by the
bootstrap); J. de la Torre and J. A. Douglas (2004), doi:10.1007/BF02295640.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.stats import chi2
from torch import Tensor

from inference.base.frames import pd
from inference.comparison import Comparison, compare
from inference.engines.em import EM
from inference.fitting.fit import fit as fit_again
from inference.fitting.result import Fit
from inference.inspection.attributes import attribute_model
from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.selection.factorization_criteria import aic
from inference.selection.likelihood_ratio import RatioTest, likelihood_ratio_test, loosened
from inference.structures.layers.attributes import AttributeStructure
from ppl_models.descriptions.attribute_distribution import AttributeDistribution, Independent
from ppl_models.descriptions.dag import NetworkRoot
from ppl_models.descriptions.higher_order import HigherOrder, TraitRoot
from ppl_models.descriptions.layers import Root, RootLayer
from ppl_models.descriptions.profile_table import Saturated, TableRoot
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.renamed import Renamed
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_size

LEVEL = 0.05
MAX_ATTRIBUTES = 14
LEAST_ROWS = 5.0  # expected of a profile, for the chi-square distribution
FLAT_SLOPE = 0.1  # of a trait, that counts as zero
GUESSED = 10_000  # latents drawn to start a larger distribution from a smaller one
NAMES = {"HigherOrder": "higher-order"}


@dataclass(frozen=True)
class RootTest:
    """One distribution against a larger one that contains it.

    Args:
        small, large: names.
        ratio: twice the gain in log-likelihood; degrees: free parameters more.
        p_value: of the smaller distribution; NaN where the chi-square distribution does not hold
            and no data sets were drawn.
        distribution: "chi-square", "bootstrap" or "none".
        reason: why not chi-square; empty where it is.
        bootstrap: the replicates; None without.
    """

    small: str
    large: str
    ratio: float
    degrees: int
    p_value: float
    distribution: str
    reason: str
    bootstrap: RatioTest | None
    law = Renamed("distribution")


@shows_briefly
@dataclass(frozen=True, eq=False)
class RootComparison:
    """Distributions of the attributes side by side.

    Args:
        fits: by name of the distribution, the fewest parameters first.
        tests: each distribution against the next larger ones that contain it.
        prediction: the fits by folds, where these were asked for.
    """

    fits: dict[str, Fit]
    tests: tuple[RootTest, ...]
    prediction: Comparison | None

    @property
    def table(self) -> pd.DataFrame:
        """One line a distribution: likelihood, criteria, prediction and test.

        Log-likelihood, parameters, AIC, BIC; elpd of unseen rows with the difference to the best
        and its standard error; and the test against the next larger distribution that contains it
        (the first of several; :attr:`tests` has all).
        """
        rows = [
            (own.log_likelihood, own.num_parameters, aic(own), own.bic)
            for own in self.fits.values()
        ]
        columns = ["log_likelihood", "num_parameters", "aic", "bic"]
        index = pd.Index(list(self.fits), name="distribution of the attributes")
        frame = pd.DataFrame(rows, index, columns)
        if self.prediction is not None:
            frame[["elpd", "elpd_diff", "diff_se"]] = self.prediction.table[
                ["elpd", "elpd_diff", "diff_se"]
            ].loc[list(self.fits)]
        first: dict[str, RootTest] = {}
        for test in self.tests:
            first.setdefault(test.small, test)
        for column in ("large", "ratio", "degrees", "p_value", "distribution"):
            frame["against" if column == "large" else column] = [
                getattr(first[name], column) if name in first else None for name in self.fits
            ]
        return frame

    @property
    def best(self) -> str:
        """The distribution with the smallest BIC."""
        return min(self.fits, key=lambda name: self.fits[name].bic)

    def text(self) -> str:
        """Return preference and tests, in sentences."""
        words = [f"BIC prefers the {self.best} distribution."]
        for test in self.tests:
            if math.isnan(test.p_value):
                words.append(
                    f"{test.small} against {test.large}: {test.reason}, so that the chi-square"
                    " distribution does not hold; ask for num_replicates=99."
                )
            elif test.p_value < LEVEL:
                words.append(
                    f"The {test.small} distribution is rejected against the {test.large} one (p ="
                    f" {test.p_value:.2g}, {test.distribution})."
                )
            else:
                words.append(
                    f"Nothing speaks for the {test.large} distribution beyond the {test.small} one"
                    f" (p = {test.p_value:.2g}, {test.distribution})."
                )
        return " ".join(words)


def compare_roots(
    fit: Fit,
    data: Any,
    roots: Sequence[AttributeDistribution] | Mapping[str, AttributeDistribution] | None = None,
    num_replicates: int = 99,
    num_folds: int = 0,
    seed: Seed = 0,
    progress: bool = False,
) -> RootComparison:
    """Compare distributions of the attributes: refit each, and test nested ones.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`, a point estimate; its own distribution
            is one of those compared.
        data: the rows it was fitted to, (N, J).
        roots: the other distributions, or distributions by name; None for Independent(),
            HigherOrder() (three attributes or more) and Saturated() (ten or fewer).
        num_replicates: data sets drawn where the chi-square distribution does not hold, at most; 0
            for none, and no p-value there.
        num_folds: folds by which unseen rows are predicted; 0 for no prediction.
        seed: of the drawing, folds and starts.
        progress: show a bar on standard error.

    Raises:
        ValueError: for another model, posterior draws, what is no distribution or does not fit the
            attributes, fewer than two distributions, more than fourteen attributes, or numbers out
            of range.
    """
    seed = as_seed("compare_roots", seed)
    structure = attribute_model(fit, "compare_roots", point=True)
    size = structure.layers[0].num_parents
    if size > MAX_ATTRIBUTES:
        raise ValueError(
            f"compare_roots: at most {MAX_ATTRIBUTES} attributes were expected, whose profiles can"
            f" be listed, got {size}"
        )
    check_size("compare_roots", "num_replicates", num_replicates, least=0)
    check_size("compare_roots", "num_folds", num_folds, least=0)
    model: Any = fit.model
    models = {
        name: replace(model, root=distribution)
        for name, distribution in _named(fit, roots, size).items()
    }
    with quiet():
        fits = {name: _refit(fit, model, data, seed) for name, model in models.items()}
    fits = dict(sorted(fits.items(), key=lambda pair: pair[1].num_parameters))
    tests = []
    for small, large in _pairs(fits):
        low, high = fits[small], fits[large]
        reason = _why_not_regular(low, high)
        ratio = max(0.0, 2 * (high.log_likelihood - low.log_likelihood))
        degrees = high.num_parameters - low.num_parameters
        p_value, distribution, drawn = math.nan, "none", None
        if not reason:
            p_value, distribution = float(chi2.sf(ratio, degrees)), "chi-square"
        elif num_replicates:
            near = _near(low, high, seed)
            drawn = likelihood_ratio_test(
                low, high, data, num_replicates, seed=seed, progress=progress, refit=near
            )
            ratio, p_value, distribution = drawn.statistic, drawn.p_value, "bootstrap"
        tests.append(RootTest(small, large, ratio, degrees, p_value, distribution, reason, drawn))
    return RootComparison(
        fits,
        tuple(tests),
        compare(fits, data, num_folds=num_folds, seed=seed) if num_folds else None,
    )


def _named(fit: Fit, roots: Any, size: int) -> dict[str, AttributeDistribution]:
    """The distributions by name, that of the fit first."""
    root: AttributeDistribution = fit.model.root  # type: ignore[attr-defined]  # attribute_model said what it is
    if roots is None:
        roots = [
            Independent(),
            *([HigherOrder()] if size >= 3 else []),
            *([Saturated()] if size <= 10 else []),
        ]
    if isinstance(roots, Mapping):
        pairs = [(str(name), distribution) for name, distribution in roots.items()]
    elif isinstance(roots, Sequence) and not isinstance(roots, str):
        pairs = [("", distribution) for distribution in roots]
    else:
        raise ValueError(
            "compare_roots: roots must be distributions such as [Independent(), Saturated()],"
            " or distributions by"
            f" name, got {roots!r}"
        )
    out: dict[str, AttributeDistribution] = {}
    if root not in [distribution for _, distribution in pairs]:
        pairs = [("", root), *pairs]
    for given, distribution in pairs:
        if distribution in out.values():
            continue
        plain = given or NAMES.get(type(distribution).__name__, type(distribution).__name__.lower())
        taken = sum(name == plain or name.startswith(f"{plain} ") for name in out)
        out[plain if not taken else f"{plain} {taken + 1}"] = distribution
    if len(out) < 2:
        raise ValueError(
            f"compare_roots: at least two different distributions were expected, got"
            f" {', '.join(out)}"
        )
    return out


def _refit(fit: Fit, model: Any, data: Any, seed: int) -> Fit:
    """Return the better of a fit from the given items and one from the model's own starts."""
    if model == fit.model:
        return fit
    structure = AttributeStructure(model)
    latents = fit.decode_latents(data)[structure.root.latent]
    root_params = {name: value[0] for name, value in structure.root.start(latents).items()}
    items = _items_under(fit, structure)
    method = fit.method if fit.method is not None else EM()
    tries = (
        fit_again(model, data, method, init=items | root_params, seed=seed),
        fit_again(model, data, method, num_restarts=2, seed=seed),
    )
    return max(tries, key=lambda fit_k: fit_k.objective)


def _items_under(fit: Fit, structure: AttributeStructure) -> Params:
    """Return the items in the coefficients of another distribution: the same predictors."""
    layer, profiles = structure.layers[0], structure.root.profiles
    items = {name: value for name, value in fit.params.items() if name not in _root(fit).sites()}
    if profiles is None or layer.graph is None:
        return items
    loadings, intercepts = items[layer.loadings].clone(), items[layer.intercepts].clone()
    features = layer.features(profiles.to(loadings))
    for j in ((loadings != 0) & ~layer.graph).any(-1).nonzero().ravel().tolist():
        edges = layer.graph[j]
        design = torch.nn.functional.pad(features[:, edges], (1, 0), value=1.0)
        change = torch.linalg.lstsq(design, features @ loadings[j]).solution
        intercepts[j] += change[0]
        loadings[j] = 0.0
        loadings[j, edges] = change[1:]
    return items | {layer.loadings: loadings, layer.intercepts: intercepts}


def _pairs(fits: Mapping[str, Fit]) -> list[tuple[str, str]]:
    """Each distribution and the larger ones that contain it with none of the others between."""
    within = [
        (small, large)
        for small, large in itertools.permutations(fits, 2)
        if fits[small].num_parameters < fits[large].num_parameters
        and _nested(_root(fits[small]), _root(fits[large]))
    ]
    return [
        (small, large)
        for small, large in within
        if not any((small, c) in within and (c, large) in within for c in fits)
    ]


def _root(fit: Fit) -> Root:
    root = fit.structure.root
    assert root is not None  # attribute_model said so
    return root


def _nested(small: Root, large: Root) -> bool:
    """Tell whether every distribution of the one kind is one of the other."""
    if isinstance(large, TableRoot):
        if large.profiles is None:
            return True
        ours = {tuple(row) for row in large.profiles.tolist()}
        return (
            isinstance(small, TableRoot)
            and small.profiles is not None
            and {tuple(row) for row in small.profiles.tolist()} <= ours
        )
    if isinstance(large, NetworkRoot) and isinstance(small, NetworkRoot):
        return all(
            set(own) <= set(theirs)
            for own, theirs in zip(small.parents, large.parents, strict=True)
        )
    return isinstance(large, NetworkRoot | TraitRoot) and isinstance(small, RootLayer)


def _why_not_regular(small: Fit, large: Fit) -> str:
    """Return why the chi-square distribution does not hold; empty where it does."""
    root, larger = _root(small), _root(large)
    if isinstance(root, TableRoot) and root.profiles is not None:
        return (
            "the profiles that the hierarchy leaves out have probability zero, which is the edge of"
            " what it can be"
        )
    if isinstance(larger, TraitRoot):
        return (
            "with independent attributes all slopes of the trait are zero, where the likelihood has"
            " no slope in them"
        )
    if isinstance(root, TraitRoot) and int((small.params[root.slopes].abs() < FLAT_SLOPE).sum()):
        return "slopes of the trait are as good as zero"
    rare = int((_shares(small) * small.num_rows < LEAST_ROWS).sum())
    if rare:
        return f"{rare} profiles are expected in fewer than {LEAST_ROWS:g} rows"
    return ""


def _shares(fit: Fit) -> Tensor:
    """Probabilities of all profiles, (2^K,)."""
    root, like = _root(fit), next(iter(fit.params.values()))
    profiles = binary_configurations(root.num_latents, like.dtype, like.device)
    return root.distribution(fit.params).log_prob(profiles).exp()


def _near(small: Fit, large: Fit, seed: int) -> Callable[[Any, Any], Fit]:
    """Fits of both distributions to data drawn from the smaller one, from where they were drawn."""
    lifted = _lifted(small, large, seed)

    def again(model: Any, rows: Any) -> Fit:
        fit_k, start = (small, small.params) if model is small.model else (large, lifted)
        return fit_again(model, rows, loosened(fit_k.method), init=start, seed=seed)

    return again


def _lifted(small: Fit, large: Fit, seed: int) -> Params:
    """Return the larger model's parameters near the smaller one."""
    root, larger = _root(small), _root(large)
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(1, root.num_latents, GUESSED, generator=generator, dtype=torch.float64)
    root_params = {name: small.params[name].unsqueeze(0) for name in root.sites()}
    latents = root.draw(root_params, uniform.to(next(iter(root_params.values()))))[0].mT
    items = _items_under(small, AttributeStructure(large.model))
    return items | {name: value[0] for name, value in larger.start(latents).items()}
