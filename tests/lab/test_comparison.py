"""Printed figures beside ours: the verdict on each, and a true reason wherever it is not `=`."""

from dataclasses import replace
from decimal import Decimal

import pytest

from bibert.lab.architecture import ARCHITECTURES, count_parameters
from bibert.lab.comparison import Verdict, cost_of, judge, readings_of_13_4, schemes_by_figure
from bibert.lab.cost import MIB, RULES, flops, size
from bibert.lab.paper import REASONS
from bibert.nn.schemes import SCHEMES

BASE = ARCHITECTURES["bert-base"]
EVERY_PRINTED_FIGURE = {
    (column, architecture, scheme): figure
    for architecture, shape in ARCHITECTURES.items()
    for scheme, row in SCHEMES.items()
    for column, figure in cost_of(shape, row).figures.items()
    if figure.printed is not None
}


def verdicts(column):
    """Architecture and scheme of every printed figure, by verdict."""
    found = {verdict: set() for verdict in Verdict}
    for (of, architecture, scheme), figure in EVERY_PRINTED_FIGURE.items():
        if of == column and figure.printed:
            found[figure.verdict].add((architecture, scheme))
    return found


def on_bert_base(*schemes):
    return {("bert-base", scheme) for scheme in schemes}


def test_which_printed_figures_are_reproduced():
    sizes, flops, extra = (verdicts(column) for column in ("size", "flops", "extra_flops"))
    ternary = ("ternarybert_2-2-8", "ternarybert_2-2-2", "ternarybert_2-2-1")
    assert sizes[Verdict.EQUAL] == on_bert_base("full_precision", "q_bert", "q2bert", *ternary)
    assert [len(sizes[verdict]) for verdict in Verdict] == [6, 0, 11]
    assert flops[Verdict.DIFFERENT] == on_bert_base("q_bert", "q2bert", "ternarybert_2-2-8")
    assert {("bert-base", "bibert"), ("6L", "bibert"), ("4L", "bibert")} <= flops[Verdict.EQUAL]
    assert [len(flops[verdict]) for verdict in Verdict] == [8, 6, 3]
    assert extra[Verdict.CLOSE] == on_bert_base("baseline_mu", "baseline_50", "binarybert_50")
    assert [len(extra[verdict]) for verdict in Verdict] == [0, 3, 1]


def test_every_figure_that_is_not_reproduced_has_a_reason_and_no_other():
    differing = {key: one.reason for key, one in EVERY_PRINTED_FIGURE.items() if one.verdict is not Verdict.EQUAL}
    assert differing == REASONS
    assert not any(one.reason for one in EVERY_PRINTED_FIGURE.values() if one.verdict is Verdict.EQUAL)


def test_the_numbers_in_the_reasons_are_ours():
    def products(scheme, architecture):
        return flops(ARCHITECTURES[architecture], SCHEMES[scheme]).products / 10**9

    def bits(architecture):
        counts = count_parameters(ARCHITECTURES[architecture])
        return (counts["word"] + counts["linears"] + counts["pooler"]) / 8 / MIB

    split = size(BASE, SCHEMES["binarybert_1-1-1"])
    split_bits = sum(split.parts[part] for part in ("word", "linears", "pooler")) / MIB
    numbers = {
        ("size", "bert-base", "binarybert_1-1-2"): [f"{split_bits:.2f}", f"{split.mib - split_bits:.2f}"],
        ("size", "bert-base", "bibert"): [
            f"{bits('bert-base'):.2f}",
            f"{size(BASE, SCHEMES['bibert']).mib:.2f}",
            f"{readings_of_13_4()['bits, position and type tables at 8 bits']:.2f}",
        ],
        ("size", "6L", "bibert"): [f"{bits('6L'):.2f}"],
        ("size", "4L", "bibert"): [
            f"{bits('4L'):.2f}",
            f"{size(ARCHITECTURES['4L'], SCHEMES['bibert']).mib_with_scales:.2f}",
        ],
        ("extra_flops", "bert-base", "baseline_mu"): [f"{flops(BASE, SCHEMES['baseline_mu']).threshold / 10**9:.4f}"],
    }
    for scheme in ("full_precision", "q_bert", "binarybert_1-1-4", "binarybert_1-1-1"):
        numbers["flops", "bert-base", scheme] = [f"{products(scheme, 'bert-base'):.2f}"]
    for architecture in ("6L", "4L"):
        numbers["flops", architecture, "full_precision"] = [f"{products('full_precision', architecture):.2f}"]
    missing = [(key, number) for key, quoted in numbers.items() for number in quoted if number not in REASONS[key]]
    assert missing == []


def test_the_readings_of_13_4_start_at_12_99_and_three_arrive():
    alone, *others = readings_of_13_4().values()
    assert alone == pytest.approx(12.99, abs=0.005)
    assert [round(value, 1) for value in others] == [13.4, 13.4, 13.4]


@pytest.mark.parametrize(
    ("architecture", "tokens", "columns"),
    [("bert-base", 128, {"size", "flops", "extra_flops"}), ("bert-base", 64, {"size"}), ("minilm-l6", 128, set())],
)
def test_a_shape_of_the_paper_is_compared_and_its_flops_only_at_the_papers_length(architecture, tokens, columns):
    figures = cost_of(ARCHITECTURES[architecture], SCHEMES["bibert"], tokens).figures
    assert {column for column, figure in figures.items() if figure.verdict} == columns


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_figures_of_a_shape_are_those_of_its_schemes_each_once(architecture):
    shape = ARCHITECTURES[architecture]
    found = schemes_by_figure(shape)
    columns = [figure.column for figure in found]
    assert columns == sorted(columns, key=["size", "flops", "extra_flops"].index)
    for column in ("size", "flops"):
        named = [name for figure, schemes in found.items() if figure.column == column for name in schemes]
        assert sorted(named) == sorted(SCHEMES)
    for figure, schemes in found.items():
        assert figure.rule in RULES
        assert all(cost_of(shape, SCHEMES[name]).figures[figure.column] == figure for name in schemes)


def test_a_shape_of_fewer_positions_has_the_flops_of_its_longest_input():
    short = replace(BASE, layers=2, positions=16)
    ours = {figure.ours for figure, schemes in schemes_by_figure(short).items() if "bibert" in schemes}
    assert flops(short, SCHEMES["bibert"], 16).total / 10**9 in ours


@pytest.mark.parametrize(
    ("ours", "printed", "verdict"),
    [
        (417.65, "418", Verdict.EQUAL),
        (417.4, "418", Verdict.CLOSE),
        (416.9, "418", Verdict.DIFFERENT),
        (27.96, "28.0", Verdict.EQUAL),
        (27.96, "28", Verdict.EQUAL),
        (28.06, "28.0", Verdict.CLOSE),
        (0.026, "0.03", Verdict.EQUAL),
        (0.015, "0.03", Verdict.DIFFERENT),
    ],
)
def test_a_figure_is_judged_by_its_last_printed_digit(ours, printed, verdict):
    assert judge(ours, Decimal(printed)) is verdict
