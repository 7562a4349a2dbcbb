"""The figure of the front: which points are on it, and that labels do not hide anything."""

import json
from itertools import combinations
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from front_figure import KINDS, Point, draw_front, front_of, save_front, takeaway
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from bibert.errors import BibertError
from bibert.lab.plots.style import styled

RESULTS = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "front.json").read_text(encoding="utf-8"))
POINTS = [
    Point(
        point["name"],
        point["kind"],
        100 * point["correct"] / RESULTS["dev_rows"],
        point["one"]["median_ms"],
        point["shipped_bytes"] / 1e6,
    )
    for point in RESULTS["points"]
]


def test_no_label_of_the_measured_points_hides_a_label_or_a_marker():
    with styled():
        figure = draw_front(POINTS, "accuracy, %")
        FigureCanvasAgg(figure).draw()
        for axes, cost in zip(figure.axes, ("milliseconds", "megabytes"), strict=True):
            names = [name for label in axes.texts for name in label.get_text().split("\n")]
            assert sorted(names) == sorted(point.name for point in POINTS)
            boxes = [Text.get_window_extent(label) for label in axes.texts]  # without the line to its point
            assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
            markers = axes.transData.transform([(getattr(point, cost), point.accuracy) for point in POINTS])
            for box in boxes:
                assert axes.bbox.x0 <= box.x0 <= box.x1 <= axes.bbox.x1
                assert axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1
                assert not any(box.contains(*marker) for marker in markers)


def test_both_panels_show_the_same_accuracy_on_logarithmic_axes_with_units():
    left, right = draw_front(POINTS, "accuracy, %").axes
    assert left.get_ylim() == right.get_ylim()
    assert (left.get_xscale(), right.get_xscale()) == ("log", "log")
    assert left.get_title(loc="left") == "accuracy, %"
    assert ("ms" in left.get_xlabel(), "MB" in right.get_xlabel()) == (True, True)


def test_the_title_says_what_one_bit_saves_and_loses_and_nothing_without_a_rival():
    ours, rival = Point("bibert", "1-bit weights", 87, 0.5, 4), Point("onnx-int8", "int8", 92, 6, 36)
    assert "12 × as fast and 9 × smaller than int8, for 5.0 points" in takeaway([ours, rival])
    assert "int8" not in takeaway([ours])


def test_the_front_leaves_out_beaten_points_and_keeps_the_better_of_equal_costs():
    assert front_of([4.0, 1.0, 2.0, 2.0, 3.0], [90.0, 70.0, 80.0, 85.0, 84.0]) == [1, 3, 0]
    assert front_of([1.0], [50.0]) == [0]


def test_kinds_differ_by_shape_and_by_colour():
    assert len({style.marker for style in KINDS.values()}) == len(KINDS)
    assert len({style.colour for style in KINDS.values()}) == len(KINDS)


def test_the_same_points_give_the_same_files(tmp_path):
    first, second = (save_front(POINTS, tmp_path / stem, "accuracy, %") for stem in ("first", "second"))
    assert [path.suffix for path in first] == [".svg", ".png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "at least one point"),
        ([Point("x", "int4", 1.0, 1.0, 1.0)], r"x: .*'int4'.*'int8'"),
        ([Point("x", "int8", 1.0, 0.0, 1.0)], r"x: 0\.0 ms and 1\.0 MB"),
    ],
)
def test_points_that_cannot_be_drawn_are_refused(points, message):
    with pytest.raises(BibertError, match=message):
        draw_front(points, "accuracy, %")
