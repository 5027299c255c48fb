"""Independent classifiers for engines: starts, names of components, rows by reweighting."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.align import Labels
from inference.base.structure import (
    Problem,
    Recommendation,
    Structure,
    check_method,
    marginal_rows,
    num_density_items,
    unlisted_sites,
)
from inference.engines.em import EM
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.saem import SAEM
from inference.engines.svi import SVI
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.programs.program import Params, Program
from inference.structures.classifiers.networks import input_statistics
from inference.structures.classifiers.regularizers import neg_ctc
from inference.structures.classifiers.train import TrainClassifiers
from ppl_models.descriptions.classifiers import ClassifierDescription
from ppl_models.networks import rows_of

NUM_STARTS = 4
NUM_PROBES = 64  # values of each variate at which components are recognised
SILENT = 0.02  # of the entropy of the component: a variate that tells less
TOLD_ROWS = 20_000  # evenly spaced, that this is read from
EMPTY = 0.02  # of an even share: a component with less has collapsed


class ClassifierStructure(Structure):
    """Structure of models that offer ``classifiers()``."""

    relative_to = "independence of the variates"

    @cached_property
    def about(self) -> ClassifierDescription:
        about: ClassifierDescription = self.model.classifiers()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> ClassifierStructure | None:
        return cls(model) if hasattr(model, "classifiers") else None

    def stand_in(self) -> Params:
        return {
            f"variate_{v}": torch.zeros(1, *shape, dtype=torch.float64)
            for v, shape in enumerate(self.about.shapes)
        }

    def observed_sites(self) -> tuple[str, ...]:
        return tuple(f"variate_{v}" for v in range(self.about.num_variates))

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Random networks; half agree between variates for "spectral".

        These are near an optimum at once, but where directions that variates share are weak it need
        not be the best one.
        """
        about = self.about
        like = next(iter(problem.program_of_one_row().draw_prior(1, problem.seed).values()))
        generator = torch.Generator().manual_seed(problem.seed)
        v, c = about.num_variates, about.num_components
        statistics = input_statistics(about, problem.data, like)
        known = (
            torch.full((c,), 1.0 / c)
            if isinstance(about.weights, str)
            else torch.tensor(about.weights, dtype=torch.float64)
        )
        out: Params = {
            "pseudo_weights": torch.full((num_restarts, v, c), 1.0 / c).to(like),
            "weights": known.to(like).expand(num_restarts, c).clone(),
        } | {
            name: value.expand(num_restarts, *value.shape).clone()
            for name, value in statistics.items()
        }
        for group in about.groups:
            shapes = [about.shapes[v] for v in group.variates]
            drawn = group.network.start(shapes, c, group.num_networks, num_restarts, generator)
            out |= {site: drawn[name].to(like) for site, name in group.sites.items()}
        if init != "spectral":
            return out
        half = -(-num_restarts // 2)
        common = common_start(
            about, problem.data, {name: value[:half] for name, value in out.items()}, problem.seed
        )
        return {name: torch.cat([common[name], value[half:]]) for name, value in out.items()}

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Complete starts with the given statistics; the engine computes the pseudo-weights."""
        out = dict(params)
        for name in (*self.about.scaling_sites, "pseudo_weights", "weights"):
            out[name] = params[name][:1].expand_as(params[name]).clone()
        return out

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on collapsed components and uninformative variates."""
        weights = params["weights"]
        out = []
        small = [i for i, w in enumerate(weights.tolist()) if w < EMPTY / len(weights)]
        if small:
            shown = ", ".join(f"{i} (weight {float(weights[i]):.2g})" for i in small)
            out.append(
                f"components with hardly any rows: {shown}. The data may have fewer than"
                f" num_components = {len(weights)}, or training ended in a poor optimum: fit fewer"
                " components and compare the held-out objective, raise num_restarts, or, where the"
                " components of some rows are known, tell them to the fit by"
                " TrainClassifiers(labels=Labels(...)) instead of only starting from them"
            )
        told = self.told(problem.data, params)
        silent = [v for v, share in enumerate(told.tolist()) if share < SILENT]
        if silent:
            out.append(
                "variates that say next to nothing about the component of a row:"
                f" {', '.join(self._variate_name(v, float(told[v])) for v in silent)}. They are"
                " independent of the other variates, as far as these components go, and do not"
                " help to find them; "
                + (
                    "without three variates that do, weights and components are not determined"
                    if len(told) - len(silent) < 3
                    else "leave them out, or use more components"
                )
            )
        return out

    def _variate_name(self, v: int, share: float) -> str:
        names = self.model.entry_names.get("variate")
        return f"{v + 1 if names is None else names[v]} ({share:.1%} of what there is to know)"

    def told(self, data: Any, params: Params) -> Tensor:
        """Mutual information of each variate and the component, as a share of entropy, (V,)."""
        log_weights = params["weights"].double().log()
        step = max(1, len(rows_of(data, self.about.shapes)[0]) // TOLD_ROWS)
        rows = {f"variate_{v}": x[::step] for v, x in enumerate(rows_of(data, self.about.shapes))}
        with torch.no_grad():
            log_ratios = self.model.log_ratios(rows, params).double()
        log_alphas = (log_ratios + log_weights).log_softmax(-1)  # (V, n, C)
        seen = (log_ratios != 0).any(-1)
        divergence = (log_alphas.exp() * (log_alphas - log_weights)).sum(-1) * seen
        entropy = -(log_weights.exp() * log_weights).sum()
        return (divergence.sum(1) / seen.sum(1).clamp(min=1) / entropy).cpu()

    def latent_means(self, program: Program, params: Params) -> Params:
        """Posterior of the components of each row (aggregate classifier), (N, C)."""
        return {"components": self._joint(params, program.args[0]).softmax(-1)}

    def latent_modes(self, program: Program, params: Params) -> Params:
        return {"components": self._joint(params, program.args[0]).argmax(-1)}

    def _joint(self, params: Params, data: Any) -> Tensor:
        with torch.no_grad():
            joint: Tensor = self.model.log_ratios(data, params).sum(-3) + params[
                "weights"
            ].log().unsqueeze(-2)
        return joint

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params:
        """Draw as many rows as there are, from the empirical marginals reweighted by the fit."""
        tensors = checked(self.model, data)[0]
        parts = rows_of(tensors, self.about.shapes)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            log_ratios = self.model.log_ratios(tensors, params).cpu()  # (V, N, C)
        num_rows = log_ratios.shape[1]
        components = torch.multinomial(
            params["weights"].cpu(), num_rows, replacement=True, generator=generator
        )
        out = {}
        for v, x in enumerate(parts):
            picked = torch.empty(num_rows, dtype=torch.long)
            chances = (
                log_ratios[v]
                .masked_fill(x.flatten(1).isnan().any(1, keepdim=True).cpu(), -torch.inf)
                .softmax(0)
            )
            for i in range(chances.shape[1]):
                own = (components == i).nonzero().ravel()
                edges = chances[:, i].double().cumsum(0)
                drawn = torch.rand(len(own), generator=generator, dtype=torch.float64) * edges[-1]
                picked[own] = torch.searchsorted(edges, drawn, right=True).clamp(max=num_rows - 1)
            out[f"variate_{v}"] = x[picked.to(x.device)]
        return out

    def why_no_standard_errors(self, params: Params) -> str:
        return (
            "weights of networks have no standard errors that mean anything (other weights give the"
            " same classifiers); intervals come from ensembles on resampled rows"
        )

    def why_no_criteria(self, params: Params) -> str | None:
        return (
            "AIC, BIC and their like charge for every free parameter, and the weights of networks"
            " are none in that sense: training that stops early uses few of them. Choose the number"
            " of components by the cost of held-out rows, inference.selection.saturation(...), and"
            " compare two fits by fit.log_likelihood_rows(new_rows)"
        )

    def labels(self) -> tuple[Labels, ...]:
        """Labels of exchangeable components, recognised by classifiers at probes."""
        if not self._exchangeable:
            return ()
        return (
            Labels(
                "components",
                self._at_probes,
                lambda params, order, flips: self._renamed(params, order),
            ),
        )

    @property
    def _exchangeable(self) -> bool:
        about = self.about
        return isinstance(about.weights, str) and all(
            group.output_dims is not None for group in about.groups
        )

    def _renamed(self, params: Params, order: Tensor) -> Params:
        """Rename components so that new l is old ``order[l]``, with any leading dims."""
        dims = {"weights": -1, "pseudo_weights": -1}
        for group in self.about.groups:
            dims |= group.output_dims or {}
        return {
            name: value.index_select(dims[name], order.to(value.device)) if name in dims else value
            for name, value in params.items()
        }

    def _at_probes(self, params: Params) -> Tensor:
        """Classifiers of every component at fixed values of the variates, (D, C, V * probes)."""
        about, generator = self.about, torch.Generator().manual_seed(0)
        like, parts, begin = params["pseudo_weights"], [], 0
        for v, (shape, size) in enumerate(zip(about.shapes, about.scaled_sizes, strict=True)):
            x = torch.randn(NUM_PROBES, *shape, generator=generator, dtype=torch.float64).to(like)
            if size:
                centre, scale = (
                    params[name][0, begin : begin + size].reshape(shape)
                    for name in about.scaling_sites
                )
                x, begin = centre + scale * x, begin + size
            parts.append(
                next(group.network for group in about.groups if v in group.variates).probes(x)
            )
        rows = {f"variate_{v}": x for v, x in enumerate(parts)}
        with torch.no_grad():
            log_ratios = (
                self.model.log_ratios(rows, params) + params["weights"].log()[:, None, None, :]
            )  # (D, V, probes, C)
        return log_ratios.softmax(-1).movedim(-1, 1).flatten(2)

    def canonical(self, params: Params) -> Params:
        """Order components by falling weight."""
        if self._exchangeable:
            return self._renamed(params, params["weights"].argsort(descending=True, stable=True))
        return params

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of network weights, and free component weights less their sum."""
        about = self.about
        networks = sum(params[site].numel() for site in about.network_sites)
        unused = sum(
            group.network.num_unused(
                [about.shapes[v] for v in group.variates], about.num_components, group.num_networks
            )
            for group in about.groups
        )
        return networks - unused + (about.num_components - 1 if about.weights == "free" else 0)

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend mini-batches of a fortieth of the rows, 50 to 500, from four starts."""
        return Recommendation(
            TrainClassifiers(batch_size=min(500, max(50, problem.num_rows // 40))),
            "spectral",
            NUM_STARTS,
        )


@check_method.register(ClassifierStructure)
def _(structure: ClassifierStructure, method: Any) -> None:
    """Refuse engines that know the program alone: row statistics are no parameters."""
    if isinstance(method, EM | SAEM | SVI | NUTS | Laplace):
        raise ValueError(
            f"{type(method).__name__} cannot fit {type(structure.model).__name__}: the"
            " pseudo-weights are means over all rows, which it would take for parameters."
            " Leave the method out, or give TrainClassifiers()"
        )


@unlisted_sites.register(ClassifierStructure)
def _(structure: ClassifierStructure) -> tuple[tuple[str, ...], str]:
    """Sites left out of a summary: network weights, and what scales their inputs."""
    about = structure.about
    return (
        (*about.network_sites, *about.scaling_sites),
        (
            "The weights of the networks say nothing one by one and are left out; they are in"
            " fit.params. What they say of a row: inference.inspection.read_classifiers(fit,"
            " data)."
        ),
    )


@num_density_items.register(ClassifierStructure)
def _(structure: ClassifierStructure, num_items: int) -> int:
    return num_items


@marginal_rows.register(ClassifierStructure)
def _(structure: ClassifierStructure, program: Program, params: Params) -> Tensor:
    return structure._joint(params, program.args[0]).logsumexp(-1)


MOST_ROWS = 20_000  # evenly spaced, that correlations are computed from
RIDGE = 3e-2  # of the mean variance of a variate's features
# inverse variances of a score within a cluster that are tried
STEEPNESSES = tuple(0.05 * 2**k for k in range(10))


def common_start(about: ClassifierDescription, data: Any, params: Params, seed: int) -> Params:
    """Random starts whose output layers agree between variates.

    Given the component the variates are independent, so functions of two variates are correlated
    only as far as they tell components apart: the leading canonical directions of the variates span
    the space of their classifiers (C - 1 of them beside the constant). These directions are sought
    among the features that the random hidden layers of a network have at the start, by generalised
    canonical correlation (the eigenvectors of the whitened covariances between variates; J. R.
    Kettenring 1971, doi:10.1093/biomet/58.3.433); rows are clustered by their mean canonical
    scores, and the output layers set to the classifiers of spherical clusters. Training from plain
    random outputs begins with networks that disagree, which first unlearn what they say.

    The starts as they are where networks have no known features.

    ``about``: the model's description; ``data``: as the model checks it; ``params``: starts (R,
    ...) by site; ``seed``: of the clusters.
    """
    found = _features(about, data, params)
    if found is None:
        return params
    features, means = found
    num_starts, c = len(params["weights"]), about.num_components
    size = min(c - 1, max(1, min(part.shape[-1] for part in features) - 1))
    slopes, intercepts = [], []
    for r in range(num_starts):
        directions = _directions([part[r] for part in features], size, about.is_shared)
        # (V, n, size)
        scores = torch.stack([part[r] @ a for part, a in zip(features, directions, strict=True)])
        centres, share = _clusters(scores, c, seed + r)
        steepness = _steepness(scores, centres, share)
        slopes.append([steepness * centres @ a.mT for a in directions])
        constant = share.log() - 0.5 * steepness * centres.square().sum(-1)
        intercepts.append(
            [constant - slope @ mean[r] for slope, mean in zip(slopes[-1], means, strict=True)]
        )
    out = dict(params)
    for group in about.groups:
        members = group.variates[: group.num_networks]
        own = {name: params[site] for site, name in group.sites.items()}
        new = group.network.with_outputs(
            own,
            torch.stack([torch.stack([row[v] for v in members]) for row in slopes]).to(
                params["weights"]
            ),
            torch.stack([torch.stack([row[v] for v in members]) for row in intercepts]).to(
                params["weights"]
            ),
        )
        out |= {site: new[name].contiguous() for site, name in group.sites.items()}
    return out


def _features(
    about: ClassifierDescription, data: Any, params: Params
) -> tuple[list[Tensor], list[Tensor]] | None:
    """Centred features of every variate, (R, n, F), and their means, (R, F)."""
    parts = rows_of(data, about.shapes)
    step = max(1, -(-len(parts[0]) // MOST_ROWS))
    scaling = {name: params[name][0] for name in about.scaling_sites} | {
        "pseudo_weights": params["pseudo_weights"]
    }
    inputs, seen = about.standardised([x[::step] for x in parts], scaling)
    if seen is None:
        whole = torch.ones(len(inputs[0]), dtype=torch.bool, device=inputs[0].device)
    else:
        whole = seen.all(0)
    if int(whole.sum()) < 2 * about.num_components:
        return None
    found: list[Tensor | None] = [None] * about.num_variates
    with torch.no_grad():
        for group in about.groups:
            own = group.network.features(
                [inputs[v][whole] for v in group.variates],
                {name: params[site] for site, name in group.sites.items()},
            )
            if own is None:
                return None
            for place, v in enumerate(group.variates):
                found[v] = own[:, place].double()
    features = [part for part in found if part is not None]
    means = [part.mean(1) for part in features]
    if about.is_shared:
        means = [torch.stack(means).mean(0)] * len(means)
    return [part - mean.unsqueeze(1) for part, mean in zip(features, means, strict=True)], means


def _directions(features: list[Tensor], size: int, is_shared: bool) -> list[Tensor]:
    """Canonical directions (F, size) of each variate, scores of unit variance on average."""
    num = len(features[0])
    if is_shared:
        total = sum(features[1:], features[0])
        within = sum((x.mT @ x for x in features[1:]), features[0].mT @ features[0]) / num
        between = (total.mT @ total) / num - within
        root = _inverse_root(within)
        vectors = torch.linalg.eigh(root @ between @ root).eigenvectors[:, -size:].flip(-1)
        return [root @ vectors * len(features) ** 0.5] * len(features)
    roots = [_inverse_root(x.mT @ x / num) for x in features]
    white = torch.cat([x @ root for x, root in zip(features, roots, strict=True)], 1)
    between = white.mT @ white / num
    sizes = [x.shape[1] for x in features]
    begin = 0
    for own in sizes:
        between[begin : begin + own, begin : begin + own] = 0.0
        begin += own
    vectors = torch.linalg.eigh(between).eigenvectors[:, -size:].flip(-1)
    return [
        root @ part * len(features) ** 0.5
        for root, part in zip(roots, vectors.split(sizes), strict=True)
    ]


def _inverse_root(covariance: Tensor) -> Tensor:
    """Symmetric inverse square root, directions of hardly any variance damped."""
    values, vectors = torch.linalg.eigh(covariance)
    ridge = RIDGE * values.clamp(min=0).mean() + torch.finfo(values.dtype).tiny
    return vectors * (values.clamp(min=0) + ridge).rsqrt() @ vectors.mT


def _clusters(scores: Tensor, num_clusters: int, seed: int) -> tuple[Tensor, Tensor]:
    """Centres (C, size) of the rows' mean scores, and their shares (C,)."""
    from scipy.cluster.vq import kmeans2

    with quiet():  # of clusters that are empty
        centres, owner = kmeans2(
            scores.mean(0).cpu().numpy(), num_clusters, minit="++", seed=np.random.default_rng(seed)
        )
    count = torch.from_numpy(np.bincount(owner, minlength=num_clusters)).to(scores)
    return torch.from_numpy(np.nan_to_num(centres)).to(scores), (count + 1) / (
        count.sum() + num_clusters
    )


def _steepness(scores: Tensor, centres: Tensor, share: Tensor) -> float:
    """Steepness of one variate's classifiers of the least cost, out of a few."""
    exponent = scores @ centres.mT - 0.5 * centres.square().sum(-1)  # (V, n, C)
    costs = [
        float(neg_ctc((steepness * exponent + share.log()).log_softmax(-1)))
        for steepness in STEEPNESSES
    ]
    return STEEPNESSES[int(np.argmin(costs))]
