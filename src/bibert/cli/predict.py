"""`bibert predict`: labels for texts on the command line, for lines of standard input, for the rows of a file.

Rows are read and written by `scoring.tables`, labels come from `runtime.classifier`; here options become those.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import SECONDS_BETWEEN_LINES, messages, progress, say
from bibert.cli.options import with_option_groups
from bibert.errors import BibertError
from bibert.models import DEFAULT

if TYPE_CHECKING:
    from bibert.scoring.rows import Reading, Scorer, Text
    from bibert.scoring.tables import Progress

STANDARD = Path("-")  # what stands for standard input or output


def _option(help_text: str, *names: str, metavar: str | None = None) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(*names, help=help_text, show_default=False, metavar=metavar)
    return option


@dataclass(frozen=True)
class FileOptions:
    """Which file is read and written, and how."""

    source: Annotated[
        Path | None,
        _option("File to label: .txt, .csv, .tsv, .jsonl (.gz too) or .parquet. - is standard input.", "--input", "-i"),
    ] = None
    output: Annotated[
        Path | None, _option("Where the rows go with their labels; standard output if not given.", "--output", "-o")
    ] = None
    form: Annotated[
        str,
        _option(
            "Form of standard input, or of a file whose name does not tell.", "--format", metavar="txt|csv|tsv|jsonl"
        ),
    ] = ""
    text_column: Annotated[str, _option("Column of the text; found by name if not given.")] = ""
    pair_column: Annotated[str, _option("Column of the second text of a pair.")] = ""
    encoding: Annotated[str, typer.Option(help="Encoding of the input. UTF-8 is written.")] = "utf-8"
    on_error: Annotated[
        str,
        typer.Option(
            metavar="fail|skip|replace",
            help="What becomes of a broken row; replace puts U+FFFD in the place of bytes that are not text.",
        ),
    ] = "fail"
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each row as it comes, for a pipe that stays open.")
    ] = False

    @property
    def path(self) -> Path | None:
        """The file to read; None for standard input."""
        return None if self.source == STANDARD else self.source

    @property
    def target(self) -> Path | None:
        """The file to write; None for standard output."""
        return None if self.output == STANDARD else self.output

    def checked_form(self) -> str:
        """The form of the input, if the output can have it too.

        Raises:
            BibertError: the input and the output do not go together.
        """
        from bibert.scoring.tables import form_of

        form = self.form or ("txt" if self.path is None else form_of(self.path))
        if form == "parquet" and (self.path is None or self.target is None):
            raise BibertError("Parquet is read from a file and written to a file; give --input and --output")
        if form == "txt" and (self.text_column or self.pair_column):
            raise BibertError("plain lines have no columns; say with --format what standard input is, or leave it out")
        if self.path is not None and self.target is not None and self.path.resolve() == self.target.resolve():
            raise BibertError(f"{self.target}: is the input itself; give another name, the input is kept")
        if form != "txt" and self.target is not None and form_of(self.target) != form:
            raise BibertError(
                f"{self.target}: rows are written in the form they are read in; let its name end in .{form}"
            )
        return form

    def reading(self) -> "Reading":
        """How rows are read."""
        from bibert.data.columns import Columns
        from bibert.scoring.lines import Decoding
        from bibert.scoring.rows import Reading

        return Reading(Columns(self.text_column, self.pair_column), Decoding(self.encoding, self.on_error))


@with_option_groups
def predict(
    files: FileOptions,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.", show_default=False)
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="A packed file, a name on the Hub, or sst2, which is in the package.")
    ] = DEFAULT,
    pairs: Annotated[list[str] | None, _option("Second text of a pair, once for each TEXT.", "--pair")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every label.")] = False,
    prefix: Annotated[str, _option("Put before the names of the new columns, label and score.")] = "",
    threads: Annotated[int, typer.Option(min=0, help="Threads; 0 is one for each CPU.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Write texts and their labels as JSON lines.")] = False,
) -> None:
    """Label texts with a packed file: those given, else the lines of standard input, or the rows of a file.

    For a text a line is written: label, score, text, with tabs between them.

    The rows of a file keep their form, columns and order, and get the columns label and score.

    Example: bibert predict "a gorgeous, witty film" "dull"

    Example: bibert predict -m reviews.bibert --input reviews.csv --output labelled.csv
    """
    form = files.checked_form()
    given = _given(texts or [], pairs or [], files)
    if json and form not in ("txt", "jsonl"):
        raise BibertError(f"--json goes with texts and lines; rows of {form} stay in their form")
    from bibert.runtime.classifier import load
    from bibert.scoring.tables import scorer_of

    classifier = load(model, threads=threads)
    scorer = scorer_of(classifier, proba=proba, prefix=prefix)
    if given:
        _answer(given, scorer, files.target, json)
    else:
        _label_file(files, "txt as json" if json and form == "txt" else form, scorer)
    if classifier.texts_cut:
        say(f"texts longer than {classifier.max_length} tokens: {classifier.texts_cut:,}; their ends were not read")
    if classifier.texts_blank:
        say(f"texts without a word: {classifier.texts_blank:,}; their labels mean nothing")


def _given(texts: list[str], pairs: list[str], files: FileOptions) -> "list[Text]":
    """The texts of the command line."""
    from bibert.scoring.lines import Decoding

    if texts and (files.source is not None or files.form):
        raise BibertError("texts are given and a file too; label one of them at a time")
    if len(texts) == 1 and not pairs and _is_file(texts[0]):
        raise BibertError(f"{texts[0]!r} is a file; label its rows with --input {texts[0]}")
    if pairs and len(pairs) != len(texts):
        raise BibertError(f"{len(texts)} texts and {len(pairs)} times --pair; give a second text for each")
    decoding = Decoding(on_error=files.on_error)  # the system passes on bytes that are not UTF-8
    checked = [decoding.checked(text, f"text {number}") for number, text in enumerate(texts, start=1)]
    seconds = [decoding.checked(text, f"pair {number}") for number, text in enumerate(pairs, start=1)]
    return list(zip(checked, seconds, strict=True)) if seconds else list(checked)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a text that no file could be named by
        return False


def _answer(texts: "list[Text]", scorer: "Scorer", target: Path | None, json: bool) -> None:
    from bibert.scoring.tables import open_output
    from bibert.scoring.text_tables import json_line, plain_line

    line = json_line if json else plain_line
    with open_output(target) as file:
        for text, values in zip(texts, zip(*scorer.score(texts), strict=True), strict=True):
            file.write(line(text, dict(zip(scorer.columns, values, strict=True))).encode())


def _label_file(files: FileOptions, form: str, scorer: "Scorer") -> None:
    from bibert.scoring.tables import ROWS_PER_CHUNK, open_output, open_table, score_table

    typed = files.path is None and sys.stdin.isatty()
    if typed:
        say("type a text and Enter; Ctrl-D ends")
    with (
        open_table(files.path, form, files.reading()) as table,
        open_output(files.target) as file,
        _watching(shown=not typed and not (files.target is None and sys.stdout.isatty())) as watch,
    ):
        at_once = 1 if typed or files.line_buffered else ROWS_PER_CHUNK
        done = score_table(table, file, scorer, watch, rows_per_chunk=at_once)
    if done.skipped:
        reason = done.first_skipped.partition(";")[0]  # without the advice to skip it
        say(f"{done.skipped:,} rows were skipped, the first because of {reason}")
    if files.target is not None:
        say(f"{files.target}: {done.rows:,} {'pairs' if done.pairs else 'rows'}")


@contextmanager
def _watching(shown: bool) -> "Iterator[Callable[[Progress], None]]":
    """Progress on stderr: a bar on a terminal that nothing else is written to, a line from time to time elsewhere."""
    if not shown or not messages.is_terminal:
        yield _say_sometimes()
        return
    with progress() as bar:
        task = bar.add_task("labelling", total=None)

        def watch(now: "Progress") -> None:
            percent = (now.rows, None) if now.share is None else (100 * now.share, 100)
            bar.update(task, description=f"{now.rows:,} rows, %", completed=percent[0], total=percent[1])

        yield watch


def _say_sometimes() -> "Callable[[Progress], None]":
    said = time.monotonic()

    def watch(now: "Progress") -> None:
        nonlocal said
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            share = "" if now.share is None else f", {now.share:.0%} of the file"
            say(f"{now.rows:,} rows{share}")

    return watch
