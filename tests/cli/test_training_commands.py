"""The commands that train and score, as a user calls them, on a tiny model and generated sentences."""

import csv
import json
import os
import shutil
import subprocess
import sys

import pytest

from bibert.cli.app import run
from bibert.data.encoding import train_tokenizer
from bibert.data.synthetic import synthetic_reviews
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification

SHORT = ["--epochs", "1", "--max-length", "32", "--set", "eval_every=10", "--set", "log_every=5"]
POSITIONS = 48


@pytest.fixture(scope="module")
def place(tmp_path_factory, save_untrained):
    """A folder with train.csv, dev.csv and an untrained BERT in start/."""
    folder = tmp_path_factory.mktemp("commands")
    data = synthetic_reviews(200, 60, seed=0)
    write_csv(folder / "train.csv", data.train, data.label_names)
    write_csv(folder / "dev.csv", data.dev["dev"], data.label_names)
    save_untrained(folder / "start", data.train.texts, max_position_embeddings=POSITIONS)
    return folder


@pytest.fixture(scope="module")
def trained(place):
    """The run folder of one `bibert train`."""
    words = ["train", place / "train.csv", "--dev", place / "dev.csv", "-c", place / "start", "-o", place / "run"]
    assert called([*words, *SHORT, "--teacher-recipe", teacher_recipe(place)]) == 0
    return place / "run"


def write_csv(path, split, label_names):
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([text, label_names[int(label)]] for text, label in zip(split.texts, split.labels, strict=True))


def teacher_recipe(folder):
    path = folder / "teacher.toml"
    path.write_text('extends = "teacher"\nepochs = 1\neval_every = 5\n', encoding="utf-8")
    return path


def called(words):
    """The exit code of `bibert ...`."""
    return run([str(word) for word in words])


def test_train_gives_a_teacher_and_a_student_that_transformers_can_load(trained):
    from transformers import pipeline

    import bibert.nn.model  # noqa: F401  registers the model

    for part in ("teacher", "student"):
        classify = pipeline("text-classification", model=str(trained / part / "model"))
        assert classify("a gorgeous film")[0]["label"] in ("negative", "positive")


def test_the_teachers_recipe_keeps_its_own_settings(place):
    recipe = replaced(place, "own.toml", 'extends = "teacher"\nmax_steps = 2\nseed = 7\nmax_length = 24\n')
    words = ["train", place / "train.csv", "-c", place / "start", "-o", place / "own", "--teacher-recipe", recipe]
    assert called([*words, "--max-length", "32", "--set", "max_steps=2"]) == 0
    teacher, student = (
        json.loads((place / "own" / part / "run.json").read_text())["request"]["recipe"]
        for part in ("teacher", "student")
    )
    assert (teacher["seed"], teacher["max_length"]) == (7, 32)  # the option counts for both
    assert (student["seed"], student["max_length"]) == (42, 32)


def test_a_finished_run_answers_at_once_and_shows_its_models_beside_baselines(place, trained, capsys):
    words = ["train", place / "train.csv", "--dev", place / "dev.csv", *from_start(place), "-o", trained]
    assert called([*words, *SHORT, "--teacher-recipe", teacher_recipe(place), "--json"]) == 0
    captured = capsys.readouterr()
    notes, found = json.loads((trained / "student" / "run.json").read_text()), json.loads(captured.out)
    assert "steps in" not in captured.err
    assert found["bibert"] == {"metrics": notes["metrics"], "model": str(trained / "student" / "model")}
    assert list(found) == ["majority class", "bag of words", "teacher", "bibert"]
    assert all(row["metrics"].keys() == {"dev_accuracy", "dev_macro_f1"} for row in found.values())
    accuracy = {name: row["metrics"]["dev_accuracy"] for name, row in found.items()}
    for name in ("majority class", "bag of words"):
        assert found[name]["model"] is None
        for who, row in (("the teacher", "teacher"), ("bibert", "bibert")):
            assert (f"{who} is no better than the {name}" in captured.err) == (accuracy[row] <= accuracy[name])
    assert "the teacher is no better than the bag of words" in captured.err  # it was trained for one short epoch
    with (place / "dev.csv").open(encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert accuracy["majority class"] == max(labels.count(label) for label in set(labels)) / len(labels)
    assert accuracy["bag of words"] > 1 / 2


def test_texts_without_words_leave_the_bag_of_words_out(place, capsys):
    rows = "".join(f"{'ab'[row % 2]},{'xy'[row % 2]}\n" for row in range(20))
    words = ["train", replaced(place, "letters.csv", f"text,label\n{rows}"), "-c", place / "start", "-o", place / "ab"]
    recipe = replaced(place, "one.toml", 'extends = "teacher"\nmax_steps = 1\n')
    assert called([*words, *SHORT, "--set", "max_steps=1", "--teacher-recipe", recipe, "--json"]) == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)) == ["majority class", "teacher", "bibert"]
    assert "no bag of words in the table: " in captured.err


