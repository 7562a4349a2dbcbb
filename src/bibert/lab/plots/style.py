"""The house style of figures, and how they are saved: colours that follow a theme, the same bytes on every machine.

A figure has no ground of its own, says what it shows in its title, and has names at its lines instead of a legend. In
an SVG every colour of `THEME` is a CSS variable with a light and a dark value.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from bibert.errors import BibertError
from bibert.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE_INCHES = 3.05  # of a panel on a page: half a card, or a phone
CHARACTERS = 9.5  # of a title, per inch
DOTS_PER_INCH = 200  # of a PNG: twice the width in a README, for sharp screens
INK, FAINT, GRID = "#1b1f24", "#5b6570", "#d5dae0"
# Safe for colour-blind readers. Some are alike in grey print, so everything with a colour has a name or pattern too.
COLOURS = ("#0060a0", "#c05f00", "#007a5a", "#b0306a", "#444444", "#7fb2e5")
DARK = ("#e6e9ed", "#9aa5b1", "#343c46", "#6db3ec", "#ffa64d", "#4cc9a3", "#f082b4", "#b8b8b8", "#3f7fb8")
LIGHT = (INK, FAINT, GRID, *COLOURS)
NAMES = ("--ink", "--faint", "--line", *(f"--hue-{place}" for place in range(len(COLOURS))))
THEME = {light: (name, dark) for light, name, dark in zip(LIGHT, NAMES, DARK, strict=True)}
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1)), (0, (1, 1)))
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 9.5,
    "figure.titlesize": 11.5,
    "figure.titleweight": "bold",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "figure.constrained_layout.h_pad": 0.07,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    **dict.fromkeys((f"axes.spines.{side}" for side in ("top", "right", "left")), False),
    **dict.fromkeys(("ytick.left", "xtick.minor.bottom", "ytick.minor.left"), False),
    **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "hatch.color"), FAINT),
    "grid.color": GRID,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "pdf.fonttype": 42,  # selectable text
    "svg.hashsalt": "bibert",  # the same data gives the same file
}
METADATA: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the settings to everything drawn or saved in this block, or in a function with this decorator."""
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        yield


def titled(figure: "Figure", finding: str, note: str = "") -> "Figure":
    """Write what a figure shows above it, and what a reader must know below it."""
    figure.suptitle(fill(finding, int(CHARACTERS * figure.get_figwidth())), x=0.01, ha="left")
    if note:
        figure.supxlabel(note, x=0.01, ha="left", fontsize="small", color=FAINT)
    return figure


def check_path(path: Path) -> Path:
    """The path, if its suffix is that of a figure."""
    if path.suffix not in METADATA:
        raise BibertError(f"{path}: ends in {path.suffix or 'nothing'!r}; a figure ends in {', '.join(METADATA)}")
    return path


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure as SVG, PDF or PNG, by its suffix, atomically; only a PNG, which has no theme, has a ground."""
    buffer, suffix = io.BytesIO(), check_path(path).suffix
    ground: dict[str, Any] = {"facecolor": "white"} if suffix == ".png" else {}
    with styled():
        figure.savefig(buffer, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=METADATA[suffix], **ground)
    drawn = buffer.getvalue()
    if suffix == ".svg":
        light, dark = (" ".join(f"{value[0]}: {value[side]};" for value in _values()) for side in (1, 2))
        images = " image { filter: invert(1) hue-rotate(180deg); }" if b"<image" in drawn else ""
        rules = f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }}{images} }} *{{"
        drawn = themed(drawn.decode()).replace("*{", rules, 1).encode()
    with write_whole(path, "wb") as file:
        file.write(drawn)
    return path


def _values() -> list[tuple[str, str, str]]:
    return [(name, light, dark) for light, (name, dark) in THEME.items()]


def themed(svg: str) -> str:
    """An SVG whose colours are variables; the fixed ones stay in front of them, for programs that know no variables."""
    colours = re.compile(rf"\b(fill|stroke): ({'|'.join(THEME)})")
    return colours.sub(lambda found: f"{found[0]}; {found[1]}: var({THEME[found[2]][0]})", svg)


class PageFigure(NamedTuple):
    """A figure as a page shows it: its words, and an SVG element for each panel, which the page arranges."""

    title: str
    note: str
    panels: list[str]


def for_page(draw: "Callable[..., Figure]", *values: Any) -> PageFigure:
    """Draw a figure, panel by panel, in the colours of the page around it."""
    from matplotlib import rc_context

    with styled(), rc_context({"svg.fonttype": "none"}):  # text stays text
        figure = draw(*values)
        words = figure.get_suptitle().replace("\n", " "), figure.get_supxlabel()
        figure.suptitle("")
        figure.supxlabel("")
        shown = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
        for axes in set(figure.axes) - set(shown):
            axes.remove()
        grids = [spec.get_gridspec() for axes in shown if (spec := axes.get_subplotspec()) is not None]
        columns = max(grid.ncols for grid in grids)
        figure.set_figwidth(PAGE_INCHES * columns if columns > 1 else min(figure.get_figwidth(), 1.8 * PAGE_INCHES))
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return PageFigure(*words, [_alone(figure, axes) for axes in shown])


def _alone(figure: "Figure", panel: Any) -> str:
    """One panel of a figure as an SVG element."""
    for axes in figure.axes:
        axes.set_visible(axes is panel)
    box = panel.get_tightbbox().padded(4).transformed(figure.dpi_scale_trans.inverted())
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches=box, metadata=METADATA[".svg"])
    svg = buffer.getvalue()
    return themed(re.sub(r' id="\w+_\d+"', "", svg[svg.index("<svg") :]))  # ids of one panel are those of the next
