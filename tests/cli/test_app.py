"""The program as a whole: which command is imported when, and the exit code of each kind of error."""

import importlib.util
import io
import os
import subprocess
import sys
import types

import pytest

from bibert.cli import app as program
from bibert.errors import DataError, MissingExtraError, NumericError


@pytest.fixture
def command(monkeypatch):
    """Put a command `probe` with the given body into the table."""

    def install(body):
        module = types.ModuleType("bibert.cli.probe")
        module.probe = body
        monkeypatch.setitem(sys.modules, "bibert.cli.probe", module)
        rows = {**program.COMMANDS, "probe": program.Command("bibert.cli.probe", "A command of the tests.")}
        monkeypatch.setattr(program, "COMMANDS", rows)

    return install


def raising(error):
    def body() -> None:
        raise error

    return body


def started(*words, **options):
    """The program in a process of its own, after its end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([sys.executable, "-m", "bibert", *words], text=True, check=False, timeout=60, **pipes)


def test_help_lists_every_command_with_its_line_and_imports_none(capsys):
    assert program.run(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, row in program.COMMANDS.items():
        assert name in shown
        assert row.help.split()[0] in shown
    code = "import sys; from bibert.cli.app import COMMANDS, run; run(['--help']); "
    check = "assert not {command.module for command in COMMANDS.values()} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code + check], check=True, capture_output=True, timeout=60)


def test_help_is_quick():
    before = os.times()
    assert started("--help").returncode == 0
    after = os.times()  # processor time, which does not depend on what else the machine is doing
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.6


@pytest.mark.parametrize("name", program.COMMANDS)
def test_every_command_of_the_table_shows_its_own_help(name, capsys):
    assert program.run([name, "--help"]) == 0
    assert f"bibert {name}" in capsys.readouterr().out


def test_a_command_gets_its_options_and_ends_with_code_0(command, capsys):
    def probe(times: int = 1) -> None:
        sys.stdout.write("done " * times)

    command(probe)
    assert program.run(["probe", "--times", "2"]) == 0
    assert capsys.readouterr().out == "done done "


def test_results_in_a_pipe_are_utf_8_on_every_system(command, monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", pipe)
    command(lambda: pipe.write("µ ≥ ━"))
    assert program.run(["probe"]) == 0
    assert pipe.buffer.getvalue().decode() == "µ ≥ ━"


def test_version_is_one_line(capsys):
    assert program.run(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "bibert"
    assert version[0].isdigit()


def test_no_command_shows_the_help_and_an_unknown_one_the_closest(capsys):
    done = started()
    assert done.returncode == 2
    assert "quickstart" in done.stdout + done.stderr
    assert program.run(["destill"]) == 2
    assert "'distill'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (DataError("a.csv:3: no label"), 2, "a.csv:3: no label"),
        (NumericError("NaN in x"), 4, "NaN in x"),
        (DataError("'two  spaces.csv':\n  is empty\n"), 2, "'two  spaces.csv': is empty"),
        (PermissionError(13, "Permission denied", "config.json"), 1, "config.json: Permission denied"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
    ],
)
def test_an_error_the_user_can_fix_is_one_line_with_its_exit_code(command, capsys, error, code, line):
    command(raising(error))
    assert program.run(["probe"]) == code
    assert capsys.readouterr() == ("", f"bibert: error: {line}\n")


def test_the_traceback_is_shown_on_request_but_ctrl_c_is_quiet(command, capsys, monkeypatch):
    monkeypatch.setenv("BIBERT_TRACEBACK", "1")
    command(raising(DataError("a.csv:3: no label")))
    assert program.run(["probe"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")
    command(raising(KeyboardInterrupt()))
    assert program.run(["probe"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_missing_package_is_answered_with_the_pip_line(command, capsys, monkeypatch):
    command(raising(ModuleNotFoundError("No module named 'torch'", name="torch.nn")))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert program.run(["probe"]) == MissingExtraError.exit_code
    line = capsys.readouterr().err
    assert line.startswith("bibert: error: this command needs torch, ")
    assert "pip install 'bibert[train]'" in line


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("train rows.csv", "train"),
        ("finetune rows.csv --checkpoint teacher -o run", "train"),
        ("distill rows.csv --teacher teacher -o run", "train"),
        ("pack teacher -o model.bibert", "train"),
        ("evaluate rows.csv -m teacher", "train"),
        ("analyze report -m sst2 -o page.html", "plot"),
        ("card rows.csv -m sst2 --title Films -o card.md", "plot"),
        ("serve", "serve"),
    ],
)
def test_the_light_install_is_told_what_to_install(words, extra, bibert, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text,label\nfine,1\ndull,0\n")
    (tmp_path / "teacher" / "model").mkdir(parents=True)
    (tmp_path / "teacher" / "model" / "config.json").write_text("{}")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert bibert(*words.split()) == 3
    assert f"pip install 'bibert[{extra}]'" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["bibert.cli.x", "torch.x"])
def test_a_missing_module_of_no_extra_or_of_an_installed_one_is_a_bug(command, monkeypatch, module):
    command(raising(ModuleNotFoundError(f"No module named {module!r}", name=module)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    with pytest.raises(ModuleNotFoundError):
        program.run(["probe"])


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_closed_pipe_is_no_error_message():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed_pipe:
        done = started("--version", stdout=closed_pipe)
        table = started("recipes", stdout=closed_pipe)
    assert (done.stderr, done.returncode) == (table.stderr, table.returncode) == ("", 0)


@pytest.mark.skipif(os.name == "nt", reason="descriptors of Unix")
@pytest.mark.parametrize("command", ["predict fine", "recipes", "--version"])
def test_a_closed_or_full_output_is_one_line(command):
    closed = f"{sys.executable} -m bibert {command} >&-"
    full = f"{sys.executable} -m bibert {command} >/dev/full"
    for line, says in ((closed, "standard output is closed"), (full, "standard output: No space left on device")):
        done = subprocess.run(["sh", "-c", line], text=True, check=False, timeout=60, capture_output=True)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.startswith(f"bibert: error: {says}")


@pytest.mark.parametrize("name", [None, *program.COMMANDS])
def test_help_fits_80_columns_and_shows_no_value_for_a_flag(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert program.run(["--help"] if name is None else [name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "bool" not in shown
    assert not any(line.endswith("...") and "Usage" not in line for line in shown.splitlines())