def test_scores_have_no_baselines(place, capsys):
    rows = "".join(f"{'good' if row % 2 else 'bad'} film,{row / 20}\n" for row in range(40))
    words = ["train", replaced(place, "scores.csv", f"text,score\n{rows}"), *from_start(place), "-o", place / "scored"]
    recipe = replaced(place, "one.toml", 'extends = "teacher"\nmax_steps = 1\n')
    assert called([*words, *SHORT, "--set", "max_steps=1", "--teacher-recipe", recipe, "--json", "--regression"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["teacher", "bibert"]


def test_evaluate_gives_the_score_that_training_noted(place, trained, capsys):
    noted = json.loads((trained / "student" / "run.json").read_text())["metrics"]["dev_accuracy"]
    words = ["evaluate", place / "dev.csv", "--model", trained / "student" / "model", "--json"]
    assert called(words) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["bibert"]["metrics"]["accuracy"] == noted
    assert "texts cut after 32 tokens" in captured.err
    for asked, cut in (("8", 8), ("100", POSITIONS)):
        assert called([*words, "--max-length", asked]) == 0
        assert f"texts cut after {cut} tokens" in capsys.readouterr().err


@pytest.mark.usefixtures("trained")
def test_progress_goes_to_stderr_and_the_table_to_stdout(place, capsys):
    early = ["--set", "eval_every=1", "--set", "patience=1", "--set", "learning_rate=1e-9"]
    assert called([*distill_words(place), "-o", place / "early", *SHORT, *early]) == 0
    captured = capsys.readouterr()
    assert "dev accuracy" in captured.out
    assert "train: 180 rows" in captured.err
    lines = [line for line in captured.err.splitlines() if line.startswith("bibert: ")]
    assert "steps in" in lines[-1]
    assert any("left" in line for line in lines[:-1])


def replaced(place, file, text):
    (place / file).write_text(text, encoding="utf-8")
    return place / file


def roberta(place):
    from transformers import RobertaConfig

    RobertaConfig(hidden_size=32, num_attention_heads=2).save_pretrained(place / "roberta")
    return place / "roberta"


def with_words(place, name, texts):
    """The model with the tokenizer of other texts."""
    shutil.copytree(place / "start", place / name, dirs_exist_ok=True)
    train_tokenizer(texts).save_pretrained(place / name)
    return place / name


def with_layers(place, layers):
    """An untrained BERT with the same tokenizer and another depth."""
    folder = place / f"layers-{layers}"
    shutil.copytree(place / "start", folder, dirs_exist_ok=True)
    config = BiBertConfig.from_pretrained(place / "start")
    config.num_hidden_layers = layers
    BiBertForSequenceClassification(config).save_pretrained(folder)
    return folder


def from_start(place):
    return ["-c", place / "start"]


def finetune_words(place):
    return ["finetune", place / "train.csv", *from_start(place)]


def distill_words(place):
    return ["distill", place / "train.csv", "-t", place / "run/teacher/model"]


# Each: the words of the command, and what the one line must name.
MISTAKES = {
    "missing file": (lambda p: ["finetune", p / "no.csv", *from_start(p)], "no.csv"),
    "no data at all": (lambda p: ["finetune", *from_start(p)], "--task"),
    "unknown task": (lambda p: ["finetune", p, "--task", "sst-3", *from_start(p)], "sst2"),
    "task folder without the task": (lambda p: ["finetune", p, "--task", "sst-2", *from_start(p)], "SST-2"),
    "missing column": (lambda p: [*finetune_words(p), "--text-column", "txt"], "txt"),
    "unknown label in dev": (
        lambda p: [*finetune_words(p), "--dev", replaced(p, "odd.csv", "text,label\ngood,positive\nbad,meh\n")],
        "odd.csv:3",
    ),
    "one class": (lambda p: ["finetune", replaced(p, "one.csv", "text,label\na,x\nb,x\n"), *from_start(p)], "one.csv"),
    "empty text": (
        lambda p: ["finetune", replaced(p, "empty.csv", "text,label\na,x\n,y\nb,y\n"), *from_start(p)],
        "empty.csv:3",
    ),
    "broken JSONL": (
        lambda p: ["finetune", replaced(p, "b.jsonl", '{"text": "a", "label": 1}\n{"text": \n'), *from_start(p)],
        "b.jsonl:2",
    ),
    "missing checkpoint": (lambda p: ["finetune", p / "train.csv", "-c", p / "nowhere"], "nowhere"),
    "wrong architecture": (lambda p: ["finetune", p / "train.csv", "-c", roberta(p)], "'roberta'"),
    "tokenizer of another model": (
        lambda p: ["finetune", p / "train.csv", "-c", with_words(p, "big", [f"word{i}" for i in range(2000)])],
        "token ids",
    ),
    "texts longer than the positions": (lambda p: [*finetune_words(p), "--max-length", "49"], "48"),
    "unknown recipe": (lambda p: [*finetune_words(p), "--recipe", "no"], "presets:"),
    "unknown recipe key": (lambda p: [*finetune_words(p), "--set", "learning_rat=1"], "'learning_rate'"),
    "key without a value": (lambda p: [*finetune_words(p), "--set", "seed"], "KEY=VALUE"),
    "wrong type in the recipe": (lambda p: [*finetune_words(p), "--set", "seed=often"], "seed"),
    "student to fine-tune": (lambda p: ["finetune", p / "train.csv", "-c", p / "run/student/model"], "'bibert'"),
    "bits beside a scheme": (
        lambda p: [*distill_words(p), "-s", "bibert", "--bits", "2"],
        "--bits 2 and --scheme bibert",
    ),
    "three bits": (lambda p: [*distill_words(p), "--bits", "3"], "--bits is 3, must be one of 1, 2, 4"),
    "unknown scheme": (lambda p: [*distill_words(p), "-s", "bibret"], "did you mean 'bibert'"),
    "unknown loss term": (lambda p: [*distill_words(p), "--set", "weights.hiden=1"], "'hidden'"),
    "unknown loss term of the student, before the teacher is trained": (
        lambda p: ["train", p / "train.csv", *from_start(p), "--set", "weights.atention=1"],
        "'attention'",
    ),
    "start with another tokenizer": (
        lambda p: [*distill_words(p), "--start", with_words(p, "other", ["some other words"])],
        "the teacher's vocabulary",
    ),
    "start of another depth": (
        lambda p: [*distill_words(p), "--start", with_layers(p, 3), *SHORT],
        "2 layers, the student 3",
    ),
    "teacher of other labels": (lambda p: ["distill", p / "train.csv", "-t", p / "start"], "LABEL_0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("trained")
def test_a_mistake_is_one_line_and_leaves_nothing_behind(mistake, place, capsys):
    words, named = MISTAKES[mistake]
    called_words = [*words(place), "-o", place / "never"]
    capsys.readouterr()
    assert called(called_words) != 0
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last.startswith("bibert: error: ")
    assert named in last
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not (place / "never").exists()


@pytest.mark.usefixtures("trained")
def test_a_shallower_student_is_made_from_its_own_start(place):
    words = [*distill_words(place), "--start", with_layers(place, 1), "-o", place / "one-layer", *SHORT]
    assert called(words) == 0
    student = BiBertConfig.from_pretrained(place / "one-layer" / "model")
    assert (student.num_hidden_layers, student.quantization.name) == (1, "bibert")


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(("bits", "scheme"), [(1, "bibert_plus"), (2, "bibert_2"), (4, "bibert_4")])
def test_every_position_of_the_dial_can_be_packed_scored_measured_and_shown(place, capsys, bits, scheme):
    run_folder, file, rows = place / f"dial-{bits}", place / f"dial-{bits}.bibert", place / "dev.csv"
    model = run_folder / "model"
    assert called([*distill_words(place), "--bits", bits, "-o", run_folder, *SHORT, "--set", "max_steps=3"]) == 0
    assert BiBertConfig.from_pretrained(model).quantization.name == scheme
    assert called(["pack", model, "-o", file, "--data", rows]) == 0
    scores = []
    for words in (["-m", model], ["-m", file]):
        capsys.readouterr()
        assert called(["evaluate", rows, *words, "--json"]) == 0
        scores.append(next(iter(json.loads(capsys.readouterr().out).values()))["metrics"])
    assert scores[0] == scores[1]
    capsys.readouterr()
    assert called(["inspect", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"].get("activation_bits", 1) == bits
    texts = ["--text", "a gorgeous film"]
    for words in (
        ["predict", "-m", file, "a gorgeous film"],
        ["inspect", model],
        ["bench", file, "--rival", "torch-fp32", "--shape", "1x4", "--rounds", "2"],
        ["analyze", "entropy", file, model, *texts],
        ["analyze", "attention", file, *texts, "-o", place / f"{bits}.html"],
        ["analyze", "cost", "--packed", file],
        ["analyze", "report", "-m", run_folder, *texts, "-o", place / f"report-{bits}.html"],
        ["analyze", "report", "-m", file, *texts, "-o", place / f"report-{bits}.html"],
        ["card", rows, "-m", file, "--title", "x", "-o", place / f"card-{bits}.md"],
    ):
        assert called(words) == 0, (words, capsys.readouterr().err)
    assert f"| 1-1-{bits} |" in (place / f"card-{bits}.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_processes_train_teacher_and_student_one_after_the_other(place):
    """The student of the second process must not start before the first one has saved the teacher."""
    words = ["train", place / "train.csv", "-c", place / "start", "-o", place / "two", *SHORT, "--set", "max_steps=4"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "bibert"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [*map(str, [*torchrun, *words, "--teacher-recipe", teacher_recipe(place)])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("dev accuracy") == 1
    assert (place / "two" / "student" / "model" / "model.safetensors").is_file()


def test_a_half_finished_output_folder_of_another_command_does_not_stop_a_new_run(place):
    assert called(["finetune", place / "train.csv", "-c", place / "nowhere", "-o", place / "again"]) != 0
    words = ["finetune", place / "train.csv", "-c", place / "start", "-o", place / "again", *SHORT]
    assert called([*words, "--set", "max_steps=5"]) == 0
