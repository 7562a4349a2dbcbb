"""Attention as figures for papers: one head of every model as lines between tokens, and all heads as small images.

Dark is strong attention: the largest weight of a head, or a bit of 1. Each head has its own scale, because a head that
spreads over many tokens has small weights everywhere and would be blank beside one that attends to a single token.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from bibert.lab.attention import AttentionMap
from bibert.lab.look import Floats, require_head
from bibert.lab.plots.style import COLOURS, SETTINGS, styled, titled

WIDTH = 7.6  # inches: the text width of a one-column paper
# From white to nearly black through one blue: lightness falls monotonically, so grey print keeps the order.
DARKER = LinearSegmentedColormap.from_list("darker", ["#FFFFFF", "#9CC4E4", COLOURS[0], "#002440"], N=64)
GAP = 0xD9  # the grey between heads: neither white, which is a weight, nor a colour of the map

MOST_CELLS = 36  # along a side of a small image; neighbours are averaged if there are more tokens
MOST_TOKENS = 40  # in a head view; later tokens are left out, and the figure says so
LONGEST_WORD = 14  # characters that are drawn of a token
ROW_INCHES = 0.19  # of a token
PANEL_INCHES = 3.0  # of a model in a head view
FAINTEST = 0.03  # weights below this share of the largest are not drawn
BIT_OPACITY = 0.5  # of the line of a 1: crossing lines stay visible


@styled()
def draw_head_view(maps: Sequence[AttentionMap], layer: int, head: int) -> Figure:
    """One head of every model side by side: queries on the left, keys on the right, a line for attention."""
    for one in maps:
        require_head(one.title, one.weights.shape, layer, head)
    matrices = [one.scaled[layer, head, :MOST_TOKENS, :MOST_TOKENS] for one in maps]
    tokens = maps[0].tokens
    height = 1.0 + ROW_INCHES * len(matrices[0])
    figure = Figure((max(PANEL_INCHES * len(maps), 4.5), height), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, one, matrix in zip(panels, maps, matrices, strict=True):
        _draw_lines(axes, one, matrix)
    cut = f", the first {MOST_TOKENS} of {len(tokens)} tokens" if len(tokens) > MOST_TOKENS else ""
    of_weights = "weights: the stronger a line, the larger, up to the largest of the head"
    words = f"layer {layer}, head {head}{cut}: from queries (left) to keys (right)"
    return titled(figure, words, "\n".join(_legend(maps, of_weights, "bits: a line is a 1")))


@styled()
def draw_model_view(maps: Sequence[AttentionMap], layers: Sequence[int] | None = None, width: float = WIDTH) -> Figure:
    """All heads of every model, one model below another: a small image of the T x T weights of each head."""
    shown = [list(range(len(one.weights)) if layers is None else layers) for one in maps]
    heights = [width * len(rows) / one.weights.shape[1] + 0.55 for one, rows in zip(maps, shown, strict=True)]
    figure = Figure((width, sum(heights) + 0.75), layout="constrained")
    panels = figure.subplots(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, one, rows in zip(panels, maps, shown, strict=True):
        _draw_heads(axes, one, rows)
    colours, tokens = ScalarMappable(cmap=DARKER), len(maps[0].tokens)
    bar = figure.colorbar(colours, ax=list(panels), location="bottom", shrink=0.5, aspect=40, pad=0.02)
    means = f"; a cell is the mean over {_block(tokens)} x {_block(tokens)} of the {tokens} tokens"
    images = f"in every image a row is a query and a column a key{means if _block(tokens) > 1 else ''}"
    bar.set_label(f"{'; '.join(_legend(maps, 'weight / largest of its head', 'bit'))}\n{images}")
    bar.outline.set_visible(False)
    return figure


def _legend(maps: Sequence[AttentionMap], of_weights: str, of_bits: str) -> list[str]:
    """One text if a model has weights, another if one has bits."""
    kinds = {of_weights: not all(one.is_bits for one in maps), of_bits: any(one.is_bits for one in maps)}
    return [words for words, is_there in kinds.items() if is_there]


def _draw_lines(axes: Axes, one: AttentionMap, matrix: Floats) -> None:
    queries, keys = np.nonzero(matrix > FAINTEST)
    strengths = matrix[queries, keys]
    lines = [((0.0, query), (1.0, key)) for query, key in zip(queries.tolist(), keys.tolist(), strict=True)]
    opacity = np.full_like(strengths, BIT_OPACITY) if one.is_bits else strengths
    colours = np.column_stack([np.tile(to_rgb(COLOURS[0]), (len(lines), 1)), opacity])
    widths = np.full_like(strengths, 0.8) if one.is_bits else 0.4 + 1.6 * strengths
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, clip_on=False), autolim=False)
    for place, token in enumerate(one.tokens[: len(matrix)]):
        for x, side in ((-0.03, "right"), (1.03, "left")):
            axes.text(x, place, _drawable(token), ha=side, va="center", fontsize="small", parse_math=False)
    axes.set_title(_drawable(one.title, 40), fontsize="medium", loc="center", parse_math=False)
    axes.set_xlim(-0.75, 1.75)
    axes.set_ylim(len(matrix) - 0.5, -0.5)
    axes.axis("off")


def _draw_heads(axes: Axes, one: AttentionMap, layers: Sequence[int]) -> None:
    require_head(one.title, one.weights.shape, max(layers), 0)
    images = _averaged(one.weights[list(layers)], _block(len(one.tokens)))
    if not one.is_bits:
        images = images / images.max(axis=(-2, -1), keepdims=True)
    heads, size = images.shape[1], images.shape[-1]
    gap = max(1, round(size / 14))
    step = size + gap
    # One RGB image is a smaller file than many: every head with a gap above and to its left, and a gap at the end.
    tiles = np.pad(
        DARKER(images, bytes=True)[..., :3], ((0, 0), (0, 0), (gap, 0), (gap, 0), (0, 0)), constant_values=GAP
    )
    mosaic = tiles.swapaxes(1, 2).reshape(len(layers) * step, heads * step, 3)
    mosaic = np.pad(mosaic, ((0, gap), (0, gap), (0, 0)), constant_values=GAP)
    axes.imshow(mosaic, aspect="equal", interpolation="nearest")
    axes.set_xticks([gap + size / 2 - 0.5 + step * head for head in range(heads)], map(str, range(heads)))
    axes.set_yticks([gap + size / 2 - 0.5 + step * row for row in range(len(layers))], map(str, layers))
    axes.tick_params(length=0, labelsize="small")
    axes.grid(visible=False)
    axes.set_xlabel("head", fontsize="small")
    axes.set_ylabel("layer", fontsize="small")
    axes.spines[:].set_visible(False)
    axes.set_title(_drawable(one.title, 60), fontsize="medium", loc="left", parse_math=False)


def _block(tokens: int) -> int:
    return -(-tokens // MOST_CELLS)


def _averaged(heads: Floats, block: int) -> Floats:
    """(…, T, T) to the means of blocks; the last block along a side may be smaller."""
    tokens = heads.shape[-1]
    starts = np.arange(0, tokens, block)
    counts = np.diff(starts, append=tokens).astype(np.float32)
    sums = np.add.reduceat(np.add.reduceat(heads, starts, axis=-2), starts, axis=-1)
    return np.asarray(sums / (counts[:, None] * counts))


def _drawable(word: str, most: int = LONGEST_WORD) -> str:
    """A word as the font can draw it: a character without a glyph becomes a box, and a long word is cut."""
    shown = "".join(character if _has_glyph(character) else "\N{WHITE SQUARE}" for character in word)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


@cache
def _has_glyph(character: str) -> bool:
    font = font_manager.get_font(font_manager.findfont(str(SETTINGS["font.family"])))
    return bool(font.get_char_index(ord(character)))
