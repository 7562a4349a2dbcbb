"""The parts of a packed file: every byte is counted once, and the counts agree with the rules."""

from dataclasses import replace

import pytest
from random_models import random_packed

from bibert.errors import BibertError
from bibert.lab.architecture import ARCHITECTURES, count_parameters
from bibert.lab.cost import count_scales, count_thresholds, flops, size
from bibert.lab.parts import Part, beside_the_rule, summarize, together
from bibert.nn.schemes import SCHEMES
from bibert.packed.file import save
from bibert.packed.header import Description
from bibert.packed.schema import SITES

TOKENIZER_BYTES = 1000
PLUS = {"thresholds": SITES, "score_thresholds": True}


def described(name="bert-base", **changes):
    """A packed model of an architecture, without any weight."""
    return Description(replace(ARCHITECTURES[name], **changes), ("no", "yes"), 128, {})


def summary_of(name, tokens=128):
    return summarize(described(name), TOKENIZER_BYTES, tokens)


def part_of(summary, name):
    return next(part for part in summary.parts if part.name == name)


@pytest.mark.parametrize("changes", [{}, PLUS, {"heads": 5, "head_size": 7, "ffn_levels": "bool", "labels": 1}])
def test_the_parts_add_up_to_the_size_of_the_file(changes, tmp_path):
    small = {"layers": 2, "hidden": 70, "heads": 2, "head_size": 35, "vocabulary": 30, "positions": 9, **changes}
    model = random_packed(replace(ARCHITECTURES["4L"], **small), tokenizer=b"x" * 777)
    save(model, tmp_path / "model.bibert")
    summary = summarize(model, len(model.tokenizer), tokens=1)
    assert summary.total.nbytes == (tmp_path / "model.bibert").stat().st_size
    assert summary.total.float32_bytes == model.float32_bytes
    assert together("total", summary.by_layer) == summary.total
    assert part_of(summary, "tokenizer").nbytes == 777


@pytest.mark.parametrize("tokens", [1, 128, 512])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_flops_and_parameters_are_those_of_the_papers_rule(name, tokens):
    summary, rule = summary_of(name, tokens), flops(ARCHITECTURES[name], SCHEMES["bibert"], tokens)
    assert (summary.total.product_flops, summary.flops) == (rule.products, rule.total)
    parameters = sum(count_parameters(ARCHITECTURES[name]).values())
    assert summary.total.float32_bytes == 4 * parameters + TOKENIZER_BYTES


def test_a_layer_is_the_sum_of_its_parts():
    layer = next(part for part in summary_of("minilm-l6").by_layer if part.name == "layers.5")
    assert layer.bits == 4 * 384**2 + 2 * 384 * 1536
    assert layer.numbers == 2 * (5 * 384 + 1536) + 4 * 384  # a scale and a bias for each output, two LayerNorms
    assert layer.nbytes == layer.bits // 8 + 4 * layer.numbers
    assert layer.binary_macs == 128 * layer.bits + 2 * 128**2 * 384
    assert layer.ratio == pytest.approx(7097856 / 254976)


def test_the_rows_follow_the_network_and_end_with_tokenizer_and_header():
    names = [part.name for part in summary_of("4L").by_layer]
    embeddings = ["embeddings.word", "embeddings.token_type", "embeddings.position", "embeddings.norm"]
    layers = [f"layers.{layer}" for layer in range(4)]
    assert names == [*embeddings, *layers, "pooler", "classifier", "tokenizer", "header"]


def test_the_embedding_is_a_padded_look_up_and_the_head_sees_one_token():
    summary = summary_of("4L", tokens=512)
    word = part_of(summary, "embeddings.word")
    assert (word.binary_macs, word.bits) == (0, 30522 * 312)
    assert word.nbytes == 30522 * (320 // 8 + 4)  # padding bits are bytes but not parameters
    assert part_of(summary, "pooler").binary_macs == 312**2
    assert part_of(summary, "classifier").float_macs == 2 * 312


def test_scales_and_thresholds_are_not_in_the_float32_model():
    bare, full = summary_of("4L"), summarize(described("4L", **PLUS), TOKENIZER_BYTES, 128)
    assert full.total.numbers > bare.total.numbers
    assert full.total.float32_bytes == bare.total.float32_bytes
    assert part_of(full, "layers.0.attention").nbytes == 4 * 12  # a threshold for each head
    assert Part("layers.0.attention", binary_macs=7).ratio == 0.0


@pytest.mark.parametrize("name", ["bert-base", "6L", "4L"])
def test_every_byte_has_a_part_of_the_rule_and_a_reason_where_the_two_differ(name):
    description = described(name, **PLUS)
    parts = beside_the_rule(description, 5000)
    assert sum(part.in_file for part in parts) == summarize(description, 5000, 128).total.nbytes
    assert sum(part.by_rule for part in parts) == sum(size(ARCHITECTURES[name], SCHEMES["bibert"]).parts.values())
    assert all(bool(part.reason) == (part.by_rule != part.in_file) for part in parts)


def test_rows_of_312_bits_end_at_the_next_word_and_rows_of_768_need_nothing():
    narrow = {part.part: part for part in beside_the_rule(described("4L"), 0)}
    assert (narrow["pooler"].by_rule, narrow["pooler"].in_file) == (312 * 312 / 8, 312 * 320 / 8)
    wide = {part.part: part for part in beside_the_rule(described(), 0)}
    assert wide["linears"].by_rule == wide["linears"].in_file


def test_scales_and_thresholds_are_those_that_the_rules_count_separately():
    plus = {part.part: part.in_file for part in beside_the_rule(described(**PLUS), 5000)}
    assert plus["scales"] == 4 * count_scales(ARCHITECTURES["bert-base"], SCHEMES["bibert"])
    assert plus["thresholds"] == 4 * count_thresholds(ARCHITECTURES["bert-base"], SCHEMES["bibert_plus"])
    assert plus["tokenizer"] == 5000


def test_heads_that_do_not_fill_the_hidden_size_are_refused_by_the_rule_and_counted_in_the_file():
    with pytest.raises(BibertError, match=r"6 heads of 64 .* 768"):
        beside_the_rule(described(heads=6), 5000)
    assert summarize(described(heads=6), 5000, 128).total.bits < summary_of("bert-base").total.bits
