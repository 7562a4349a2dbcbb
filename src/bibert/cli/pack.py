"""`bibert pack`: a trained student as one small file; what is packed and how it is verified is in `export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bibert.cli import options
from bibert.cli.console import counted, print_json, print_table, say
from bibert.errors import require_extra
from bibert.files import check_output
from bibert.nn import model_folder, written_labels


@dataclass(frozen=True)
class VerificationOptions(options.EvaluationOptions):
    """Texts on which the packed model is verified."""

    data: Annotated[
        Path | None,
        options.option("Also verify on the rows of this file; with --task, the folder of GLUE's TSV files."),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Fit the temperature of the scores on these rows, not on its run's dev rows."),
    ] = False


@options.with_option_groups
def pack(
    folder: Annotated[Path, typer.Argument(help="Folder of a trained student, such as runs/reviews/student/model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The packed file; an existing file is replaced.")],
    data: VerificationOptions,
    max_length: options.MaxLength = None,
    json: options.Json = False,
) -> None:
    """Write a trained student as one small file that runs without torch.

    Students of any position of the dial (bibert train --bits) and of the scheme bibert can be packed. The file is
    written only if the engine computes the same bits as the network, on generated rows and on the rows of --data.

    Scores are the softmax of logits / temperature. Training fits the temperature on its dev rows and the file keeps it.

    Example: bibert pack runs/reviews/student/model -o reviews.bibert --data dev.csv
    """
    from bibert.packed.header import FORMAT

    check_output(output, f".{FORMAT}")
    require_extra("train", "bibert pack")
    from bibert.training.provenance import provenance

    place, about, rows = Path(model_folder(folder)), provenance(folder), None
    if data.task is not None or data.calibrate:
        rows = data.load_splits(written_labels(place), about).first
    elif data.data is not None:
        from bibert.data.tables import load_texts

        rows = load_texts(data.data, data.columns.beside(about))
    options.import_quietly()
    from bibert.export import pack as pack_and_verify
    from bibert.nn.checkpoint import load_classifier
    from bibert.packed.file import save

    classifier = load_classifier(folder)
    positions = classifier.model.config.max_position_embeddings
    longest = max_length or options.usual_length(about.get("recipe", {}), positions)
    given = "" if rows is None else f"{counted(len(rows), 'row')} of {Path(rows.origin).name} and "
    say(f"packing {folder}, texts cut after {longest} tokens, verifying it on {given}generated rows")
    temperature = about.pop("temperature", 1.0)
    if data.calibrate and rows is not None:
        from bibert.training.evaluate import fit_temperature, predict_logits

        temperature = fit_temperature(predict_logits(classifier, rows, longest), rows.labels)
    packed = pack_and_verify(classifier, rows, max_length=longest, about=about, temperature=temperature)
    save(packed, output)
    size, in_float32 = output.stat().st_size, packed.float32_bytes
    ratio, verified = in_float32 / size, packed.about["verified_rows"]
    if json:
        sizes = {"bytes": size, "float32_bytes": in_float32, "ratio": ratio}
        sizes |= {"verified_rows": verified, "temperature": temperature}
        print_json({"file": str(output), **sizes, "sha256": packed.digest})
        return
    table = Table("file", "bytes", "in float32", "ratio", "rows with the same bits", "temperature")
    table.add_row(str(output), f"{size:,}", f"{in_float32:,}", f"{ratio:.1f}", f"{verified:,}", f"{temperature:g}")
    print_table(table)
    say(f"next: bibert predict -m {output} 'a text', or bibert inspect {output}")
