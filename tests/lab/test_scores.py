"""Scores from the bits of queries and keys, counted one by one."""

import numpy as np

from bibert.lab.inside import Inside, LayerInside
from bibert.lab.scores import score_shares


def test_scores_are_counted_without_padding():
    random = np.random.default_rng(0)
    query, key = random.random((2, 2, 2, 3, 5)) < 0.5  # two texts, two heads, three tokens, five channels
    real = np.array([[True, True, True], [True, False, False]])
    nothing = np.zeros((2, 2, 3, 3), bool)
    layer = LayerInside(query, key, key, nothing.astype(np.float32), nothing, key, nothing[:, 0], {})
    found: dict[int, int] = {}
    for text, tokens in ((0, 3), (1, 1)):
        for head in range(2):
            for i in range(tokens):
                for j in range(tokens):
                    same = int((query[text, head, i] == key[text, head, j]).sum())
                    found[2 * same - 5] = found.get(2 * same - 5, 0) + 1
    shares = score_shares([Inside(real, (layer,))])
    assert shares.shape == (1, 6)
    expected = [found.get(score, 0) / sum(found.values()) for score in range(-5, 6, 2)]
    np.testing.assert_allclose(shares[0], expected)
    np.testing.assert_allclose(score_shares([Inside(real, (layer,))] * 2), shares)
