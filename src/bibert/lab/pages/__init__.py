"""Pages: plain data in, one self-contained HTML file out that needs no network and no server; and the text of a card.

The attention page is here, the report in `report`; both extend templates/base.html.jinja. Everything that a template of
a page prints is escaped. Data for a script goes through `tojson`, which escapes `<`, `>`, `&` and all non-ASCII
characters: no text of a user can end the script or become part of the page. jinja2 comes with `plot` and `train`.
"""

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from bibert.files import write_whole
from bibert.lab.attention import AttentionMap
from bibert.lab.look import require_head

LEVELS = 255  # steps between 0 and the largest weight of a head


def render(template: str, **values: Any) -> str:
    """Fill a template of templates/; pages need a `title` and may use `subtitle` and (name, value) `facts`."""
    return _environment().get_template(template).render(values)


def save_page(page: str, path: Path) -> Path:
    """Write a page atomically."""
    with write_whole(path) as file:
        file.write(page)
    return path


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__name__),
        autoescape=select_autoescape(disabled_extensions=["md.jinja"], default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def attention_page(maps: Sequence[AttentionMap], layer: int = 0, head: int = 0) -> str:
    """Every head of models with the same tokens, small, and any of them large, at first one head of one layer.

    A weight is one byte, relative to the largest of its head, a bit is one bit; templates/attention.js draws them.
    """
    require_head(maps[0].title, maps[0].weights.shape, layer, head)
    tokens = maps[0].tokens
    facts = [("tokens", str(len(tokens)))]
    facts += [(one.title, one.scheme) for one in maps if one.scheme != one.title]
    data = {"tokens": tokens, "layer": layer, "head": head, "models": [_as_json(one) for one in maps]}
    return render("attention.html.jinja", title="Attention", subtitle=" ".join(tokens), facts=facts, data=data)


def _as_json(one: AttentionMap) -> dict[str, Any]:
    levels = np.packbits(one.weights != 0) if one.is_bits else np.round(LEVELS * one.scaled).astype(np.uint8)
    return {
        "title": one.title,
        "answer": one.answer,
        "layers": one.weights.shape[0],
        "heads": one.weights.shape[1],
        "isBits": one.is_bits,
        "largest": [float(f"{value:.6g}") for value in one.largest.ravel()],
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }
