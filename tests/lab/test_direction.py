"""Direction: steps and asked-for directions counted by hand, padding left out, similarities free of their scale."""

import numpy as np
import pytest
import torch

from bibert.distill.objective import LayerMatch
from bibert.lab.direction import THINGS, DirectionProbe, distilled_by, mean_margin, movement, towards
from bibert.nn.functional import HeadLevels
from bibert.nn.layers import LayerTrace
from bibert.nn.model import Trace
from bibert.nn.schemes import get_scheme

ONE_TO_ONE = LayerMatch(1, None)


def trace_of(seed: int, mask: torch.Tensor, layers: int = 2) -> Trace:
    generator = torch.Generator().manual_seed(seed)
    batch, tokens = mask.shape
    trace = Trace(mask)
    for _ in range(layers):
        heads = [torch.randn(batch, 2, tokens, 4, generator=generator) for _ in range(3)]
        pairs = [torch.randn(batch, 2, tokens, tokens, generator=generator) for _ in range(2)]
        context = torch.randn(batch, tokens, 8, generator=generator)
        trace.layers.append(LayerTrace(*heads, *pairs, context, HeadLevels(*heads)))
    return trace


@pytest.fixture
def mask() -> torch.Tensor:
    """Two texts of 4 and 2 tokens."""
    return torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0]])


def test_steps_are_counted_by_hand():
    before = torch.tensor([[[[0.0, 0.0], [0.0, 5.0]]]])
    after = torch.tensor([[[[0.5, -2.0], [0.0, 5.5]]]])
    goal = torch.tensor([[[[9.0, 9.0], [9.0, 5.0]]]])  # asks for more, more, more, nothing
    moved = movement([before], [after], [goal], torch.ones(1, 1, 2, 2))
    counted = {"matching": 0.25, "mismatching": 0.25, "matching_margin": 0.5, "mismatching_margin": 2.0}
    assert moved == {field: [[value]] for field, value in counted.items()}


def moved(teacher, *students, match=ONE_TO_ONE):
    """The movements that a probe reports at the last of several looks."""
    probe = DirectionProbe(teacher, match)
    return [probe(student) for student in students][-1]


def as_lists(movements):
    return {name: {field: table.tolist() for field, table in one.items()} for name, one in movements.items()}


def test_nothing_is_known_at_the_first_look_and_a_student_that_stays_has_no_steps(mask):
    student = trace_of(1, mask)
    assert moved(trace_of(0, mask), student) is None
    stayed = moved(trace_of(0, mask), student, student)
    assert set(stayed) == set(THINGS)
    for thing in stayed.values():
        assert thing["matching"].shape == (2, 2)
        assert not thing["matching"].any()
        assert not thing["mismatching_margin"].any()


def test_a_student_that_becomes_its_teacher_moves_as_asked_everywhere(mask):
    for thing in moved(trace_of(0, mask), trace_of(1, mask), trace_of(0, mask)).values():
        np.testing.assert_allclose(thing["matching"], 1, atol=1e-6)
        assert not thing["mismatching"].any()


def test_each_look_starts_from_the_one_before(mask):
    teacher, first, second, third = (trace_of(seed, mask) for seed in range(4))
    assert as_lists(moved(teacher, first, second, third)) == as_lists(moved(teacher, second, third))


def test_padding_does_not_count(mask):
    def look(junk: float) -> dict[str, dict]:
        traces = [trace_of(seed, mask) for seed in (0, 1, 2)]
        for number, trace in enumerate(traces):
            for layer in trace.layers:
                for name in ("query", "key", "value"):
                    getattr(layer, name)[1, :, 2:] = junk * (number + 1)
                layer.scores[1, :, 2:] = junk
                layer.scores[1, :, :, 2:] = -junk * number
        return as_lists(moved(*traces))

    assert look(0.0) == look(7.0)


def test_the_size_of_queries_does_not_matter(mask):
    looks = []
    for factor in (1.0, 10.0):
        last = trace_of(2, mask)
        for layer in last.layers:
            layer.query = layer.query * factor
        looks.append(moved(trace_of(0, mask), trace_of(1, mask), last)["query"])
    np.testing.assert_allclose(looks[0]["matching"], looks[1]["matching"])
    np.testing.assert_allclose(looks[0]["matching_margin"], looks[1]["matching_margin"], rtol=1e-4)


def test_a_deeper_teacher_asks_by_the_last_layer_of_each_block(mask):
    teacher = trace_of(0, mask, layers=4)
    goal = Trace(mask, layers=[teacher.layers[1], teacher.layers[3]])
    found = moved(teacher, trace_of(1, mask), goal, match=LayerMatch(2, None))
    np.testing.assert_allclose(found["scores"]["matching"], 1)


def test_heads_weigh_by_their_steps_in_a_mean_step():
    share, margin = np.array([[0.5, 0.0], [0.1, 0.4]]), np.array([[0.4, 0.0], [1.0, 0.2]])
    assert mean_margin(share, margin) == pytest.approx((0.5 * 0.4 + 0.1 * 1.0 + 0.4 * 0.2) / 1.0)
    assert mean_margin(np.stack([share, share]), np.stack([margin, 0 * margin])).tolist() == pytest.approx([0.38, 0])
    assert mean_margin(np.zeros((2, 2)), np.zeros((2, 2))) == 0


@pytest.mark.parametrize(
    ("scheme", "things"),
    [
        ("baseline", ["scores"]),
        ("bibert", ["query", "key", "value"]),
        ("q_bert", []),
        ("baseline(without=attention)", []),
    ],
)
def test_a_scheme_says_what_it_distills(scheme, things):
    assert distilled_by(get_scheme(scheme)) == things


def test_towards_is_the_share_of_what_moved_over_all_heads():
    share = {"matching": np.array([[[0.3, 0.0]]]), "mismatching": np.array([[[0.1, 0.2]]])}
    assert towards(share) == pytest.approx([0.5])
    assert towards({way: np.zeros((2, 1, 1)) for way in share}) == pytest.approx([0, 0])  # nothing moved
