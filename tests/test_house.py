"""House rules that no linter checks: line budgets, short files, files that say what they contain, no machine paths."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 400
# Lines of Python: lower these numbers when something shrinks; only features raise them. Serving and integrations count
# apart from the rest of the product.
BUDGETS = {"src/bibert": 12_110, "serving and integrations": 1_400, "src/bibert/lab": 5_450, "tests": 20_220}
# Written with a class of one letter each, so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(r"[/]work/|[/]root/|[/]home/\w|[/]tmp/\w")


def tracked(*patterns: str) -> list[Path]:
    """The files git knows or is about to know, without the ignored ones."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def lines_of(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def test_the_product_the_laboratory_and_the_tests_stay_within_their_budgets():
    lab, package = tracked("src/bibert/lab/*.py"), tracked("src/bibert/*.py")
    apart = tracked("src/bibert/serving/*.py", "src/bibert/integrations/*.py", "src/bibert/sklearn.py")
    files = (set(package) - {*lab, *apart}, apart, lab, tracked("tests/*.py"))
    parts = dict(zip(BUDGETS, files, strict=True))
    lines = {part: sum(map(lines_of, files)) for part, files in parts.items()}
    assert all(lines.values())
    assert {part: count for part, count in lines.items() if count > BUDGETS[part]} == {}


def test_no_python_file_is_longer_than_a_reader_can_hold():
    files = tracked("src/*.py", "tests/*.py", "benchmarks/*.py")
    lengths = {file.relative_to(ROOT).as_posix(): lines_of(file) for file in files}
    assert lengths
    assert {name: length for name, length in lengths.items() if length >= MOST_LINES} == {}


def test_every_module_says_what_lives_in_it():
    files = tracked("src/*.py")
    assert files
    silent = [file for file in files if not ast.get_docstring(ast.parse(file.read_text("utf-8")))]
    assert silent == []


def test_no_file_names_a_path_of_somebodys_machine():
    found = []
    for file in tracked():
        text = file.read_bytes().decode("utf-8", errors="replace")
        lines = enumerate(text.splitlines(), start=1)
        found += [f"{file.relative_to(ROOT)}:{number}" for number, line in lines if MACHINE_PATH.search(line)]
    assert found == []
