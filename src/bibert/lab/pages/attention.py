"""The attention page: every head of several models for one text, small, and any of them large.

Weights are stored as one byte each, relative to the largest of their head, and bits as bits: three models of 144 heads
and 128 tokens take a few megabytes. templates/attention.js draws them in the browser.
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from bibert.lab.attention import AttentionMap
from bibert.lab.pages import render

LEVELS = 255  # steps between 0 and the largest weight of a head


def attention_page(maps: Sequence[AttentionMap], layer: int = 0, head: int = 0) -> str:
    """The HTML of the page for models with the same tokens; it opens with one head of one layer."""
    maps[0].require_head(layer, head)
    tokens = maps[0].tokens
    facts = [("tokens", str(len(tokens))), *((one.title, _about(one)) for one in maps)]
    data = {"tokens": tokens, "layer": layer, "head": head, "models": [_as_json(one) for one in maps]}
    return render("attention.html.jinja", title="Attention", subtitle=" ".join(tokens), facts=facts, data=data)


def _about(one: AttentionMap) -> str:
    scheme = "" if one.scheme == one.title else f"{one.scheme}, "
    return f"{scheme}{one.layers} layers × {one.heads} heads, {'bits' if one.is_bits else 'weights'}"


def _as_json(one: AttentionMap) -> dict[str, Any]:
    levels = np.packbits(one.weights != 0) if one.is_bits else np.round(LEVELS * one.scaled).astype(np.uint8)
    return {
        "title": one.title,
        "layers": one.layers,
        "heads": one.heads,
        "isBits": one.is_bits,
        "largest": [float(f"{value:.6g}") for value in one.largest.ravel()],
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }
