"""The commands that train and score, as a user types them, on a tiny model and generated sentences."""

import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bibert.cli.app import run
from bibert.data.encoding import train_tokenizer
from bibert.lab.synthetic import synthetic_reviews
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification
from bibert.training.recipe import load_recipe

SHORT = "--epochs 1 --max-length 32 --set eval_every=10 --set log_every=5"
TRAIN = f"train train.csv --dev dev.csv -c start -o run {SHORT} --teacher-recipe teacher.toml"
DISTILL = "distill train.csv -t run/teacher/model"
POSITIONS = 48
FILES = {
    "teacher.toml": 'extends = "teacher"\nepochs = 1\neval_every = 5\n',
    "own.toml": 'extends = "teacher"\nmax_steps = 2\nseed = 7\nmax_length = 24\n',
    "one.toml": 'extends = "teacher"\nmax_steps = 1\n',
    "letters.csv": "text,label\n" + "a,x\nb,y\n" * 10,
    "scores.csv": "text,score\n" + "".join(f"{'good' if row % 2 else 'bad'} film,{row / 20}\n" for row in range(40)),
    "unknown.csv": "text,label\ngood,positive\nbad,meh\n",
    "test.csv": "text,label\nA tested film!,positive\nanother one,negative\n",
    "class.csv": "text,label\na,x\nb,x\n",
    "empty.csv": "text,label\na,x\n,y\nb,y\n",
    "broken.jsonl": '{"text": "a", "label": 1}\n{"text": \n',
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory, save_untrained):
    """The working directory of all commands: data, recipes, an untrained BERT in start/, and unlike ones beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("commands"))
        data = synthetic_reviews(200, 60, seed=0)
        write_csv("train.csv", data.train, data.label_names)
        write_csv("dev.csv", data.dev["dev"], data.label_names)
        known = [*map(str.upper, data.dev["dev"].texts[:5]), *data.train.texts[:3], "a tested film"]
        for name, text in (FILES | {"lines.txt": "\n".join(known)}).items():
            Path(name).write_text(text, encoding="utf-8")
        save_untrained(Path("start"), data.train.texts, max_position_embeddings=POSITIONS)
        train_tokenizer([f"word{i}" for i in range(2000)]).save_pretrained(shutil.copytree("start", "many-words"))
        train_tokenizer(["some other words"]).save_pretrained(shutil.copytree("start", "other-words"))
        for layers in (1, 3):
            config = BiBertConfig.from_pretrained("start", num_hidden_layers=layers)
            BiBertForSequenceClassification(config).save_pretrained(shutil.copytree("start", f"layers-{layers}"))
        Path("roberta").mkdir()
        Path("roberta/config.json").write_text('{"model_type": "roberta"}')
        yield


@pytest.fixture(scope="module")
def trained():
    """A finished `bibert train` in run/."""
    assert called(TRAIN) == 0


def write_csv(path, split, label_names):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([text, label_names[int(label)]] for text, label in zip(split.texts, split.labels, strict=True))


def called(line):
    """The exit code of a command line."""
    return run(shlex.split(line))


def notes_of(folder):
    return json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("trained")
def test_train_gives_a_teacher_and_a_student_that_transformers_can_load():
    from transformers import pipeline

    import bibert.nn.model  # noqa: F401  registers the model

    for part in ("teacher", "student"):
        classify = pipeline("text-classification", model=f"run/{part}/model")
        assert classify("a gorgeous film")[0]["label"] in ("negative", "positive")


def test_the_teachers_recipe_keeps_its_own_settings():
    assert called("train train.csv -c start -o own --teacher-recipe own.toml --max-length 32 --set max_steps=2") == 0
    teacher, student = (notes_of(f"own/{part}")["request"]["recipe"] for part in ("teacher", "student"))
    assert (teacher["seed"], teacher["max_length"]) == (7, 32)  # the option counts for both
    assert (student["seed"], student["max_length"]) == (42, 32)


@pytest.mark.usefixtures("trained")
def test_a_finished_run_answers_at_once_and_shows_its_models_beside_baselines(capsys):
    assert called(f"{TRAIN} --json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "steps in" not in captured.err
    assert found["bibert_4"] == {"metrics": notes_of("run/student")["metrics"], "model": "run/student/model"}
    assert list(found) == ["majority class", "bag of words", "teacher", "bibert_4"]
    assert all(row["metrics"].keys() == {"dev_accuracy", "dev_macro_f1"} for row in found.values())
    accuracy = {name: row["metrics"]["dev_accuracy"] for name, row in found.items()}
    for name in ("majority class", "bag of words"):
        assert found[name]["model"] is None
        for who, row in (("the teacher", "teacher"), ("bibert_4", "bibert_4")):
            assert (f"{who} is no better than the {name}" in captured.err) == (accuracy[row] <= accuracy[name])
    assert "the teacher is no better than the bag of words" in captured.err  # it was trained for one short epoch
    with Path("dev.csv").open(encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert accuracy["majority class"] == max(labels.count(label) for label in set(labels)) / len(labels)
    assert accuracy["bag of words"] > 1 / 2


def test_texts_without_words_leave_the_bag_of_words_out_and_scores_have_no_baselines(capsys):
    one_step = f"-c start {SHORT} --set max_steps=1 --teacher-recipe one.toml --json"
    assert called(f"train letters.csv -o letters {one_step}") == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)) == ["majority class", "teacher", "bibert_4"]
    assert "no bag of words in the table: " in captured.err
    assert called(f"train scores.csv -o scores {one_step} --regression") == 0
    assert list(json.loads(capsys.readouterr().out)) == ["teacher", "bibert_4"]


@pytest.mark.usefixtures("trained")
def test_evaluate_gives_the_score_that_training_noted(capsys):
    evaluate = "evaluate dev.csv --model run/student/model --json"
    assert called(evaluate) == 0
    captured = capsys.readouterr()
    noted = notes_of("run/student")["metrics"]["dev_accuracy"]
    assert json.loads(captured.out)["bibert_4"]["metrics"]["accuracy"] == noted
    assert "texts cut after 32 tokens" in captured.err
    for asked, cut in ((8, 8), (100, POSITIONS)):
        assert called(f"{evaluate} --max-length {asked}") == 0
        assert f"texts cut after {cut} tokens" in capsys.readouterr().err


@pytest.mark.usefixtures("trained")
def test_progress_goes_to_stderr_and_the_table_to_stdout(capsys):
    early = "--set eval_every=1 --set patience=1 --set learning_rate=1e-9"
    assert called(f"{DISTILL} -s bibert -o early {SHORT} {early}") == 0
    captured = capsys.readouterr()
    assert "dev accuracy" in captured.out
    assert "train: 180 rows" in captured.err
    lines = [line for line in captured.err.splitlines() if line.startswith("bibert: ")]
    assert "steps in" in lines[-1]
    assert any("left" in line for line in lines[:-1])


FINETUNE = "finetune train.csv -c start"
MISTAKES = {  # a command, and what its one line of error must name
    "finetune no.csv -c start": "no.csv",
    "finetune -c start": "--task",
    "finetune . --task sst-3 -c start": "sst2",
    "finetune . --task sst-2 -c start": "SST-2",
    "finetune class.csv -c start": "class.csv",
    "finetune empty.csv -c start": "empty.csv:3",
    "finetune broken.jsonl -c start": "broken.jsonl:2",
    "finetune train.csv -c ./nowhere": "nowhere",
    "finetune train.csv -c roberta": "'roberta'",
    "finetune train.csv -c many-words": "token ids",
    "finetune train.csv -c run/student/model": "'bibert_4'",
    f"{FINETUNE} --text-column txt": "txt",
    f"{FINETUNE} --dev unknown.csv": "unknown.csv:3",
    f"{FINETUNE} --max-length {POSITIONS + 1}": f"{POSITIONS}",
    f"{FINETUNE} --recipe no": "presets:",
    f"{FINETUNE} --set learning_rat=1": "'learning_rate'",
    f"{FINETUNE} --set seed": "KEY=VALUE",
    f"{FINETUNE} --set seed=often": "seed",
    f"{DISTILL} -s bibert --bits 2": "--bits 2 and --scheme bibert",
    f"{DISTILL} --bits 3": "bits is 3, must be one of 1, 2, 4",
    f"{DISTILL} -s bibret": "did you mean 'bibert'",
    f"{DISTILL} --set weights.hiden=1": "'hidden'",
    f"{DISTILL} --start other-words {SHORT}": "the teacher's vocabulary",
    f"{DISTILL} --start layers-3 {SHORT}": "2 layers, the student 3",
    "distill train.csv -t start": "LABEL_0",
    "train train.csv -c start --set weights.atention=1": "'attention'",  # before the teacher is trained
    "train train.csv -c start --start layers-3": "2 layers, the student 3",  # here too
    f"train train.csv --start start {SHORT} --set weights.hidden=1": "weights.hidden",
    f"train train.csv --start start {SHORT} --texts lines.txt": "--checkpoint",
    f"train train.csv --start start {SHORT} --test unknown.csv": "unknown.csv:3",
    f"{FINETUNE} --texts lines.txt": "lines.txt",
    "generalize lines.txt -c start": "lines.txt",
}


@pytest.mark.parametrize(("line", "named"), MISTAKES.items())
@pytest.mark.usefixtures("trained")
def test_a_mistake_is_one_line_and_leaves_nothing_behind(line, named, capsys):
    capsys.readouterr()
    assert called(f"{line} -o never") != 0
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last.startswith("bibert: error: ")
    assert named in last
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not Path("never").exists()


@pytest.mark.usefixtures("trained")
def test_a_shallower_student_is_made_from_its_own_start():
    assert called(f"{DISTILL} --start layers-1 -o one-layer {SHORT}") == 0
    student = BiBertConfig.from_pretrained("one-layer/model")
    assert (student.num_hidden_layers, student.quantization.name) == (1, "bibert_4")


def test_plain_text_gives_a_start_in_the_package_and_labels_alone_a_student_with_test_rows(capsys, monkeypatch):
    def answer(line):
        assert called(f"{line} --json") == 0
        return {name: row["metrics"] for name, row in json.loads(capsys.readouterr().out).items()}

    monkeypatch.setattr("bibert.models.FOLDER", Path("shipped"))
    monkeypatch.setattr("bibert.training.general.DEV_ROWS", 20)
    steps = "--max-length 32 --set max_steps=4 --set min_steps=0 --set eval_every=2"
    assert answer(f"generalize train.csv lines.txt -c start -o general {steps}")["bibert_4"].keys() == {"dev_cosine"}
    Path("shipped").mkdir()
    assert called("pack general/model -o shipped/general_4.bibert --max-length 32") == 0
    shutil.copy("shipped/general_4.bibert", "shipped/general_1.bibert")
    capsys.readouterr()
    for words, start, scheme in (("", 4, "bibert_4"), ("--bits 1", 1, "bibert_plus"), ("--bits 2", 4, "bibert_2")):
        folder = f"labels-{scheme}" if words else "runs/train"
        found = answer(f"train train.csv --test dev.csv {words} {f'-o {folder}' if words else ''} {steps}")
        notes = notes_of(f"{folder}/student")
        assert list(found) == ["majority class", "bag of words", scheme]
        assert Path(notes["request"]["start"]["name"]).stem == f"general_{start}"
        assert notes["request"]["recipe"]["evaluations"] == load_recipe("labels").evaluations
        (tested,) = answer(f"evaluate dev.csv -m {folder}/student/model").values()
        expected = notes["metrics"] | {f"test_{name}": tested[name] for name in ("accuracy", "macro_f1")}
        assert list(found.values())[-1] == expected
        assert all(row.keys() == expected.keys() for row in found.values())


@pytest.mark.usefixtures("trained")
def test_texts_without_labels_go_to_the_student_alone_and_none_of_the_measured_rows(capsys):
    texts = "--texts lines.txt --test test.csv --set max_steps=2"
    assert called(f"{TRAIN.replace('-o run', '-o texts')} {texts}") == 0
    said = capsys.readouterr().err
    assert all(fact in said for fact in (": 3 rows", "6 texts"))  # five are dev rows, one is a test row
    teacher, student = (notes_of(f"texts/{part}")["request"]["data"] for part in ("teacher", "student"))
    assert student.pop("texts") == "lines.txt"
    assert teacher["sha256"] == notes_of("run/teacher")["request"]["data"]["sha256"] != student["sha256"]


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(("bits", "scheme"), [(1, "bibert_plus"), (2, "bibert_2"), (4, "bibert_4")])
def test_every_position_of_the_dial_can_be_packed_scored_measured_and_shown(capsys, bits, scheme):
    run, file, text = f"dial-{bits}", f"dial-{bits}.bibert", "--text 'a gorgeous film'"
    model = f"{run}/model"
    assert called(f"{DISTILL} --bits {bits} -o {run} {SHORT} --set max_steps=3") == 0
    assert BiBertConfig.from_pretrained(model).quantization.name == scheme
    assert called(f"pack {model} -o {file} --data dev.csv") == 0
    scores = []
    for subject in (model, file):
        capsys.readouterr()
        assert called(f"evaluate dev.csv -m {subject} --json") == 0
        scores.append(next(iter(json.loads(capsys.readouterr().out).values()))["metrics"])
    assert scores[0] == scores[1]
    assert called(f"inspect {file} --json") == 0
    assert json.loads(capsys.readouterr().out)["config"].get("activation_bits", 1) == bits
    for line in (
        f"predict -m {file} 'a gorgeous film'",
        f"inspect {model}",
        f"bench {file} --rival torch-fp32 --shape 1x4 --rounds 2",
        f"analyze entropy {file} {model} {text}",
        f"analyze attention {file} {text} -o {bits}.html",
        f"analyze cost --packed {file}",
        f"analyze report -m {run} {text} -o report-{bits}.html",
        f"analyze report -m {file} {text} -o report-{bits}.html",
        f"card dev.csv -m {file} --title x -o card-{bits}.md",
    ):
        assert called(line) == 0, (line, capsys.readouterr().err)
    assert f"| 1-1-{bits} |" in Path(f"card-{bits}.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_processes_train_teacher_and_student_one_after_the_other():
    """The student of the second process must not start before the first one has saved the teacher."""
    train = f"train train.csv -c start -o two {SHORT} --set max_steps=4 --teacher-recipe teacher.toml"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "bibert"]
    environment, command = os.environ | {"CUDA_VISIBLE_DEVICES": ""}, [*torchrun, *shlex.split(train)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("dev accuracy") == 1
    assert Path("two/student/model/model.safetensors").is_file()
