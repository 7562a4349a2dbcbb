"""The model in the package: it answers by default, without torch, and its card tells the truth about it."""

import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import bibert
from bibert.data.examples import Split
from bibert.lab.card import Subject, card
from bibert.models import DEFAULT, FOLDER, shipped_file
from bibert.packed import file

CARD = FOLDER / f"{DEFAULT}.md"
COMMANDS = Path(__file__).parents[1] / "docs" / "models.md"
CLEAR = {
    "a gorgeous, witty film": "positive",
    "one of the best performances of the year": "positive",
    "dull, lifeless and far too long": "negative",
    "a complete waste of time and money": "negative",
}


@pytest.fixture(scope="module")
def path():
    found = shipped_file(DEFAULT)
    assert found is not None
    return found


def test_the_model_of_the_package_is_what_load_gives_by_default(path):
    classifier = bibert.load()
    assert classifier.labels == ("negative", "positive")
    assert classifier.about == file.load(path).about
    assert {text: classifier.predict(text)[0]["label"] for text in CLEAR} == CLEAR


def test_predict_answers_without_a_model_without_torch_and_without_a_network():
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('a network was asked for')\n"
        "socket.socket.connect = refuse\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from bibert.cli.app import run\n"
        "run(['predict', '--json', 'a gorgeous, witty film'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert json.loads(done.stdout)["label"] == "positive", done.stderr


def test_the_card_is_that_of_the_file(path):
    card, packed = CARD.read_text(encoding="utf-8"), file.load(path)
    assert f"one file of {path.stat().st_size:,} bytes" in card
    assert f"scheme `{packed.about['scheme']}`" in card
    assert f"commit {packed.about['commit']}" in card
    assert f"{packed.about['verified_rows']:,} rows when the file was made" in card
    student, engine = re.findall(r"^\| this .*?\| ([\d.]+) % \|$", card, flags=re.MULTILINE)
    assert student == engine == f"{100 * packed.about['metrics']['dev_accuracy']:.2f}"
    lines = re.findall(r"^\| (?:negative|positive) \| (\d+) \| (\d+) \|$", card, re.MULTILINE)
    counts = [int(count) for line in lines for count in line]
    assert sum(counts) == 872
    assert f"{100 * (counts[0] + counts[3]) / 872:.2f}" == engine


def test_the_card_can_be_made_again():
    rows = Split(("a gorgeous, witty film", "dull"), None, (1.0, 0.0), "rows.csv")
    made = card(Subject("T", DEFAULT, rows, "", ("accuracy",), None, "mit", ()))
    old, new = (text.partition("## Training")[2].splitlines() for text in (CARD.read_text(encoding="utf-8"), made))
    told = [line for line in old if line.startswith(("- Data", "- bibert", "- Started"))]
    assert len(told) == 4  # it learned on twice
    assert all(line in new for line in told)


def test_the_commands_of_its_document_name_the_length_and_the_limits_of_the_file(path):
    whole = COMMANDS.read_text("utf-8").replace("\\\n", "").splitlines()
    lines = [line for line in whole if line.startswith(("bibert pack", "bibert card"))]
    said = {words[1]: words for words in map(shlex.split, lines)}
    assert said["pack"][said["pack"].index("--max-length") + 1] == str(file.load(path).max_length)
    limits = [word for before, word in itertools.pairwise(said["card"]) if before == "--limit"]
    listed = CARD.read_text(encoding="utf-8").partition("## Limits\n\n")[2].partition("\n\n")[0].splitlines()
    assert limits
    assert listed[-len(limits) :] == [f"- {limit}" for limit in limits]
    assert len(listed) == 3 + len(limits)  # what the command adds by itself


def test_a_file_of_the_same_name_in_the_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT).write_bytes(b"not a model")
    with pytest.raises(bibert.BibertError, match="sst2"):
        bibert.load(DEFAULT)


@pytest.mark.parametrize("name", ["", "..", "nothing", "sst2.bibert", "../models/sst2"])
def test_a_name_that_is_not_in_the_package_is_no_model_of_it(name):
    assert shipped_file(name) is None
