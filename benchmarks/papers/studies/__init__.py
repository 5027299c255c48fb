"""Studies of the papers: which settings answer a published number, and how one is run."""

from papers.studies import causal, classifiers, encoders, noisy_or, options, signatures

STUDIES = (
    encoders.STUDY,
    noisy_or.STUDY,
    causal.STUDY,
    classifiers.STUDY,
    options.STUDY,
    signatures.STUDY,
)
