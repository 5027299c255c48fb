r"""Sizes and depth of a deep discrete encoder, layer by layer from the items up.

**First layer.** Gaps of the singular values of the items, the steps :math:`s_k / s_{k+1} - 1`
over the median of the next five, name candidates, beside four spread over all sizes, and the
neighbours of the best are looked at until none is better. A candidate is judged
by the integrated classification likelihood: with codes a of its latents
(:mod:`inference.structures.layers.recoding`),

.. math:: -2 \log p(x \mid a, \hat\theta) + |\hat\theta| \log N + \min_M \mathrm{EBIC}_M(a),

where M is one of the models of the codes: independent bits, or an encoder of them.

**Layers above.** With K bits below, sizes from :math:`\lceil K / 4 \rceil` to
:math:`\lfloor (K - 1) / 2 \rfloor` (the condition of Lee and Gu) are named by the three largest
ratios of singular values of the codes and their neighbours, and judged by the EBIC of encoders
fitted to the codes. Codes are estimates, whose errors can look like a layer: a layer that lowers
the EBIC of independent bits by less than half a nat a row is confirmed by the EBIC of encoders of
the layer below the codes, with it and without, or left out.

Sources: C. Biernacki, G. Celeux and G. Govaert (2000), doi:10.1109/34.865189; J. Chen and Z. Chen
(2008), doi:10.1093/biomet/asn034; S. Lee and Y. Gu (2025), arXiv:2501.01414. The search is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from inference.base.drawing import Answer
from inference.base.frames import pd
from inference.base.progress import NoProgress, RichProgress
from inference.engines.em import EM
from inference.fitting.problem import problem_of
from inference.programs.global_state import quiet
from inference.selection.dimension import select_dimension
from inference.structures.layers.gibbs import LayeredGibbs
from inference.structures.layers.recoding import DOUBT, Codes, layer_codes
from inference.structures.layers.spectral import (
    NUM_BEHIND,
    centred_values,
    leading_values,
    regression,
)
from inference.structures.layers.units import noise_units
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.measurement import Additive
from ppl_models.parts.penalties import TruncatedLasso
from ppl_models.parts.responses import Bernoulli
from ppl_models.parts.validation import Seed, as_seed

NUM_NAMED = 3  # sizes that gaps name
SPREAD = (0.25, 0.5, 0.75, 1.0)  # further candidates of the first layer, shares of the most
MARGIN = 10.0  # of EBIC, by which a layer must lower it
CLEAR = 1.0  # of EBIC a row: a layer that lowers it by more needs no confirmation
FEW_ROWS = 200  # singular values of fewer are rough
RARE = 0.005  # share of the rarer value of a bit that says nothing about others
BOUND, ITERATIONS = 8.0, 150  # of encoders of codes
MOST_SUMMED = 14  # latents of an encoder that confirms a layer


@dataclass(frozen=True, eq=False, repr=False)
class LayerSizes(Answer):
    """Sizes of the layers of an encoder, and why.

    Args:
        chosen: the sizes, bottom-up.
        doubts: reasons why they may be wrong, in sentences; none where they are confident.
        tried: one entry a size that was tried: layer, size, criterion (of the items' and the codes'
            description for layer 1, EBIC of the codes above), gap (or ratio) of singular values;
            size 0 is no layer.
    """

    chosen: tuple[int, ...]
    doubts: tuple[str, ...]
    tried: tuple[Mapping[str, float], ...]

    @property
    def status(self) -> str:
        """Status: "confident" or "unsure"."""
        return "unsure" if self.doubts else "confident"

    @property
    def headline(self) -> str:
        """Chosen sizes."""
        return f"Layers of {self.chosen} latents, from the items up ({self.status})."

    @property
    def sentences(self) -> tuple[str, ...]:
        """Doubts, and the next step."""
        step = f"Fit them: fit(DeepDiscreteEncoder(latent_sizes={self.chosen}), data)"
        if self.doubts:
            step += ", and compare with the nearest others by select_dimension(..., 'ebic')"
        return (*self.doubts, f"{step}.")

    @property
    def table(self) -> pd.DataFrame:
        """One line a size that was tried; ``behind`` is its criterion above the layer's best."""
        frame = pd.DataFrame(self.tried).sort_values(["layer", "size"]).astype({"size": int})
        best = frame.groupby("layer")["criterion"].transform("min")
        sizes = dict(enumerate(self.chosen, 1))
        chosen = [sizes.get(d, 0) == k for d, k in zip(frame["layer"], frame["size"], strict=True)]
        return frame.assign(behind=frame["criterion"] - best, chosen=chosen).set_index(
            ["layer", "size"]
        )


