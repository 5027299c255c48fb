"""``fit``, the fit it returns, and the ways in and out of it: rows, draws, tables, ArviZ, files."""

from inference.fitting.columns import as_fitted, checked_as_fitted
from inference.fitting.draws import latents_of_draws, log_likelihood_of_draws
from inference.fitting.export import load_netcdf, rhat, save_netcdf, summary, to_arviz
from inference.fitting.fit import fit
from inference.fitting.names import Names, dims_of, labels_of
from inference.fitting.observed import as_matrix, can_simulate, observed_sites, replicated_tables
from inference.fitting.predicting import predicted, probabilities, score
from inference.fitting.problem import problem_of
from inference.fitting.record import FitRecord, Restarts, Trace
from inference.fitting.result import Fit
from inference.fitting.rows import (
    chunks,
    decode_latents,
    log_likelihood_rows,
    posterior_latents,
    reconstruct,
    simulate_rows,
    sums_out,
)
from inference.fitting.storage import FORMAT, SavedFunction, public_name, read_fields, save
from inference.fitting.tabular import frames_of, latent_features, posterior_frame, to_xarray

__all__ = [
    "as_fitted",
    "checked_as_fitted",
    "predicted",
    "probabilities",
    "score",
    "frames_of",
    "latent_features",
    "posterior_frame",
    "to_xarray",
    "latents_of_draws",
    "log_likelihood_of_draws",
    "load_netcdf",
    "rhat",
    "save_netcdf",
    "summary",
    "to_arviz",
    "fit",
    "Names",
    "dims_of",
    "labels_of",
    "as_matrix",
    "can_simulate",
    "observed_sites",
    "replicated_tables",
    "problem_of",
    "FitRecord",
    "Restarts",
    "Trace",
    "Fit",
    "chunks",
    "decode_latents",
    "log_likelihood_rows",
    "posterior_latents",
    "reconstruct",
    "simulate_rows",
    "sums_out",
    "FORMAT",
    "SavedFunction",
    "public_name",
    "read_fields",
    "save",
]
