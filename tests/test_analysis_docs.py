"""docs/analysis.md: its commands run as they stand, on tiny stand-ins for the files they name."""

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from bibert.cli.app import run
from bibert.data.synthetic import make_reviews

TEXT = (Path(__file__).parent.parent / "docs" / "analysis.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.DOTALL) for line in block.splitlines()]
SMALL = {"distill": "--max-length 16 --set max_steps=4 --set eval_every=2", "reproduce": "--set max_steps=2"}


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory, save_untrained):
    """GLUE's SST-2, a BERT, and what the commands name: a teacher, texts, two checkpoints."""
    folder = tmp_path_factory.mktemp("user")
    reviews, test = make_reviews(60, seed=1), make_reviews(20, seed=2)
    glue = folder / "path/to/glue/SST-2"
    glue.mkdir(parents=True)
    for name, split in (("train.tsv", reviews), ("dev.tsv", test)):
        rows = [f"{text}\t{int(label)}" for text, label in zip(split.texts, split.labels, strict=True)]
        (glue / name).write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
    shape = {
        "hidden_size": 64,
        "id2label": {0: "negative", 1: "positive"},
        "label2id": {"negative": 0, "positive": 1},
    }
    save_untrained(folder / "path/to/bert", reviews.texts, **shape)
    shutil.copytree(folder / "path/to/bert", folder / "runs/sst2/teacher/model")
    for name in ("checkpoint-1", "checkpoint-2"):
        save_untrained(folder / name, reviews.texts, scheme="bibert", **shape)
    (folder / "dev.txt").write_text("\n".join(test.texts[:3]) + "\n", encoding="utf-8")
    return folder


def as_small(command):
    """The command on four steps with a look at every second."""
    words = shlex.split(f"{command} {SMALL.get(shlex.split(command)[1], '')}")
    if "--probe-every" in words:
        words[words.index("--probe-every") + 1] = "2"
    return words[1:]


def test_every_command_runs_in_order_and_writes_what_it_says(user_folder, monkeypatch, capsys):
    monkeypatch.chdir(user_folder)
    assert len(COMMANDS) >= 12
    for command in COMMANDS:
        words = as_small(command)
        with pytest.raises(SystemExit) as leaving:
            run(words)
        assert not leaving.value.code, f"{command}: {capsys.readouterr().err}"
        for option, value in pairwise(words):
            if option == "-o":
                assert Path(value).exists(), command


def test_every_kind_of_analysis_is_in_it():
    from bibert.lab.cli.analyze import analyze

    for command in analyze.registered_commands:
        assert f"bibert analyze {command.name}" in TEXT
