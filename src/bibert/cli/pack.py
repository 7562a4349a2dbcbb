"""`bibert pack`: a trained student as one small file.

What is packed, and that it computes the same bits as the network, is the business of `export`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say
from bibert.cli.lengths import MaxLength, usual_length
from bibert.cli.options import Json, ScoringOptions, with_option_groups
from bibert.errors import BibertError, require_extra
from bibert.models import SUFFIX

if TYPE_CHECKING:
    from bibert.data.examples import Split
    from bibert.nn.loading import Classifier
    from bibert.packed.file import PackedModel


@dataclass(frozen=True)
class CheckingOptions(ScoringOptions):
    """Which texts the packed model is checked on."""

    data: Annotated[
        Path | None,
        typer.Option(
            help="Check on the rows of this file too; with --task, the folder of GLUE's TSV files.", show_default=False
        ),
    ] = None

    def load_rows(self, classifier: "Classifier") -> "Split | None":
        """The rows, if any were asked for; of a task with two dev sets, the first."""
        if self.data is None and self.task is None:
            self._refuse_columns()
            return None
        splits, _ = self.load_splits(classifier.label_names)
        return next(iter(splits.values()))

    def _refuse_columns(self) -> None:
        given = [name for name, value in self._options_of_a_file().items() if value]
        if given:
            raise BibertError(f"{given[0]} goes with --data; say which file has this column")


@with_option_groups
def pack(
    folder: Annotated[Path, typer.Argument(help="Folder of a trained student, such as runs/reviews/student/model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The packed file; one that is there is replaced.")],
    data: CheckingOptions,
    max_length: MaxLength = None,
    json: Json = False,
) -> None:
    """Write a trained student as one small file that runs without torch.

    Only a 1-1-1 student with Bi-Attention can be packed. Nothing is written before the engine has given the same
    bits as the network, on generated rows and on the rows of --data.

    Example: bibert pack runs/reviews/student/model -o reviews.bibert --data dev.csv
    """
    _check_output(output)
    require_extra("train", "bibert pack")
    from bibert.cli.progress import quiet_libraries
    from bibert.export import pack as packed_and_checked
    from bibert.nn.loading import load_classifier
    from bibert.packed.file import save
    from bibert.training.provenance import provenance

    quiet_libraries()
    classifier = load_classifier(folder)
    rows, about = data.load_rows(classifier), provenance(folder)
    longest = max_length or usual_length(about.get("recipe", {}), classifier.model.config.max_position_embeddings)
    checked_on = "generated rows" if rows is None else f"{len(rows):,} rows"
    say(f"packing {folder}, texts cut after {longest} tokens, checking it on {checked_on}")
    packed = packed_and_checked(classifier, rows, max_length=longest, about=about)
    save(packed, output)
    _show(packed, output, json)


def _check_output(output: Path) -> None:
    """Refuse a place for the result before the work; the suffix keeps a slip from replacing a file of data."""
    if output.suffix != SUFFIX:
        raise BibertError(f"{output}: a packed file is written; let its name end in {SUFFIX}")
    if not output.resolve().parent.is_dir():
        raise BibertError(f"{output}: the folder {output.parent} does not exist; make it first")


def _show(packed: "PackedModel", output: Path, json: bool) -> None:
    from bibert.packed.summary import summarize

    total = summarize(packed, len(packed.tokenizer), packed.max_length).total
    checked = packed.about["verified_rows"]
    if json:
        sizes = {"bytes": total.nbytes, "float32_bytes": total.float32_bytes, "ratio": total.ratio}
        print_json({"file": str(output), **sizes, "verified_rows": checked, "sha256": packed.digest})
        return
    table = Table("file", "bytes", "in float32", "ratio", "rows with the same bits")
    table.add_row(str(output), f"{total.nbytes:,}", f"{total.float32_bytes:,}", f"{total.ratio:.1f}", f"{checked:,}")
    print_table(table)
    say(f"next: bibert predict -m {output} 'a text', or bibert inspect {output}")
