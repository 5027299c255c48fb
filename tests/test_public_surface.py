"""What a user sees: the names of the packages, when they are loaded, and that no name that was
public is lost.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import inference
import ppl_models

ROOT = Path(__file__).parent.parent
ON_FIRST_USE = [
    "acdc",
    "alignment",
    "bootstrap",
    "calibration",
    "causal",
    "comparison",
    "estimates",
    "estimator",
    "identifiability",
    "inspection",
    "loo",
    "metrics",
    "plots",
    "predictive",
    "relations",
    "report",
    "selection",
    "studies",
    "uncertainty",
]

# what each module promised before the files moved into folders
PUBLIC = {
    "inference": (
        """
        Bootstrap BoundWarning ConvergenceWarning CrossTotalCorrelation EM EstimateWarning
        EvenWeights Fit FullRank GrowAndPrune KnownWeights Labels Laplace LowRank MeanField NUTS
        SAEM SVI TrainClassifiers fit
    """
    ),
    "inference.plots": (
        """
        plot_latent_graph plot_loading_images plot_loadings plot_mesa plot_posterior_predictive
        plot_reconstructions plot_restarts plot_trace plot_categories plot_certainty
        plot_classifiers plot_component_densities plot_saturation
    """
    ),
    "inference.report": "HasText write_report",
    "inference.comparison": "Comparison compare",
    "inference.loo": "Prediction cross_validate loo",
    "inference.calibration": "Calibration simulation_based_calibration",
    "inference.selection": (
        """
        ComponentNoise HeldOut InformationCriterion LikelihoodRatio Selection SpectralRatio
        find_variates saturation select_dimension Discriminator conditional_independence
        total_correlation
    """
    ),
    "inference.acdc": "AcdcResult Bootstrap Choice NoNull PlugIn Table acdc",
    "inference.identifiability": (
        """
        ClassifierIdentifiability IdentifiabilityReport LayerReport QMatrixReport Violation
        check_classifiers check_graph check_identifiability check_q_matrix weight_interval
    """
    ),
    "inference.inspection": (
        """
        ClassifierEnsemble classifier_curves classifier_ensemble read_classifiers ItemBIC
        LikelihoodRatioSteps QChange QCriterion QValidation VarianceHull VarianceShare WaldSteps
        validate_q
    """
    ),
    "inference.studies": "JobResult JobResults run_jobs",
    "inference.alignment": (
        "Alignment Matching align align_layers canonical_signs match_columns relabel"
    ),
    "inference.relations": (
        "ClassOutcomes ClassRegression class_coefficients compare_outcomes regress_classes"
    ),
    "inference.uncertainty": "Uncertainty check_information standard_errors",
    "inference.cli": "app main",
    "ppl_models": (
        """
        Additive Bernoulli Blocks Categorical ContinuousOptionsHMM DeepDiscreteEncoder DeepNoisyOr
        Dense ExpDINA ExpGDM FactorAnalysis FromModule GaussianFactorization InClassNet
        KnownDensities LogNormal Lookup Mixture MultivariateNormal NegativeBinomial
        NegativeBinomialFactorization Network NoisyOr Normal OptionsHMM Ordinal Poisson
        PoissonFactorization Ridge SCAD SoftmaxLinear SparseCoding TruncatedLasso UsageFactorization
    """
    ),
    "ppl_models.datasets": (
        """
        AttributeDesign causal_attributes FractionSubtraction load_fraction_subtraction
        mastery_test Digits GridWorld MnistDigits MutationCounts Newsgroups OptionSequences
        ResponseTimes Table image_design load_breast load_digits load_mnist_digits
        load_newsgroups load_response_times load_timss negative_binomial_mixture
        options_chain paired_dictionary read_table sample_noisy_or sample_sparse_codes
        simulate_mutations simulate_options skew_normal_mixture split_counts
        stream_sequences strict_design MnistImages
        image_pairs load_diabetes_table load_mnist_images load_timss_table
        simulate_checkerboard simulate_trivariate simulate_two_gaussians
    """
    ),
}

PUBLIC_MODULES = [
    "ppl_models",
    "ppl_models.datasets",
    "inference",
    *(f"inference.{name}" for name in ON_FIRST_USE),
]

both = pytest.mark.parametrize(
    "package", [inference, ppl_models], ids=lambda package: package.__name__
)


@pytest.mark.parametrize("module", PUBLIC)
def test_names_are_where_they_were(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in PUBLIC[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_dir_lists_what_a_module_promises(module: str) -> None:
    """Public names alone: no submodules, no imports for the module's own use."""
    listed = dir(importlib.import_module(module))
    assert listed == sorted(set(listed))
    assert set(PUBLIC.get(module, "").split()) <= set(listed)
    tree = ast.parse(Path(importlib.import_module(module).__file__).read_text(encoding="utf-8"))
    written = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    } | {
        element.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for element in node.value.elts
    }
    assert set(listed) == written - {"__version__"}


