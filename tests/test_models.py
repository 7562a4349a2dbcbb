"""Where models are found: in the package, in a folder, on the Hub (a stand-in); and the cards of the shipped models."""

import csv
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

import bibert
from bibert.data.examples import Split
from bibert.errors import ModelFileError
from bibert.lab.card import CardRequest, card
from bibert.models import DEFAULT, FOLDER, fetch, find_file, is_hub_id, shipped_file
from bibert.packed import file

CLASSIFIERS = {"sst2": 4, "sentiment_2": 2, DEFAULT: 2}  # with the lines of their cards about data, commits and starts
COMMANDS = Path(__file__).parents[1] / "docs" / "models.md"
CLEAR = {
    "a gorgeous, witty film": "positive",
    "one of the best performances of the year": "positive",
    "dull, lifeless and far too long": "negative",
    "a complete waste of time and money": "negative",
}


SENTENCES = Path(__file__).parent / "sentences.csv"
RIGHT = {"sst2": 74, "sentiment_2": 83, DEFAULT: 84}  # of these 100 sentences, written before the models were trained


@pytest.fixture(scope="module", params=CLASSIFIERS)
def path(request):
    found = shipped_file(request.param)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def card_text(path):
    return path.with_suffix(".md").read_text(encoding="utf-8")


def test_load_returns_a_shipped_model_by_default():
    classifier = bibert.load()
    assert classifier.labels == ("negative", "positive")
    assert classifier.about == file.load(shipped_file(DEFAULT)).about
    assert {text: classifier.predict(text)[0]["label"] for text in CLEAR} == CLEAR


def test_hard_sentences_are_labelled_as_well_as_the_documents_say(path):
    with SENTENCES.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    answers = bibert.load(path).predict([row["text"] for row in rows])
    right = sum(answer["label"] == row["label"] for answer, row in zip(answers, rows, strict=True))
    assert (right, len(rows)) == (RIGHT[path.stem], 100)


def test_predict_needs_no_model_argument_no_torch_and_no_network():
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


def test_the_card_is_that_of_the_file(path, card_text):
    packed = file.load(path)
    assert f"one file of {path.stat().st_size:,} bytes" in card_text
    assert f"scheme `{packed.about['scheme']}`" in card_text
    assert f"commit {packed.about['commit']}" in card_text
    assert f"{packed.about['verified_rows']:,} rows when the file was made" in card_text
    student, engine = re.findall(r"^\| this .*?\| ([\d.]+) % \|$", card_text, flags=re.MULTILINE)
    assert student == engine == f"{100 * packed.about['metrics']['dev_accuracy']:.2f}"
    lines = re.findall(r"^\| (?:negative|positive) \| (\d+) \| (\d+) \|$", card_text, re.MULTILINE)
    counts = [int(count) for line in lines for count in line]
    assert sum(counts) == 872
    assert f"{100 * (counts[0] + counts[3]) / 872:.2f}" == engine


def test_the_card_can_be_made_again(path, card_text):
    rows = Split(("a gorgeous, witty film", "dull"), None, (1.0, 0.0), "rows.csv")
    made = card(CardRequest("T", path.stem, rows, "", ("accuracy",), None, "mit", ()))
    old, new = (text.partition("## Training")[2].splitlines() for text in (card_text, made))
    told = [line for line in old if line.startswith(("- Data", "- bibert", "- Started"))]
    assert len(told) == CLASSIFIERS[path.stem]
    assert all(line in new for line in told)


def test_the_commands_of_its_document_name_the_length_and_the_limits_of_the_file(path, card_text):
    whole = COMMANDS.read_text("utf-8").replace("\\\n", "").splitlines()
    lines = [line for line in whole if line.startswith(("bibert pack", "bibert card")) and f"/{path.stem}." in line]
    said = {words[1]: words for words in map(shlex.split, lines)}
    assert said["pack"][said["pack"].index("--max-length") + 1] == str(file.load(path).max_length)
    limits = [word for before, word in itertools.pairwise(said["card"]) if before == "--limit"]
    listed = card_text.partition("## Limits\n\n")[2].partition("\n\n")[0].splitlines()
    assert limits
    assert listed[-len(limits) :] == [f"- {limit}" for limit in limits]
    assert len(listed) == 3 + len(limits)  # what the command adds by itself


def test_a_file_of_the_same_name_in_the_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT).write_bytes(b"not a model")
    with pytest.raises(bibert.BibertError, match=DEFAULT):
        bibert.load(DEFAULT)


