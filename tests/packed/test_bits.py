"""The bit convention: which bit a channel is, what follows the last one, and unpacking."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bibert.packed.bits import WORD_BITS, has_stray_bits, pack_rows, unpack_rows, words_for


@pytest.mark.parametrize(("channels", "words"), [(1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (129, 3)])
def test_a_row_takes_as_many_words_as_its_channels_fill(channels, words):
    assert words_for(channels) == words
    assert pack_rows(np.ones((3, channels))).shape == (3, words)


@pytest.mark.parametrize("channel", [0, 1, 63, 64, 99])
def test_channel_c_is_bit_c_mod_64_of_word_c_div_64(channel):
    row = np.zeros(100, dtype=bool)
    row[channel] = True
    words = [0, 0]
    words[channel // 64] = 1 << (channel % 64)
    assert pack_rows(row).tolist() == words


def test_words_are_little_endian_in_memory():
    words = pack_rows([[1, 0, 0, 0, 0, 0, 0, 0, 1, 1]])
    assert words.dtype == np.dtype("<u8")
    assert words.tobytes() == bytes([0b1, 0b11, 0, 0, 0, 0, 0, 0])


def test_the_memory_layout_of_the_booleans_does_not_matter():
    flags = np.random.default_rng(0).random((3, 4, 70)) < 0.5
    for axes in [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 1, 0)]:
        turned = flags.transpose(axes)
        assert np.array_equal(pack_rows(turned), pack_rows(turned.copy()))


@given(st.integers(1, 200), st.integers(0, 4), st.integers(0, 2**32))
def test_unpacking_inverts_packing_and_leaves_no_stray_bits(channels, rows, seed):
    flags = np.random.default_rng(seed).random((2, rows, channels)) < 0.5
    words = pack_rows(flags)
    assert words.shape == (2, rows, words_for(channels))
    assert np.array_equal(unpack_rows(words, channels), flags)
    assert not has_stray_bits(words, channels)


@pytest.mark.parametrize("channels", [1, 63, 65, 127])
def test_every_single_stray_bit_is_found(channels):
    words = pack_rows(np.ones((3, channels)))
    for bit in range(channels % WORD_BITS, WORD_BITS):
        stray = words.copy()
        stray[1, -1] |= np.uint64(1) << np.uint64(bit)
        assert has_stray_bits(stray, channels)


@pytest.mark.parametrize("channels", [64, 128])
def test_a_row_that_fills_its_words_has_no_room_for_stray_bits(channels):
    assert not has_stray_bits(np.full((2, channels // 64), 2**64 - 1, dtype=np.uint64), channels)
