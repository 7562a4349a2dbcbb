"""The documents: their commands and snippets run on tiny stand-ins, the files and names they mention exist."""

import ast
import json
import re
import shlex
import shutil
import sys
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from bibert.cli.app import run
from bibert.distill.objective import TERMS
from bibert.lab.synthetic import make_reviews
from bibert.nn.schemes import SCHEMES
from bibert.training.recipe import Recipe, presets

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bibert"
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("docs/**/*.md"), *PACKAGE.glob("models/*.md")]
)
NAMED = [path for path in DOCUMENTS if path.name in ("architecture.md", "numeric-contract.md", "CONTRIBUTING.md")]
MOST_WORDS_OF_README = 1200
MOST_COLUMNS = 120
# The commands of a document that trains through it all get four steps and a probe at every second one.
SHORTER = {
    "README.md": {"train": "--set min_steps=0 --set max_steps=4"},
    "docs/tutorials/ship.md": {"train": "--set min_steps=0 --set max_steps=4"},
    "docs/training.md": {"train": "--set min_steps=0 --set max_steps=4 --set eval_every=2"},
    "docs/analysis.md": {
        "distill": "--max-length 16 --set max_steps=4 --set eval_every=2 --probe-every 2",
        "reproduce": "--set max_steps=2",
    },
}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def short_training(monkeypatch):
    """Four steps for what the Python snippets train from labels."""
    known = presets()
    known["labels"] |= {"min_steps": 0, "max_steps": 4}
    monkeypatch.setattr("bibert.training.recipe.presets", lambda: known)


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory, save_untrained):
    """The files that the documents name: own CSV files, GLUE's SST-2, a BERT, a teacher, texts, two checkpoints."""
    folder = tmp_path_factory.mktemp("user")
    reviews, test = make_reviews(60, seed=1), make_reviews(20, seed=2)
    glue = folder / "path/to/glue/SST-2"
    glue.mkdir(parents=True)
    for split, own, task in ((reviews, "reviews.csv", "train.tsv"), (test, "test.csv", "dev.tsv")):
        rows = list(zip(split.texts, map(int, split.labels), strict=True))
        lines = ["text,label", *(f'"{text}",{"np"[label]}' for text, label in rows)]
        (folder / own).write_text("\n".join(lines) + "\n", encoding="utf-8")
        lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows)]
        (glue / task).write_text("\n".join(lines) + "\n", encoding="utf-8")
    labels = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
    save_untrained(folder / "path/to/bert", reviews.texts, hidden_size=64, **labels)
    shutil.copytree(folder / "path/to/bert", folder / "runs/sst2/teacher/model")
    for name in ("checkpoint-1", "checkpoint-2"):
        save_untrained(folder / name, reviews.texts, hidden_size=64, scheme="bibert", **labels)
    for name, texts in (("dev.txt", test.texts[:3]), ("sentences.txt", make_reviews(1100, seed=3).texts)):
        (folder / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


RUN = ["README.md", "docs/training.md", "docs/analysis.md", "docs/tutorials/ship.md", "docs/tutorials/sql.md"]


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("document", RUN)
def test_every_command_and_snippet_of_a_document_runs_in_order(document, user_folder, monkeypatch, capsys):
    text = (ROOT / document).read_text(encoding="utf-8")
    if "bibert analyze " in text and document != "README.md":
        pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")
    monkeypatch.chdir(user_folder)
    names: dict[str, object] = {}
    blocks = re.findall(r"```(bash|python)\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 3
    for language, block in blocks:
        if language == "python":
            exec(compile(block, document, "exec"), names)
            assert capsys.readouterr().out, f"printed nothing:\n{block}"
            continue
        for line in block.replace("\\\n", "").splitlines():
            if line.startswith("bibert "):
                run_command(line, SHORTER.get(document, {}), capsys)


def test_a_tutorial_that_does_not_run_repeats_a_command_that_does():
    text = (ROOT / "docs/tutorials/reproduce.md").read_text(encoding="utf-8")
    commands = re.findall(r"^bibert (?:[^\n]*\\\n)*[^\n]*$", text, flags=re.MULTILINE)
    assert commands
    tested = "".join((ROOT / document).read_text(encoding="utf-8") for document in RUN)
    assert [command for command in commands if command not in tested] == []


@pytest.mark.parametrize("notebook", [*ROOT.glob("docs/notebooks/*.ipynb")], ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_says(notebook, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import collect

    text = notebook.read_text(encoding="utf-8")
    assert collect.run(json.loads(text)) == json.loads(text)


INTEGRATIONS = re.findall(
    r"## ([^\n]+)\n(?:(?!\n## ).)*?```python\n(.*?)```",
    (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8"),
    flags=re.DOTALL,
)
ENGINES = {"Ray Data": "ray", "Spark": "pyspark"}  # that CI does not install


@pytest.mark.usefixtures("short_training")
@pytest.mark.filterwarnings("default")  # those of the engines are not ours
@pytest.mark.parametrize(("name", "snippet"), INTEGRATIONS, ids=[name for name, _ in INTEGRATIONS])
def test_every_integration_works_as_its_document_says(name, snippet, user_folder, monkeypatch, capsys):
    if name in ENGINES:
        pytest.importorskip(ENGINES[name])
    monkeypatch.chdir(user_folder)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    exec(compile(snippet, name, "exec"), {})
    assert capsys.readouterr().out


def test_every_integration_is_in_its_document():
    modules = {path.stem for path in PACKAGE.glob("integrations/*.py")} - {"__init__"}
    named = {name for _, snippet in INTEGRATIONS for name in re.findall(r"bibert\.(?:integrations\.)?(\w+)", snippet)}
    assert {*modules, "sklearn"} <= named


def run_command(line, shorter, capsys):
    words = shlex.split(line, comments=True)[1:]
    words += shorter.get(words[0], "").split()
    code, said = run(words), capsys.readouterr()
    assert code == 0, f"{line}: {said.err}"
    assert said.out or said.err, f"{line}: printed nothing"
    for option, value in pairwise(words):
        if option == "-o":
            assert Path(value).exists(), line


def test_every_kind_of_analysis_has_a_command_in_its_document():
    from bibert.lab.cli.analyze import analyze

    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
    assert all(f"\nbibert analyze {command.name} " in text for command in analyze.registered_commands)


def test_the_page_about_training_lists_every_loss_term():
    section = (ROOT / "docs" / "training.md").read_text(encoding="utf-8").split("## Loss terms")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(first_cells))) == set(TERMS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_of_a_document_leads_to_a_file(document):
    links = re.findall(r"\]\(([^)#\s]+)|src=\"([^\"]+)", document.read_text(encoding="utf-8"))
    targets = [one or other for one, other in links if "://" not in (one or other)]
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", NAMED, ids=name_of)
def test_every_file_and_name_of_a_document_exists(document):
    text = document.read_text(encoding="utf-8")
    files = set(re.findall(r"(?<![\w/.:-])[\w.-]+(?:/[\w.-]+)+\.(?:cpp|h|json|map|md|py|sh|toml|txt)\b", text))
    folders = set(re.findall(r"`([\w-]+(?:/[\w-]+)*)/`", text))
    dotted = set(re.findall(r"`([a-z_]+(?:\.\w+)+)(?:\(\))?`", text))
    files |= {name for name in dotted if name.endswith(".py")}
    assert files
    named = {name for name in files | folders if "NAME" not in name}  # a placeholder
    assert [name for name in named if not any((top / name).exists() for top in (ROOT, PACKAGE, document.parent))] == []
    names = {name for name in dotted - files if name.split(".")[0] in {path.stem for path in PACKAGE.iterdir()}}
    assert [name for name in names if not is_defined(name)] == []


def is_defined(name):
    """Whether `nn.schemes.SCHEMES` and the like is a module, or a name or a member of a class in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = PACKAGE.joinpath(*parts[:end])
        if module.is_dir():
            return end == len(parts)
        if module.with_suffix(".py").is_file():
            return end == len(parts) or ".".join(parts[end:]) in names_in(module.with_suffix(".py"))
    return False


@cache
def names_in(file):
    """What a module defines, and `Class.member` for the members of its classes."""
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        found |= dict.fromkeys(targets_of(node))
        if isinstance(node, ast.ClassDef):
            found |= dict.fromkeys(f"{node.name}.{name}" for item in node.body for name in targets_of(item))
    return found.keys()


def targets_of(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= MOST_WORDS_OF_README


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.parent.name != "models"], ids=name_of)
def test_no_line_of_a_document_is_wider_than_a_screen(document):
    """Tables and images cannot be folded; `bibert card` writes the cards of models."""
    lines = enumerate(document.read_text(encoding="utf-8").splitlines(), start=1)
    wide = {number: line for number, line in lines if len(line) > MOST_COLUMNS and line[0] not in "|!<"}
    assert wide == {}


# ---------------------------------------------------------------------------------------------- paper-to-code.md

PAPER_TO_CODE = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")


def rows_of(section):
    """The cells of every table row between one `##` heading and the next, without heads and rules."""
    text = PAPER_TO_CODE.split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ELEMENTS = [row for row in rows_of("1.") if row[-1].startswith("`")]
FAMILIES = {"released-*", "paper-*"}  # of presets


@pytest.mark.parametrize("row", ELEMENTS, ids=[row[0] for row in ELEMENTS])
def test_every_element_of_the_paper_is_in_the_file_of_the_table(row):
    names = CODE.findall(row[1])
    assert names
    assert set(names) <= names_in(PACKAGE / CODE.findall(row[-1])[0])


def test_the_table_of_elements_is_read_whole():
    assert len(ELEMENTS) > 40
    assert ELEMENTS[0][1] == "`sign`"


def test_every_default_in_the_document_is_the_default_of_the_recipe():
    found = dict(re.findall(r"`Recipe\.(\w+) = ([^`]+)`", PAPER_TO_CODE))
    defaults = {field.name: getattr(Recipe(), field.name) for field in fields(Recipe)}
    assert len(found) > 12
    assert {name: ast.literal_eval(value) for name, value in found.items()} == {name: defaults[name] for name in found}


def test_every_choice_names_only_what_exists():
    known = {name for file in PACKAGE.rglob("*.py") for name in names_in(file)}
    known |= {*TERMS, *presets(), *FAMILIES}
    for row in rows_of("2.") + rows_of("3."):
        for code in CODE.findall(row[-1]):
            name = code.split(" = ")[0]
            assert name in known, f"{row[0]}: {name}"


def test_every_scheme_named_among_the_rivals_exists():
    rivals = [row for row in rows_of("3.") if "bert" in row[0] or "baseline" in row[0]]
    for pattern in (code for row in rivals for code in CODE.findall(row[0])):
        assert any(re.fullmatch(pattern.replace("*", ".*"), name) for name in SCHEMES), pattern