@pytest.mark.parametrize("name", ["", "..", "nothing", "sst2.bibert", "../models/sst2"])
def test_a_name_that_is_not_shipped_is_not_found(name):
    assert shipped_file(name) is None


@pytest.mark.parametrize(("name", "close"), {"sst-2": "sst2", "sentimnt_4": DEFAULT, "general4": "general_4"}.items())
def test_a_mistyped_name_is_answered_with_the_shipped_one(name, close):
    with pytest.raises(ModelFileError, match=f"^{name}: .*did you mean '{close}'"):
        find_file(name)


@pytest.mark.parametrize("name", ["general_1", "general_4"])
def test_an_encoder_without_a_task_answers_nothing(name, tmp_path):
    copy = shutil.copy(shipped_file(name), tmp_path)
    for place, called in ((name, name), (copy, re.escape(str(copy)))):
        with pytest.raises(ModelFileError, match=f"^{called} has no task; .* --start {called}$"):
            bibert.load(place)


def test_a_name_that_no_file_can_have_is_not_found():
    with pytest.raises(ModelFileError, match=r"a{300}"):
        bibert.load("a" * 300)


def test_a_folder_must_hold_exactly_one_packed_file(tmp_path):
    with pytest.raises(ModelFileError, match=r"0 files .*\.bibert.* must have 1; .*bibert pack"):
        find_file(tmp_path)
    (tmp_path / "b.bibert").write_bytes(b"")
    assert find_file(tmp_path) == find_file(str(tmp_path)) == tmp_path / "b.bibert"
    (tmp_path / "a.bibert").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"2 files .* must have 1; .*a\.bibert"):
        find_file(tmp_path)


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the Hub that records the request, and returns or raises `answer`."""

    class Hub:
        asked = ()
        answer = FOLDER

        def download(self, name, *, tqdm_class, **options):
            self.asked = (name, options)
            assert tqdm_class(total=1).disable
            if isinstance(self.answer, Exception):
                raise self.answer
            return str(self.answer)

    stand_in = Hub()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", stand_in.download)
    return stand_in


HUB_IDS = {
    "owner/name": True,
    "owner/name@v1.0": True,
    "owner/na-me_2.x@refs/pr/1": True,
    "name": False,
    "owner/name.bibert": False,
    "a/b/c": False,
    "./a/b": False,
    "/a/b": False,
    "a/b@": False,
    "höher/b": False,
}


@pytest.mark.parametrize(("name", "expected"), HUB_IDS.items())
def test_a_name_on_the_hub_has_an_owner_and_may_have_a_revision(name, expected):
    assert is_hub_id(name) is expected


def test_only_packed_files_are_fetched_from_the_hub(hub, path, tmp_path):
    hub.answer = tmp_path / "snapshot"
    hub.answer.mkdir()
    fetched = shutil.copy(path, hub.answer)
    assert bibert.load("owner/name").labels == ("negative", "positive")
    assert hub.asked == ("owner/name", {"revision": None, "allow_patterns": "*.bibert"})
    assert find_file("owner/name@v2") == Path(fetched)
    assert hub.asked == ("owner/name", {"revision": "v2", "allow_patterns": "*.bibert"})
    hub.answer = tmp_path
    with pytest.raises(ModelFileError, match=r"owner/name: .*0 files"):
        bibert.load("owner/name")


def test_a_path_is_never_looked_for_on_the_hub(hub, monkeypatch, tmp_path):
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "model.bibert").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert find_file("owner/name").name == "model.bibert"
    assert find_file(tmp_path / "name") == tmp_path / "name"
    with pytest.raises(ModelFileError, match=r"name\.bibert: .*no such file"):
        bibert.load("other/name.bibert")
    assert hub.asked == ()


@pytest.mark.parametrize(
    "error",
    [
        LocalEntryNotFoundError("cannot find it\non the local disk"),
        OfflineModeIsEnabled("cannot find it"),
        ConnectionError("cannot find it"),
        ValueError("cannot find it"),
        huggingface_hub.errors.HfHubHTTPError.__bases__[0]("cannot find it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_of_the_hub_is_one_line_with_the_name_and_the_reason(hub, error):
    hub.answer = error
    with pytest.raises(ModelFileError, match=r"^owner/name: .* \(cannot find it\)$"):
        fetch("owner/name")


def test_without_a_network_a_name_that_was_never_fetched_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelFileError, match="owner/name"):
        bibert.load("owner/name")
