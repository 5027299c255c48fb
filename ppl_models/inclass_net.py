"""Independent classifier networks: nonparametric mixtures of independent variates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.distributions import constraints

from ppl_models.data.items import OpenModel
from ppl_models.data.tables import (
    as_variates,
    each_variate,
    named_columns,
    rows_of,
    variate_shapes,
)
from ppl_models.descriptions.classifiers import ClassifierDescription, ClassifierGroup
from ppl_models.networks.dense import Dense
from ppl_models.networks.distributions import RelativeToMarginal, Statistic
from ppl_models.networks.modules import FromModule
from ppl_models.parts.validation import (
    check_flag,
    check_number,
    check_numbers,
    check_size,
    plain_fields,
)

MOST_LOOKED = 1000  # rows that show that a variate is not constant
CHUNK = 2**21  # rows times variates times widest layer in one evaluation without gradients


@dataclass(frozen=True)
class InClassNet(OpenModel):
    r"""Independent classifier networks: a nonparametric mixture of C components.

    Variates are independent given the component.

    Each of V variates (one column or several, or an image) has a network whose softmax
    :math:`\beta_v^{(i)}(x_v)` weighs the rows that are there. With :math:`P^*_v` the empirical
    distribution of the variate and :math:`\phi_v^{(i)} = E_{P^*_v}[\beta_v^{(i)}]`,

    .. math::
        z_n &\sim \mathrm{Categorical}(w), \qquad
        x_{nv} \mid z_n = i \sim f_v^{(i)}(x) = P^*_v(x) \, \frac{\beta_v^{(i)}(x)}{\phi_v^{(i)}} \\
        w_i &\propto \prod_v (\phi_v^{(i)})^{1/V} \quad \text{("geometric")}, \qquad \text{or free,
        or known}

    Every choice of networks is such a mixture, and every mixture with these marginals is of this
    form. No density is ever written down: a row's likelihood is its **ratio to independence**,
    :math:`\log \sum_i w_i \prod_v \beta_v^{(i)} / \phi_v^{(i)}`, that of the mixture over that of
    independent variates with the same marginals. ``log_likelihood`` of a fit is the sum of these;
    it compares fits to the same rows of the same variates, and never with a density. :math:`\beta`
    is not the probability of a component: that is :math:`\alpha_v^{(i)}(x) \propto w_i
    \beta_v^{(i)}(x) / \phi_v^{(i)}` of one variate, and :meth:`inference.Fit.posterior_latents` of
    a whole row.

    Sites: ``weights`` w (C,); ``pseudo_weights`` :math:`\phi` (V, C), ``input_centres`` and
    ``input_scales`` (one entry a standardised column), which are statistics of the rows of the fit;
    the weights of the networks (:class:`ppl_models.Dense`: ``layer_1_weights``, ...); latent
    ``components`` z; observed ``variate_0``, ... in the plate ``units`` of the rows. Columns of
    dense networks are standardised: each column by its mean and standard deviation, an image (and
    all variates of a shared network) by one mean and one standard deviation; modules of your own
    and lookups see rows as they are. Priors: Normal(0, ``prior_scale``) for weights of networks
    (weight decay), flat for free ``weights``. Statistics have density 1.

    Identified up to the names of the components only under conditions, and for two variates often
    not at all: see :func:`inference.identifiability.check_identifiability`.

    Source: K. T. Matchev and P. Shyamsundar (2022), InClass nets, doi:10.1088/2632-2153/ac6483;
    free weights, standardised columns and priors are ours.

    Args:
        variates: one entry a variate: a number of columns (``(1, 1)``: the first and the second
            column), a tuple of names of columns (``(("a", "b"), ("c",))``), or the shape of an
            image (``((1, 28, 28), (1, 28, 28))``). None for every column of a table, or every array
            of a tuple or dict, by itself, read in a fit.
        num_components: C, at least 2.
        networks: a :class:`ppl_models.Dense` (the default has three hidden layers of 32 units), a
            :class:`ppl_models.Lookup`, a torch module with C outputs, or a tuple of such, one a
            variate.
        shared: one network for all variates, for variates of the same kind (two images); the label
            of a component is then the same in all.
        weights: "geometric" means of the pseudo-weights, "free", or C known numbers. All but the
            first allow variates that are missing in some rows.
        prior_scale: standard deviation, positive.

    Raises:
        ValueError: for fewer than two variates or components, variates that share a column,
            networks that do not fit the variates, or settings out of range; with data, for networks
            with another number of outputs.
    """

    variates: tuple[Any, ...] = None  # type: ignore[assignment]  # None while it waits for data
    num_components: int = 2
    networks: Any = None
    shared: bool = False
    weights: Literal["geometric", "free"] | tuple[float, ...] = "geometric"
    prior_scale: float = 10.0

    def __post_init__(self) -> None:
        owner = "InClassNet"
        plain_fields(self)
        variates = self.variates
        shapes = () if self.waits_for_data else variate_shapes(owner, variates)
        check_size(owner, "num_components", self.num_components)
        if self.num_components < 2:
            raise ValueError(
                f"{owner}: num_components must be at least 2, got 1: one component is independence"
                " of the variates, and there is nothing to fit"
            )
        check_flag(owner, "shared", self.shared)
        self._check_weights(owner)
        check_number(owner, "prior_scale", self.prior_scale, "be positive and finite", above=0)
        if self.shared and len(set(shapes)) > 1:
            raise ValueError(
                f"{owner}: a shared network needs variates of one shape, got {list(shapes)}"
            )
        object.__setattr__(self, "networks", self._as_networks(len(shapes)))
        if not self.waits_for_data:
            self.classifiers()

    @property
    def waits_for_data(self) -> bool:
        """Tell whether the variates are still to be read off data."""
        return self.variates is None

    def for_data(self, data: Any) -> InClassNet:
        """Model whose variates are the columns or arrays of the data, where it leaves them open."""
        if not self.waits_for_data:
            return self
        return replace(self, variates=each_variate(data))

    def _check_weights(self, owner: str) -> None:
        if isinstance(self.weights, str):
            if self.weights not in ("geometric", "free"):
                raise ValueError(
                    f"{owner}: weights must be 'geometric', 'free', or known numbers, got"
                    f" {self.weights!r}"
                )
            return
        must = (
            f"be 'geometric', 'free', or {self.num_components} known positive numbers that sum to 1"
        )
        known = check_numbers(owner, "weights", self.weights, must, self.num_components, above=0)
        if abs(sum(known) - 1) > 1e-6:
            raise ValueError(
                f"{owner}: weights must {must}, got {known}, which sum to {sum(known):g}"
            )
        object.__setattr__(self, "weights", known)

    def _as_networks(self, num_variates: int) -> Any:
        given = self.networks
        if isinstance(given, list | tuple):
            if self.shared or len(given) != (num_variates or len(given) or 2):
                if self.shared:
                    wanted = "one network, for it is shared,"
                else:
                    wanted = f"one network a variate, {num_variates} of them,"
                raise ValueError(f"InClassNet: networks must be {wanted} got {len(given)}")
            return tuple(_network(one) for one in given)
        return _network(given)

    def classifiers(self) -> ClassifierDescription:
        """Description of the networks for engines."""
        shapes = variate_shapes("InClassNet", self.variates)
        every = tuple(range(len(shapes)))
        alike = (
            not isinstance(self.networks, tuple)
            or isinstance(self.networks[0], Dense)
            and len(set(self.networks)) == 1
        )
        groups = []
        for members in [every] if alike else [(v,) for v in every]:
            network = (
                self.networks[members[0]] if isinstance(self.networks, tuple) else self.networks
            )
            own = [shapes[v] for v in members]
            found = network.sites(own, self.num_components, 1 if self.shared else len(members))
            names = {(name if alike else f"{name}_{members[0]}"): name for name in found}
            of_outputs = network.output_dims()
            dims = (
                None
                if of_outputs is None
                else {site: of_outputs[name] for site, name in names.items() if name in of_outputs}
            )
            groups.append(
                ClassifierGroup(
                    network,
                    members,
                    self.shared,
                    names,
                    {site: found[name] for site, name in names.items()},
                    dims,
                )
            )
        scaled = tuple(
            bool(group.network.scales_inputs) for group in groups for _ in group.variates
        )
        return ClassifierDescription(
            shapes,
            self.num_components,
            tuple(groups),
            self.weights,
            float(self.prior_scale),
            scaled,
            self.shared,
        )

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of the sites that have any, without the rows."""
        return {
            "weights": ("component",),
            "pseudo_weights": ("variate", "component"),
            "components": ("component",),
            "input_centres": ("column",),
            "input_scales": ("column",),
        }

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the variates and columns, where they have any."""
        named = named_columns(self.variates)
        if named is None:
            return {}
        scaled = [
            entry
            for entry, size in zip(self.variates, self.classifiers().scaled_sizes, strict=True)
            if size
        ]
        return {
            "column": tuple(name for entry in scaled for name in entry),
            "variate": tuple(" + ".join(entry) for entry in self.variates),
        }

    def check_data(
        self, data: Any, for_fit: bool = True
    ) -> tuple[Tensor | dict[str, Tensor], tuple[str, ...]]:
        """Data as one table, or a dict of tensors where rows are images or lie in files.

        Also the names of the columns; see :func:`ppl_models.networks.as_variates`.
        """
        rows, names = as_variates(
            "InClassNet", data, self.variates, may_miss=self.weights != "geometric"
        )
        about = self.classifiers()
        first = [x[:2] for x in rows_of(rows, about.shapes)]
        if for_fit and len(rows_of(rows, about.shapes)[0]) < self.num_components:
            raise ValueError(
                f"data: at least num_components = {self.num_components} rows were expected, got"
                f" {len(first[0])}"
            )
        generator = torch.Generator().manual_seed(0)
        kind = _dtype_of(first)
        for group in about.groups:
            own = [about.shapes[v] for v in group.variates]
            start = group.network.start(own, self.num_components, group.num_networks, 1, generator)
            with torch.no_grad():
                try:
                    logits = group.network.logits(
                        [first[v].to("cpu", kind).nan_to_num() for v in group.variates],
                        {n: v.to(kind) for n, v in start.items()},
                    )
                except RuntimeError as error:
                    raise ValueError(
                        f"InClassNet: the network of variate {group.variates[0]} does not take rows"
                        f" of shape {own[0]}: {error}"
                    ) from error
            if logits.shape[-1] != self.num_components:
                raise ValueError(
                    f"InClassNet: networks with num_components = {self.num_components} outputs were"
                    f" expected, but that of variate {group.variates[0]} has {logits.shape[-1]}"
                )
        if for_fit:
            self._refuse_constant(rows_of(rows, about.shapes))
        return rows, names

    def _refuse_constant(self, parts: list[Tensor]) -> None:
        """Refuse constant variates; of many rows, a sample is looked at first."""
        for v, x in enumerate(parts):
            first = x[0]
            if len(x) > 1 and all(
                bool(torch.isclose(part, first, 0, 0, equal_nan=True).all())
                for part in (x[:: max(1, len(x) // MOST_LOOKED)], x)
            ):
                named = self.entry_names.get("variate", ())
                name = repr(named[v]) if named else str(v + 1)
                raise ValueError(
                    f"data: a variate that differs between rows was expected, but variate {name} is"
                    f" the same in all {len(x):,} of them; leave it out"
                )

    def log_scores(
        self, data: Tensor | Mapping[str, Tensor], params: Mapping[str, Tensor]
    ) -> Tensor:
        r"""Log-outputs of the networks, (\*R, V, n, C); zero where a variate is missing.

        These are :math:`\log \beta_v^{(i)}(x_{nv})`.

        Args:
            data: rows as :meth:`check_data` returns them; params: by site, with or without leading
                restarts.
        """
        about = self.classifiers()
        rows = rows_of(data, about.shapes)  # type: ignore[arg-type]
        if torch.is_grad_enabled() and any(
            params[name].requires_grad for name in about.network_sites
        ):
            return self._log_scores(about, rows, params)
        width = max(
            [
                self.num_components,
                *(
                    max(math.prod(shape[1:]) for shape in group.shapes.values())
                    for group in about.groups
                ),
            ]
        )
        lead = params["pseudo_weights"].dim() - 2
        restarts = math.prod(params["pseudo_weights"].shape[:lead])
        step = max(1, CHUNK // (width * len(rows) * restarts))
        parts = [
            self._log_scores(about, [x[b : b + step] for x in rows], params)
            for b in range(0, len(rows[0]), step)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def _log_scores(
        self, about: ClassifierDescription, rows: list[Tensor], params: Mapping[str, Tensor]
    ) -> Tensor:
        like = params["pseudo_weights"]
        lead = like.shape[:-2]
        scaling = {
            name: params[name].reshape(-1, params[name].shape[-1]) for name in about.scaling_sites
        }
        if any(
            not torch.allclose(value, value[:1].expand_as(value), 0, 0, equal_nan=True)
            for value in scaling.values()
        ):  # restarts that see the columns each in a way of its own
            return torch.stack(
                [
                    self._log_scores(
                        about, rows, {name: value[r] for name, value in params.items()}
                    )
                    for r in range(len(like))
                ]
            )
        inputs, seen = about.standardised(
            rows, {name: value[0] for name, value in scaling.items()} | {"pseudo_weights": like}
        )
        out: list[Tensor] = [like] * about.num_variates
        for group in about.groups:
            weights = {
                name: params[site].reshape(-1, *group.shapes[site])
                for site, name in group.sites.items()
            }
            log_scores = group.network.logits(
                [inputs[v] for v in group.variates], weights
            ).log_softmax(-1)
            for place, v in enumerate(group.variates):
                out[v] = log_scores[:, place]
        stacked = torch.stack(out, 1)  # (R, V, n, C)
        stacked = stacked if seen is None else stacked * seen.to(like).unsqueeze(-1)
        return stacked.reshape(*lead, *stacked.shape[1:])

    def log_ratios(
        self, data: Tensor | Mapping[str, Tensor], params: Mapping[str, Tensor]
    ) -> Tensor:
        r"""Log-density of each variate and component relative to the variate's marginal.

        :math:`\log \beta_v^{(i)} - \log \phi_v^{(i)}`, (\*R, V, n, C); zero where a variate is
        missing.

        Arguments as of :meth:`log_scores`.
        """
        log_scores = self.log_scores(data, params)
        seen = (log_scores != 0).any(-1, keepdim=True)
        return (log_scores - params["pseudo_weights"].log().unsqueeze(-2)) * seen

    def __call__(self, data: Any = None, num_rows: int | None = None) -> Tensor | dict[str, Tensor]:
        """Generative program, relative to the empirical marginals of the variates.

        Args:
            data: rows as :meth:`check_data` returns them.
            num_rows: the size of the whole data set of which ``data`` is a mini-batch.
        """
        if data is None:
            raise ValueError(
                "InClassNet has no prior predictive draw: its components are defined by reweighting"
                " rows that are there. Rows from a fit: fit.structure.simulate_like(fit.params,"
                " data, seed)"
            )
        about = self.classifiers()
        rows = rows_of(data, about.shapes)
        kind: dict[str, Any] = {"dtype": _dtype_of(rows), "device": rows[0].device}
        even = torch.full(
            (about.num_variates, self.num_components), 1.0 / self.num_components, **kind
        )
        params = {
            "pseudo_weights": pyro.sample("pseudo_weights", Statistic(even, constraints.simplex))
        }
        zero = torch.zeros(sum(about.scaled_sizes), **kind)
        for name, value, support in zip(
            about.scaling_sites,
            (zero, zero + 1),
            (constraints.real, constraints.positive),
            strict=False,
        ):
            params[name] = pyro.sample(name, Statistic(value, support))
        known = even[0] if isinstance(self.weights, str) else torch.tensor(self.weights, **kind)
        if self.weights == "free":
            distribution = dist.Dirichlet(torch.ones_like(even[0]))
        else:
            distribution = Statistic(known, constraints.simplex)
        weights = pyro.sample("weights", distribution)
        for group in about.groups:
            for site, shape in group.shapes.items():
                scale = torch.full(shape, self.prior_scale, **kind)
                params[site] = pyro.sample(
                    site, dist.Normal(torch.zeros_like(scale), scale).to_event(len(shape))
                )
        squeezed = {
            name: _without_plates(value, self._event_dim(about, name))
            for name, value in params.items()
        }
        log_ratios = self.log_ratios(data, squeezed)
        with pyro.plate("units", num_rows or len(rows[0]), subsample_size=len(rows[0])):
            component = pyro.sample("components", dist.Categorical(weights))
            for v, x in enumerate(rows):
                pyro.sample(
                    f"variate_{v}",
                    RelativeToMarginal(log_ratios[..., v, :, :], component, x.shape[1:]),
                    obs=x,
                )
        return data

    def _event_dim(self, about: ClassifierDescription, name: str) -> int:
        shapes = {
            site: len(shape) for group in about.groups for site, shape in group.shapes.items()
        }
        return shapes.get(name, 2 if name == "pseudo_weights" else 1)


def _network(given: Any) -> Any:
    """Network of a model's argument."""
    if given is None:
        return Dense()
    if isinstance(given, nn.Module):
        return FromModule(given)
    if isinstance(given, type) or not all(
        callable(getattr(given, name, None)) for name in ("sites", "start", "logits")
    ):
        raise ValueError(
            "InClassNet: networks must be Dense(), Lookup(), a torch module, or a tuple of these,"
            f" one a variate; got {given!r}"
        )
    return given


def _dtype_of(rows: list[Tensor]) -> torch.dtype:
    """Single precision where the rows are whole numbers, such as the pixels of images."""
    floating = [x.dtype for x in rows if x.is_floating_point()]
    return max(floating, key=lambda dtype: torch.finfo(dtype).bits, default=torch.float32)


def _without_plates(value: Tensor, event_dim: int) -> Tensor:
    """Drop the rows' dim between restarts and a site's own dims."""
    lead = value.dim() - event_dim
    return value.squeeze(lead - 1) if lead else value
