"""Packing a student: what the file holds, that it agrees with the network, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import bibert
from bibert import export
from bibert.data.examples import Split
from bibert.errors import CheckpointError, NumericError, RecipeError, SchemeError
from bibert.export import pack, verify
from bibert.nn.checkpoint import Classifier, load_classifier, model_folder
from bibert.nn.functional import binarize_rows
from bibert.nn.packable import why_not_packable
from bibert.nn.schemes import SCHEMES
from bibert.packed.bits import unpack_rows
from bibert.packed.file import load, save
from bibert.packed.header import Description
from bibert.packed.header import encode as encode_header
from bibert.packed.schema import PackedConfig, tensor_specs
from bibert.runtime.engine import Encoded, Engine, available_isas
from bibert.runtime.text import TextEncoder

TEXTS = ("a good film", "a bad film that nobody saw", "it was so good", "it was bad, so bad " * 20, "")
PAIRS = ("really", "why is it so bad", "a film", "good", "it")
ROWS = Split(TEXTS, None, (0, 1, 0, 1, 1), "reviews.csv")
PACKABLE = [name for name, scheme in SCHEMES.items() if why_not_packable(scheme) is None]


@pytest.fixture(scope="module")
def new_classifier(save_untrained, tmp_path_factory):
    """A factory of untrained classifiers with random biases; what it is given goes to the configuration."""

    def make(**config) -> Classifier:
        folder = save_untrained(tmp_path_factory.mktemp("student"), TEXTS, **({"scheme": "bibert"} | config))
        classifier = load_classifier(folder)
        random = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in classifier.model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
        return classifier

    return make


@pytest.fixture(scope="module")
def student(new_classifier):
    return new_classifier()


@pytest.fixture(scope="module")
def packed(student):
    return pack(student, ROWS, max_length=32)


@pytest.mark.parametrize("pairs", [None, PAIRS], ids=["texts", "pairs"])
def test_the_file_gives_the_bits_of_the_network_from_text_on(student, pairs, tmp_path):
    rows = replace(ROWS, pairs=pairs)
    save(pack(student, rows, max_length=32), tmp_path / "student.bibert")
    read = load(tmp_path / "student.bibert")
    encoder = TextEncoder(read.tokenizer, read.config.vocabulary, read.max_length)
    found = Engine.from_packed(read).logits_of(encoder.encode(rows.texts_or_pairs))
    options = {"truncation": True, "max_length": 32, "padding": True, "return_tensors": "pt"}
    with torch.no_grad():
        expected = student.model.eval()(**student.tokenizer(list(TEXTS), pairs and list(pairs), **options)).logits
    assert found.tobytes() == expected.numpy().tobytes()


def test_the_file_says_where_it_comes_from(student):
    packed = pack(student, ROWS, max_length=32, about={"task": "reviews", "scheme": "what the caller thinks"})
    generated = 5  # 1, 2, 3, 17 and 32 tokens
    assert packed.about == {
        "task": "reviews",
        "scheme": "bibert",
        "bibert": bibert.__version__,
        "verified_rows": generated + len(ROWS),
    }


@pytest.mark.parametrize("rows", [None, Split((), None, (), "nothing.csv")], ids=["none", "empty"])
def test_without_rows_generated_ones_are_checked(student, rows):
    assert pack(student, rows, max_length=32).about["verified_rows"] == 5


@pytest.mark.parametrize("labels", [("bad", "so so", "good"), ("score",)], ids=["classes", "regression"])
def test_the_config_and_the_labels_are_those_of_the_network(new_classifier, labels):
    shape = {"layer_norm_eps": 1e-5, "max_position_embeddings": 77, "type_vocab_size": 3}
    classifier = new_classifier(id2label=dict(enumerate(labels)), **shape)
    packed = pack(classifier, max_length=16)
    assert (packed.labels, packed.max_length) == (labels, 16)
    sizes = (2, 32, 2, 16, 64, len(classifier.tokenizer), 77, 3, len(labels))  # layers, hidden, heads, head_size, ...
    assert packed.config == PackedConfig(*sizes, norm_eps=1e-5)


def test_bits_and_scales_are_those_the_network_computes_with(student, packed, monkeypatch):
    monkeypatch.setattr(export, "ROWS_PER_CHUNK", 7)
    in_chunks = export.tensors_of(student.model)
    weights = {
        "embeddings.word": student.model.bert.embeddings.word_embeddings.weight,
        "layers.1.output": student.model.bert.encoder.layer[1].output.dense.weight,
        "pooler": student.model.bert.pooler.dense.weight,
    }
    for name, weight in weights.items():
        rows = binarize_rows(weight.detach())
        np.testing.assert_array_equal(packed.tensor(f"{name}.bits"), in_chunks[f"{name}.bits"])
        np.testing.assert_array_equal(packed.tensor(f"{name}.scale"), in_chunks[f"{name}.scale"])
        np.testing.assert_array_equal(packed.tensor(f"{name}.scale"), rows.scale.squeeze(-1).numpy())
        np.testing.assert_array_equal(unpack_rows(packed.tensor(f"{name}.bits"), weight.shape[1]), rows.levels > 0)


def test_the_tokenizer_is_compact_and_leaves_cutting_and_padding_to_the_runtime(new_classifier):
    classifier = new_classifier()
    classifier.tokenizer("one call", truncation=True, max_length=5, padding="max_length")  # which the tokenizer keeps
    raw = pack(classifier, max_length=16).tokenizer
    values = json.loads(raw)
    assert values["truncation"] is None
    assert values["padding"] is None
    assert raw == json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def files(new_classifier, tmp_path_factory):
    """Networks with unlike steps, by scheme, each with its packed model and its file."""
    made = {}
    for name in PACKABLE:
        classifier, path = new_classifier(scheme=name), tmp_path_factory.mktemp("files") / f"{name}.bibert"
        with torch.no_grad():
            for number, parameter in enumerate(classifier.model.parameters()):
                if parameter.dim() == 0:
                    parameter.mul_(1 + 0.5 * math.sin(number))
        made[name] = classifier, pack(classifier, ROWS, max_length=32), path
        save(made[name][1], path)
    return made


@pytest.mark.parametrize("name", PACKABLE)
def test_every_packable_scheme_can_be_packed_and_its_file_becomes_a_network_again(files, name):
    classifier, packed, path = files[name]
    found = load_classifier(path)
    again = pack(found, ROWS, max_length=32)  # which compares the tokens of ROWS too
    assert packed.about["scheme"] == name
    assert (again.config, again.labels, again.about) == (packed.config, packed.labels, packed.about)
    for tensor, *_ in tensor_specs(packed.config, 1)[:-1]:
        before, after = packed.tensor(tensor), again.tensor(tensor)
        if before.dtype == np.float32:
            np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6, err_msg=tensor)
        else:
            np.testing.assert_array_equal(after, before, err_msg=tensor)
    batch = classifier.tokenizer(list(TEXTS), padding=True, truncation=True, max_length=32, return_tensors="pt")
    with torch.no_grad():
        mine, theirs = (one.model.eval()(**batch).logits for one in (found, classifier))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_a_file_as_a_start_gets_a_new_classifier_for_another_number_of_labels(files):
    classifier, packed, path = files["bibert_4"]
    weight = classifier.model.classifier.weight
    assert torch.equal(load_classifier(path, ("bad", "good")).model.classifier.weight, weight)
    torch.manual_seed(1)
    for labels in (("a", "b", "c"), ()):
        model = load_classifier(path, labels, {"hidden_dropout_prob": 0.3}).model
        assert model.classifier.weight.shape == (max(len(labels), 1), weight.shape[1])
        assert model.classifier.weight.std() > 0
        assert model.config.hidden_dropout_prob == 0.3
        again = export.tensors_of(model)["layers.1.output.bits"]
        np.testing.assert_array_equal(again, packed.tensor("layers.1.output.bits"))


@pytest.mark.parametrize(
    ("scheme", "named"), [("nobody", "'nobody'"), (None, "None"), ("bibert_2", "'bibert_2'.*again")]
)
def test_a_file_whose_scheme_is_unknown_or_another_is_no_start(files, scheme, named, tmp_path):
    path = tmp_path / "odd.bibert"
    save(replace(files["bibert_4"][1], about={} if scheme is None else {"scheme": scheme}), path)
    with pytest.raises(CheckpointError, match=rf"odd\.bibert: .*{named}"):
        load_classifier(path)


def test_a_shipped_file_is_found_by_its_name_unless_a_folder_has_it(files, student, monkeypatch, tmp_path):
    path = files["bibert_4"][2]
    monkeypatch.setattr("bibert.models.FOLDER", path.parent)
    monkeypatch.chdir(tmp_path)
    assert model_folder("bibert_4") == model_folder(path) == path
    student.model.save_pretrained("bibert_4")
    assert model_folder("bibert_4") == Path("bibert_4")


def test_a_scheme_that_the_file_cannot_express_is_refused_by_name_and_with_the_reason(new_classifier):
    with pytest.raises(SchemeError, match=r"scheme 'baseline' .*softmax"):
        pack(new_classifier(scheme="baseline"), max_length=16)


@pytest.mark.parametrize(
    "name",
    [
        "bert.embeddings.word_embeddings.weight",
        "bert.embeddings.position_embeddings.weight",
        "bert.encoder.layer.1.attention.self.key.weight",
        "bert.encoder.layer.0.output.dense.bias",
        "bert.encoder.layer.1.output.LayerNorm.weight",
        "classifier.weight",
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_by_name(new_classifier, name, value):
    classifier = new_classifier()
    with torch.no_grad():
        classifier.model.get_parameter(name).view(-1)[-1] = value
    with pytest.raises(NumericError, match=f"'{name}'.* NaN or infinity"):
        pack(classifier, max_length=16)


def test_weights_of_half_precision_are_refused_by_name(new_classifier):
    classifier = new_classifier()
    classifier.model.bert.pooler.half()
    with pytest.raises(CheckpointError, match=r"'bert.pooler.dense.weight' is torch.float16.*float\(\)"):
        pack(classifier, max_length=16)


def test_a_size_that_does_not_fit_is_refused_with_both_numbers(student, new_classifier):
    with pytest.raises(CheckpointError, match=r"head_size is 65.* 64"):
        pack(new_classifier(attention_head_size=65), max_length=16)
    with pytest.raises(RecipeError, match=r"max_length is 513.* 512 positions"):
        pack(student, max_length=513)
    with pytest.raises(CheckpointError, match=r"2 special tokens.* has 2"):
        pack(student, max_length=2)
    classifier = new_classifier()
    classifier.tokenizer.add_tokens(["onemore"])
    with pytest.raises(CheckpointError, match=r"tokenizer: added_tokens\[5\].id is \d+, .* 0 to \d+"):
        pack(classifier, max_length=16)


def test_a_tokenizer_without_a_tokenizer_json_is_refused(student):
    with pytest.raises(CheckpointError, match=r"str has no tokenizer\.json"):
        pack(replace(student, tokenizer="not one of the fast ones"), max_length=16)


def test_a_packed_model_of_another_network_is_refused(new_classifier, packed):
    other = new_classifier()
    with torch.no_grad():
        other.model.classifier.bias[1] += 0.5
    with pytest.raises(NumericError, match=r"generated: the engine .*label 1 of row 0"):
        verify(other, packed, ROWS)


def test_a_network_with_something_the_file_does_not_hold_is_refused(new_classifier):
    classifier = new_classifier()
    dense = classifier.model.bert.encoder.layer[1].output.dense
    dense.register_forward_pre_hook(lambda _, inputs: (inputs[0] - 0.3,))
    with pytest.raises(NumericError, match=r"of (10|5) rows"):
        pack(classifier, ROWS, max_length=32)


@pytest.mark.parametrize("liar", [*(available_isas()[:-1] or available_isas()), "numpy reference"])
def test_one_wrong_bit_of_an_instruction_set_or_the_reference_is_found(student, packed, liar, monkeypatch):
    def lie(logits):
        def lying(runtime, **inputs):
            found, name = logits(runtime, **inputs), getattr(runtime, "isa", "numpy reference")
            return np.nextafter(found, np.float32(np.inf)) if name == liar else found

        return lying

    monkeypatch.setattr(Engine, "logits", lie(Engine.logits))
    monkeypatch.setattr(export.reference, "logits", lie(export.reference.logits))
    with pytest.raises(NumericError, match=f"generated: the (engine on )?{liar} gives"):
        verify(student, packed)


def test_a_wrong_answer_on_a_real_row_names_the_file_and_the_row(student, packed, monkeypatch):
    original, row = Engine.logits, 2
    only = student.tokenizer(TEXTS[row])["input_ids"]

    def lie(self, input_ids, **named):
        logits = original(self, input_ids, **named)
        logits[(input_ids[:, : len(only)] == only).all(axis=1), 0] += 1
        return logits

    monkeypatch.setattr(Engine, "logits", lie)
    with pytest.raises(NumericError, match=r"reviews\.csv: the engine .*label 0 of row 2.* 1 of 5 rows"):
        verify(student, packed, ROWS)


def test_different_tokens_at_run_time_are_found(student, packed, monkeypatch):
    three = Encoded(np.array([1, 2, 3], dtype=np.int32))
    monkeypatch.setattr(TextEncoder, "encode", lambda _, rows: [three] * len(rows))
    with pytest.raises(CheckpointError, match=r"reviews\.csv: row 0 .*5 tokens .* 3 .*tokenizer\.json"):
        verify(student, packed, ROWS)


@pytest.mark.parametrize("training", [True, False])
def test_packing_leaves_the_network_as_it_was(new_classifier, training):
    classifier = new_classifier(hidden_dropout_prob=0.5)
    before = {name: value.clone() for name, value in classifier.model.state_dict().items()}
    classifier.model.train(training)
    pack(classifier, ROWS, max_length=32)
    assert classifier.model.training == training
    assert all(torch.equal(value, before[name]) for name, value in classifier.model.state_dict().items())


@pytest.mark.parametrize(
    ("layers", "hidden", "most"), [(6, 384, 4_500_000), (12, 768, 16_900_000)], ids=["minilm", "base"]
)
def test_a_real_model_with_its_tokenizer_is_small(layers, hidden, most, packed):
    shape = PackedConfig(layers, hidden, 12, hidden // 12, 4 * hidden, 30_522, 512, 2, 2)
    tokenizer = 466_081  # bytes of the uncased tokenizer of BERT, as `pack` writes it
    end = tensor_specs(shape, tokenizer)[-1]
    header = encode_header(Description(shape, packed.labels, packed.max_length, packed.about), tokenizer)
    assert len(header) + end.offset + end.nbytes <= most
