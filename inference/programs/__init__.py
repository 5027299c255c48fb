"""A Pyro program as a density: traces, elimination, coordinates, curvature."""

from inference.programs.alone import in_dtype, isolated, listening, quiet
from inference.programs.coordinates import Coordinates, entry_names
from inference.programs.curvature import data_chunks, inverse_information, minus_hessian, some_names
from inference.programs.data import as_tensors, checked, checks_data, first_tensor, map_tensors
from inference.programs.elimination import (
    FactorPosteriors,
    Factors,
    FiniteMixture,
    differing_site,
    narrow_repeated,
)
from inference.programs.guide_traces import drawn_sites, hidden, one_draw
from inference.programs.potential import Potential, PotentialOfSets
from inference.programs.program import Params, Program, simulate
from inference.programs.replay import recorded
from inference.programs.replicates import (
    categories,
    observed_names,
    observed_values,
    present,
    replicate,
    stems,
    tables_of,
)
from inference.programs.sites import Site, law_of, sample_nodes

__all__ = [
    "Coordinates",
    "entry_names",
    "data_chunks",
    "inverse_information",
    "minus_hessian",
    "some_names",
    "as_tensors",
    "checked",
    "checks_data",
    "first_tensor",
    "map_tensors",
    "FactorPosteriors",
    "Factors",
    "FiniteMixture",
    "differing_site",
    "narrow_repeated",
    "drawn_sites",
    "hidden",
    "one_draw",
    "Potential",
    "PotentialOfSets",
    "Params",
    "Program",
    "Site",
    "law_of",
    "sample_nodes",
    "in_dtype",
    "isolated",
    "listening",
    "quiet",
    "simulate",
    "recorded",
    "categories",
    "observed_names",
    "observed_values",
    "present",
    "replicate",
    "stems",
    "tables_of",
]
