"""`bibert predict`: labels for texts on the command line, lines of standard input, or the rows of a file.

`runtime.tables` reads and writes rows, `runtime.classifier` chooses the labels; here options are checked and passed on.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import SECONDS_BETWEEN_LINES, counted, messages, progress, say
from bibert.cli.options import ModelName, PairColumn, TextColumn, option, with_option_groups
from bibert.errors import BibertError
from bibert.models import DEFAULT

if TYPE_CHECKING:
    from bibert.runtime.tables import Progress, Source
    from bibert.runtime.text import Text
    from bibert.runtime.writers import Labeller

STANDARD = Path("-")  # standard input or output
REMEDY_OF_FILES = (
    "name the file's encoding (--encoding latin-1 is common), or skip such rows (--on-error skip) or replace the byte "
    "(--on-error replace)"
)
REMEDY_OF_TEXTS = "write it in UTF-8, or replace the byte (--on-error replace)"


@dataclass(frozen=True)
class InputOptions:
    """A file or standard input, and how to read it."""

    input: Annotated[
        Path | None,
        option("File to label: .txt, .csv, .tsv, .jsonl (.gz too) or .parquet. - is standard input.", "--input", "-i"),
    ] = None
    format: Annotated[str, option("Format of standard input or an unknown suffix.", metavar="txt|csv|tsv|jsonl")] = ""
    text_column: TextColumn = ""
    pair_column: PairColumn = ""
    encoding: Annotated[str, typer.Option(help="Encoding of the input. The output is UTF-8.")] = "utf-8"
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each row as it comes, for a pipe that stays open.")
    ] = False


@with_option_groups
def predict(
    rows: InputOptions,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.", show_default=False)
    ] = None,
    model: ModelName = DEFAULT,
    pairs: Annotated[list[str] | None, option("Second text of a pair, once for each TEXT.", "--pair")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every label.")] = False,
    min_score: Annotated[
        float | None, option("Leave the label empty where its score is below this, above 0 and at most 1.", metavar="P")
    ] = None,
    prefix: Annotated[str, option("Put before the names of the new columns, label and score.")] = "",
    threads: Annotated[int, typer.Option(min=0, help="Threads; 0 is one for each CPU.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Write texts and their labels as JSON lines.")] = False,
    output: Annotated[
        Path | None, option("File for the labelled rows; standard output if not given.", "--output", "-o")
    ] = None,
    on_error: Annotated[
        str, typer.Option(metavar="fail|skip|replace", help="What to do with broken rows; replace repairs bytes only.")
    ] = "fail",
) -> None:
    """Label texts with a packed file: those given, else the lines of standard input, or the rows of a file.

    Each text gives a line: label, score and text, separated by tabs.

    The rows of a file keep their format, columns and order, and gain the columns label and score.

    Example: bibert predict "a gorgeous, witty film" "dull"

    Example: bibert predict -m reviews.bibert --input reviews.csv --output labelled.csv
    """
    from bibert.runtime.classifier import load
    from bibert.runtime.writers import Labeller, json_line, line_writer, open_output, plain_line

    target = None if output == STANDARD else output
    checked = _texts_of(texts or [], pairs or [], rows, on_error) if texts or pairs else []
    source = None if checked else _source_of(rows, target, on_error, json)
    if target is not None:
        _check_suffix(target, "txt" if source is None else source.file_format, json)
    classifier = load(model, threads=threads)
    labeller = Labeller(classifier, proba=proba, prefix=prefix, min_score=min_score)
    if source is None:
        line = json_line if json else plain_line
        with open_output(target) as file, line_writer(file, line, labeller.columns) as write:
            write(checked, labeller(checked))
    else:
        _label_file(source, labeller, target, rows.line_buffered, json)
    if min_score is not None:
        say(f"scores below {min_score:g}: {labeller.abstained:,}; their labels were left empty")
    if classifier.texts_cut:
        say(f"texts longer than {classifier.max_length} tokens: {classifier.texts_cut:,}; their ends were not read")
    if classifier.texts_blank:
        say(f"texts without a word: {classifier.texts_blank:,}; their labels mean nothing")


def _texts_of(texts: list[str], pairs: list[str], rows: InputOptions, on_error: str) -> "list[Text]":
    """Return the texts of the command line, where the system passes on bytes that are not UTF-8."""
    from bibert.data.lines import Decoding

    # Path.is_file would raise for a text that is too long for the name of a file.
    if len(texts) == 1 and not pairs and os.path.isfile(texts[0]):  # noqa: PTH113
        raise BibertError(f"{texts[0]!r} is a file; label its rows with --input {texts[0]}")
    if pairs and len(pairs) != len(texts):
        raise BibertError(f"{counted(len(texts), 'text')} and {len(pairs)} times --pair; give a second text for each")
    used = [f"--{field.name}".replace("_", "-") for field in fields(rows) if getattr(rows, field.name) != field.default]
    if used:
        raise BibertError(f"{', '.join(used)}: for files and standard input, not for texts; leave out one or the other")
    decoding = Decoding(on_error=on_error, remedy=REMEDY_OF_TEXTS)
    first = [decoding.checked(text, f"text {number}") for number, text in enumerate(texts, start=1)]
    second = [decoding.checked(text, f"pair {number}") for number, text in enumerate(pairs, start=1)]
    return list(zip(first, second, strict=True)) if second else list(first)


def _source_of(rows: InputOptions, target: Path | None, on_error: str, json: bool) -> "Source":
    from bibert.data.lines import Decoding
    from bibert.data.readers import Columns, format_of
    from bibert.runtime.tables import Source

    path = None if rows.input == STANDARD else rows.input
    file_format = rows.format or ("txt" if path is None else format_of(path, ", or name the format with --format"))
    columns = Columns(rows.text_column, rows.pair_column)
    if file_format == "parquet" and (path is None or target is None):
        raise BibertError("Parquet is read from a file and written to a file; give --input and --output")
    if file_format == "parquet" and path is not None and path.suffix.lower() == ".gz":
        raise BibertError(f"{path}: Parquet is compressed inside and not read through gzip here; decompress the file")
    if file_format == "txt" and columns.names:
        raise BibertError("plain lines have no columns; name another format with --format, or leave the columns out")
    if path is not None and target is not None and path.resolve() == target.resolve():
        raise BibertError(f"{target}: is the input itself; give another name, the input is kept")
    if json and file_format not in ("txt", "jsonl"):
        raise BibertError(f"--json is for texts and lines; rows of {file_format} keep their format")
    return Source(path, file_format, columns, Decoding(rows.encoding, on_error, REMEDY_OF_FILES))


def _check_suffix(target: Path, file_format: str, json: bool) -> None:
    """Refuse an output file whose suffix names another format; labelled lines may have an unknown suffix."""
    from bibert.data.readers import FORMAT_OF_SUFFIX, suffix_of

    written, found = "jsonl" if json else file_format, FORMAT_OF_SUFFIX.get(suffix_of(target))
    if found != written and (found is not None or file_format != "txt"):
        raise BibertError(f"{target}: the rows are written as {written}; give it a name ending in .{written}")


def _label_file(source: "Source", labeller: "Labeller", target: Path | None, line_buffered: bool, json: bool) -> None:
    from bibert.runtime.classifier import WINDOW
    from bibert.runtime.tables import label_table
    from bibert.runtime.writers import open_output

    typed = source.path is None and sys.stdin.isatty()
    if typed:
        say("type a text and Enter; Ctrl-D ends")
    to_terminal = target is None and sys.stdout.isatty()
    most = 1 if typed or line_buffered else WINDOW
    with open_output(target) as file, _watching(bar=messages.is_terminal and not typed and not to_terminal) as watch:
        done = label_table(source, file, labeller, as_json=json, rows_per_chunk=most, watch=watch)
    if done.skipped:
        say(f"skipped {counted(done.skipped, 'row')}; the first: {done.first_skipped}")
    if target is not None:
        say(f"{target}: {counted(done.rows, 'pair' if done.pairs else 'row')}")


@contextmanager
def _watching(bar: bool) -> "Iterator[Callable[[Progress], None]]":
    """Show progress on stderr: a bar, or a line from time to time where the bar would mix with other output."""
    said = time.monotonic()
    with progress() if bar else nullcontext() as shown:
        task = None if shown is None else shown.add_task("labelling", total=None)

        def watch(now: "Progress") -> None:
            nonlocal said
            rows = counted(now.rows, "row")
            if shown is not None and task is not None:
                if now.share is None:
                    shown.update(task, description="rows", completed=now.rows)
                else:
                    shown.update(task, description=f"{rows}, %", completed=100 * now.share, total=100)
            elif time.monotonic() - said >= SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                say(rows if now.share is None else f"{rows}, {now.share:.0%} of the file")

        yield watch
