"""The program `bibert`: the table of commands, and how errors become exit codes.

A command's module is imported only when that command runs or shows its own help, so `bibert --help` is quick and
works in an install without torch. A command's options are in its own file, its work is in the library.
"""

import importlib
import io
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer.core import TyperGroup

from bibert.errors import PACKAGES_OF_EXTRA, BibertError, require_extra
from bibert.files import STANDARD_OUTPUT, naming

EXIT_OS_ERROR = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells


class Command(NamedTuple):
    """The module of a command, which has a function or a group of commands of that name."""

    module: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "quickstart": Command("bibert.lab.cli.quickstart", "See it work: train, binarize and compare on generated data."),
    "train": Command("bibert.cli.train", "Train a binarized classifier on labelled text."),
    "finetune": Command("bibert.cli.finetune", "Fine-tune a full-precision BERT: the teacher."),
    "distill": Command("bibert.cli.distill", "Binarize a teacher and distill it into the student."),
    "generalize": Command("bibert.cli.generalize", "Binarize an encoder on plain text: a start for any task."),
    "evaluate": Command("bibert.cli.evaluate", "Evaluate a trained model on a data set."),
    "pack": Command("bibert.cli.pack", "Write a trained student as one small, verified file."),
    "inspect": Command("bibert.lab.cli.inspect", "Show the parts of a packed file, to the byte."),
    "predict": Command("bibert.cli.predict", "Label texts, or every row of a file, with a packed file."),
    "serve": Command("bibert.cli.serve", "Serve packed files over HTTP, with a page to try them."),
    "push": Command("bibert.cli.hub", "Upload a packed file and its card to the Hugging Face Hub."),
    "pull": Command("bibert.cli.hub", "Download a packed file from the Hugging Face Hub."),
    "bench": Command("bibert.lab.cli.bench", "Compare a packed file with other engines."),
    "reproduce": Command("bibert.lab.cli.reproduce", "Run a table of the paper and compare the results."),
    "card": Command("bibert.lab.cli.pages", "Write the model card of a packed file."),
    "analyze": Command("bibert.lab.cli.analyze", "The paper's analysis: theorems, entropy, attention, cost."),
    "augment": Command("bibert.cli.augment", "Write an augmented copy of a training set, as TinyBERT does."),
    "recipes": Command("bibert.cli.recipes", "Show the recipe presets, or all settings of one."),
    "schemes": Command("bibert.lab.cli.schemes", "Show every scheme with its bits, size and FLOPs."),
}


class LazyGroup(TyperGroup):
    """A group of placeholders; the one that is called is first replaced by the real command."""

    # typer carries its own click and exports no name for these types, hence Any.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that `args` names, then resolve as usual."""
        name = args[0]
        if name in COMMANDS:
            found = getattr(importlib.import_module(COMMANDS[name].module), name)
            if not isinstance(found, typer.Typer):  # a function, which becomes the only command of a group
                function, found = found, typer.Typer(rich_markup_mode=None, add_completion=False)
                found.command(name)(function)
            self.commands[name] = typer.main.get_command(found)
        return super().resolve_command(ctx, args)

    # Typer would end a command with code 1 if a pipe is closed.
    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the words; `--version` and `--help` print here."""
        with _own_pipe_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _own_pipe_errors():
            return super().invoke(ctx)


class ClosedPipeError(Exception):
    """A pipe was closed, such as standard output by `| head -1`; its cause is the `BrokenPipeError`."""


@contextmanager
def _own_pipe_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError from error


def _placeholder() -> None:
    """Shown in the list of commands; never runs."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from bibert import __version__

        with naming(STANDARD_OUTPUT):
            print(f"bibert {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup, rich_markup_mode=None, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.help)(_placeholder)


@app.callback()
def bibert(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """BERT in one bit: binarize a BERT classifier, distill it, pack it into one small file, run it on a CPU.

    Start with `bibert predict "a text"`. Each command has its own `--help`.
    """


def main() -> None:
    """The entry point of the script `bibert`."""
    signal.signal(signal.SIGTERM, _exit)
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        # End the threads of a distributed run: one that outlives the interpreter sometimes aborts the process.
        distributed = sys.modules.get("torch.distributed")  # do not import torch for this
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()


def _exit(number: int, _: Any) -> None:
    """Unwind as on Ctrl-C, so that no temporary file is left; a training writes a checkpoint first."""
    sys.exit(128 + number)


def run(args: Sequence[str]) -> int:
    """Run the program with the words after `bibert` and return its exit code; an error the user can fix is one line."""
    if sys.stdout is None:  # its results would be lost, or end up in a file that gets its number
        return _fail(OSError("standard output is closed; redirect it to a file or to /dev/null"), EXIT_OS_ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():  # a pipe on Windows is not UTF-8
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
    try:
        _call(args)
    except BibertError as error:
        return _fail(error, error.exit_code)
    except SystemExit as end:  # typer's, of every command that succeeds and of wrong options
        return int(end.code or 0)
    except KeyboardInterrupt:  # outside typer, which ends a command with the same code
        return EXIT_INTERRUPTED
    except (OSError, ClosedPipeError) as error:
        return _fail_of_system(error if isinstance(error, OSError) else cast("BrokenPipeError", error.__cause__))
    raise AssertionError("typer ends every command with SystemExit")


def _fail_of_system(error: OSError) -> int:
    """The exit code of an error of the system; a reader of standard output that has gone had enough: no error."""
    has_gone = isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout.fileno())
    if has_gone or error.filename == STANDARD_OUTPUT:
        # Point it at /dev/null, so that the interpreter's last flush does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if has_gone:
        return 0
    return _fail(OSError(f"{error.filename}: {error.strerror}") if error.filename else error, EXIT_OS_ERROR)


def _has_no_reader(pipe: int) -> bool:
    if os.name == "nt":  # which cannot be asked
        return True
    poll = select.poll()
    poll.register(pipe, 0)  # errors are always reported
    return bool(poll.poll(0))


def _call(args: Sequence[str]) -> None:
    try:
        typer.main.get_command(app)(args=list(args), prog_name="bibert")
    except ModuleNotFoundError as error:  # a bug, unless an extra that is not installed has the package
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in PACKAGES_OF_EXTRA.items() if package in packages), None)
        if extra is not None:
            require_extra(extra, "this command")
        raise
    finally:
        with naming(STANDARD_OUTPUT):  # a closed pipe raises here, where it is caught, not when the interpreter ends
            sys.stdout.flush()


def _fail(error: Exception, exit_code: int) -> int:
    if os.environ.get("BIBERT_TRACEBACK") == "1":
        traceback.print_exc()
    message = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    print(f"bibert: error: {message}", file=sys.stderr)
    return exit_code
