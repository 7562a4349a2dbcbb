"""Fine-tuning and distillation end to end, on a task that a tiny model learns in a second."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bibert.data.metrics import score
from bibert.errors import CheckpointError, NumericError, RecipeError
from bibert.files import read_json_lines
from bibert.nn import products
from bibert.nn.checkpoint import load_classifier
from bibert.nn.model import BiBertForSequenceClassification, label_loss
from bibert.nn.schemes import SCHEMES
from bibert.training.evaluate import fit_temperature, predict_logits
from bibert.training.loop import TrainingData, dropout_overrides, encode_data, training_arguments
from bibert.training.provenance import provenance
from bibert.training.recipe import Recipe
from bibert.training.resume import checkpoints_of, is_whole
from bibert.training.student import distill
from bibert.training.teacher import TeacherTrainer, finetune

STUDENT = Recipe(learning_rate=1e-2, epochs=6, batch_size=16, max_length=16, eval_every=4, log_every=1)
SHORT = replace(STUDENT, epochs=2)
BFLOAT16 = replace(STUDENT, precision="bfloat16")

Weights = Callable[[Path], bytes]


def log_of(run, key):
    return [line for line in read_json_lines(run / "log.jsonl") if key in line]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def student(tmp_path_factory, teacher, data):
    """The run folder of a BiBERT."""
    run = tmp_path_factory.mktemp("bibert")
    distill(teacher, "bibert", data, run, STUDENT)
    return run


def test_teacher_and_student_learn_the_task_and_the_student_is_binarized(teacher, student, data):
    for run, command in ((teacher.parent, "finetune"), (student, "distill")):
        notes = json.loads((run / "run.json").read_text())
        assert notes["metrics"]["dev_accuracy"] >= 0.9
        assert notes["request"]["command"] == command
    classifier = load_classifier(student / "model")
    assert classifier.model.config.quantization == SCHEMES["bibert"]
    assert classifier.model.config.id2label == {0: "negative", 1: "positive"}
    logits = predict_logits(classifier, data.dev["dev"], STUDENT.max_length)
    scored = score(logits, data.dev["dev"].labels, data.metrics)
    assert {f"dev_{name}": value for name, value in scored.items()} == notes["metrics"]


def test_a_run_notes_the_temperature_that_fits_its_model_to_the_dev_rows(teacher, data, tmp_path):
    dev = data.dev["dev"]
    wrong = replace(dev, labels=(*(1 - label for label in dev.labels[:6]), *dev.labels[6:]))
    noisy = replace(data, dev={"dev": wrong, "other": data.train})  # the first split decides
    distill(teacher, "bibert", noisy, tmp_path, SHORT)
    found = predict_logits(load_classifier(tmp_path / "model"), wrong, SHORT.max_length)
    expected = fit_temperature(found, wrong.labels)
    assert json.loads((tmp_path / "run.json").read_text())["temperature"] == pytest.approx(expected, rel=1e-3)
    assert expected != 1
    assert provenance(tmp_path / "model")["temperature"] == pytest.approx(expected, rel=1e-3)


def test_the_saved_model_is_the_best_on_dev(student):
    evaluations = [line["eval_dev_accuracy"] for line in log_of(student, "eval_dev_accuracy")]
    metrics = json.loads((student / "run.json").read_text())["metrics"]
    assert len(evaluations) == 6 + 1  # every 4 of 24 steps, and the best model once more
    assert metrics["dev_accuracy"] == max(evaluations)
    assert min(evaluations) < max(evaluations)


@pytest.mark.parametrize(("select", "step"), [("best", 4), ("last", 12)])
def test_a_run_ends_with_the_mean_of_its_first_best_or_its_last_evaluation(start, data, tmp_path, select, step):
    finetune(start, data, tmp_path, replace(STUDENT, learning_rate=1e-6, epochs=3, average=0.9, select=select))
    assert len({line["eval_dev_accuracy"] for line in log_of(tmp_path, "eval_dev_accuracy")}) == 1
    mean = load_file(tmp_path / f"stages/finetune/checkpoint-{step}/model.safetensors")
    saved = load_file(tmp_path / "model/model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in mean.items())


def test_the_log_has_every_loss_term_of_every_step(student):
    lines = log_of(student, "loss")
    terms = SCHEMES["bibert"].schedule[0].weights
    assert [line["step"] for line in lines] == list(range(1, 25))
    for line in lines:
        assert line["stage"] == "dmd"
        assert line["learning_rate"] >= 0
        assert line["grad_norm"] > 0
        total = sum(weight * line[f"loss_{name}"] for name, weight in terms.items())
        assert line["loss"] == pytest.approx(total, abs=2e-4)  # the log rounds
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_terms_between_two_log_lines_are_averaged_and_the_teacher_is_not_touched(teacher, data, tmp_path):
    before = contents(teacher)
    for every in (1, 4):
        distill(teacher, "bibert", data, tmp_path / str(every), replace(SHORT, log_every=every))
    single = [line["loss_dmd_query"] for line in log_of(tmp_path / "1", "loss")]
    averaged = [line["loss_dmd_query"] for line in log_of(tmp_path / "4", "loss")]
    assert averaged == pytest.approx([sum(single[:4]) / 4, sum(single[4:]) / 4])
    assert contents(teacher) == before


@pytest.mark.parametrize(("scheme", "learned"), [("bibert_plus", ".threshold"), ("q2bert", ".range")])
def test_a_student_starts_with_all_that_its_start_has_learned(teacher, data, tmp_path, scheme, learned):
    distill(teacher, scheme, data, tmp_path / "first", SHORT)
    still = replace(SHORT, learning_rate=1e-30, max_steps=1)
    distill(teacher, scheme, data, tmp_path / "next", still, start=tmp_path / "first" / "model")
    first, after = (load_classifier(tmp_path / name / "model").model.state_dict() for name in ("first", "next"))
    for name in first:  # a range takes one step of a moving average, and is not measured anew on one batch
        torch.testing.assert_close(after[name], first[name], rtol=0.02 if name.endswith(".range") else 0, atol=0)
    assert any(first[name].any() for name in first if name.endswith(learned))


def test_a_start_with_the_labels_in_another_order_is_refused(teacher, data, tmp_path):
    swapped = replace(data, label_names=data.label_names[::-1])
    finetune(teacher, swapped, tmp_path / "swapped", replace(SHORT, max_steps=1))
    with pytest.raises(CheckpointError, match="labels positive, negative, the data has the labels negative"):
        distill(teacher, "bibert", data, tmp_path / "on", SHORT, start=tmp_path / "swapped" / "model")


@pytest.mark.parametrize("change", [{"weights": {"gold": 1.0}}, {"norm_scope": "batch"}, {"mask_padding": False}])
def test_a_teacher_has_no_distillation_terms(start, data, tmp_path, change):
    with pytest.raises(RecipeError, match=f"recipe: {next(iter(change))} is .*teacher"):
        finetune(start, data, tmp_path / "run", replace(SHORT, **change))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("scheme", [None, "bibert", "baseline"])
def test_the_same_seed_gives_the_same_weights(start, teacher, data, tmp_path, weights_of, scheme):
    for name, seed in (("first", 1), ("second", 1), ("other", 2)):
        run, recipe = tmp_path / name, replace(SHORT, dropout=0.1, seed=seed)
        finetune(start, data, run, recipe) if scheme is None else distill(teacher, scheme, data, run, recipe)
    first, second, other = (weights_of(tmp_path / name / "model") for name in ("first", "second", "other"))
    assert first == second
    assert first != other


@pytest.fixture(scope="module")
def split_student(tmp_path_factory, teacher, data):
    """The run folder of a BinaryBERT."""
    run = tmp_path_factory.mktemp("binarybert")
    distill(teacher, "binarybert_1-1-2", data, run, SHORT)
    return run


def test_binarybert_has_four_stages(split_student):
    stages = SCHEMES["binarybert_1-1-2"].schedule
    lines = log_of(split_student, "loss")
    assert list(dict.fromkeys(line["stage"] for line in lines)) == [stage.name for stage in stages]
    for line in lines:
        terms = next(stage.weights for stage in stages if stage.name == line["stage"])
        assert {name for name in line if name.startswith("loss_")} == {f"loss_{term}" for term in terms}
    ternary = load_classifier(split_student / "stages" / "ternary-logits" / "result").model
    split = load_classifier(split_student / "model").model
    assert ternary.config.quantization.name == "binarybert_1-1-2/ternary"
    assert split.config.quantization == SCHEMES["binarybert_1-1-2"]
    assert ternary.config.num_attention_heads == split.config.num_attention_heads == 1


def test_stages_that_teach_layers_leave_the_head_alone(split_student, teacher):
    full = load_classifier(teacher).model
    results = [split_student / "stages" / name / "result" for name in ("ternary-layers", "ternary-logits")]
    layers, logits = (load_classifier(result).model for result in results)
    assert torch.equal(layers.classifier.weight, full.classifier.weight)
    assert not torch.equal(logits.classifier.weight, full.classifier.weight)


def test_scores_are_learned_by_regression(start, scores, tmp_path):
    taught = finetune(start, scores, tmp_path / "teacher", STUDENT)
    assert set(taught) == {"dev_spearman", "dev_pearson"}
    assert taught["dev_pearson"] > 0.3
    teacher = tmp_path / "teacher" / "model"
    assert load_classifier(teacher).model.config.num_labels == 1
    distill(teacher, "bibert", scores, tmp_path / "student", replace(SHORT, weights={"gold": 0.5}))
    lines = log_of(tmp_path / "student", "loss")
    assert {"loss_prediction", "loss_gold"} <= set(lines[0])
    assert load_classifier(tmp_path / "student" / "model").model.config.problem_type == "regression"


def test_a_finished_run_answers_at_once(student, teacher, data):
    before = contents(student)
    metrics = distill(teacher, "bibert", data, student, STUDENT)
    assert metrics == json.loads((student / "run.json").read_text())["metrics"]
    assert contents(student) == before


def test_another_recipe_scheme_or_teacher_in_the_same_folder_is_refused(student, teacher, start, data):
    with pytest.raises(CheckpointError, match=r"recipe\.learning_rate was 0\.01, now 0\.5"):
        distill(teacher, "bibert", data, student, replace(STUDENT, learning_rate=0.5))
    with pytest.raises(CheckpointError, match=r"scheme\.name was 'bibert', now 'baseline'"):
        distill(teacher, "baseline", data, student, STUDENT)
    with pytest.raises(CheckpointError, match=r"teacher\.name was .*teacher.*, now .*start"):
        distill(start, "bibert", data, student, STUDENT)
    with pytest.raises(CheckpointError, match=r"data\.sha256 was"):
        distill(teacher, "bibert", replace(data, train=data.dev["dev"]), student, STUDENT)


def test_a_teacher_that_was_trained_again_is_another_teacher(start, data, teacher_recipe, tmp_path):
    teacher = tmp_path / "teacher"
    finetune(start, data, teacher, replace(teacher_recipe, max_steps=1))
    distill(teacher / "model", "bibert", data, tmp_path / "student", replace(SHORT, max_steps=1))
    weights = teacher / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\x80\x3f")
    with pytest.raises(CheckpointError, match=r"teacher\.sha256 was"):
        distill(teacher / "model", "bibert", data, tmp_path / "student", replace(SHORT, max_steps=1))


@pytest.mark.parametrize("killed", [False, True])
def test_early_stopping_ends_the_run_and_keeps_its_count_when_it_resumes(teacher, data, tmp_path, killed, change_at):
    recipe = replace(STUDENT, learning_rate=1e-12, epochs=50, patience=2)
    if killed:
        with pytest.raises(NumericError):
            distill(teacher, "bibert", data, tmp_path, recipe, callbacks=[change_at(9)])
    distill(teacher, "bibert", data, tmp_path, recipe)
    assert log_of(tmp_path, "loss")[-1]["step"] == 12  # the first evaluation is the best, two more are no better


@pytest.mark.parametrize("changes", [{"max_steps": 6}, {"learning_rate": 1e-12, "epochs": 50, "patience": 2}])
def test_a_run_killed_after_its_last_step_trains_no_further(teacher, data, tmp_path, weights_of, changes):
    recipe = replace(STUDENT, **changes)
    metrics = distill(teacher, "bibert", data, tmp_path, recipe)
    expected, steps = weights_of(tmp_path / "model"), [line["step"] for line in log_of(tmp_path, "loss")]
    shutil.rmtree(tmp_path / "model")
    notes = json.loads((tmp_path / "run.json").read_text())
    del notes["metrics"]
    (tmp_path / "run.json").write_text(json.dumps(notes))
    assert distill(teacher, "bibert", data, tmp_path, recipe) == metrics
    assert weights_of(tmp_path / "model") == expected
    assert [line["step"] for line in log_of(tmp_path, "loss")] == steps


def test_a_run_folder_can_be_moved_before_it_resumes(teacher, data, student, tmp_path, weights_of, change_at):
    with pytest.raises(NumericError):
        distill(teacher, "bibert", data, tmp_path / "old", STUDENT, callbacks=[change_at(18)])
    (tmp_path / "old").rename(tmp_path / "new")
    distill(teacher, "bibert", data, tmp_path / "new", STUDENT)
    assert weights_of(tmp_path / "new" / "model") == weights_of(student / "model")


@pytest.mark.parametrize(
    ("limits", "steps", "interval"),
    [
        *(({}, 80, 50), ({"max_steps": 30}, 30, 30), ({"max_steps": 300}, 80, 50), ({"min_steps": 300}, 300, 50)),
        *(({"min_steps": 300, "max_steps": 200}, 200, 50), ({"epochs": 0.5, "evaluations": 9}, 4, 1)),
        *(({"epochs": 2.5, "evaluations": 3}, 20, 6), ({"evaluations": 1}, 80, 50)),  # at 6, 12, 18 and at the end
        ({"eval_every": 0, "texts_share": 0.75}, 300, 30),  # 11 of 15 rows have no label
    ],
)
def test_a_training_has_the_steps_of_its_epochs_within_the_limits(tmp_path, limits, steps, interval):
    data = TrainingData(range(120), {"dev": range(4)}, ("accuracy",), range(5) if "texts_share" in limits else None)
    recipe = replace(Recipe(epochs=10, batch_size=15, eval_every=50), **limits)
    arguments = training_arguments(recipe, data, tmp_path)
    assert (arguments.max_steps, arguments.eval_steps, arguments.save_steps) == (steps, interval, interval)


def test_gold_labels_are_weighed_and_smoothed_in_training_alone(start, data, scores, tmp_path):
    recipe, trainers = replace(SHORT, class_weights=True, label_smoothing=0.2), []
    for texts, labels in ((data, (0.0,) * 48 + (1.0,) * 16), (scores, (-1,) * 63 + (2,))):
        classifier = load_classifier(start, texts.label_names, dropout_overrides(recipe))
        encoded = encode_data(replace(texts, train=replace(texts.train, labels=labels)), classifier, recipe)
        trainers.append(TeacherTrainer(classifier, recipe, training_arguments(recipe, encoded, tmp_path), encoded))
    trainer, batch = trainers[0], trainers[0].data_collator([trainers[0].data.train[row] for row in range(40, 56)])
    weights = torch.tensor([64 / (2 * 48), 64 / (2 * 16)])
    found = [trainer.compute_loss(trainer.model.train(mode), dict(batch)).item() for mode in (False, True)]
    logits = trainer.model.eval()(**batch).logits
    expected = [label_loss(logits, batch["labels"], *options).item() for options in ((), (weights, 0.2))]
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[0] != pytest.approx(found[1], rel=1e-2)
    assert trainers[1].class_weights is None


def test_with_zero_between_evaluations_there_is_one_an_epoch(teacher, data, tmp_path):
    distill(teacher, "bibert", data, tmp_path, replace(STUDENT, eval_every=0, epochs=2.5))
    assert [line["step"] for line in log_of(tmp_path, "eval_dev_accuracy")] == [4, 8, 10, 10]


@pytest.mark.parametrize("clip", ["tensor", "global"])
def test_a_gradient_that_is_not_finite_ends_the_run_with_its_name(start, data, tmp_path, clip, change_at):
    def spoil(model):
        model.bert.pooler.dense.weight.register_hook(lambda gradient: gradient * torch.nan)

    with pytest.raises(NumericError, match=r"gradient of bert\.pooler\.dense\.weight is not finite at step 7"):
        finetune(start, data, tmp_path, replace(SHORT, clip=clip), callbacks=[change_at(6, spoil)])
    (checkpoint,) = checkpoints_of(tmp_path / "stages" / "finetune")
    assert checkpoint.name == "checkpoint-4"
    assert is_whole(checkpoint)


def test_a_nan_loss_ends_the_run_and_keeps_the_checkpoint(start, teacher, data, tmp_path, weights_of, change_at):
    with pytest.raises(NumericError, match="the loss is nan at step 7"):
        finetune(start, data, tmp_path / "teacher", SHORT, callbacks=[change_at(6)])
    with pytest.raises(NumericError, match=r"the loss is not finite \(\{.*'hidden_direction': nan"):
        distill(teacher, "bibert", data, tmp_path / "student", SHORT, callbacks=[change_at(6)])
    for run, stage in (("teacher", "finetune"), ("student", "dmd")):
        (checkpoint,) = checkpoints_of(tmp_path / run / "stages" / stage)
        assert is_whole(checkpoint)
    distill(teacher, "bibert", data, tmp_path / "student", SHORT)
    distill(teacher, "bibert", data, tmp_path / "undisturbed", SHORT)
    assert weights_of(tmp_path / "student" / "model") == weights_of(tmp_path / "undisturbed" / "model")


def test_the_released_codes_settings_train_too(teacher, data, tmp_path):
    released = {"bias_correction": False, "norm_scope": "batch", "mask_padding": False, "weights": {"gold": 0.5}}
    distill(teacher, "bibert", data, tmp_path, replace(STUDENT, learning_rate=1e-3, dropout=0.1, **released))
    lines = log_of(tmp_path, "loss")
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.fixture
def passes(monkeypatch):
    """Of every forward pass of a classifier: whether it was in train mode, and whether under autocast."""
    seen: set[tuple[bool, bool]] = set()
    forward = BiBertForSequenceClassification.forward

    def watched(self, *args, **kwargs):
        seen.add((self.training, torch.is_autocast_enabled("cpu")))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(BiBertForSequenceClassification, "forward", watched)
    return seen


def test_in_bfloat16_a_student_learns_and_is_evaluated_in_float32(teacher, data, tmp_path, passes):
    metrics = distill(teacher, "bibert", data, tmp_path, BFLOAT16)
    teaching = (False, True)  # the teacher, which is in eval mode, in a training step
    assert passes == {(True, True), teaching, (False, False)}
    classifier = load_classifier(tmp_path / "model")
    logits = predict_logits(classifier, data.dev["dev"], BFLOAT16.max_length)
    scored = score(logits, data.dev["dev"].labels, data.metrics)
    assert scored["accuracy"] == metrics["dev_accuracy"] > 0.7
    assert {value.dtype for value in classifier.model.state_dict().values()} == {torch.float32}


def test_only_training_steps_of_a_bfloat16_recipe_are_under_autocast(start, teacher, data, tmp_path, passes):
    finetune(start, data, tmp_path / "teacher", replace(BFLOAT16, max_steps=4, eval_every=2))
    assert passes == {(True, True), (False, False)}
    passes.clear()
    distill(teacher, "bibert", data, tmp_path / "student", replace(STUDENT, max_steps=2, eval_every=2))
    assert passes == {(True, False), (False, False)}


def test_in_int8_a_student_learns_from_a_rounded_teacher(teacher, data, tmp_path, monkeypatch):
    rounded = []
    linear = products.linear
    monkeypatch.setattr(products, "linear", lambda x, *rest: rounded.append(x.shape) or linear(x, *rest))
    assert distill(teacher, "bibert", data, tmp_path, replace(STUDENT, precision="int8"))["dev_accuracy"] > 0.7
    assert rounded


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_run_in_fewer_bits_resumes_to_the_same_weights(teacher, data, tmp_path, weights_of, change_at, precision):
    recipe = replace(STUDENT, precision=precision, max_steps=8)
    distill(teacher, "bibert", data, tmp_path / "whole", recipe)
    with pytest.raises(NumericError):
        distill(teacher, "bibert", data, tmp_path / "stopped", recipe, callbacks=[change_at(5)])
    distill(teacher, "bibert", data, tmp_path / "stopped", recipe)
    assert weights_of(tmp_path / "stopped" / "model") == weights_of(tmp_path / "whole" / "model")
