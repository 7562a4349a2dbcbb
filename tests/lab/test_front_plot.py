"""The figure of the front: which points are on it, that no name hides anything, and that files come out the same."""

import json
from itertools import combinations
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from bibert.errors import BibertError
from bibert.lab.plots.front import KINDS, Point, draw_front, front_of, save_front

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "front.json"
POINTS = [
    Point("ours", "1 bit", 85.0, 1.0, 4.4),
    Point("torch", "float32", 90.0, 20.0, 91.6),
    Point("onnx", "float32", 90.0, 19.0, 92.1),
    Point("openvino", "float32", 90.0, 19.5, 91.8),
    Point("onnx-int8", "int8", 89.6, 10.0, 24.0),
    Point("openvino-int8", "int8", 89.6, 10.0, 24.0),
    Point("words", "words", 82.6, 0.8, 0.2),
    Point("vectors", "words", 69.5, 0.2, 2.9),
]


def measured():
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return [
        Point(
            point["name"],
            point["kind"],
            100 * point["correct"] / results["dev_rows"],
            point["one"]["median_ms"],
            point["shipped_bytes"] / 1e6,
        )
        for point in results["points"]
    ]


def names_in(axes):
    return [text for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("points", [POINTS, measured()], ids=["crowded", "measured"])
def test_every_point_is_named_in_both_panels_and_no_name_hides_anything(points):
    figure = draw_front(points, "accuracy, %")
    figure.canvas.draw()
    for axes, cost in zip(figure.axes, ("milliseconds", "megabytes"), strict=True):
        names = names_in(axes)
        assert sorted(name.get_text() for name in names) == sorted(point.name for point in points)
        boxes = [name.get_window_extent() for name in names]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        for box in boxes:
            assert axes.bbox.x0 <= box.x0 <= box.x1 <= axes.bbox.x1
            assert axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1
            places = axes.transData.transform([(getattr(point, cost), point.accuracy) for point in points])
            assert not any(box.contains(*place) for place in places)


def test_both_panels_show_the_same_accuracy_on_logarithmic_axes_with_units():
    left, right = draw_front(POINTS, "accuracy, %").axes
    assert left.get_ylim() == right.get_ylim()
    assert (left.get_xscale(), right.get_xscale()) == ("log", "log")
    assert left.get_ylabel() == "accuracy, %"
    assert ("ms" in left.get_xlabel(), "MB" in right.get_xlabel()) == (True, True)


def test_the_front_leaves_out_what_is_beaten_and_keeps_the_better_of_equal_costs():
    assert front_of([4.0, 1.0, 2.0, 2.0, 3.0], [90.0, 70.0, 80.0, 85.0, 84.0]) == [1, 3, 0]
    assert front_of([1.0], [50.0]) == [0]


def test_a_point_that_is_beaten_in_both_ways_is_shown_all_the_same():
    worse = Point("beaten", "1 bit", 60.0, 30.0, 200.0)
    figure = draw_front([*POINTS, worse], "accuracy, %")
    assert all("beaten" in [name.get_text() for name in names_in(axes)] for axes in figure.axes)


def test_kinds_differ_by_shape_and_by_colour():
    assert len({style.marker for style in KINDS.values()}) == len(KINDS)
    assert len({style.colour for style in KINDS.values()}) == len(KINDS)


def test_the_same_points_give_the_same_files(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for stem in (first, second):
        svg, png = save_front(POINTS, stem, "accuracy, %")
        assert (svg.suffix, png.suffix) == (".svg", ".png")
    assert first.with_suffix(".svg").read_bytes() == second.with_suffix(".svg").read_bytes()
    assert first.with_suffix(".png").read_bytes() == second.with_suffix(".png").read_bytes()


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "at least one point"),
        ([Point("x", "2 bits", 1.0, 1.0, 1.0)], r"x: there is no kind '2 bits'; did you mean '1 bit'"),
        ([Point("x", "int8", 1.0, 0.0, 1.0)], r"x: 0\.0 ms and 1\.0 MB, both must be above 0"),
    ],
)
def test_points_that_cannot_be_drawn_are_refused(points, message):
    with pytest.raises(BibertError, match=message):
        draw_front(points, "accuracy, %")
