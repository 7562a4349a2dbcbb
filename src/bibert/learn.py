"""The short way from labelled text to a packed classifier: `bibert.train`, in one call.

`bibert train` and `bibert pack` do the same in two steps, with progress, baselines and runs that resume.
"""

import signal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibert.data.examples import TextData
from bibert.data.tables import Table, load_table, table_of_rows
from bibert.errors import require_extra
from bibert.files import check_output
from bibert.models import SUFFIX, shipped_start
from bibert.nn.schemes import DEFAULT_BITS, get_scheme, scheme_of_bits

if TYPE_CHECKING:
    from bibert.runtime.classifier import TextClassifier

Rows = tuple[Iterable[Any], Iterable[Any]]  # texts or pairs of texts, and their labels


def train(
    data: Path | str | Table | TextData | Rows,
    output: Path | str | None = None,
    *,
    bits: int = DEFAULT_BITS,
    start: Path | str | None = None,
    checkpoint: Path | str | None = None,
    **changes: Any,
) -> "TextClassifier":
    """Train a classifier on labelled text, pack it, and check it bit for bit; `output` also writes the packed file.

    `data` is a file, a tuple of texts and labels, or what `bibert.load_table` and `bibert.load_glue` return. `bits` of
    activations are 1, 2 or 4. The classifier starts from the encoder in the package, or from `start`: a packed file or
    a folder. With `checkpoint`, that BERT is fine-tuned first and teaches it. `changes` are keys of the recipe, such as
    `epochs=3`, `max_steps=200` or `seed=1`.

    Examples:
        classifier = bibert.train("reviews.csv", "reviews.bibert")
        classifier = bibert.train((texts, labels), bits=1, epochs=3)
    """
    if output is not None:
        check_output(Path(output), SUFFIX)
    require_extra("train", "bibert.train")
    from bibert.export import pack
    from bibert.nn.checkpoint import load_classifier
    from bibert.runtime.classifier import TextClassifier
    from bibert.training.provenance import provenance
    from bibert.training.recipe import load_recipe
    from bibert.training.student import distill
    from bibert.training.teacher import finetune

    scheme = get_scheme(scheme_of_bits(bits))
    recipe = load_recipe("student" if checkpoint else "labels", changes)
    if isinstance(data, tuple):
        data = table_of_rows(*data)
    texts = data if isinstance(data, TextData) else load_table(data)
    with tempfile.TemporaryDirectory(prefix="bibert-") as folder, _as_a_library():
        teacher, student = Path(folder, "teacher"), Path(folder, "student")
        if checkpoint is not None:
            shared = {name: value for name, value in changes.items() if name in ("max_length", "seed")}
            finetune(checkpoint, replace(texts, unlabelled=None), teacher, load_recipe("teacher", shared))
        start = start if start or checkpoint else shipped_start(bits)
        distill(teacher if checkpoint else None, scheme, texts, student, recipe, start=start)
        about = provenance(student)
        temperature, dev = about.pop("temperature"), next(iter(texts.dev.values()))
        packed = pack(load_classifier(student), dev, max_length=recipe.max_length, about=about, temperature=temperature)
    classifier = TextClassifier(packed)
    if output is not None:
        classifier.save(output)
    return classifier


@contextmanager
def _as_a_library() -> Iterator[None]:
    """Print no progress bars, and let a signal end the program as usual: nothing is kept that could be resumed."""
    from transformers.utils import logging

    from bibert.training.callbacks import Interrupted

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    except Interrupted as error:
        raise (KeyboardInterrupt if error.code == 128 + signal.SIGINT else SystemExit(error.code)) from None
    finally:
        if shown:
            logging.enable_progress_bar()
