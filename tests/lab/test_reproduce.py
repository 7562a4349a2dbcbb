"""A table of the paper on tiny data: what is run, what is kept, what the results file and the table say."""

import json
import shutil
from dataclasses import replace

import pytest

from bibert.data.glue import TASKS
from bibert.errors import CheckpointError, DataError, RecipeError, SchemeError
from bibert.lab.paper import TABLE_1, TABLE_2, TABLE_3, TABLES
from bibert.lab.reproduce import Plan, collect, reproduce, write_results
from bibert.lab.tables import Cell, load_cells, markdown, mean_scores, printed
from bibert.nn.checkpoint import load_classifier
from bibert.training.recipe import load_recipe
from bibert.training.student import distill

RECIPE = "learning_rate = 1e-3\nepochs = 1\nbatch_size = 16\nmax_length = 16\neval_every = 2\n"


def quiet(_):
    return ()


@pytest.fixture(scope="module")
def glue(tmp_path_factory, data):
    """SST-2's folder with the made-up texts in it."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "SST-2").mkdir()
    for name, split in (("train", data.train), ("dev", data.dev["dev"])):
        lines = [f"{text}\t{label:.0f}" for text, label in zip(split.texts, split.labels, strict=True)]
        (folder / "SST-2" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    (folder / "SST-2" / "train_aug.tsv").write_bytes((folder / "SST-2" / "train.tsv").read_bytes())
    return folder


@pytest.fixture(scope="module")
def plan(glue, start, tmp_path_factory):
    recipe = tmp_path_factory.mktemp("recipe") / "tiny-sst-2.toml"
    recipe.write_text(RECIPE)
    name = str(recipe).replace("sst-2", "{task}")
    return Plan("1", ("sst2",), ("bibert", "bibert_plus"), (1, 2), str(start), name, name, {"log_every": 1}, glue)


@pytest.fixture(scope="module")
def output(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("table") / "runs"
    reproduce(plan, folder, quiet)
    return folder


@pytest.fixture
def cell(output):
    """The run of bibert with seed 1."""
    return next(c for c in load_cells(output / "results.json") if folder_of(c) == "bibert-1")


@pytest.fixture
def copied(output, tmp_path):
    """A copy of the same run, to be changed."""
    shutil.copytree(output / "sst2" / "bibert-1", tmp_path / "sst2" / "bibert-1")
    return tmp_path / "sst2" / "bibert-1"


def test_there_is_one_teacher_and_a_student_for_each_scheme_and_seed(output):
    runs = {"teacher", "bibert-1", "bibert-2", "bibert_plus-1", "bibert_plus-2"}
    assert {folder.name for folder in (output / "sst2").iterdir()} == runs
    cells = load_cells(output / "results.json")
    assert {(cell.scheme, cell.recipe["seed"]) for cell in cells} == {
        ("full_precision", 42),
        *((scheme, seed) for scheme in ("bibert", "bibert_plus") for seed in (1, 2)),
    }


def test_a_cell_has_all_that_is_needed_to_run_it_again(output):
    for cell in load_cells(output / "results.json"):
        notes = json.loads((output / "sst2" / folder_of(cell) / "run.json").read_text())
        assert cell.recipe == notes["request"]["recipe"]
        assert cell.recipe["log_every"] == (1 if cell.scheme != "full_precision" else 20)
        assert cell.origin["data_sha256"] == notes["request"]["data"]["sha256"]
        assert cell.origin["commit"] == notes["commit"]
        assert cell.metrics == notes["metrics"]
        assert [step for step, _ in cell.evaluations] == [2, 4]
        assert dict(cell.evaluations)[cell.best_step] == cell.metrics["dev_accuracy"]
        assert cell.score == 100 * cell.metrics["dev_accuracy"]
        assert cell.backbone == {"layers": 2, "hidden": 32, "heads": 2}


def folder_of(cell):
    return "teacher" if cell.scheme == "full_precision" else f"{cell.scheme}-{cell.recipe['seed']}"


def test_a_second_call_trains_nothing_and_needs_no_checkpoint(output, plan, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in output.glob("sst2/*/model/*")}
    for checkpoint in (plan.checkpoint, None):
        reproduce(replace(plan, checkpoint=checkpoint), output, quiet)
    assert {path: path.stat().st_mtime_ns for path in output.glob("sst2/*/model/*")} == before
    with pytest.raises(DataError, match=f"{tmp_path}/sst2/teacher:.*--checkpoint"):
        reproduce(replace(plan, checkpoint=None), tmp_path, quiet)


def test_the_table_sets_ours_beside_the_papers(output):
    table = (output / "table.md").read_text()
    assert "| scheme | bits | SST-2, ours | paper |" in table
    line = next(line for line in table.splitlines() if line.startswith("| `bibert` "))
    assert line.split(" | ")[1] == "1-1-1"
    assert line.endswith("| 88.7 |")
    assert " to " in line  # two seeds
    assert next(line for line in table.splitlines() if "`bibert_plus`" in line).endswith("| – |")
    assert "Paper: Table 1 (ablation), BERT-base" in table
    assert "2 x 32" in table
    assert "4 steps of 16 texts" in table


def test_a_student_that_started_from_another_is_told_from_one_that_started_from_its_teacher(
    output, cell, plan, tmp_path
):
    run, first = tmp_path / "sst2" / "bibert-1", output / "sst2" / "bibert-1" / "model"
    recipe = replace(plan, seeds=(1,)).students_recipes("sst2")[0]
    distill(output / "sst2" / "teacher", "bibert", plan.load("sst2", plan.train_file), run, recipe, start=first)
    (other,) = collect(tmp_path)
    assert other.origin["start"]["recipe"] == json.loads((first.parent / "run.json").read_text())["request"]["recipe"]
    assert other.origin["start"]["start"] is None
    text = markdown([cell, other], TABLE_1)
    assert f"| `bibert` | 1-1-1 | {cell.score:.1f} |" in text
    assert f"| `bibert` from a student of the same scheme, trained on SST-2 | 1-1-1 | {other.score:.1f} |" in text
    assert "a student of the same scheme, trained on SST-2) 1 epoch, 4 steps" in text
    with pytest.raises(DataError, match=r"started from another model = False.*True"):
        mean_scores([cell, other], "sst2")


def test_shares_of_the_teachers_score_stand_beside_those_of_the_paper(cell):
    teacher = replace(cell, scheme="full_precision", metrics={"dev_accuracy": 0.9})
    packed = replace(cell, origin=dict(cell.origin) | {"start": {"file": "general_4.bibert"}})
    one, two = (replace(ours, metrics={"dev_accuracy": score}) for ours, score in ((cell, 0.45), (packed, 0.72)))
    text = markdown([teacher, one, two], TABLES["tasks"])
    assert "| `bibert` | 1-1-1 | 45.0 | 88.7 |" in text
    _, shares = text.split("In percent of the teacher's score")
    assert "| `bibert` | 1-1-1 | 50.0 | 95.2 |" in shares
    assert "| `bibert` from `general_4` | 1-1-1 | 80.0 | 95.2 |" in shares
    assert "full_precision" not in shares.split("Paper:")[0]
    other = replace(one, scheme="baseline+dmd")
    assert "| `baseline+dmd` | 1-1-1 | 50.0 | – |" in markdown([teacher, other], TABLES["tasks"])
    assert "In percent" not in markdown([one], TABLES["tasks"])


def change_notes(run, change):
    notes = json.loads((run / "run.json").read_text())
    change(notes)
    (run / "run.json").write_text(json.dumps(notes))


def test_an_unfinished_run_is_not_collected(copied, tmp_path):
    change_notes(copied, lambda notes: notes.pop("metrics"))
    assert list(collect(tmp_path)) == []
    assert write_results(tmp_path, "1") == []
    assert not (tmp_path / "results.json").exists()


def test_a_run_in_the_folder_of_another_task_is_refused(copied, tmp_path):
    copied.parent.rename(tmp_path / "rte")
    with pytest.raises(CheckpointError, match=r"rte/bibert-1: .*SST-2.*RTE"):
        list(collect(tmp_path))


def test_mistakes_in_a_plan_are_found_before_anything_is_trained(plan, tmp_path):
    for broken, error in (
        (replace(plan, schemes=("bibert", "bibret")), SchemeError),
        (replace(plan, recipe="lost-{task}", tasks=("sst2", "qqp")), RecipeError),
        (replace(plan, changes={"weights": {"atention": 1.0}}), RecipeError),
        (replace(plan, glue=None, train_file="train_aug.tsv"), DataError),
        (replace(plan, recipe="cpu-{task}", teacher_recipe="teacher", tasks=("sst2", "mrpc")), DataError),
    ):
        with pytest.raises(error):
            reproduce(broken, tmp_path / "runs", quiet)
        assert not (tmp_path / "runs").exists()


def test_another_training_file_is_noted_as_augmented_and_another_start_by_its_digest(plan, tmp_path):
    begun = reproduce(replace(plan, schemes=("bibert",), seeds=(1,)), tmp_path / "runs", quiet)
    start = str(tmp_path / "runs/sst2/bibert-1")
    again = reproduce(replace(plan, schemes=("bibert",), seeds=(1,), start=start), tmp_path / "runs", quiet)
    assert (tmp_path / "runs/sst2/bibert-1-bibert-1").is_dir()
    assert [cell.origin["start"] is None for cell in again if cell not in begun] == [False]
    shutil.rmtree(tmp_path / "runs")
    changed = replace(plan, train_file="train_aug.tsv", schemes=("bibert",), seeds=(1,))
    cells = reproduce(changed, tmp_path / "runs", quiet)
    assert {cell.scheme: cell.augmented for cell in cells} == {"full_precision": False, "bibert": True}
    assert (tmp_path / "runs" / "sst2" / "train_aug-bibert-1").is_dir()
    assert "| 90.9 |" in markdown(cells, TABLE_1)  # Table 1's row with augmented data


def test_without_seeds_a_student_has_the_one_of_its_recipe(plan):
    assert [recipe.seed for recipe in replace(plan, seeds=()).students_recipes("sst2")] == [42]
    paper = replace(plan, seeds=(), recipe="paper-{task}", changes={})
    assert [recipe.seed for recipe in paper.students_recipes("qnli")] == [load_recipe("paper-qnli").seed]


def test_runs_of_different_recipes_or_teachers_are_not_averaged(output):
    one, two = (cell for cell in load_cells(output / "results.json") if cell.scheme == "bibert")
    assert mean_scores([one, two], "sst2").keys() == {"bibert"}
    for changed, fact in (
        (replace(two, recipe={**two.recipe, "learning_rate": 1.0}), "learning_rate = "),
        (replace(two, origin={**two.origin, "teacher_sha256": "another"}), "teacher = "),
    ):
        assert f"| {one.score:.1f}, {two.score:.1f} |" in markdown([one, changed], TABLE_1)
        with pytest.raises(DataError, match=fact):
            mean_scores([one, changed], "sst2")


def test_a_best_model_that_was_scored_twice_at_the_end_is_one_evaluation(copied, cell, tmp_path):
    lines = (copied / "log.jsonl").read_text().splitlines(keepends=True)
    (copied / "log.jsonl").write_text("".join([*lines, lines[-1]]))  # killed before the metrics were noted, and resumed
    (after,) = collect(tmp_path)
    assert [list(point) for point in after.evaluations] == cell.evaluations


def test_the_training_file_of_the_hub_is_not_augmented(copied, tmp_path):
    change_notes(copied, lambda notes: notes["request"]["data"].update(train="train"))
    assert [cell.augmented for cell in collect(tmp_path)] == [False]


@pytest.mark.parametrize("log", ["", '{"step": 1}\n', "\0\0\n"])
def test_a_damaged_log_is_named(copied, tmp_path, log):
    (copied / "log.jsonl").write_text(log)
    with pytest.raises(CheckpointError, match=r"bibert-1/log\.jsonl: .*move the run aside"):
        list(collect(tmp_path))


@pytest.mark.parametrize("name", TABLES)
def test_every_task_of_a_table_has_a_recipe(name):
    columns = {column.partition("_")[0] for row in TABLES[name].rows for column in row.scores}
    for task in columns:
        assert load_recipe(f"cpu-{TASKS[task].name.lower()}")


def test_the_bottlenecks_run_like_any_other_scheme(plan, tmp_path):
    schemes = ("baseline", "baseline(kept=mha)", "baseline(without=attention)")
    cells = reproduce(replace(plan, table="bottlenecks", schemes=schemes, seeds=(1,)), tmp_path / "runs", quiet)
    assert {cell.scheme for cell in cells} == {"full_precision", *schemes}
    assert set(mean_scores(cells, "sst2")) == set(schemes)
    table = (tmp_path / "runs" / "table.md").read_text()
    assert next(line for line in table.splitlines() if "`baseline(kept=mha)`" in line).endswith("| 89.09 |")
    kept = load_classifier(tmp_path / "runs" / "sst2" / "baseline(kept=mha)-1" / "model").model
    assert kept.config.quantization.kept == ("mha",)
    log = (tmp_path / "runs" / "sst2" / "baseline(without=attention)-1" / "log.jsonl").read_text()
    assert '"loss_hidden"' in log
    assert '"loss_attention"' not in log


def test_a_task_that_the_table_lacks_takes_the_papers_figure_from_its_glue_table_and_it_is_said(cell):
    assert printed(replace(cell, task="stsb"), TABLE_1) == (33.6, TABLE_2.name, "bert-base")
    assert printed(replace(cell, task="stsb", scheme="baseline+dmd"), TABLE_1) is None
    assert printed(replace(cell, task="mnli"), TABLE_2) == (66.1, TABLE_2.name, "bert-base")
    text = markdown([cell, replace(cell, task="stsb", metrics={"dev_spearman": 0.1})], TABLE_1)
    assert f"{TABLE_1.name} for SST-2, {TABLE_2.name} for STS-B" in text


@pytest.mark.parametrize(("layers", "figure"), [(12, 88.7), (6, 87.9), (4, 85.4), (2, 88.7)])
def test_a_run_stands_beside_the_papers_row_of_its_depth(cell, layers, figure):
    ours = replace(cell, backbone=dict(cell.backbone) | {"layers": layers})
    assert printed(ours, TABLE_1).score == figure
    assert f"| {figure} |" in markdown([ours], TABLE_1)


def test_a_row_that_the_paper_has_only_for_bert_base_is_marked_beside_a_shallower_run(cell):
    ours = replace(cell, scheme="baseline", backbone=dict(cell.backbone) | {"layers": 6})
    assert "| 77.6 (12L) |" in markdown([ours], TABLE_1)
    assert "12L marks BERT-base" in markdown([ours], TABLE_1)
    augmented = replace(ours, scheme="bibert", augmented=True)
    assert printed(augmented, TABLE_1) == (90.7, TABLE_3.name, "6L")


@pytest.mark.parametrize(
    ("recipe", "origin", "fact"),
    [({"average": 0.99}, {}, "(0.99)"), ({"precision": "bfloat16"}, {}, "bfloat16"), ({}, {"stages": 4}, "4 stages")],
)
def test_the_budget_names_whatever_is_unusual_in_a_run(cell, recipe, origin, fact):
    changed = replace(cell, recipe=cell.recipe | recipe, origin=cell.origin | origin)
    assert fact in markdown([changed], TABLE_1)
    assert fact not in markdown([cell], TABLE_1)


def test_the_score_is_the_papers_metric_of_the_task():
    cell = Cell("cola", "bibert", False, {"dev_matthews": 0.25, "dev_accuracy": 0.7}, 1, [(1, 0.25)], {}, {}, {})
    assert cell.score == 25.0
