"""How every figure looks, and how it becomes a file: one set of fonts and colours, the same bytes on every machine.

What is drawn is in the other modules of this package.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bibert.errors import BibertError
from bibert.files import write_whole

DOTS_PER_INCH = 200  # of a PNG: twice the width in a README, for sharp screens
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # text that a reader can select
    "svg.hashsalt": "bibert",  # the same data gives the same file
}
# Chosen for colour-blind readers. In grey print some are alike, so whatever has a colour has a marker or pattern too.
COLOURS = ("#0060A0", "#E07B00", "#007A5A", "#B0306A", "#444444", "#7FB2E5")
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1)), (0, (1, 1)))
METADATA: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}


INK = "#010203"  # stands for the colour of the text around a figure that is part of a page
ON_A_PAGE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color"), INK),
    "ytick.color": INK,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "svg.fonttype": "none",  # text stays text
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save inside this block, so that the settings count."""
    with mpl.rc_context(SETTINGS):
        yield


def check_path(path: Path) -> Path:
    """The path of a figure, before anything is computed for it.

    Raises:
        BibertError: the end of its name is not that of a figure.
    """
    if path.suffix not in METADATA:
        raise BibertError(f"{path}: a figure ends in {', '.join(METADATA)}, this one in {path.suffix or 'nothing'!r}")
    return path


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as SVG, PDF or PNG, by the end of its name, whole or not at all.

    Raises:
        BibertError: the end of its name is not that of a figure.
    """
    buffer, suffix = io.BytesIO(), check_path(path).suffix
    with styled():
        figure.savefig(buffer, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=METADATA[suffix])
    with write_whole(path, "wb") as file:
        file.write(buffer.getvalue())
    return path


def svg_for_page(draw: Callable[[], Figure]) -> str:
    """Draw a figure as an SVG element whose colours follow the page: its ink, and `--hue-0` and on for `COLOURS`."""
    buffer = io.StringIO()
    with styled(), mpl.rc_context(ON_A_PAGE):
        draw().savefig(buffer, format="svg", metadata=METADATA[".svg"])
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, name in [(INK, "currentColor"), *((c, f"var(--hue-{i})") for i, c in enumerate(COLOURS))]:
        svg = svg.replace(colour.lower(), name)
    return svg
