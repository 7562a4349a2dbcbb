"""The style of every figure and how it is saved: one set of fonts and colours, the same bytes on every machine."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibert.errors import BibertError
from bibert.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 200  # of a PNG: twice the width in a README, for sharp screens
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # selectable text
    "svg.hashsalt": "bibert",  # the same data gives the same file
}
# Safe for colour-blind readers. Some are alike in grey print, so everything with a colour has a marker or pattern too.
COLOURS = ("#0060A0", "#E07B00", "#007A5A", "#B0306A", "#444444", "#7FB2E5")
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1)), (0, (1, 1)))
METADATA: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}
INK = "#010203"  # a placeholder for the text colour of a page around a figure
ON_A_PAGE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color"), INK),
    "ytick.color": INK,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "svg.fonttype": "none",  # text stays text
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the settings to everything drawn or saved in this block, or in a function with this decorator."""
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        yield


def check_path(path: Path) -> Path:
    """The path, if its suffix is that of a figure."""
    if path.suffix not in METADATA:
        raise BibertError(f"{path}: ends in {path.suffix or 'nothing'!r}; a figure ends in {', '.join(METADATA)}")
    return path


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure as SVG, PDF or PNG, by its suffix, atomically."""
    buffer, suffix = io.BytesIO(), check_path(path).suffix
    with styled():
        figure.savefig(buffer, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=METADATA[suffix])
    with write_whole(path, "wb") as file:
        file.write(buffer.getvalue())
    return path


def svg_for_page(draw: "Callable[..., Figure]", *values: Any) -> str:
    """Draw a figure as an SVG element with the colours of the page: its ink, and `--hue-0`, ... for `COLOURS`."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with styled(), rc_context(ON_A_PAGE):
        draw(*values).savefig(buffer, format="svg", metadata=METADATA[".svg"])
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, name in [(INK, "currentColor"), *((c, f"var(--hue-{i})") for i, c in enumerate(COLOURS))]:
        svg = svg.replace(colour.lower(), name)
    return svg
