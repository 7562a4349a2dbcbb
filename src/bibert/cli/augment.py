"""`bibert augment`: write an augmented copy of a training set; how texts are augmented is in `data.augment`."""

from pathlib import Path
from typing import Annotated

import typer

from bibert.cli.console import say, tracked
from bibert.cli.options import LabelColumn, PairColumn, TextColumn, require_torch
from bibert.errors import BibertError
from bibert.files import check_output


def augment(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Labelled text: CSV, TSV, JSONL or Parquet, plain or .gz.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The TSV file to write.")],
    task: Annotated[
        str | None, typer.Option(help="The GLUE task of INPUT: sets its columns and the number of variants.")
    ] = None,
    mlm: Annotated[
        str | None, typer.Option(metavar="CHECKPOINT", help="Masked LM for words of one piece: a folder or a Hub name.")
    ] = None,
    glove: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="GloVe vectors (.txt, .txt.gz, .npy) for other words; alone, for all words."),
    ] = None,
    variants: Annotated[
        int | None, typer.Option(min=1, help="New texts to try for each text.", show_default="the task's, or 20")
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Words that may replace a word.")] = 15,
    probability: Annotated[float, typer.Option(min=0.0, max=1.0, help="Chance that a word is replaced.")] = 0.4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all choices; the same seed gives the same file.")] = 0,
    text_column: TextColumn = "",
    pair_column: PairColumn = "",
    label_column: LabelColumn = "",
) -> None:
    """Write an augmented copy of a training set: each row, then variants of it with some words replaced.

    The new file has the text and label columns of INPUT, so it can replace INPUT in training. Train with --dev: a dev
    set that is split off the new file would hold variants of training rows. For a GLUE task write it beside train.tsv
    and name it with --train-file.

    Example: bibert augment SST-2/train.tsv -o SST-2/train_aug.tsv --task sst-2 --mlm bert-base-uncased --glove g.txt
    """
    from bibert.data import augment as augmentation
    from bibert.data.columns import Columns
    from bibert.data.glue import get_task

    columns = Columns(text_column, pair_column, label_column)
    if task is not None and columns.names:
        raise BibertError(f"--task {task} has its own columns; leave out --text-column and the like")
    usual = augmentation.DEFAULT_VARIANTS if task is None else get_task(task).variants
    config = augmentation.AugmentConfig(variants or usual, candidates, probability, seed)
    check_output(output, ".tsv")
    if output.resolve() == source.resolve():
        raise BibertError(f"{output}: is the input itself; give another name, the input is kept")
    vectors = None if glove is None else augmentation.load_word_vectors(glove)
    masked_lm = None
    if mlm is not None:
        require_torch("augmenting with a masked LM")
        from bibert.training.masked_lm import load_masked_lm

        masked_lm = load_masked_lm(mlm)
    words = augmentation.Candidates(masked_lm, vectors)
    file = augmentation.load_rows(source, columns, task)
    groups = tracked(augmentation.augment_rows(file.rows, words, config), len(file.rows), "augmenting")
    written = augmentation.save_rows(output, file, groups)
    with_dev = "" if task else "; train on it with --dev, so that no variant of a training row is in the dev set"
    say(f"{output}: {written} rows from {len(file.rows)}{with_dev}")
