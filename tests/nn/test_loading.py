"""Reading checkpoints: what loads as it is, and every way a folder can be wrong, each with its own line."""

import json
import re
import shutil

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, MPNetConfig, RobertaConfig

from bibert.data.tokenizer import train_tokenizer
from bibert.errors import CheckpointError, NumericError
from bibert.nn.binarization import binarize
from bibert.nn.loading import load_classifier, model_folder

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
    """A bare encoder, as pre-training leaves it."""
    folder = tmp_path_factory.mktemp("encoder")
    BertModel(BertConfig(**SHAPE)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def broken(classifier_folder, tmp_path):
    """A copy of the classifier that a test may spoil."""
    return shutil.copytree(classifier_folder, tmp_path / "broken")


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(folder, error=CheckpointError, **arguments):
    """The one line with which `folder` is refused."""
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


def test_new_labels_make_a_new_head_of_their_number(classifier_folder):
    config = load_classifier(classifier_folder, ("neg", "pos")).model.config
    assert (config.num_labels, config.id2label, config.label2id) == (2, {0: "neg", 1: "pos"}, {"neg": 0, "pos": 1})
    assert config.problem_type == "single_label_classification"


def test_no_labels_make_a_regression_head(classifier_folder):
    model = load_classifier(classifier_folder, ()).model
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")
    assert model.classifier.weight.shape == (1, 16)
    assert load_classifier(classifier_folder, ()).model.config.id2label == {0: "score"}


def test_a_bare_encoder_gets_a_classifier_for_the_labels_of_the_data(encoder_folder):
    model = load_classifier(encoder_folder, ("neg", "pos")).model
    assert torch.isfinite(model.classifier.weight).all()
    assert model.classifier.weight.std() > 0


def test_a_bare_encoder_without_labels_is_no_classifier(encoder_folder):
    assert re.match("2 tensors are missing .* the first is 'classifier.bias'; .* not a whole", refusal(encoder_folder))


def test_overrides_change_the_configuration(classifier_folder):
    config = load_classifier(classifier_folder, overrides={"hidden_dropout_prob": 0.25}).model.config
    assert config.hidden_dropout_prob == 0.25


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


def test_half_precision_is_read_as_float32(broken):
    BertForSequenceClassification.from_pretrained(broken).half().save_pretrained(broken)
    assert {value.dtype for value in load_classifier(broken).model.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize(("config", "name"), [(RobertaConfig(), "roberta"), (MPNetConfig(), "mpnet")])
def test_another_architecture_is_refused_with_both_names(config, name, tmp_path):
    config.save_pretrained(tmp_path)
    assert f"the architecture is '{name}', this package binarizes BERT (bert or bibert); choose" in refusal(tmp_path)


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path):
    assert refusal(tmp_path / "nowhere") == "there is no such folder; check the path"


def test_a_slip_in_a_path_is_told_without_asking_the_hub(tmp_path, monkeypatch):
    def asked(*_, **__):
        pytest.fail("the Hub was asked")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("bibert.nn.loading.AutoConfig.from_pretrained", asked)
    for path in ("runs/typo", "./typo", "~/typo", "runs/reviews/typo"):
        with pytest.raises(CheckpointError, match="there is no such folder; check the path"):
            load_classifier(path)


def test_a_run_folder_stands_for_the_model_in_it(classifier_folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(classifier_folder)
    assert model_folder(tmp_path / "run") == tmp_path / "run" / "model"
    assert load_classifier(tmp_path / "run").label_names == load_classifier(classifier_folder).label_names
    assert refusal(tmp_path).endswith(f"give one of the runs in it: {tmp_path / 'run'}")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_instead_of_its_folder_is_refused(classifier_folder, name):
    assert refusal(classifier_folder / name).startswith("is a file; give the folder that holds config.json")


def test_a_folder_without_config_is_refused(broken):
    (broken / "config.json").unlink()
    assert refusal(broken) == "the folder has no config.json; give the folder of a BERT checkpoint"


@pytest.mark.parametrize("text", ["{", '{"model_type": "bert", "hidden_size": "many"}'])
def test_a_config_that_cannot_be_understood_is_refused(broken, text):
    (broken / "config.json").write_text(text)
    assert refusal(broken).startswith("the folder has no readable config.json")


def test_a_pickle_is_refused_by_name(broken):
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    message = refusal(broken)
    assert message.startswith("needs model.safetensors, found only pytorch_model.bin, a pickle, which can run code")
    assert "save_pretrained" in message


def test_a_folder_without_weights_is_refused(broken):
    (broken / "model.safetensors").unlink()
    assert refusal(broken).startswith("needs model.safetensors, found none")


@pytest.mark.parametrize("kept", [0.9, 0.0])
def test_a_torn_weight_file_is_refused(broken, kept):
    path = broken / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    assert refusal(broken).startswith("the weights cannot be read (")


def test_missing_tensors_are_counted_and_the_first_is_named(broken):
    edit_config(broken, num_hidden_layers=2)
    expected = "16 tensors are missing and 0 have another shape, the first is 'bert.encoder.layer.1.attention."
    assert refusal(broken).startswith(expected)
    assert refusal(broken, label_names=("neg", "pos")).startswith(expected)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(broken):
    edit_config(broken, max_position_embeddings=30)
    message = refusal(broken)
    assert "1 have another shape" in message
    assert "'bert.embeddings.position_embeddings.weight' ([24, 16] in the file, [30, 16] by config.json)" in message


def test_weights_that_are_not_finite_are_refused_by_name(broken):
    model = BertForSequenceClassification.from_pretrained(broken)
    torch.nn.init.constant_(model.bert.pooler.dense.bias[:1], float("nan"))
    model.save_pretrained(broken)
    assert refusal(broken, NumericError).startswith("'bert.pooler.dense.bias' holds NaN or infinity")


def test_a_folder_without_tokenizer_is_refused(broken):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (broken / name).unlink()
    assert "copy tokenizer.json (or vocab.txt) beside config.json" in refusal(broken)


def test_a_tokenizer_with_more_ids_than_the_embedding_is_refused_with_both_numbers(broken):
    many = train_tokenizer([" ".join(f"word{i}" for i in range(200))])
    many.save_pretrained(broken)
    assert f"the tokenizer has {len(many)} token ids, the word embedding 90 rows; use the tokenizer" in refusal(broken)


def test_a_tokenizer_that_cannot_pad_is_refused(broken):
    tokenizer = train_tokenizer(["a good film"])
    tokenizer.pad_token = None
    tokenizer.save_pretrained(broken)
    assert refusal(broken).startswith("the tokenizer has no padding token")


def test_a_tokenizer_that_runs_in_python_is_refused_by_name(broken):
    words = json.loads((broken / "tokenizer.json").read_text())["model"]["vocab"]
    (broken / "tokenizer.json").unlink()
    (broken / "vocab.txt").write_text("\n".join(sorted(words, key=words.get)) + "\n")
    kind = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic"}
    (broken / "tokenizer_config.json").write_text(json.dumps(kind))
    message = refusal(broken)
    assert message.startswith("the tokenizer is a BertJapaneseTokenizer, which has no tokenizer.json")
    assert message.endswith("choose a checkpoint with a fast tokenizer")


def test_a_vocabulary_alone_is_a_fast_tokenizer(broken):
    words = json.loads((broken / "tokenizer.json").read_text())["model"]["vocab"]
    (broken / "tokenizer.json").unlink()
    (broken / "tokenizer_config.json").unlink()
    (broken / "vocab.txt").write_text("\n".join(sorted(words, key=words.get)) + "\n")
    assert load_classifier(broken).tokenizer.get_vocab() == words


def test_code_in_a_checkpoint_is_never_run(broken):
    edit_config(broken, model_type="strange", auto_map={"AutoConfig": "evil.Config"})
    (broken / "evil.py").write_text("raise SystemExit('ran')")
    assert refusal(broken).startswith("the folder has no readable config.json")
