"""``ppl-models demo``: digits that ship with scikit-learn, from the data to the report."""

from __future__ import annotations

from pathlib import Path

from inference.cli.app import (
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Verbose,
    app,
    check_out,
    deliver,
    one_line_errors,
    run,
)

DEMO_LATENTS = (10, 3)


@app.command()
def demo(
    out: Out = Path("demo"),
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Fit a two-layer deep discrete encoder to handwritten digits that ship with scikit-learn;
    under a minute.
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        check_out(out, overwrite)
        import pandas as pd

        from ppl_models.datasets import load_digits
        from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
        from ppl_models.parts.penalties import TruncatedLasso

        digits = load_digits()
        frame = pd.DataFrame(digits.items, columns=list(digits.item_names))
        model = DeepDiscreteEncoder(
            frame.shape[1], DEMO_LATENTS, penalty=TruncatedLasso.for_rows(len(frame))
        )
        result = run(model, frame, "spectral", 1, seed, None, not no_progress)
        deliver(result, frame, out, digits.image_shape)
