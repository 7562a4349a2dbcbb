"""`bibert predict`: labels for texts on the command line, lines of standard input, or the rows of a file.

`runtime.tables` reads and writes rows, `runtime.classifier` chooses the labels; here options are checked and passed on.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import SECONDS_BETWEEN_LINES, messages, progress, say
from bibert.errors import BibertError
from bibert.models import DEFAULT

if TYPE_CHECKING:
    from bibert.data.lines import Decoding
    from bibert.data.readers import Columns
    from bibert.runtime.tables import Labeller, Progress, Source, Text

STANDARD = Path("-")  # standard input or output
REMEDY = (
    "name the file's encoding (--encoding latin-1 is common), or skip such rows (--on-error skip) or replace the byte "
    "(--on-error replace)"
)


def _option(help_text: str, *names: str, metavar: str | None = None) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(*names, help=help_text, show_default=False, metavar=metavar)
    return option


def predict(
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
    source: Annotated[
        Path | None,
        _option("File to label: .txt, .csv, .tsv, .jsonl (.gz too) or .parquet. - is standard input.", "--input", "-i"),
    ] = None,
    output: Annotated[
        Path | None, _option("File for the labelled rows; standard output if not given.", "--output", "-o")
    ] = None,
    form: Annotated[
        str,
        _option(
            "Form of standard input, or of a file whose name does not show it.", "--format", metavar="txt|csv|tsv|jsonl"
        ),
    ] = "",
    text_column: Annotated[str, _option("Column of the text; found by name if not given.")] = "",
    pair_column: Annotated[str, _option("Column of the second text of a pair.")] = "",
    encoding: Annotated[str, typer.Option(help="Encoding of the input. The output is UTF-8.")] = "utf-8",
    on_error: Annotated[
        str,
        typer.Option(
            metavar="fail|skip|replace",
            help="What to do with a broken row; replace writes U+FFFD for bytes that are not text.",
        ),
    ] = "fail",
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each row as it comes, for a pipe that stays open.")
    ] = False,
) -> None:
    """Label texts with a packed file: those given, else the lines of standard input, or the rows of a file.

    Each text gives a line: label, score and text, separated by tabs.

    The rows of a file keep their form, columns and order, and gain the columns label and score.

    Example: bibert predict "a gorgeous, witty film" "dull"

    Example: bibert predict -m reviews.bibert --input reviews.csv --output labelled.csv
    """
    from bibert.data.lines import Decoding
    from bibert.data.readers import Columns
    from bibert.runtime.classifier import load
    from bibert.runtime.tables import Labeller, Source

    if texts and (source is not None or form):
        raise BibertError("texts and a file are given; label one of them at a time")
    columns = Columns(text_column, pair_column)
    decoding = Decoding(encoding, on_error, REMEDY)
    path = None if source == STANDARD else source
    target = None if output == STANDARD else output
    rows = Source(path, _checked_form(path, target, form, columns), columns, decoding, as_json=json)
    if json and rows.form not in ("txt", "jsonl"):
        raise BibertError(f"--json is for texts and lines; rows of {rows.form} keep their form")
    given = _given(texts or [], pairs or [], Decoding(on_error=on_error, remedy=REMEDY))
    classifier = load(model, threads=threads)
    labeller = Labeller(classifier, proba=proba, prefix=prefix)
    if given:
        _label_texts(given, labeller, target, json)
    else:
        _label_file(rows, labeller, target, line_buffered)
    if classifier.texts_cut:
        say(f"texts longer than {classifier.max_length} tokens: {classifier.texts_cut:,}; their ends were not read")
    if classifier.texts_blank:
        say(f"texts without a word: {classifier.texts_blank:,}; their labels mean nothing")


def _checked_form(path: Path | None, target: Path | None, form: str, columns: "Columns") -> str:
    """Return the form of the input, if the output can have it too."""
    from bibert.data.readers import form_of

    form = form or ("txt" if path is None else form_of(path, ", or name the form with --format"))
    if form == "parquet" and (path is None or target is None):
        raise BibertError("Parquet is read from a file and written to a file; give --input and --output")
    if form == "parquet" and path is not None and path.suffix.lower() == ".gz":
        raise BibertError(f"{path}: Parquet is compressed inside and not read through gzip here; decompress the file")
    if form == "txt" and columns.given:
        raise BibertError("plain lines have no columns; name another form with --format, or leave the columns out")
    if path is not None and target is not None and path.resolve() == target.resolve():
        raise BibertError(f"{target}: is the input itself; give another name, the input is kept")
    if form != "txt" and target is not None and form_of(target) != form:
        raise BibertError(f"{target}: rows are written in the form they are read in; let its name end in .{form}")
    return form


def _given(texts: list[str], pairs: list[str], decoding: "Decoding") -> "list[Text]":
    """Return the texts of the command line, where the system passes on bytes that are not UTF-8."""
    if len(texts) == 1 and not pairs and _is_file(texts[0]):
        raise BibertError(f"{texts[0]!r} is a file; label its rows with --input {texts[0]}")
    if pairs and len(pairs) != len(texts):
        raise BibertError(f"{len(texts)} texts and {len(pairs)} times --pair; give a second text for each")
    checked = [decoding.checked(text, f"text {number}") for number, text in enumerate(texts, start=1)]
    seconds = [decoding.checked(text, f"pair {number}") for number, text in enumerate(pairs, start=1)]
    return list(zip(checked, seconds, strict=True)) if seconds else list(checked)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # no file can have that name
        return False


def _label_texts(texts: "list[Text]", labeller: "Labeller", target: Path | None, json: bool) -> None:
    from bibert.runtime.tables import json_line, open_output, plain_line

    line = json_line if json else plain_line
    with open_output(target) as file:
        for text, values in zip(texts, zip(*labeller(texts), strict=True), strict=True):
            file.write(line(text, dict(zip(labeller.columns, values, strict=True))).encode())


def _label_file(source: "Source", labeller: "Labeller", target: Path | None, line_buffered: bool) -> None:
    from bibert.runtime.tables import ROWS_PER_CHUNK, label_table, open_output

    typed = source.path is None and sys.stdin.isatty()
    if typed:
        say("type a text and Enter; Ctrl-D ends")
    to_terminal = target is None and sys.stdout.isatty()
    with open_output(target) as file, _watching(bar=messages.is_terminal and not typed and not to_terminal) as watch:
        done = label_table(source, file, labeller, watch, 1 if typed or line_buffered else ROWS_PER_CHUNK)
    if done.skipped:
        reason = done.first_skipped.partition(";")[0]  # without the advice to skip it
        say(f"{done.skipped:,} rows were skipped, the first because of {reason}")
    if target is not None:
        say(f"{target}: {done.rows:,} {'pairs' if done.pairs else 'rows'}")


@contextmanager
def _watching(bar: bool) -> "Iterator[Callable[[Progress], None]]":
    """Show progress on stderr: a bar, or a line from time to time where the bar would mix with other output."""
    if bar:
        with progress() as shown:
            task = shown.add_task("labelling", total=None)

            def move(now: "Progress") -> None:
                done, total = (now.rows, None) if now.share is None else (100 * now.share, 100)
                shown.update(task, description=f"{now.rows:,} rows, %", completed=done, total=total)

            yield move
        return
    said = time.monotonic()

    def tell(now: "Progress") -> None:
        nonlocal said
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            share = "" if now.share is None else f", {now.share:.0%} of the file"
            say(f"{now.rows:,} rows{share}")

    yield tell
