"""Direction: steps and asked-for directions counted by hand, padding left out, similarities free of their scale."""

import numpy as np
import pytest
import torch

from bibert.distill.objective import LayerMatch
from bibert.lab.direction import THINGS, DirectionProbe, distilled_by, mean_margin, movement
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
    assert moved.matching.tolist() == [[0.25]]
    assert moved.mismatching.tolist() == [[0.25]]
    assert moved.matching_margin.tolist() == [[0.5]]
    assert moved.mismatching_margin.tolist() == [[2.0]]


def test_nothing_is_known_at_the_first_look_and_a_student_that_stays_has_no_steps(mask):
    probe = DirectionProbe(trace_of(0, mask), ONE_TO_ONE)
    student = trace_of(1, mask)
    assert probe(student) is None
    moved = probe(student)
    assert set(moved) == set(THINGS)
    for thing in moved.values():
        assert thing.matching.shape == (2, 2)
        assert not thing.matching.any()
        assert not thing.mismatching_margin.any()


def test_a_student_that_becomes_its_teacher_moves_as_asked_everywhere(mask):
    probe = DirectionProbe(trace_of(0, mask), ONE_TO_ONE)
    probe(trace_of(1, mask))
    for moved in probe(trace_of(0, mask)).values():
        np.testing.assert_allclose(moved.matching, 1, atol=1e-6)
        assert not moved.mismatching.any()


def test_each_look_starts_from_the_one_before(mask):
    probe = DirectionProbe(trace_of(0, mask), ONE_TO_ONE)
    for seed in (1, 2):
        probe(trace_of(seed, mask))
    other = DirectionProbe(trace_of(0, mask), ONE_TO_ONE)
    other(trace_of(2, mask))
    mine, theirs = probe(trace_of(3, mask)), other(trace_of(3, mask))
    assert {name: moved.to_dict() for name, moved in mine.items()} == {
        name: moved.to_dict() for name, moved in theirs.items()
    }


def test_padding_does_not_count(mask):
    def look(junk: float) -> dict[str, dict]:
        traces = [trace_of(seed, mask) for seed in (0, 1, 2)]
        for number, trace in enumerate(traces):
            for layer in trace.layers:
                for name in ("query", "key", "value"):
                    getattr(layer, name)[1, :, 2:] = junk * (number + 1)
                layer.scores[1, :, 2:] = junk
                layer.scores[1, :, :, 2:] = -junk * number
        probe = DirectionProbe(traces[0], ONE_TO_ONE)
        probe(traces[1])
        return {name: moved.to_dict() for name, moved in probe(traces[2]).items()}

    assert look(0.0) == look(7.0)


def test_the_size_of_queries_does_not_matter(mask):
    looks = []
    for factor in (1.0, 10.0):
        probe = DirectionProbe(trace_of(0, mask), ONE_TO_ONE)
        probe(trace_of(1, mask))
        moved = trace_of(2, mask)
        for layer in moved.layers:
            layer.query = layer.query * factor
        looks.append(probe(moved)["query"])
    np.testing.assert_allclose(looks[0].matching, looks[1].matching)
    np.testing.assert_allclose(looks[0].matching_margin, looks[1].matching_margin, rtol=1e-4)


def test_a_deeper_teacher_asks_by_the_last_layer_of_each_block(mask):
    teacher = trace_of(0, mask, layers=4)
    probe = DirectionProbe(teacher, LayerMatch(2, None))
    probe(trace_of(1, mask))
    goal = Trace(mask, layers=[teacher.layers[1], teacher.layers[3]])
    np.testing.assert_allclose(probe(goal)["scores"].matching, 1)


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
