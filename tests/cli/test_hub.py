"""`bibert push` and `bibert pull`, in processes of their own, against a server that speaks the Hub's API."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from hub_stand_in import TOKEN, serving


@pytest.fixture
def hub():
    with serving() as server:
        yield server


@pytest.fixture
def call(hub, tmp_path):
    """Run `bibert ...` with the stand-in as the Hub; returns the exit code and what it says."""

    def run(*words, token=TOKEN):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": f"{tmp_path}/cache"}
        environment |= {"HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        command = [sys.executable, "-m", "bibert", *map(str, words)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        return done.returncode, done.stderr

    return run


@pytest.fixture
def model(packed_file, write):
    write("reviews.md", "---\nlicense: mit\n---\n# Reviews\n")
    return write("reviews.bibert", packed_file.read_bytes())


def test_a_file_goes_to_the_hub_with_its_card_and_comes_back_the_same(hub, call, model, tmp_path):
    code, said = call("push", model, "owner/name", "--private")
    assert code == 0, said
    assert hub.created.items() >= {"name": "name", "organization": "owner", "visibility": "private"}.items()
    card = model.with_suffix(".md").read_bytes()
    assert hub.files == {"model.bibert": model.read_bytes(), "README.md": card}
    code, said = call("pull", "owner/name")
    assert code == 0, said
    assert (tmp_path / "name.bibert").read_bytes() == model.read_bytes()
    code, said = call("pull", "owner/name")
    assert (code, "--force" in said) == (2, True)
    hub.created = {"visibility": "public"}
    code, said = call("push", model, "owner/name", "--private")
    assert (code, "is public" in said) == (2, True)
    code, said = call("predict", "-m", "owner/name", "a film")
    assert code == 0, said


def test_a_wrong_token_is_one_line_with_the_remedy(call, hub, model):
    code, said = call("push", model, "owner/name", token="hf_wrong")
    assert code == 2
    assert len(said.splitlines()) == 1
    assert "owner/name" in said
    assert "hf auth login" in said
    assert hub.files == {}


def test_a_name_that_the_hub_does_not_have_is_an_error(call, tmp_path):
    code, said = call("pull", "owner/name", "-o", "mine.bibert")
    assert (code, len(said.splitlines())) == (2, 1)
    assert not (tmp_path / "mine.bibert").exists()


def test_nothing_is_asked_without_a_card_a_whole_file_and_a_name(bibert, capsys, model, write, tmp_path):
    damaged = write("damaged.bibert", model.read_bytes()[:-1])
    wrong = {
        ("push", model, "name"): "owner/name",
        ("push", model, "owner/name@v1"): "owner/name",
        ("push", damaged, "owner/name"): "damaged.bibert: .*missing",
        ("push", model, "owner/name", "--card", tmp_path / "other.md"): "other.md: .*bibert card",
        ("pull", "name"): "owner/name",
        ("pull", "owner/name", "-o", "name.txt"): r"\.bibert",
    }
    for words, message in wrong.items():
        assert bibert(*words) == 2, words
        assert re.search(message, capsys.readouterr().err), words
