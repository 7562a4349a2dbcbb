"""The frozen teacher, the teachers that are refused, the objective of each stage, labels alone, and texts alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bibert.data.examples import Split
from bibert.errors import CheckpointError, DataError, NumericError, RecipeError, SchemeError
from bibert.export import pack
from bibert.files import read_json_lines
from bibert.nn.checkpoint import load_classifier
from bibert.nn.model import NO_CLASS
from bibert.nn.schemes import SCHEDULES, SCHEMES
from bibert.packed.file import save
from bibert.runtime.engine import Engine
from bibert.training import student
from bibert.training.loop import encode_data
from bibert.training.provenance import provenance
from bibert.training.recipe import Recipe
from bibert.training.student import FrozenTeacher, distill, load_teacher, stage_objectives
from bibert.training.teacher import finetune

SHORT = Recipe(learning_rate=1e-2, batch_size=16, max_length=16, eval_every=4, log_every=1)
MORE = Split(("one good", "two", "three bad four", "five six", "seven"), None, (0,) * 5, "more.txt")
INPUTS = {"input_ids": torch.tensor([[2, 7, 8, 9, 3]])}


@pytest.fixture
def frozen(start):
    """A teacher that would drop half of everything if it were in train mode."""
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), 0.5)
    return FrozenTeacher(load_classifier(start, overrides=rates).model)


def test_the_teacher_takes_no_gradient_and_has_a_trace_only_on_request(frozen):
    output = frozen(INPUTS, trace=True)
    assert len(output.trace.layers) == 2
    assert frozen(INPUTS, trace=False).trace is None
    assert not output.logits.requires_grad
    assert not any(state.requires_grad for state in output.trace.hidden_states)
    assert not any(parameter.requires_grad for parameter in frozen.model.parameters())


def test_the_teacher_never_drops_in_any_mode(frozen):
    expected = frozen(INPUTS, trace=False).logits
    for _ in range(3):
        frozen.model.train()
        assert torch.equal(frozen(INPUTS, trace=False).logits, expected)
        assert not frozen.model.training


def test_the_engine_of_a_packed_teacher_gives_the_logits_if_they_suffice(teacher, data, tmp_path):
    distill(teacher, "bibert_4", data, tmp_path / "first", replace(SHORT, max_steps=2))
    save(pack(load_classifier(tmp_path / "first"), max_length=16), file := tmp_path / "teacher.bibert")
    engine, asked = Engine.load(file).logits, []
    frozen = [FrozenTeacher(load_classifier(file).model, engine=one)(INPUTS, trace=()).logits for one in (None, engine)]
    torch.testing.assert_close(*frozen, rtol=0, atol=1e-6)  # an unpacked scale may differ by a rounding
    for weights in ({}, {name: float(name == "prediction") for name in SCHEDULES["dmd"][0].weights}):
        recipe = replace(SHORT, max_steps=3, weights=weights)
        given = {"engine": lambda **inputs: asked.append(1) or engine(**inputs)}
        distill(file, "bibert", data, tmp_path / str(len(weights)), recipe, **given)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("labels", "named"), [(("no", "yes"), "no, yes"), (("positive", "negative"), "positive, negative"), ((), "scores")]
)
def test_a_teacher_of_other_labels_is_refused_with_both_lists(teacher, data, labels, named):
    with pytest.raises(CheckpointError, match=f"negative, positive, .*{named}; fine-tune"):
        load_teacher(teacher, replace(data, label_names=labels), Recipe())


def test_the_recipe_sets_the_dropout_of_the_students(teacher, data):
    config = load_teacher(teacher, data, Recipe(dropout=0.25, max_length=16)).model.config
    rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.classifier_dropout)
    assert rates == (0.25, 0.25, 0.25)


def test_without_a_teacher_a_student_learns_from_labels(start, data, tmp_path):
    metrics = distill(None, "bibert_4", data, tmp_path, replace(SHORT, epochs=8), start=start)
    lines = [line for line in read_json_lines(tmp_path / "log.jsonl") if "loss" in line]
    assert metrics["dev_accuracy"] >= 0.9
    assert {name for line in lines for name in line if name.startswith("loss_")} == {"loss_gold"}
    assert load_classifier(tmp_path).model.config.quantization.schedule == SCHEDULES["labels"]
    assert provenance(tmp_path / "model")["teacher_sha256"] is None


@pytest.mark.parametrize(
    ("scheme", "weights", "texts", "error", "named"),
    [
        ("bibert_4", {"prediction": 1.0}, None, RecipeError, r"weights\.prediction"),
        ("bibert_4", {}, MORE, DataError, "more.txt.*teacher"),
        ("binarybert_1-1-4", {}, None, SchemeError, "'binarybert_1-1-4'.*split from a teacher"),
    ],
)
def test_without_a_teacher_is_refused_what_needs_one(start, data, tmp_path, scheme, weights, texts, error, named):
    run, recipe = tmp_path / "run", replace(SHORT, weights=weights)
    with pytest.raises(error, match=named):
        distill(None, scheme, replace(data, unlabelled=texts), run, recipe, start=start)
    assert not run.exists()


def test_texts_without_labels_are_taught_in_every_batch_and_a_killed_run_resumes(
    teacher, data, start, tmp_path, weights_of, change_at, monkeypatch
):
    seen, loss = [], student.DistillTrainer.compute_loss
    watched = lambda *args, **named: seen.append(args[2]["labels"]) or loss(*args, **named)  # noqa: E731
    monkeypatch.setattr(student.DistillTrainer, "compute_loss", watched)
    more, recipe = replace(data, unlabelled=MORE), replace(SHORT, texts_share=0.25, weights={"gold": 1.0}, epochs=2)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    distill(teacher, "bibert", more, whole, recipe)
    trained = [labels for labels in seen if (labels == NO_CLASS).any()]
    assert [len(labels) for labels in trained] == 2 * ([16] * 5 + [8])  # 64 rows, 12 a batch, and 4 texts
    assert all((labels == NO_CLASS).sum() == 4 for labels in trained)
    with pytest.raises(NumericError):
        distill(teacher, "bibert", more, killed, recipe, callbacks=[change_at(9)])
    distill(teacher, "bibert", more, killed, recipe)
    assert weights_of(killed / "model") == weights_of(whole / "model")
    assert provenance(whole / "model")["data"]["texts"] == "more.txt"
    with pytest.raises(CheckpointError, match=r"data\.sha256"):
        distill(teacher, "bibert", data, whole, recipe)
    with pytest.raises(DataError, match=r"more\.txt.*student"):
        finetune(start, more, tmp_path / "teacher", SHORT)


@pytest.mark.parametrize(
    ("changes", "texts", "named"),
    [
        ({"class_weights": True}, None, "class_weights.*weights.gold"),
        ({"label_smoothing": 0.1}, None, "label_smoothing.*weights.gold"),
        ({"texts_share": 0.0}, MORE, "texts_share 0 leave no row"),
    ],
)
def test_settings_without_an_effect_are_refused(teacher, data, tmp_path, changes, texts, named):
    with pytest.raises(RecipeError, match=named):
        distill(teacher, "bibert", replace(data, unlabelled=texts), tmp_path / "run", replace(SHORT, **changes))


def test_pairs_are_refused_by_a_model_that_knows_one_kind_of_token(start, data):
    classifier = load_classifier(start, data.label_names)
    classifier.model.config.type_vocab_size = 1
    pairs = replace(data, train=replace(data.train, pairs=data.train.texts))
    with pytest.raises(DataError, match=r"have 2 texts.*type_vocab_size is 1"):
        encode_data(pairs, classifier, SHORT)


def test_scores_of_texts_without_labels_are_missing_numbers(scores, start):
    paired = replace(scores, unlabelled=replace(MORE, pairs=MORE.texts))
    rows = encode_data(paired, load_classifier(start, ()), SHORT).all_rows()
    assert np.isnan(rows.labels).tolist() == [False] * 64 + [True] * 5


def test_a_scheme_brings_its_terms_and_a_recipe_changes_adds_and_drops_them():
    (objective,) = stage_objectives(SCHEMES["bibert"], Recipe()).values()
    assert set(objective.weights) == {"dmd_query", "dmd_key", "dmd_value", "hidden_direction", "prediction"}
    assert (objective.norm_scope, objective.mask_padding) == ("sample", True)
    recipe = Recipe(weights={"dmd_key": 0.0, "prediction": 2.0, "mha": 0.5}, norm_scope="batch", mask_padding=False)
    (objective,) = stage_objectives(SCHEMES["bibert"], recipe).values()
    expected = {"dmd_query": 1.0, "dmd_value": 1.0, "hidden_direction": 1.0, "prediction": 2.0, "mha": 0.5}
    assert objective.weights == expected
    assert (objective.norm_scope, objective.mask_padding) == ("batch", False)


def test_stages_keep_their_terms_apart_and_gold_goes_with_the_logits():
    objectives = stage_objectives(SCHEMES["binarybert_1-1-2"], Recipe(weights={"gold": 0.5, "hidden": 3.0}))
    assert [dict(objective.weights) for objective in objectives.values()] == [
        {"attention": 1.0, "hidden": 3.0},
        {"prediction": 1.0, "gold": 0.5},
        {"attention": 1.0, "hidden": 3.0},
        {"prediction": 1.0, "gold": 0.5},
    ]


@pytest.mark.parametrize(
    ("scheme", "weights", "message"),
    [
        ("bibert", {"dmd_querry": 1.0}, r"no distillation term 'dmd_querry'; did you mean 'dmd_query'\?"),
        ("binarybert_1-1-2", {"golld": 1.0}, r"no distillation term 'golld'; did you mean 'gold'\?"),
        (
            "binarybert_1-1-2",
            {"dmd_key": 1.0},
            "weights.dmd_key applies to no stage of 'binarybert_1-1-2'.*attention, gold, hidden",
        ),
        ("bibert", {"gold": -1.0}, "'gold' is -1.0"),
        ("q_bert", {"gold": 0.0}, "weight 0"),
    ],
)
def test_weights_of_unknown_terms_and_out_of_range_are_refused(scheme, weights, message):
    with pytest.raises(RecipeError, match=message):
        stage_objectives(SCHEMES[scheme], Recipe(weights=weights))
