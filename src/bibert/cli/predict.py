"""`bibert predict`: labels for texts on the command line, lines of standard input, or the rows of a file.

`runtime.tables` reads and writes rows, `runtime.classifier` chooses the labels; here options are checked and passed on.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import SECONDS_BETWEEN_LINES, counted, messages, progress, say
from bibert.cli.options import EXISTS, Delimiter, ModelName, PairColumn, TextColumn, option, with_option_groups
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
        option("File to label: .txt, .csv, .tsv, .jsonl, .parquet or .xlsx; - is standard input.", "--input", "-i"),
    ] = None
    format: Annotated[str, option("Format of standard input or an unknown suffix.", metavar="txt|csv|tsv|jsonl")] = ""
    delimiter: Delimiter = ""
    text_column: TextColumn = ""
    pair_column: PairColumn = ""
    encoding: Annotated[str, typer.Option(help="Encoding of the input. The output is UTF-8.")] = "utf-8"


@dataclass(frozen=True)
class OutputOptions:
    """Where labelled rows are written, and how."""

    output: Annotated[
        Path | None,
        option("File for the rows; its suffix is the format. Standard output if not given.", "--output", "-o"),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace an output file that exists.")] = False
    json: Annotated[bool, typer.Option("--json", help="Write JSON lines.")] = False

    @property
    def target(self) -> Path | None:
        """The file to write; None for standard output."""
        return None if self.output == STANDARD else self.output

    def written(self, usual: str) -> str:
        """The format to write, after a check of the output file; lines may go to a file with an unknown suffix."""
        from bibert.data.readers import FORMAT_OF_SUFFIX, suffix_of
        from bibert.runtime.writers import WRITTEN

        target, usual = self.target, "jsonl" if self.json else usual if usual in WRITTEN else "csv"
        if target is None:
            if usual == "parquet":
                raise BibertError("Parquet is written to a file; give --output, or --json for lines")
            return usual
        found = FORMAT_OF_SUFFIX.get(suffix_of(target), "txt" if usual == "txt" else "")
        if found not in WRITTEN or (self.json and found != "jsonl"):
            wanted = ".jsonl" if self.json else ", ".join(f".{name}" for name in WRITTEN)
            raise BibertError(f"{target}: the suffix is the format of the rows; give it a name ending in {wanted}")
        if found == "parquet" and target.suffix.lower() == ".gz":
            raise BibertError(f"{target}: Parquet is compressed inside; leave out .gz")
        if not target.resolve().parent.is_dir():
            raise BibertError(f"{target}: the folder {target.parent} does not exist; create it first")
        return found


@with_option_groups
def predict(
    rows: InputOptions,
    output: OutputOptions,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.", show_default=False)
    ] = None,
    model: ModelName = DEFAULT,
    pairs: Annotated[list[str] | None, option("Second text of a pair, once for each TEXT.", "--pair")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every label.")] = False,
    min_score: Annotated[
        float | None, option("Leave the label empty where its score is below this, above 0 and at most 1.", metavar="P")
    ] = None,
    label_blank: Annotated[
        bool, typer.Option("--label-blank", help="Label blank texts too, which otherwise get neither label nor score.")
    ] = False,
    prefix: Annotated[str, option("Put before the names of the new columns, label and score.")] = "",
    threads: Annotated[int, typer.Option(min=0, help="Threads; 0 is one for each CPU.")] = 0,
    on_error: Annotated[
        str, typer.Option(metavar="fail|skip|replace", help="What to do with broken rows; replace repairs bytes only.")
    ] = "fail",
) -> None:
    """Label texts with a packed file: those given, else the lines of standard input, or the rows of a file.

    Each text gives a line: label, score and text, separated by tabs.

    The rows of a file keep their columns and order, and gain the columns label and score. After a kill, the same
    command continues where it was and gives the same bytes.

    Example: bibert predict "a gorgeous, witty film" "dull"

    Example: bibert predict -m reviews.bibert --input reviews.csv --output labelled.csv
    """
    from bibert.models import find_file
    from bibert.runtime.classifier import load
    from bibert.runtime.writers import Labeller

    checked = _texts_of(texts or [], pairs or [], rows, on_error) if texts or pairs else []
    source = None if checked else _source_of(rows, output.target, on_error)
    written = output.written("txt" if source is None else source.file_format)
    _check_new(output, source)
    path = find_file(model)
    classifier = load(path, threads=threads)
    labeller = Labeller(classifier, proba=proba, prefix=prefix, min_score=min_score, label_blank=label_blank)
    if source is None:
        _label_texts(checked, labeller, output.target, written)
    else:
        columns = source.columns.beside(classifier.about)
        decoding = replace(source.decoding, delimiter=columns.delimiter)
        _label_file(replace(source, columns=columns, decoding=decoding), labeller, path, output, written)
    if min_score is not None:
        say(f"scores below {min_score:g}: {labeller.counts['below']:,}; their labels were left empty")
    if cut := labeller.counts["cut"]:
        say(f"texts longer than {classifier.max_length} tokens: {cut:,}; their ends were not read")
    if blank := labeller.counts["blank"]:
        result = "their labels mean nothing" if label_blank else "they got no label"
        say(f"texts without a word: {blank:,}; {result}")


def _check_new(output: OutputOptions, source: "Source | None") -> None:
    """Refuse to replace a file; one with a journal may be the result of a killed process, which is found out later."""
    target = output.target
    if target is None or output.force or not target.exists():
        return
    if source is not None and source.path is not None and source.path.is_file():
        from bibert.runtime.journal import journal_of

        if journal_of(target).exists():
            return
    raise BibertError(f"{target}: {EXISTS}")


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


def _source_of(rows: InputOptions, target: Path | None, on_error: str) -> "Source":
    from bibert.data.columns import Columns
    from bibert.data.lines import Decoding
    from bibert.data.readers import format_of
    from bibert.runtime.tables import Source

    path = None if rows.input == STANDARD else rows.input
    file_format = rows.format or ("txt" if path is None else format_of(path, ", or name the format with --format"))
    columns = Columns(rows.text_column, rows.pair_column, delimiter=rows.delimiter)
    if file_format in ("parquet", "xlsx") and (path is None or path.suffix.lower() == ".gz"):
        raise BibertError(f"{path or 'stdin'}: {file_format} is compressed inside and read from a file; give --input")
    if file_format == "txt" and columns.names:
        raise BibertError("plain lines have no columns; name another format with --format, or leave the columns out")
    if rows.delimiter and file_format not in ("csv", "tsv"):
        raise BibertError(f"--delimiter: only csv and tsv have one, {path or 'stdin'} is {file_format}; leave it out")
    if rows.encoding != "utf-8" and file_format in ("parquet", "xlsx"):
        raise BibertError(f"--encoding: {path} is {file_format}, which has its own; leave it out")
    if path is not None and target is not None and path.resolve() == target.resolve():
        raise BibertError(f"{target}: is the input itself; give another name, the input is kept")
    if path is None and sys.stdin is not None and sys.stdin.isatty():
        say("type a text and Enter; Ctrl-D ends")
    return Source(path, file_format, columns, Decoding(rows.encoding, on_error, REMEDY_OF_FILES))


def _label_texts(texts: "list[Text]", labeller: "Labeller", target: Path | None, written: str) -> None:
    from bibert.data.readers import Row
    from bibert.runtime.writers import open_output, row_writer

    named = [{"text": row} if isinstance(row, str) else {"text": row[0], "text_pair": row[1]} for row in texts]
    rows = [Row(number, cells, None) for number, cells in enumerate(named, start=1)]
    with open_output(target) as file, row_writer(file, written, None, labeller.columns) as write:
        write(rows, texts, labeller(texts))


def _label_file(source: "Source", labeller: "Labeller", model: Path, output: OutputOptions, written: str) -> None:
    from bibert.runtime.journal import is_complete, open_journal, task_of
    from bibert.runtime.tables import label_table
    from bibert.runtime.writers import open_output

    target, journal = output.target, None
    to_terminal = target is None and sys.stdout.isatty()
    with ExitStack() as stack:
        if target is not None and source.path is not None and source.path.is_file():
            task = task_of(source, model, labeller)
            if not output.force and is_complete(target, task):
                return say(f"{target}: is already complete")
            if not output.force and target.exists():
                raise BibertError(f"{target}: {EXISTS}")
            journal = stack.enter_context(open_journal(target, task))
        file = stack.enter_context(open_output(target, journal.finish if journal else None))
        bar = messages.is_terminal and source.rows_per_chunk > 1 and not to_terminal
        watch = stack.enter_context(_watching(bar=bar))
        done = label_table(source, file, labeller, written=written, watch=watch, journal=journal)
    if journal is not None and journal.rows_found:
        say(f"continued after {counted(journal.rows_found, 'row')} that were already labelled")
    if done.skipped:
        say(f"skipped {counted(done.skipped, 'row')}; the first: {done.first_skipped}")
    if target is not None:
        say(f"{target}: {counted(done.rows, 'pair' if done.pairs else 'row')}")
    return None


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
                total = max(now.rows, round(now.rows / now.share)) if now.share else None
                shown.update(task, description="rows (total estimated)", completed=now.rows, total=total)
            elif time.monotonic() - said >= SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                say(rows if now.share is None else f"{rows}, {now.share:.0%} of the file")

        yield watch
