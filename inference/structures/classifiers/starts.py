r"""A start from what the variates have in common.

Given the component the variates are independent, so functions of two variates are correlated only
as far as they tell components apart: the leading canonical directions of the variates span the
space of their classifiers (C - 1 of them beside the constant). Here these directions are sought
among the features that the random hidden layers of a network have at the start, by generalised
canonical correlation (the eigenvectors of the whitened covariances between variates); rows are
clustered by their mean canonical scores, and the output layers set to the classifiers of spherical
clusters. Training from plain random outputs begins with networks that disagree, which first unlearn
what they say and only then learn something.

Source: J. R. Kettenring (1971), Canonical analysis of several sets of variables,
doi:10.1093/biomet/58.3.433 (the correlation); the rest is ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.structures.classifiers.regularizers import neg_ctc
from ppl_models.descriptions.classifiers import ClassifierDescription
from ppl_models.networks import rows_of

MOST_ROWS = 20_000  # evenly spaced, that correlations are computed from
RIDGE = 3e-2  # of the mean variance of a variate's features
# inverse variances of a score within a cluster that are tried
STEEPNESSES = tuple(0.05 * 2**k for k in range(10))


def common_start(about: ClassifierDescription, data: Any, params: Params, seed: int) -> Params:
    """Random starts whose output layers agree between variates.

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