@dataclass(frozen=True, eq=False)
class _Above:
    """Sizes of the layer above some codes.

    Args:
        chosen: the size, 0 for independent codes; ebic: of the best.
        gain: of the best encoder over independent codes.
        tried: lines of the table, without their layer.
        first: the size of the largest ratio.
    """

    chosen: int
    ebic: float
    gain: float
    tried: tuple[dict[str, float], ...]
    first: int


def select_layers(model: Any, data: Any, *, seed: Seed = 0, progress: bool = False) -> LayerSizes:
    """Choose the number of layers of an encoder, and their sizes.

    Args:
        model: an encoder with any sizes, whose response is kept, or its class. Without graphs,
            covariates and products.
        data: the rows.
        seed: of the draws.
        progress: show a bar on standard error.

    Raises:
        ValueError: for another model, or fewer than three items.
    """
    seed = as_seed("select", seed)
    if not has_layers(model):
        name = getattr(model, "__name__", type(model).__name__)
        raise ValueError(f"select: criterion 'layers' expects a DeepDiscreteEncoder, got {name}")
    model = model(latent_sizes=(1,)) if isinstance(model, type) else model
    for name, plain in (("graphs", None), ("covariates", None), ("bottom", Additive())):
        if getattr(model, name) != plain:
            raise ValueError(
                f"select: criterion 'layers' expects an encoder with {name}={plain!r}, got"
                f" {getattr(model, name)!r}; compare its sizes by select_dimension"
            )
    problem = problem_of(replace(model, latent_sizes=(1,)), data, seed)
    model, items = cast(Any, problem.model), problem.data
    num_items = model.layers()[0].num_items
    if num_items < 3:
        raise ValueError(f"select: at least three items were expected, got {num_items}")
    with RichProgress("select", None, in_iterations=False) if progress else NoProgress() as bar:
        centres, units = noise_units(model.layers()[0], items)
        volume = float((items.isfinite().sum(0) * units.log()).sum())
        items = ((items.double() - centres) / units).to(items)
        return _Search(model, items, seed, bar, volume).run()


