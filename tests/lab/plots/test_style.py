"""The house style: figures follow the theme, on a page and in a file, and a page gets them panel by panel."""

import re

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from matplotlib.figure import Figure
from PIL import Image

from bibert.lab.plots.style import COLOURS, INK, THEME, for_page, save_figure, styled, titled

FIXED = re.compile(r"(?:fill|stroke): (#\w{6})(?!; (?:fill|stroke): var)")


@styled()
def draw() -> Figure:
    figure = Figure((9, 3), layout="constrained")
    for hue, axes in enumerate(figure.subplots(1, 2)):
        axes.set_title(f"panel {hue}")
        axes.plot([0, 1], [0, 1], color=COLOURS[hue])
    return titled(figure, "a finding", "a note")


def test_every_colour_of_an_svg_has_a_light_and_a_dark_value_and_the_ground_is_that_of_the_page(tmp_path):
    svg = save_figure(draw(), tmp_path / "figure.svg").read_text("utf-8")
    assert FIXED.findall(svg) == []
    assert "prefers-color-scheme: dark" in svg
    for light, (name, dark) in THEME.items():
        assert f"{name}: {light};" in svg
        assert f"{name}: {dark};" in svg


def test_a_png_which_has_no_theme_is_white(tmp_path):
    with Image.open(save_figure(draw(), tmp_path / "figure.png")) as image:
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


def test_a_page_gets_each_panel_alone_and_the_words_of_the_figure_as_text():
    drawn = for_page(draw)
    assert (drawn.title, drawn.note) == ("a finding", "a note")
    assert [f"panel {hue}" in panel for panel in drawn.panels for hue in (0, 1)] == [True, False, False, True]
    assert all(panel.startswith("<svg") and FIXED.findall(panel) == [] for panel in drawn.panels)
    assert f"fill: {INK}; fill: var(--ink)" in drawn.panels[0]
