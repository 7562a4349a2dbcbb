"""The figures of attention: what is drawn is what was given, and files are small and the same every time."""

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from matplotlib.collections import LineCollection

from bibert.errors import BibertError
from bibert.lab.attention import AttentionMap
from bibert.lab.plots.attention import DARKER, MOST_CELLS, MOST_TOKENS, draw_head_view, draw_model_view
from bibert.lab.plots.style import save_figure, styled

TOKENS = ("[CLS]", "a", "$", "witty", "$", "film", "[SEP]")


def lines_in(axes):
    return next(one for one in axes.collections if isinstance(one, LineCollection))


def panels_of(figure):
    """The panels without the colour bar."""
    return [axes for axes in figure.axes if axes.get_ylabel() == "layer"]


def words_of(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_a_head_view_has_a_line_for_every_bit_and_both_columns_of_tokens(make_maps):
    maps = make_maps(TOKENS)
    figure = draw_head_view(maps, 1, 2)
    assert [axes.get_title() for axes in figure.axes] == [one.title for one in maps]
    for axes, one in zip(figure.axes[1:], maps[1:], strict=True):
        drawn = {(round(line[0][1]), round(line[1][1])) for line in lines_in(axes).get_segments()}
        assert drawn == set(zip(*np.nonzero(one.weights[1, 2]), strict=True))
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == [token for token in TOKENS for _ in range(2)]
    assert "layer 1, head 2" in words_of(figure)


def test_a_line_of_a_float_model_is_as_opaque_as_its_weight_is_large(make_maps):
    maps = make_maps(TOKENS)
    lines = lines_in(draw_head_view(maps, 0, 0).axes[0])
    matrix = maps[0].scaled[0, 0]
    for line, colour in zip(lines.get_segments(), lines.get_colors(), strict=True):
        assert colour[3] == pytest.approx(matrix[round(line[0][1]), round(line[1][1])], abs=1e-6)
    assert lines.get_colors()[:, 3].max() == pytest.approx(1)


def test_what_is_cut_from_a_head_view_is_said(make_maps):
    tokens = tuple(f"t{i}" for i in range(MOST_TOKENS + 5))
    long, short = draw_head_view(make_maps(tokens, 1, 1), 0, 0), draw_head_view(make_maps(tokens[:30], 1, 1), 0, 0)
    assert f"the first {MOST_TOKENS} of {MOST_TOKENS + 5} tokens" in words_of(long)
    assert "first" not in words_of(short)
    assert len(long.axes[0].texts) == 2 * MOST_TOKENS
    assert long.get_figheight() > short.get_figheight()


def test_tokens_do_not_overlap_in_a_head_view_of_thirty_tokens(make_maps):
    with styled():
        figure = draw_head_view(make_maps(tuple(f"token{i}" for i in range(30)), 1, 1), 0, 0)
        figure.canvas.draw()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts[::2]]
        assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(boxes))


def test_a_model_view_shows_the_pixels_of_every_head(make_maps):
    maps = make_maps(TOKENS)
    figure = draw_model_view(maps)
    panels = panels_of(figure)
    assert [axes.get_title(loc="left") for axes in panels] == [one.title for one in maps]
    size, gap = len(TOKENS), 1
    for axes, one in zip(panels, maps, strict=True):
        image = axes.images[0].get_array()
        for layer in range(2):
            for head in range(3):
                top, left = gap + layer * (size + gap), gap + head * (size + gap)
                wanted = DARKER(one.scaled[layer, head], bytes=True)[..., :3]
                np.testing.assert_array_equal(image[top : top + size, left : left + size], wanted)


def test_rows_and_columns_of_a_model_view_carry_layers_and_heads(make_maps):
    figure = draw_model_view(make_maps(TOKENS, layers=5), range(1, 4))
    for axes in panels_of(figure):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]
        assert axes.get_xlabel() == "head"


def test_the_colour_bar_says_what_dark_means(make_maps):
    maps = make_maps(TOKENS)
    assert "weight / largest of its head; bit" in draw_model_view(maps).axes[-1].get_xlabel()
    assert draw_model_view(maps[1:]).axes[-1].get_xlabel().startswith("bit\n")
    assert "a line is a 1" not in words_of(draw_head_view(maps[:1], 0, 0))


def test_more_tokens_than_cells_are_averaged_and_it_is_said():
    size = 2 * MOST_CELLS + 1  # blocks of 3, the last of them smaller
    tokens = ("x",) * size
    bits = np.zeros((1, 1, size, size), np.float32)
    bits[0, 0, :3, :3], bits[0, 0, -1, -1] = np.eye(3), 1
    figure = draw_model_view([AttentionMap("bibert", "bibert", tokens, bits, True)])
    image = panels_of(figure)[0].images[0].get_array()
    gap = round(-(-size // 3) / 14)
    wanted = DARKER(np.float32([[1 / 3, 0], [0, 0]]), bytes=True)[..., :3]
    np.testing.assert_array_equal(image[gap : gap + 2, gap : gap + 2], wanted)
    np.testing.assert_array_equal(image[-gap - 1, -gap - 1], DARKER(bits[0, 0, -1, -1], bytes=True)[:3])
    assert f"the mean over 3 x 3 of the {size} tokens" in figure.axes[-1].get_xlabel()


def test_the_colours_get_darker_all_the_way():
    grey = DARKER(np.linspace(0, 1, DARKER.N))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(grey) < 0).all()
    assert grey[0] == pytest.approx(1)
    assert grey[-1] < 0.15


def test_a_token_that_the_font_cannot_draw_is_a_box_and_dollars_are_no_formula(make_maps, tmp_path):
    tokens = ("[CLS]", "$x^{2$", "電影", "a" * 50)
    with styled():
        figure = draw_head_view(make_maps(tokens), 0, 0)
    assert [text.get_text() for text in figure.axes[0].texts[::2]] == ["[CLS]", "$x^{2$", "□□", "a" * 13 + "…"]
    assert save_figure(figure, tmp_path / "head.svg").stat().st_size > 0  # warnings are errors here


def test_a_figure_of_three_models_with_72_heads_each_is_small_and_the_same_twice(make_maps, tmp_path):
    maps = make_maps(tuple(f"t{i}" for i in range(30)), layers=6, heads=12)
    for name in ("one.svg", "two.svg"):
        with styled():
            save_figure(draw_model_view(maps), tmp_path / name)
    first = (tmp_path / "one.svg").read_bytes()
    assert len(first) < 300_000
    assert first == (tmp_path / "two.svg").read_bytes()


def test_layers_and_heads_that_are_not_there_are_refused(make_maps):
    maps = make_maps(TOKENS)
    with pytest.raises(BibertError, match=r"full_precision:.*layer 2.*0 to 1"):
        draw_model_view(maps, [1, 2])
    with pytest.raises(BibertError, match=r"full_precision:.*layer 0.*head 3"):
        draw_head_view(maps, 0, 3)
