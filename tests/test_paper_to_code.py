"""docs/paper-to-code.md: its names exist in the files it gives, and its defaults are the defaults."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from bibert.nn.schemes import SCHEMES, Scheme, Stage
from bibert.training.recipe import Recipe, presets

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")


def rows_of(section):
    """The cells of every table row between one `##` heading and the next, without heads and rules."""
    text = DOCUMENT.split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names_in(file):
    """Every name that a module defines: functions, classes, constants, and `Class.field` for annotated fields."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            inside = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
            names |= {f"{node.name}.{name}" for name in inside}
    return names


ELEMENTS = [row for row in rows_of("1.") if row[-1].startswith("`")]
NAMES_ANYWHERE = {name for file in (ROOT / "src" / "bibert").rglob("*.py") for name in names_in(file)}


@pytest.mark.parametrize("row", ELEMENTS, ids=[row[0] for row in ELEMENTS])
def test_every_element_of_the_paper_is_in_the_file_of_the_table(row):
    file = ROOT / "src" / "bibert" / CODE.findall(row[-1])[0]
    names = CODE.findall(row[1])
    assert names
    assert set(names) <= names_in(file)


def test_the_table_of_elements_is_read_whole():
    assert len(ELEMENTS) > 40
    assert ELEMENTS[0][1] == "`sign`"


def test_every_default_in_the_document_is_the_default_of_the_recipe():
    found = dict(re.findall(r"`Recipe\.(\w+) = ([^`]+)`", DOCUMENT))
    defaults = {field.name: getattr(Recipe(), field.name) for field in fields(Recipe)}
    assert len(found) > 12
    assert {name: ast.literal_eval(value) for name, value in found.items()} == {name: defaults[name] for name in found}


def test_every_choice_names_only_what_exists():
    known = {f"{kind.__name__}.{field.name}" for kind in (Recipe, Scheme, Stage) for field in fields(kind)}
    known |= NAMES_ANYWHERE | KNOWN_WORDS | set(presets())
    for row in rows_of("2.") + rows_of("3."):
        for code in CODE.findall(row[-1]):
            name = code.split(" = ")[0]
            assert name in known, f"{row[0]}: {name}"


# Values of fields, and keys of tables that are not names in Python.
KNOWN_WORDS = {"sign", "gold", "prediction", "released-*", "paper-*", "gelu_sign"}


def test_every_scheme_named_among_the_rivals_exists():
    rivals = [row for row in rows_of("3.") if "bert" in row[0] or "baseline" in row[0]]
    for pattern in (code for row in rivals for code in CODE.findall(row[0])):
        assert any(re.fullmatch(pattern.replace("*", ".*"), name) for name in SCHEMES), pattern
