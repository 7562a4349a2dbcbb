"""Charts: axes, names, numbers at bars, titles that say the finding, and what is told apart without colour."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from bibert.data.metrics import Bin
from bibert.errors import BibertError
from bibert.lab.look import HEADS
from bibert.lab.plots.charts import (
    OUR_BAR,
    PAPER_BAR,
    bands,
    draw_bottlenecks,
    draw_directions,
    draw_entropies,
    draw_losses,
    draw_metrics,
    draw_reliability,
    draw_theory,
)
from bibert.lab.record import History
from bibert.lab.tables import effects
from bibert.lab.theory import score_probabilities, statements
from bibert.nn.schemes import STRUCTURES

ACCURACIES = {"baseline": 80.3} | {
    f"baseline(kept={structure})": 81.0 + place for place, structure in enumerate(STRUCTURES)
}
ACCURACIES |= {"baseline(without=attention)": 81.0, "baseline(without=mha)": 77.7, "baseline(without=prediction)": 52.1}


@pytest.fixture
def history() -> History:
    """Three looks into two layers of two heads; nothing moved in half of the heads."""
    heads = np.array([[[0.2, 0.4], [0.6, 0.8]]] * 3)
    share, margin = np.array([[[0.5, 0.0], [0.5, 0.0]]] * 2), np.array([[[0.4, 0.0], [0.2, 0.0]]] * 2)
    ways = {"matching": share, "mismatching": share / 2, "matching_margin": margin, "mismatching_margin": 2 * margin}
    entropy = {**dict.fromkeys(HEADS, heads), "ffn_hidden": np.full((3, 2), 0.5)}
    things = dict.fromkeys(("scores", "query", "key", "value"), ways)
    return History("run", "bibert", ["query", "key", "value"], [0, 50, 100], entropy, [50, 100], things)


def named_axes(figure):
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.axison}


def words_in(axes):
    return [text.get_text() for text in axes.texts]


def test_every_panel_has_its_axis_and_the_names_of_its_lines():
    values = {"loss": 3.0, "loss_one": 1.0, "loss_two": 2.0}
    log = [{"stage": stage, "step": step, **values} for stage in ("first", "second") for step in (1, 2)]
    axes = named_axes(draw_losses(log))
    assert [one.get_xlabel() for one in axes.values()] == ["step", "step", "step"]
    assert words_in(axes["loss"]) == ["first", "second"]
    first, second = (text.get_position()[1] for text in axes["loss"].texts)
    assert abs(first - second) > 0.09  # though both lines end at 3
    drawn = axes["loss"].lines
    assert len({line.get_marker() for line in drawn}) == len({line.get_linestyle() for line in drawn}) == 2


def test_entropies_are_means_with_a_band_over_the_heads(history):
    figure = draw_entropies({"bibert": (history.steps, bands(history.entropy))}, "step")
    axes = named_axes(figure)["attention weights"]
    assert axes.lines[0].get_ydata() == pytest.approx([0.5, 0.5, 0.5])
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() == pytest.approx(0.2)


def test_entropies_of_models_go_through_the_layers():
    heads = dict.fromkeys(HEADS, np.array([[0.2, 0.4], [0.6, 0.8]])) | {"ffn_hidden": np.array([0.1, 0.9])}
    axes = named_axes(draw_entropies({"bibert": (range(2), bands(heads))}, "layer"))
    assert axes["queries"].lines[0].get_ydata() == pytest.approx([0.3, 0.7])
    assert axes["inside the FFN"].lines[0].get_ydata() == pytest.approx([0.1, 0.9])


def test_a_flat_panel_becomes_a_note_and_the_title_names_the_largest_difference():
    one = dict.fromkeys([*HEADS, "ffn_hidden"], np.full((2, 3), 0.98))
    other = one | {"attention": np.zeros((2, 3)), "context": np.full((2, 3), 0.5)}
    figure = draw_entropies({"bibert": (range(2), bands(one)), "baseline": (range(2), bands(other))}, "layer")
    assert list(named_axes(figure)) == ["attention weights", "context"]
    assert figure.get_suptitle().startswith("Attention weights: 0.98 bits in bibert, 0.00 bits in baseline")
    assert "queries (0.98)" in figure.get_supxlabel()


def test_directions_are_the_share_of_what_moved_and_filled_where_the_scheme_asks(history):
    figure = draw_directions({"bibert": history})
    [axes] = figure.axes
    assert words_in(axes) == ["bibert 67 %"] * 4  # 0.5 of the elements towards, 0.25 away
    dots = axes.collections[1::2]
    assert [len(dot.get_facecolor()) for dot in dots] == [0, 1, 1, 1]  # the scores are not distilled
    assert "67 % in bibert" in figure.get_suptitle()


def test_losses_and_metrics_are_those_of_the_log():
    log = [
        {"stage": "dmd", "step": 2, "loss": 3.0, "loss_prediction": 1.0, "learning_rate": 1e-4},
        {
            "stage": "dmd",
            "step": 2,
            "eval_dev_accuracy": 0.5,
            "eval_dev_loss": 0.7,
            "eval_dev_model_preparation_time": 1.0,
        },
        {"stage": "dmd", "step": 4, "eval_dev_accuracy": 0.75, "eval_dev_samples_per_second": 3.0},
        {"stage": "dmd", "step": 4, "eval_dev_accuracy": 0.5},  # the best model, scored again at the end
    ]
    assert list(named_axes(draw_losses(log))) == ["loss", "prediction"]
    axes = named_axes(draw_metrics(log))
    assert list(axes) == ["dev accuracy, percent"]
    assert axes["dev accuracy, percent"].lines[0].get_ydata() == pytest.approx([50, 75])


def test_the_figure_of_the_theorems_has_the_scores_of_models():
    shares = {"a model": np.stack([score_probabilities(16)] * 2)}
    figure = draw_theory(statements(shares, samples=10, rows=8, seed=0), shares)
    axes = named_axes(figure)["Theorem 2: scores of 16 bits, share"]
    _gaussian, model = axes.lines
    assert model.get_ydata() == pytest.approx([bar.get_height() for bar in axes.patches])
    assert "a model" in [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(named_axes(figure)) == 6
    assert "60 % in a model, 60 % of random bits" in figure.get_suptitle()


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
    assert "hatch" in PAPER_BAR
    assert "hatch" not in OUR_BAR
    lightness = sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), to_rgb(OUR_BAR["facecolor"]), strict=True))
    assert 0.5 < lightness < 0.8  # neither the paper's empty, nor too dark for a dark whisker


def test_nothing_to_draw_is_refused():
    with pytest.raises(BibertError, match="at least one"):
        draw_bottlenecks({"SST-2": []})


def test_reliability_is_accuracy_by_score_beside_the_diagonal_and_the_rows():
    drawn = named_axes(draw_reliability([Bin(0.4, 3, 0.45, 0.5), Bin(0.8, 9, 0.85, 0.7)]))
    accuracy, rows = drawn["accuracy of rows with this score"], drawn["rows with this score"]
    assert accuracy.lines[0].get_xydata().tolist() == [[0.4, 0.4], [1, 1]]
    assert accuracy.collections[0].get_offsets().tolist() == [[0.45, 0.5], [0.85, 0.7]]
    assert [(bar.get_x(), bar.get_height()) for bar in rows.patches] == [(0.4, 3), (0.8, 9)]


def test_a_title_says_whether_scores_can_be_trusted():
    assert "too sure: 75.0 %" in draw_reliability([Bin(0.7, 4, 0.75, 0.5)]).get_suptitle()
    assert "too modest" in draw_reliability([Bin(0.7, 4, 0.75, 1.0)]).get_suptitle()
    assert "trustworthy" in draw_reliability([Bin(0.7, 4, 0.75, 0.755)]).get_suptitle()
