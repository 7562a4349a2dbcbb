"""The figure of the bottlenecks: a panel for each perspective, every number inside, bars told apart in grey print."""

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from bibert.errors import BibertError
from bibert.lab.plots.bottleneck import OURS, PAPER, draw_bottlenecks
from bibert.lab.plots.style import save_figure
from bibert.lab.tables import effects
from bibert.nn.schemes import STRUCTURES

ACCURACIES = {"baseline": 80.3} | {
    f"baseline(kept={structure})": 81.0 + place for place, structure in enumerate(STRUCTURES)
}
ACCURACIES |= {"baseline(without=attention)": 81.0, "baseline(without=mha)": 77.7, "baseline(without=prediction)": 52.1}


def drawn():
    return draw_bottlenecks({"SST-2": effects("sst2", ACCURACIES), "QQP": effects("qqp", ACCURACIES)})


def test_every_task_has_a_panel_of_structures_and_one_of_terms():
    figure = drawn()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        f"{task}: {what}"
        for task in ("SST-2", "QQP")
        for what in ("one structure in full precision", "one distillation term left out")
    ]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["MHA", "intermediate", "output", "pooler", "embedding"]


def test_every_bar_has_its_number_inside_the_panel():
    figure = drawn()
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        assert len(axes.texts) == len(axes.patches) > 0
        for text in axes.texts:
            box = text.get_window_extent()
            assert axes.bbox.x0 <= box.x0
            assert box.x1 <= axes.bbox.x1
    assert figure.axes[0].texts[0].get_text() == "+0.7"


def test_ours_and_the_papers_differ_without_colour():
    assert "hatch" in PAPER
    assert "hatch" not in OURS
    lightness = sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), to_rgb(OURS["facecolor"]), strict=True))
    assert 0.5 < lightness < 0.8  # neither the paper's white, nor too dark for a black whisker


def test_the_same_numbers_give_the_same_file(tmp_path):
    one, other = (save_figure(drawn(), tmp_path / name).read_bytes() for name in ("one.svg", "other.svg"))
    assert one == other


def test_nothing_to_draw_is_refused():
    with pytest.raises(BibertError, match="at least one"):
        draw_bottlenecks({"SST-2": []})
