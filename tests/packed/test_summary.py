"""The summary of a file: every byte is counted once, and the counts agree with those of `analysis`."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bibert.errors import BibertError
from bibert.lab.architecture import ARCHITECTURES, count_parameters
from bibert.lab.cost import flops, product_flops
from bibert.nn.schemes import SCHEMES
from bibert.packed.file import save
from bibert.packed.header import Description
from bibert.packed.schema import PackedConfig
from bibert.packed.summary import Part, summarize, together

TOKENIZER_BYTES = 1000


def description_of(shape):
    """A packed model of an architecture, without any weight."""
    config = PackedConfig(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        head_size=shape.hidden // shape.heads,
        intermediate=shape.intermediate,
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        token_types=shape.types,
        labels=shape.labels,
    )
    return Description(config, tuple(map(str, range(shape.labels))), 128, {})


def summary_of(name, tokens=128):
    return summarize(description_of(ARCHITECTURES[name]), TOKENIZER_BYTES, tokens)


def part_of(summary, name):
    return next(part for part in summary.parts if part.name == name)


def test_the_parts_add_up_to_the_size_of_the_file(make_model, tmp_path):
    model = make_model(tokenizer=b"x" * 777, about={"trained on": "reviews"})
    save(model, tmp_path / "model.bibert")
    summary = summarize(model, len(model.tokenizer), tokens=4)
    assert summary.total.nbytes == (tmp_path / "model.bibert").stat().st_size
    assert part_of(summary, "tokenizer").nbytes == 777


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_byte_of_any_file_is_counted(make_model, small_configs, tmp_path, data):
    model = make_model(data.draw(small_configs))
    save(model, tmp_path / "model.bibert")
    summary = summarize(model, len(model.tokenizer), tokens=1)
    assert summary.total.nbytes == (tmp_path / "model.bibert").stat().st_size
    assert together("total", summary.by_layer) == summary.total


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_float32_model_has_the_parameters_that_analysis_counts(name):
    total = summary_of(name).total
    assert total.float32_bytes == 4 * count_parameters(ARCHITECTURES[name]).total + TOKENIZER_BYTES


@pytest.mark.parametrize("tokens", [1, 128, 512])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_binary_macs_are_those_of_the_papers_rule(name, tokens):
    total = summary_of(name, tokens).total
    assert product_flops(total.binary_macs, 1, 1) == flops(ARCHITECTURES[name], SCHEMES["bibert"], tokens).products


def test_a_layer_is_the_sum_of_its_parts():
    summary = summary_of("minilm-l6")
    layer = next(part for part in summary.by_layer if part.name == "layers.5")
    assert layer.bits == 4 * 384**2 + 2 * 384 * 1536
    assert layer.numbers == 2 * (5 * 384 + 1536) + 4 * 384  # a scale and a bias for each output, two LayerNorms
    assert layer.nbytes == layer.bits // 8 + 4 * layer.numbers
    assert layer.binary_macs == 128 * layer.bits + 2 * 128**2 * 384
    assert layer.ratio == pytest.approx(7097856 / 254976)


def test_the_rows_follow_the_network_and_end_with_what_is_no_weight():
    names = [part.name for part in summary_of("4L").by_layer]
    embeddings = ["embeddings.word", "embeddings.token_type", "embeddings.position", "embeddings.norm"]
    layers = [f"layers.{layer}" for layer in range(4)]
    assert names == [*embeddings, *layers, "pooler", "classifier", "tokenizer", "header"]


def test_the_embedding_is_a_look_up_and_the_head_sees_one_token():
    summary = summary_of("bert-base", tokens=512)
    assert part_of(summary, "embeddings.word").binary_macs == 0
    assert part_of(summary, "pooler").binary_macs == 768**2
    assert part_of(summary, "classifier").float_macs == 2 * 768


def test_padding_bits_are_bytes_but_no_parameters():
    word = part_of(summary_of("4L"), "embeddings.word")
    assert word.bits == 30522 * 312
    assert word.nbytes == 30522 * (320 // 8 + 4)


def test_scales_and_thresholds_are_not_in_the_float32_model(make_model):
    model = make_model()
    plain = dataclasses.replace(model.config, thresholds=(), score_thresholds=False)
    bare = summarize(Description(plain, model.labels, model.max_length, {}), 1, tokens=1)
    full = summarize(model, 1, tokens=1)
    assert full.total.numbers > bare.total.numbers
    assert full.total.float32_bytes == bare.total.float32_bytes
    assert part_of(full, "layers.0.attention").nbytes == 4 * model.config.heads


@pytest.mark.parametrize("tokens", [0, 513])
def test_a_length_the_model_does_not_take_is_refused_with_both_numbers(tokens):
    with pytest.raises(BibertError, match=f"tokens is {tokens}, but this model takes from 1 to 512"):
        summary_of("minilm-l6", tokens)


def test_a_part_of_no_bytes_has_no_ratio():
    assert Part("layers.0.attention", binary_macs=7).ratio == 0.0