def _is_warning(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Warning)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_docstrings_name_every_argument(module: str) -> None:
    """What a public function or class takes stands in its docstring."""
    silent = {}
    for name in dir(importlib.import_module(module)):
        value = getattr(importlib.import_module(module), name)
        if not callable(value) or value is inference.Fit or _is_warning(value):
            continue  # a fit is made by fit, and its fields are described where they stand
        words = set(re.findall(r"\w+", inspect.getdoc(value) or ""))
        arguments = {
            argument.name
            for argument in inspect.signature(value).parameters.values()
            if argument.kind is not argument.VAR_POSITIONAL
            and argument.kind is not argument.VAR_KEYWORD
        }
        if arguments - words:
            silent[name] = arguments - words
    assert silent == {}


def test_public_names_are_few() -> None:
    """A user can read the list: each name once, a name of two modules counted once."""
    names = {
        id(getattr(importlib.import_module(module), name))
        for module in PUBLIC_MODULES
        for name in dir(importlib.import_module(module))
        if not inspect.ismodule(getattr(importlib.import_module(module), name))
    }
    assert len(names) <= 325


@both
def test_dir_names_classes_functions_and_public_modules(package: ModuleType) -> None:
    for name in dir(package):
        value = getattr(package, name)
        if inspect.ismodule(value):
            assert value.__name__ == f"{package.__name__}.{name}"
        else:
            assert inspect.isclass(value) or inspect.isfunction(value), name


@both
def test_version_is_that_of_the_distribution(package: ModuleType) -> None:
    assert package.__version__ == metadata.version("ppl-models")


@both
def test_an_unknown_name_is_refused(package: ModuleType) -> None:
    with pytest.raises(
        AttributeError, match=f"module '{package.__name__}' has no attribute 'plot'"
    ):
        package.plot  # noqa: B018


def answers(code: str) -> dict[str, object]:
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return json.loads(done.stdout)


def test_modules_are_loaded_on_first_use() -> None:
    code = """
import json, sys
import pyro
before = set(sys.modules)
import inference, ppl_models
new = set(sys.modules) - before
heavy = {"matplotlib", "arviz", "pandas", "sklearn", "scipy.optimize", "typer", "rich"} & new
later = (["inference", "plots"], ["inference", "loo"], ["ppl_models", "datasets"])
early = [name for name in new if name.split(".")[:2] in later]
dir(inference), dir(ppl_models)
named = set(sys.modules) - before - new
plots = inference.plots is sys.modules["inference.plots"]
compare = inference.compare is sys.modules["inference.comparison"].compare
data = ppl_models.datasets is sys.modules["ppl_models.datasets"]
same = [plots, compare, data]
print(json.dumps({"heavy": list(heavy), "early": early, "named": list(named), "same": same}))
"""
    assert answers(code) == {"heavy": [], "early": [], "named": [], "same": [True, True, True]}
