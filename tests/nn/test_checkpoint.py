"""Loading checkpoints: what loads unchanged, and the error for every way a folder can be wrong."""

import json
import re
import shutil

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, MPNetConfig, RobertaConfig

from bibert.data.encoding import train_tokenizer
from bibert.errors import CheckpointError, NumericError
from bibert.nn.checkpoint import load_classifier, model_folder
from bibert.nn.students import binarize

SHAPE = {
    "vocab_size": 90,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
}


@pytest.fixture(scope="module")
def classifier_folder(tmp_path_factory, tokenizer):
    """A Hugging Face classifier with three named labels."""
    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    names = {0: "no", 1: "maybe", 2: "yes"}
    config = BertConfig(**SHAPE, id2label=names, label2id={name: i for i, name in names.items()})
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory, tokenizer):
    """A pre-trained encoder without a classifier."""
    folder = tmp_path_factory.mktemp("encoder")
    BertModel(BertConfig(**SHAPE)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def broken(classifier_folder, tmp_path):
    """A copy of the classifier that a test may damage."""
    return shutil.copytree(classifier_folder, tmp_path / "broken")


def refusal(folder, error=CheckpointError, **arguments):
    """The message of the error, which is one line that begins with the folder."""
    with pytest.raises(error) as caught:
        load_classifier(folder, **arguments)
    message = str(caught.value)
    assert message.startswith(f"{folder}: ")
    assert "\n" not in message
    return message.removeprefix(f"{folder}: ")


def test_a_classifier_keeps_its_labels_and_all_its_weights(classifier_folder, new_batch):
    theirs = BertForSequenceClassification.from_pretrained(classifier_folder).eval()
    found = load_classifier(classifier_folder)
    assert found.model.config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert found.model.config.quantization.name == "full_precision"
    ours = found.model.state_dict()
    assert all(torch.equal(value, ours[key]) for key, value in theirs.state_dict().items())
    batch = new_batch((9, 4))
    torch.testing.assert_close(found.model(**batch).logits, theirs(**batch).logits, atol=1e-5, rtol=0)
    assert found.tokenizer("a good film")["input_ids"][0] == found.tokenizer.cls_token_id


@pytest.mark.parametrize(
    ("labels", "names", "problem"),
    [(("neg", "pos"), ["neg", "pos"], "single_label_classification"), ((), ["score"], "regression")],
)
def test_the_labels_of_the_data_make_a_new_head(classifier_folder, encoder_folder, labels, names, problem):
    for folder in (classifier_folder, encoder_folder):
        model = load_classifier(folder, labels).model
        assert (model.config.num_labels, model.config.problem_type) == (len(names), problem)
        assert model.config.id2label == dict(enumerate(names))
        assert model.config.label2id == {name: label for label, name in enumerate(names)}
        assert model.classifier.weight.shape == (len(names), 16)
        assert torch.isfinite(model.classifier.weight).all()
        assert model.classifier.weight.std() > 0


def test_a_student_comes_back_with_scheme_labels_and_weights(classifier_folder, tmp_path):
    source = load_classifier(classifier_folder)
    student = binarize(source.model, "binarybert_1-1-4")
    student.save_pretrained(tmp_path)
    source.tokenizer.save_pretrained(tmp_path)
    found = load_classifier(tmp_path).model
    assert found.config.quantization.name == "binarybert_1-1-4"
    assert found.config.kept_heads == student.config.kept_heads
    assert found.config.id2label == source.model.config.id2label
    assert all(torch.equal(value, student.state_dict()[key]) for key, value in found.state_dict().items())


@pytest.mark.parametrize("path", ["runs/typo", "./typo", "~/typo", "runs/reviews/typo", "/nowhere/typo"])
def test_a_mistyped_path_raises_before_the_hub_is_queried(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("bibert.nn.checkpoint.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("queried"))
    assert "no such folder" in refusal(path)


def test_a_name_that_the_hub_does_not_have_may_be_a_mistyped_shipped_one():
    assert refusal("general4").endswith("; did you mean 'general_4'?")
    assert "did you mean" not in refusal("bert-base-uncased")


def test_a_run_folder_means_the_model_in_it(classifier_folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(classifier_folder)
    assert model_folder(tmp_path / "run") == tmp_path / "run" / "model"
    assert load_classifier(tmp_path / "run").label_names == load_classifier(classifier_folder).label_names
    assert refusal(tmp_path).endswith(f": {tmp_path / 'run'}")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_instead_of_its_folder_raises(classifier_folder, name):
    assert "give the folder" in refusal(classifier_folder / name)


def without(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def with_config(**changes):
    def edit(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def with_text(text):
    return lambda folder: (folder / "config.json").write_text(text)


def torn(share):
    def tear(folder):
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[: int(share * len(data))])

    return tear


def with_code(folder):
    with_config(model_type="strange", auto_map={"AutoConfig": "evil.Config"})(folder)
    (folder / "evil.py").write_text("raise SystemExit('ran')")


def as_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def with_tokens(count):
    return lambda folder: train_tokenizer([" ".join(f"word{i}" for i in range(count))]).save_pretrained(folder)


def without_padding(folder):
    tokenizer = train_tokenizer(["a good film"])
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)


def with_vocabulary(folder):
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    without("tokenizer.json", "tokenizer_config.json")(folder)
    (folder / "vocab.txt").write_text("\n".join(sorted(words, key=words.get)) + "\n")
    return words


def with_slow_tokenizer(folder):
    with_vocabulary(folder)
    kind = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


DAMAGE = {  # how a folder is damaged, and the facts in the message
    "another architecture": (with_text(RobertaConfig().to_json_string()), "'roberta'.*'bert'"),
    "a third architecture": (with_text(MPNetConfig().to_json_string()), "'mpnet'.*'bert'"),
    "no config": (without("config.json"), "no config.json"),
    "a torn config": (with_text("{"), "config.json"),
    "a config of wrong types": (with_text('{"model_type": "bert", "hidden_size": "many"}'), "config.json.*many"),
    "code in the checkpoint": (with_code, "config.json"),
    "only a pickle": (as_pickle, "model.safetensors.*pytorch_model.bin.*save_pretrained"),
    "no weights": (without("model.safetensors"), "model.safetensors.*none"),
    "torn weights": (torn(0.9), "weights"),
    "empty weights": (torn(0.0), "weights"),
    "one layer too few": (with_config(num_hidden_layers=2), r"16 .*\b0 .*'bert.encoder.layer.1.attention\."),
    "another shape": (
        with_config(max_position_embeddings=30),
        r"1 have another shape.*'bert.embeddings.position_embeddings.weight'.*\[24, 16\].*\[30, 16\]",
    ),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), "tokenizer.json.*vocab.txt"),
    "too many tokens": (with_tokens(200), r"tokenizer.*\d{3}.*90 rows"),
    "no padding token": (without_padding, "padding"),
    "a tokenizer in Python": (with_slow_tokenizer, "BertJapaneseTokenizer.*tokenizer.json.*fast tokenizer"),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_folder_raises_with_the_facts(damage, says, broken):
    damage(broken)
    assert re.search(says, refusal(broken))


def test_only_a_new_head_may_be_missing(broken, encoder_folder):
    assert re.match("2 .*'classifier.bias'", refusal(encoder_folder))
    with_config(num_hidden_layers=2)(broken)
    assert re.match("16 ", refusal(broken, label_names=("neg", "pos")))


def test_an_encoder_in_half_precision_without_a_pooler_becomes_float32(tmp_path, encoder_folder, tokenizer):
    encoder = BertModel.from_pretrained(encoder_folder, add_pooling_layer=False).half()
    for saved in (encoder, tokenizer):
        saved.save_pretrained(tmp_path)
    state = load_classifier(tmp_path, label_names=("neg", "pos")).model.state_dict()
    assert {value.dtype for value in state.values()} == {torch.float32}


def test_weights_that_are_not_finite_raise_with_their_name(broken):
    model = BertForSequenceClassification.from_pretrained(broken)
    torch.nn.init.constant_(model.bert.pooler.dense.bias[:1], float("nan"))
    model.save_pretrained(broken)
    assert re.search("'bert.pooler.dense.bias'.*NaN", refusal(broken, NumericError))


def test_a_vocabulary_alone_is_a_fast_tokenizer(broken):
    words = with_vocabulary(broken)
    assert load_classifier(broken).tokenizer.get_vocab() == words
