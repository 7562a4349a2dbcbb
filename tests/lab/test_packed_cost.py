"""The bytes of a packed file in the parts of the rule: nothing is lost, and every difference has its reason."""

import pytest

from bibert.errors import BibertError
from bibert.lab.architecture import ARCHITECTURES
from bibert.lab.cost import count_scales, count_thresholds, size
from bibert.lab.packed_cost import PACKED_SCHEME, architecture_of, beside_the_rule
from bibert.nn.schemes import SCHEMES
from bibert.packed.header import Description
from bibert.packed.schema import SITES, PackedConfig
from bibert.packed.summary import summarize


def described(architecture="bert-base", **changes):
    shape = ARCHITECTURES[architecture]
    values = {"heads": shape.heads, "head_size": shape.hidden // shape.heads, "hidden": shape.hidden} | changes
    config = PackedConfig(
        layers=shape.layers,
        intermediate=shape.intermediate,
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        token_types=shape.types,
        labels=shape.labels,
        **values,
    )
    return Description(config, ("no", "yes"), 128, {})


@pytest.mark.parametrize("architecture", ["bert-base", "6L", "4L"])
def test_every_byte_of_a_file_has_a_part(architecture):
    description = described(architecture, thresholds=SITES, score_thresholds=True)
    parts = beside_the_rule(description, 5000)
    assert sum(part.in_file for part in parts) == summarize(description, 5000, 128).total.nbytes
    assert sum(part.by_rule for part in parts) == sum(size(ARCHITECTURES[architecture], PACKED_SCHEME).parts.values())


def test_a_part_has_a_reason_exactly_where_the_file_and_the_rule_differ():
    for part in beside_the_rule(described("4L"), 5000):
        assert bool(part.reason) == (part.by_rule != part.in_file)


def test_rows_of_312_bits_end_at_the_next_word_and_rows_of_768_need_nothing():
    narrow = {part.part: part for part in beside_the_rule(described("4L"), 0)}
    assert narrow["pooler"].by_rule == 312 * 312 / 8
    assert narrow["pooler"].in_file == 312 * 320 / 8
    wide = {part.part: part for part in beside_the_rule(described(), 0)}
    assert wide["linears"].by_rule == wide["linears"].in_file


def test_scales_and_thresholds_are_those_that_the_rules_count_apart():
    shape = ARCHITECTURES["bert-base"]
    plus = {
        part.part: part.in_file for part in beside_the_rule(described(thresholds=SITES, score_thresholds=True), 5000)
    }
    assert plus["scales"] == 4 * count_scales(shape, SCHEMES["bibert"])
    assert plus["thresholds"] == 4 * count_thresholds(shape, SCHEMES["bibert_plus"])
    assert plus["tokenizer"] == 5000


def test_heads_that_do_not_fill_the_hidden_size_are_refused():
    with pytest.raises(BibertError, match="6 heads of 64 do not fill a hidden size of 768"):
        architecture_of(described(heads=6).config)
