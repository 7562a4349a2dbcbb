"""`bibert analyze theory`: the paper's theorems, computed and set beside its figures."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json, with_option_groups
from bibert.errors import DataError
from bibert.lab.cli.figures import FigureFile, check_figure, save_drawn
from bibert.lab.cli.subjects import load_subjects
from bibert.lab.cli.texts import TextOptions
from bibert.lab.paper import DIRECTION_ERROR, DIRECTION_ERROR_SAMPLES, QUANTILES, zeros_percent

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from bibert.lab.theory import SoftmaxThreshold
    from bibert.runtime.text import Row

KEYS = (8, 16, 32, 64, 128, 256, 512)
HEAD_SIZES = (26, 32, 64)  # TinyBERT-4L, MiniLM, BERT-base
MEANS = (0.0, 0.25, 0.5, 1.0, 2.0)
BITS = range(1, 9)


@with_option_groups
def theory(
    texts: TextOptions,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL...]", help="Trained students: their scores over Theorem 2's.", show_default=False
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples of Theorem 3's simulation.")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of Theorem 1's simulation.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulations.")] = 0,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Compute the paper's theorems: by simulation, exactly where there is a closed form, beside what is printed.

    Example: bibert analyze theory
    """
    check_figure(output)
    from bibert.lab.theory import softmax_thresholds

    shares = _shares(models or [], texts.load())
    thresholds = softmax_thresholds(KEYS, rows=rows, seed=seed)
    facts = {
        "theorem_1": [asdict(line) | {"keys_times_threshold": line.keys * line.threshold} for line in thresholds],
        "theorem_2": _scores(shares),
        "theorem_3": _directions(samples, seed),
        "proposition_1": _signs(),
        "quantiles": _quantiles(),
    }
    save_drawn(lambda: _draw(thresholds, shares), output)
    if json:
        print_json(facts)
        return
    for title, name in TITLES.items():
        print_table(_table(title, facts[name], NOTES.get(name, "")))


TITLES = {
    "Theorem 1: the threshold of a softmax with the most entropy falls with its length k": "theorem_1",
    "Theorem 2: scores of two rows of D random bits are binomial, close to N(0, D)": "theorem_2",
    "Theorem 3: wrong directions in percent with Q bits": "theorem_3",
    "Proposition 1: the entropy of sign(X), X normal": "proposition_1",
    "Entropy of attention weights of which a share is zero": "quantiles",
}


NOTES = {  # what the paper says otherwise
    "theorem_2": (
        "N(0, D) is that of the scores as integers, as here; after the paper's 1/√D it is N(0, 1). A score of 0 is "
        "attended to, as the paper defines bool; its released code leaves it out."
    ),
    "theorem_3": (
        "The paper's proof calls the direction always right beyond the range of the quantizer; that saturation is the "
        "whole floor. Its quantizer as printed has not 2^Q levels, but the same probabilities. 1 bit is wrong 4.28 "
        "times as often as 4 bits, in its samples 4.4 times."
    ),
}


def _table(title: str, lines: list[dict[str, Any]], note: str) -> Table:
    table = Table(*(name.replace("_", " ") for name in lines[0]), title=title, title_justify="left")
    table.caption, table.caption_justify = note or None, "left"
    for line in lines:
        table.add_row(*(_shown(value) for value in line.values()))
    return table


def _shown(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _scores(shares: "Mapping[str, NDArray[np.float64]]") -> list[dict[str, Any]]:
    """Random bits for each size of a head, then the models."""
    from bibert.lab.theory import score_probabilities

    random = [_scores_of("random bits", score_probabilities(size)) for size in HEAD_SIZES]
    return [*random, *(_scores_of(title, table.mean(axis=0)) for title, table in shares.items())]


def _scores_of(name: str, probabilities: "NDArray[np.float64]") -> dict[str, Any]:
    from bibert.lab.theory import gaussian_probabilities, share_attended_to

    size = len(probabilities) - 1
    normal = gaussian_probabilities(size)
    return {
        "scores_of": name,
        "head_size": size,
        "probability_of_0": float(probabilities[size // 2]) if size % 2 == 0 else 0.0,
        "gaussian_at_0": float(normal[size // 2]),
        "distance_to_gaussian": float(abs(probabilities - normal).sum() / 2),
        "share_of_0_or_more": share_attended_to(probabilities),
    }


def _shares(models: list[str], rows: "list[Row]") -> "dict[str, NDArray[np.float64]]":
    """The scores of models on texts, by title."""
    if bool(models) != bool(rows):
        raise DataError("models and texts go together: give both to see trained scores, or neither")
    if not models:
        return {}
    from bibert.lab.scores import score_shares

    shares = {title: score_shares(subject.insides(rows)) for title, subject in load_subjects(models).items()}
    sizes = {title: table.shape[1] - 1 for title, table in shares.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"the models have heads of different sizes ({sizes}); show them one by one")
    return shares


def _draw(thresholds: "list[SoftmaxThreshold]", shares: "Mapping[str, NDArray[np.float64]]") -> "Figure":
    from bibert.lab.plots.theory import draw_theory

    sizes = [table.shape[1] - 1 for table in shares.values()]
    return draw_theory(thresholds, sizes[0] if sizes else HEAD_SIZES[-1], shares)


def _directions(samples: int, seed: int) -> list[dict[str, Any]]:
    from bibert.lab.theory import clipping_error, direction_error, sampling_error, simulated_direction_error

    lines: list[dict[str, Any]] = []
    for bits, printed in zip(BITS, DIRECTION_ERROR, strict=True):
        exact = direction_error(bits)
        deviation = 100 * sampling_error(exact, DIRECTION_ERROR_SAMPLES)
        lines.append(
            {
                "bits": bits,
                "exact": 100 * exact,
                "simulated": 100 * simulated_direction_error(bits, samples, seed=seed),
                "paper": printed,
                "papers_deviations_from_exact": (printed - 100 * exact) / deviation,
                "of_it_saturation": 100 * clipping_error(),
            }
        )
    return lines


def _signs() -> list[dict[str, Any]]:
    from bibert.lab.theory import sign_entropy

    return [{"mean_in_deviations": mean, "entropy": sign_entropy(mean)} for mean in MEANS]


def _quantiles() -> list[dict[str, Any]]:
    from bibert.lab.theory import binary_entropy

    lines = []
    for row in QUANTILES.rows:
        share = zeros_percent(row)
        lines.append({"zeros_percent": share, "entropy": binary_entropy(share / 100), "paper": float(row.entropy or 0)})
    return lines
