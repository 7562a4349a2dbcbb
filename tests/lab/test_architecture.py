"""Architectures: the shapes of the paper, their parameters, and what a config.json may look like."""

import json

import pytest

from bibert.errors import CheckpointError
from bibert.lab.architecture import ARCHITECTURES, count_parameters, get_architecture, name_of, read_architecture
from bibert.nn.packable import packed_config

SIZES = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
TABLES = {"vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2}


@pytest.fixture
def config_file(tmp_path):
    def write(content=b"", **changes):
        file = tmp_path / "config.json"
        file.write_bytes(content or json.dumps({"model_type": "bert", **SIZES, **TABLES, **changes}).encode())
        return file

    return write


def test_bert_base_has_the_parameters_everybody_counts():
    counts = count_parameters(ARCHITECTURES["bert-base"])
    assert list(counts.values()) == [23_440_896, 393_216, 1_536, 84_934_656, 589_824, 83_712, 38_400, 1_538]
    totals = {name: sum(count_parameters(shape).values()) for name, shape in ARCHITECTURES.items()}
    assert totals == {"bert-base": 109_483_778, "6L": 66_956_546, "4L": 14_350_874, "minilm-l6": 22_713_986}


def test_the_count_is_that_of_the_transformers_model():
    transformers = pytest.importorskip("transformers")
    sizes = {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40}
    tables = {"vocab_size": 50, "max_position_embeddings": 16, "type_vocab_size": 3, "num_labels": 5}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, **tables))
    counts = count_parameters(packed_config(model.config.to_dict()))
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())


def test_a_config_and_its_folder_give_the_same_shape(config_file):
    file = config_file()
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # a byte order mark
    assert read_architecture(file) == ARCHITECTURES["bert-base"]
    assert read_architecture(file.parent) == ARCHITECTURES["bert-base"]
    assert get_architecture(str(file.parent)) == ARCHITECTURES["bert-base"]


def test_a_config_of_our_own_model_is_read_with_its_labels_and_keeps_its_name(config_file):
    assert read_architecture(config_file(model_type="bibert", attention_head_size=64)) == ARCHITECTURES["bert-base"]
    assert read_architecture(config_file(id2label={"0": "a", "1": "b", "2": "c"})).labels == 3
    four = read_architecture(config_file(num_labels=4))
    assert (four.labels, name_of(four)) == (4, "bert-base")
    assert name_of(read_architecture(config_file(num_hidden_layers=11))) is None


def test_names_do_not_mind_capitals_and_an_unknown_one_is_answered_with_the_nearest():
    assert get_architecture("4l") is ARCHITECTURES["4L"]
    assert get_architecture("BERT-base") is ARCHITECTURES["bert-base"]
    with pytest.raises(CheckpointError, match=r"'bert-bas'.* did you mean 'bert-base'"):
        get_architecture("bert-bas")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'.* 'bert'"),
        ({"hidden_size": "768"}, "hidden_size is '768', must be a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, must be a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, must be a whole number"),
        ({"intermediate_size": None}, "intermediate_size is None"),
        ({"num_attention_heads": 7}, "7 heads .* 768"),
        ({"num_attention_heads": 6}, "head_size is 128, .* 64"),
        ({"content": b'{\n"hidden_size": 768,\n'}, "is not JSON.* line 3"),
        ({"content": b"[1, 2]"}, "holds a list"),
        ({"content": b"\xff\xfe\x00\x80"}, "utf-8.* position 0"),
    ],
)
def test_what_is_not_the_config_of_a_bert_is_refused_with_the_key_or_the_place(config_file, changes, message):
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{message}"):
        read_architecture(config_file(**changes))


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        read_architecture(tmp_path)
    with pytest.raises(CheckpointError, match=r"elsewhere\.json: no such file"):
        get_architecture(str(tmp_path / "elsewhere.json"))