@dataclass(eq=False)
class _Search:
    """Search for the sizes of layers.

    Args:
        model: the encoder; items: (N, J), in their units; seed, bar: of the fits.
        volume: by how much the log-likelihood is larger in these units than in those of the data.
    """

    model: Any
    items: Tensor
    seed: int
    bar: Any
    volume: float

    def run(self) -> LayerSizes:
        model, num_rows = self.model, len(self.items)
        lines: list[dict[str, float]] = []
        doubts: list[str] = []
        codes, above, first = self._first_layer(lines)
        sizes = [codes.chances.shape[1]]
        if first != sizes[0]:
            doubts.append(
                f"Singular values of the items have their clearest gap after {first}, not after"
                f" {sizes[0]}."
            )
        if num_rows < FEW_ROWS:
            doubts.append(f"{num_rows} rows are few: at least {FEW_ROWS} are wanted.")
        criteria = {int(line["size"]): line["criterion"] for line in lines}
        if (other := _second_minimum(criteria, sizes[0], CLEAR * num_rows)) is not None:
            doubts.append(
                f"The criterion of layer 1 is low at {other} latents as well, and higher between."
            )
        below, template = self.items, model
        while True:
            depth = len(sizes)
            if codes.doubt > DOUBT and (above is not None or depth == 1):
                doubts.append(
                    f"Latents of layer {depth} are unsure in single rows (wrong in"
                    f" {codes.doubt:.0%} on average), and so are sizes from there on."
                )
            if above is None:
                break
            lines += [{"layer": depth + 1, **line} for line in above.tried]
            if not above.chosen:
                break
            if above.gain < CLEAR * num_rows:
                kept = self._confirmed(template, below, sizes[-1], above.chosen)
                if kept is None:
                    doubts.append(
                        f"Layer {depth + 1} lowers the EBIC by {above.gain:,.0f} only, which errors"
                        " of single rows can do."
                    )
                elif not kept:
                    break
            if above.first != above.chosen:
                doubts.append(
                    f"Singular values name {above.first} latents for layer {depth + 1}, EBIC"
                    f" {above.chosen}."
                )
            behind = [
                line
                for line in above.tried
                if line["size"] not in (0, above.chosen) and line["criterion"] < above.ebic + MARGIN
            ]
            if behind:
                near = ", ".join(str(int(line["size"])) for line in behind)
                doubts.append(f"Layer {depth + 1} of {near} is within {MARGIN:g} of EBIC.")
            sizes.append(above.chosen)
            below, template = codes.bits, self._encoder(codes.bits)
            codes = self._codes(replace(template, latent_sizes=(sizes[-1],)), below, depth)
            above = self._above(codes)
        return LayerSizes(tuple(sizes), tuple(doubts), tuple(lines))

    def _first_layer(self, lines: list[dict[str, float]]) -> tuple[Codes, _Above | None, int]:
        """Codes of the chosen first layer, what lies above, and the size of the clearest gap."""
        model, items = self.model, self.items
        most = max(1, (model.layers()[0].num_items - 1) // 2)
        num_values = min(most + NUM_BEHIND + 1, *items.shape)
        values = leading_values(
            model.layers()[0], items, num_values, min(num_values, most + 1), self.seed
        )
        steps = (values[:-1] / values[1:].clamp(min=1e-300) - 1).tolist()
        gaps = {
            k: steps[k - 1] / max(_median(steps[k : k + NUM_BEHIND]), 1e-12)
            for k in range(1, min(most, len(steps) - 1) + 1)
        }
        named = sorted(gaps, key=lambda k: -gaps[k])
        found: dict[int, tuple[float, Codes]] = {}

        def judged(k: int) -> float:
            if k not in found:
                found[k] = self._first_criterion(k)
                self.bar.update(len(found), objective=found[k][0], active=0)
                line = {"layer": 1, "size": k, "criterion": found[k][0]}
                lines.append({**line, "gap": gaps.get(k, math.nan)})
            return found[k][0]

        spread = [max(1, round(most * share)) for share in SPREAD]
        best = min([*named[:NUM_NAMED], *spread], key=judged)
        while True:
            around = [k for k in (best - 1, best + 1) if 1 <= k <= most]
            better = min([best, *around], key=judged)
            if better == best:
                break
            best = better
        codes = found[best][1]
        return codes, self._above(codes), named[0]

    def _first_criterion(self, size: int) -> tuple[float, Codes]:
        """Integrated classification likelihood of a first layer, and its codes.

        Of encoders of the codes, the one with the size of the largest ratio.
        """
        model = replace(self.model, latent_sizes=(size,))
        codes = self._codes(model, self.items, 0)
        layer, root = self._with_edges_of(codes), model.root_layer()
        params = regression(layer, self.items, codes.bits) | root.start(codes.bits)
        gibbs = LayeredGibbs.build(model, self.items)
        joint = gibbs.log_joint_rows(params, {layer.parent: codes.bits.mT.unsqueeze(0)})
        edges = layer.graph
        assert edges is not None
        num = sum(value.numel() for value in params.values()) - int((~edges).sum())
        above = self._above(codes, num_named=1)
        better = 0.0 if above is None else min(0.0, -above.gain)
        price = num * math.log(len(self.items))
        return -2 * (float(joint.sum()) - self.volume) + price + better, codes

    def _with_edges_of(self, codes: Codes) -> GeneralizedLinearLayer:
        r"""The layer of the items, with the edges that are worth their price in BIC.

        The graph of the factors lacks weak edges, which further latents would then stand for. Kept
        are edges of the regression on all codes whose Wald statistic is above :math:`\log N`, with
        :math:`\sum_i s_j A''(\eta_{ij}) h_i h_i^\top` as the information of item j. Categories
        keep the graph of the factors.
        """
        layer, bits = codes.layer, codes.bits
        assert layer.graph is not None
        family = layer.response
        if layer.tabled or not family.is_canonical:
            return layer
        full = replace(layer, graph=torch.ones_like(layer.graph))
        params = regression(full, self.items, bits)
        eta = params[layer.intercepts] + bits @ params[layer.loadings][0].mT  # (N, J)
        eta.requires_grad_()
        (mean,) = torch.autograd.grad(family.log_partition(eta).sum(), eta, create_graph=True)
        (spread,) = torch.autograd.grad(mean.sum(), eta)
        scale = family.scale(params.get(layer.dispersion or ""), layer.num_children)
        spread = spread if scale is None else spread * scale[0]
        spread = spread.masked_fill(self.items.isnan(), 0.0)
        design = torch.cat([torch.ones_like(bits[:, :1]), bits], 1)
        information = torch.einsum("nj,nk,nl->jkl", spread, design, design)
        ridge = 1e-6 * torch.eye(design.shape[1]).to(design)
        errors = torch.linalg.inv(information + ridge).diagonal(dim1=-2, dim2=-1)[:, 1:]
        wald = params[layer.loadings][0].square() / errors.clamp(min=1e-300)
        return replace(layer, graph=wald > math.log(len(bits)))

    def _encoder(self, bits: Tensor) -> Any:
        """Encoder of bits (N, K)."""
        return replace(self.model, num_items=bits.shape[1], response=Bernoulli())

    def _codes(self, model: Any, below: Tensor, depth: int) -> Codes:
        return layer_codes(model.layers()[0], below, depth, self.seed)

    def _above(self, codes: Codes, num_named: int = NUM_NAMED) -> _Above | None:
        """Sizes of a layer above the codes; None where they are too few for one.

        ``num_named``: sizes of the largest ratios that are tried; of several their neighbours too.
        """
        share = codes.bits.mean(0)
        bits = codes.bits[:, (share > RARE) & (share < 1 - RARE)]
        num = bits.shape[1]
        low, high = math.ceil(num / 4), (num - 1) // 2
        if high < max(low, 1):
            return None
        values = centred_values(bits, high + 1, self.seed).clamp(min=1e-300)
        ratios = dict(enumerate((values[:-1] / values[1:]).tolist(), 1))
        named = sorted(range(low, high + 1), key=lambda k: -ratios[k])
        steps = (-1, 0, 1) if num_named > 1 else (0,)
        sizes = {k + step for k in named[:num_named] for step in steps}
        tried = [{"size": 0.0, "criterion": _independent(bits)}]
        for k in sorted(size for size in sizes if low <= size <= high):
            top = (2,) if k >= 5 else (1,) if k >= 3 else ()
            ebic = self._ebic(self._encoder(bits), bits, (k, *top))
            tried.append({"size": float(k), "criterion": ebic, "gap": ratios[k]})
        best = min(tried[1:], key=lambda line: line["criterion"])
        gain = tried[0]["criterion"] - best["criterion"]
        chosen = int(best["size"]) if gain > MARGIN else 0
        return _Above(chosen, best["criterion"], gain, tuple(tried), named[0])

    def _confirmed(self, model: Any, below: Tensor, size: int, above: int) -> bool | None:
        """Tell whether EBIC of the data below wants the layer; None where they are too many."""
        if size > MOST_SUMMED:
            return None
        without, with_layer = (
            self._ebic(model, below, sizes) for sizes in ((size,), (size, above))
        )
        return with_layer < without - MARGIN

    def _ebic(self, model: Any, data: Tensor, sizes: tuple[int, ...]) -> float:
        """EBIC of an encoder, thresholded and refitted."""
        penalty = TruncatedLasso.bic(len(data))
        own = replace(model, penalty=penalty, bound=BOUND)
        with quiet():  # of trial fits
            found = select_dimension(
                lambda latent_sizes: replace(own, latent_sizes=latent_sizes),
                data,
                [sizes],
                "ebic",
                EM(max_iterations=ITERATIONS),
                num_restarts=1,
                seed=self.seed,
            )
        return found.columns["ebic"][0]


def has_layers(model: Any) -> bool:
    """Tell whether a model, or a class of models, has layers of binary latents with sizes."""
    names = {setting.name for setting in fields(model)} if is_dataclass(model) else set()
    return {"latent_sizes", "response", "graphs"} <= names


def _independent(bits: Tensor) -> float:
    """BIC of independent bits (N, K)."""
    share = bits.mean(0).clamp(1e-12, 1 - 1e-12)
    rows = len(bits)
    entropy = float((share * share.log() + (1 - share) * (1 - share).log()).sum())
    return -2 * rows * entropy + bits.shape[1] * math.log(rows)


def _second_minimum(criteria: Mapping[int, float], best: int, within: float) -> int | None:
    """Size at another local minimum of the criterion, at most ``within`` above the best; None."""
    sizes = sorted(criteria)
    values = [math.inf, *(criteria[size] for size in sizes), math.inf]
    others = [
        size
        for i, size in enumerate(sizes, 1)
        if size != best
        and values[i] < min(values[i - 1], values[i + 1])
        and values[i] < criteria[best] + within
    ]
    return min(others, key=lambda size: criteria[size], default=None)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
