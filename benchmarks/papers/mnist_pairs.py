"""Pairs of MNIST digits for independent classifiers."""

from __future__ import annotations

from ppl_models.datasets.independent_classifiers import ImagePairs, image_pairs
from ppl_models.datasets.mnist import load_mnist_images
from ppl_models.parts.validation import check_size


def mnist_pairs(
    num_pairs: int = 100_000, num_labelled: int = 2000, label_accuracy: float = 0.6, seed: int = 0
) -> ImagePairs:
    """Pairs of the 60,000 training images of MNIST that show one digit (section 3.3); C* is at most
    log 10.

    Args:
        num_pairs: N.
        num_labelled, label_accuracy: of the images with labels to start from; 2,000 labels, right
            in 60 % of the cases.
        seed: of the pairs and of the labels.

    Raises:
        ValueError: for numbers out of range.
        FileNotFoundError: if MNIST is nowhere and cannot be downloaded.
    """
    check_size("mnist_pairs", "num_pairs", num_pairs)
    mnist = load_mnist_images()
    return image_pairs(
        mnist.images, mnist.labels, num_pairs, num_labelled, label_accuracy, 255.0, seed
    )
