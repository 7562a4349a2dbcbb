"""The README's own commands and snippets, run as they stand, on tiny stand-ins for the files they name."""

import re
import shlex
from pathlib import Path

import pytest

from bibert.cli.app import run
from bibert.data.synthetic import make_reviews

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SLOW_FOR_A_TEST = {"bibert quickstart"}  # `make quickstart` runs it


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands():
    lines = [line.partition(" #")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("bibert ") and line not in SLOW_FOR_A_TEST]


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory, save_untrained):
    """What a reader of the README has: reviews.csv, test.csv, path/to/bert, path/to/glue; reviews.bibert he makes."""
    folder = tmp_path_factory.mktemp("user")
    reviews, test = make_reviews(60, seed=1), make_reviews(20, seed=2)
    for name, split in (("reviews.csv", reviews), ("test.csv", test)):
        rows = [f'"{text}",{"np"[int(label)]}' for text, label in zip(split.texts, split.labels, strict=True)]
        (folder / name).write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    glue = folder / "path/to/glue/SST-2"
    glue.mkdir(parents=True)
    for name, split in (("train.tsv", reviews), ("dev.tsv", test)):
        rows = [f"{text}\t{int(label)}" for text, label in zip(split.texts, split.labels, strict=True)]
        (glue / name).write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
    save_untrained(folder / "path/to/bert", reviews.texts)
    return folder


def test_the_readme_shows_commands_for_a_users_own_file_and_for_glue():
    assert any("reviews.csv" in command for command in commands())
    assert any("--task sst-2" in command for command in commands())
    assert len(blocks("python")) >= 2


def test_every_command_of_the_readme_runs_in_order(user_folder, monkeypatch, capsys):
    monkeypatch.chdir(user_folder)
    for command in commands():
        with pytest.raises(SystemExit) as leaving:
            assert run(shlex.split(command)[1:]) is None, f"{command}: {capsys.readouterr().err}"
        assert not leaving.value.code, command
        said = capsys.readouterr()
        assert said.out or said.err, f"{command} said nothing"


def test_every_python_snippet_of_the_readme_runs_in_order(user_folder, monkeypatch, capsys):
    monkeypatch.chdir(user_folder)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
        assert capsys.readouterr().out, f"printed nothing:\n{block}"
