"""Printed figures beside ours: the verdict on each, and a true reason wherever it is not `=`."""

from dataclasses import replace
from decimal import Decimal

import pytest

from bibert.lab.architecture import ARCHITECTURES, count_parameters
from bibert.lab.comparison import REASONS, Verdict, cost_of, figures, judge, readings_of_13_4, reason_of
from bibert.lab.cost import MIB, RULES, flops, size
from bibert.nn.schemes import SCHEMES

BASE = ARCHITECTURES["bert-base"]
EVERY_PRINTED_FIGURE = {
    (architecture, scheme, column): figure
    for architecture, shape in ARCHITECTURES.items()
    for scheme, row in SCHEMES.items()
    for column, figure in cost_of(shape, row).printed.items()
}


def verdicts(column):
    """Architecture and scheme of every printed figure, by verdict."""
    found = {verdict: set() for verdict in Verdict}
    for (architecture, scheme, of), figure in EVERY_PRINTED_FIGURE.items():
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
    for key, figure in EVERY_PRINTED_FIGURE.items():
        assert bool(figure.reason) == (figure.verdict is not Verdict.EQUAL), key


def test_every_reason_belongs_to_a_figure():
    named = {
        (architecture, scheme, column): text
        for (column, architecture), reasons in REASONS.items()
        for schemes, text in reasons.items()
        for scheme in schemes
    }
    assert {key: figure.reason for key, figure in EVERY_PRINTED_FIGURE.items() if figure.reason} == named


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
    missing = [(key, number) for key, quoted in numbers.items() for number in quoted if number not in reason_of(*key)]
    assert missing == []


def test_the_readings_of_13_4_start_at_12_99_and_three_arrive():
    alone, *others = readings_of_13_4().values()
    assert alone == pytest.approx(12.99, abs=0.005)
    assert [round(value, 1) for value in others] == [13.4, 13.4, 13.4]


def test_flops_are_compared_only_at_the_papers_length():
    assert set(cost_of(BASE, SCHEMES["bibert"]).printed) == {"size", "flops", "extra_flops"}
    assert set(cost_of(BASE, SCHEMES["bibert"], tokens=64).printed) == {"size"}


def test_a_shape_that_the_paper_does_not_have_is_not_compared():
    assert cost_of(ARCHITECTURES["minilm-l6"], SCHEMES["bibert"]).printed == {}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_figures_of_a_shape_are_those_of_its_schemes_each_once(architecture):
    shape = ARCHITECTURES[architecture]
    found = figures(shape)
    for column in ("size", "flops"):
        named = [name for figure in found if figure.column == column for name in figure.schemes]
        assert sorted(named) == sorted(SCHEMES)
    for figure in found:
        assert figure.rule in RULES
        for name in figure.schemes:
            assert cost_of(shape, SCHEMES[name]).printed.get(figure.column) == figure.printed
    assert [figure.column for figure in found] == sorted(
        (figure.column for figure in found), key=["size", "flops", "extra_flops"].index
    )


def test_a_shape_of_fewer_positions_has_the_flops_of_its_longest_input():
    short = replace(BASE, layers=2, positions=16)
    full = next(figure for figure in figures(short) if figure.column == "flops" and "bibert" in figure.schemes)
    assert full.ours == flops(short, SCHEMES["bibert"], 16).total / 10**9


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
