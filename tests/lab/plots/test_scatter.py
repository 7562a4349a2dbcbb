"""Names beside points, and the paper's Figure 1."""

from itertools import combinations

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from bibert.lab.plots.scatter import Costly, Label, draw_savings, place_labels


def test_names_of_points_in_one_place_do_not_cover_each_other():
    axes = Figure((5, 4)).subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    place_labels(axes, [Label(0.5, 0.5 + 0.002 * place, f"model {place}", "black") for place in range(6)])
    FigureCanvasAgg(axes.figure).draw()
    boxes = [Text.get_window_extent(text) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 for box in boxes)


def test_the_savings_are_ratios_of_printed_figures_and_ours_has_one_mark():
    printed = {"flops": 22.5, "size": 418.0}, {"flops": 0.4, "size": 13.4}
    rows = [Costly("full_precision", 83.9, printed[0], {"flops": 22.4, "size": 417.7})]
    rows += [Costly("bibert", 63.2, printed[1], {"flops": 0.4, "size": 15.0})]
    rows += [Costly("mine", 60.0, {}, {"flops": 0.1, "size": 4.0})]
    figure = draw_savings(rows, "score")
    assert "56 × fewer FLOPs and 31 × fewer bytes, for 20.7 points" in figure.get_suptitle()
    for axes, mine in zip(figure.axes, (0.1, 4.0), strict=True):
        assert sorted(text.get_text() for text in axes.texts) == ["bibert", "full_precision", "mine"]
        marks = [mark.get_offsets().tolist()[0] for mark in axes.collections]
        assert len(marks) == 5  # printed and counted of each row, and ours
        assert marks[-1] == [mine, 60.0]
