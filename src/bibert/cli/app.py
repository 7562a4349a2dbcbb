"""The program `bibert`: the table of commands, and how an error leaves the process.

A command's module is imported only when that command runs or shows its own help, so `bibert --help` is quick and
works in an install without torch. The options of a command live in its own file, its work in the library.
"""

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from bibert.errors import PACKAGES_OF_EXTRA, BibertError, require_extra

EXIT_OS_ERROR = 1
EXIT_BROKEN_PIPE = 1  # as typer itself leaves when a write meets a closed pipe
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class Row(NamedTuple):
    """Where a command lives; the module has a function named like the command, or a group of commands."""

    module: str
    help: str


COMMANDS: Mapping[str, Row] = MappingProxyType(
    {
        "quickstart": Row("bibert.lab.cli.quickstart", "See it work: train, binarize and compare on generated data."),
        "train": Row("bibert.cli.train", "Fine-tune a teacher and distill it into a binarized student, in one go."),
        "finetune": Row("bibert.cli.finetune", "Fine-tune a full-precision BERT: the teacher."),
        "distill": Row("bibert.cli.distill", "Binarize a teacher and distill it into the student."),
        "evaluate": Row("bibert.cli.evaluate", "Score a trained model on a data set."),
        "pack": Row("bibert.cli.pack", "Write a trained student as one small file, checked bit for bit."),
        "inspect": Row("bibert.lab.cli.inspect", "Show what a packed file is made of, to the byte."),
        "predict": Row("bibert.cli.predict", "Label texts, or every row of a file, with a packed file."),
        "bench": Row("bibert.lab.cli.bench", "Measure this file against the engines you would pick instead."),
        "reproduce": Row("bibert.lab.cli.reproduce", "Run a table of the paper and set the results beside it."),
        "card": Row("bibert.lab.cli.card", "Write the card of a packed file: figures, origin, limits."),
        "analyze": Row("bibert.lab.cli.analyze", "The paper's analysis: theorems, and what a model does inside."),
        "augment": Row("bibert.cli.augment", "Write an augmented copy of a training set, as TinyBERT does."),
        "recipes": Row("bibert.cli.recipes", "Show the presets of trainings, or all settings of one."),
        "schemes": Row("bibert.lab.cli.schemes", "Show every scheme with its bits, size and FLOPs."),
    }
)


class LazyGroup(TyperGroup):
    """A group of placeholders; the one that is called is replaced by the real command first."""

    # typer carries its own click and exports no name for these types, hence Any.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that `args` names, then resolve as usual."""
        name = args[0]
        if name in COMMANDS:
            self.commands[name] = _load(name)
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    """The real command, with the options its function declares, or the group of commands of that name."""
    found = getattr(importlib.import_module(COMMANDS[name].module), name)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    single = typer.Typer(add_completion=False)
    single.command(name)(found)
    return typer.main.get_command(single)


def _placeholder() -> None:
    """Stands in the list of commands; never runs."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from bibert import __version__

        print(f"bibert {__version__}")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
for _name, _row in COMMANDS.items():
    app.command(_name, help=_row.help)(_placeholder)


@app.callback()
def bibert(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """BERT in one bit: binarize a BERT classifier, distill it, pack it into one small file, run it on a CPU.

    Start with `bibert predict "a text"`. Each command has its own `--help`.
    """


def main() -> None:
    """The entry point of the script `bibert`."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        _leave_process_group()


def _leave(number: int, _: Any) -> None:
    """Leave as after Ctrl-C, so that no temporary file stays behind; a training goes on to its checkpoint first."""
    sys.exit(128 + number)


def _leave_process_group() -> None:
    """End the threads of a distributed run: one that outlives the interpreter aborts the process now and then."""
    distributed = sys.modules.get("torch.distributed")  # torch is not imported for this
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def run(args: Sequence[str]) -> int:
    """Run the program and turn what the user can mend into one line on stderr.

    Args:
        args: the words after `bibert`.

    Returns:
        The exit code, where an error decides it; a command that ends well leaves by `SystemExit`.
    """
    try:
        _call(args)
    except BibertError as error:
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        return _fail_for_missing_package(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _leave_closed_pipe()
    except OSError as error:
        return _fail(str(error), EXIT_OS_ERROR)
    return 0


def _call(args: Sequence[str]) -> None:
    try:
        typer.main.get_command(app)(args=list(args), prog_name="bibert")
    finally:
        sys.stdout.flush()  # a reader that has gone shows here, where it is caught, not when the interpreter ends


def _fail(message: str, exit_code: int) -> int:
    if os.environ.get("BIBERT_TRACEBACK") == "1":
        traceback.print_exc()
    one_line = " ".join(line.strip() for line in message.splitlines() if line.strip())
    print(f"bibert: error: {one_line}", file=sys.stderr)
    return exit_code


def _fail_for_missing_package(error: ModuleNotFoundError) -> int:
    """Name the extra that brings the package; a module that no extra brings is a bug and keeps its traceback."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in PACKAGES_OF_EXTRA.items():
        if package in packages:
            try:
                require_extra(extra, "this command")
            except BibertError as missing:
                return _fail(str(missing), missing.exit_code)
    raise error


def _leave_closed_pipe() -> int:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE
