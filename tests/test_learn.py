"""`bibert.train`: labelled text in any form becomes a packed classifier, in memory and as a file."""

import numpy as np
import pytest

import bibert
from bibert.errors import BibertError, DataError, RecipeError, SchemeError
from bibert.nn.schemes import SCHEME_OF_BITS

SHORT = {"max_length": 16, "max_steps": 60, "learning_rate": 1e-2, "batch_size": 16, "precision": "float32"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data, start):
    path = tmp_path_factory.mktemp("learn") / "words.bibert"
    labels = [data.label_names[int(label)] for label in data.train.labels]
    return bibert.train((data.train.texts, labels), path, start=start, **SHORT), path


def test_texts_and_labels_become_a_classifier_that_knows_its_origin(trained, data):
    classifier, _ = trained
    assert classifier.labels == data.label_names
    assert (classifier.about["scheme"], classifier.about["recipe"]["max_steps"]) == (SCHEME_OF_BITS[4], 60)
    assert classifier.max_length == 16
    right = [
        answer["label"] == data.label_names[int(label)]
        for answer, label in zip(classifier.predict(data.train.texts), data.train.labels, strict=True)
    ]
    assert np.mean(right) > 0.8


def test_the_file_that_is_written_gives_the_same_answers(trained, data):
    classifier, path = trained
    assert np.array_equal(bibert.load(path).logits(data.train.texts), classifier.logits(data.train.texts))


def test_the_same_rows_and_seed_give_the_same_bits_from_a_file_and_from_loaded_data(tmp_path, data, start):
    short = SHORT | {"max_steps": 2}
    lines = [
        "text\tlabel",
        *(f"{text}\t{label:g}" for text, label in zip(data.train.texts, data.train.labels, strict=True)),
    ]
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = [bibert.train(rows, start=start, bits=2, **short) for rows in (str(path), bibert.load_table(path))]
    assert np.array_equal(*(classifier.logits(data.dev["dev"].texts) for classifier in found))


def test_a_teacher_can_be_trained_first_and_rows_may_be_pairs(scores, start):
    rows = list(zip(scores.train.texts, scores.train.pairs, strict=True))
    short = {"max_length": 16, "max_steps": 2}
    fractions = [label + 0.5 for label in scores.train.labels]  # which makes them scores
    classifier = bibert.train((rows, fractions), checkpoint=start, **short)
    assert classifier.about["teacher_sha256"]
    assert classifier.labels == ("score",)
    assert classifier.predict(*rows[0])[0]["score"] == pytest.approx(classifier.logits(*rows[0])[0, 0])


@pytest.mark.parametrize(
    ("rows", "options", "error", "message"),
    [
        ((["a", "b"], ["x"]), {}, DataError, "2 texts and 1 labels"),
        ((["a", "b"], ["x"]), {"output": "nodir/x.bibert"}, BibertError, "the folder nodir does not exist"),
        ((["a", "b"], ["x"]), {"output": "x.bin"}, BibertError, "name ending in .bibert"),
        (([["a", "b", "c"]], ["x"]), {}, DataError, r"\(1, 3\).*\(rows, 2\)"),
        ((["a", " "], ["x", "y"]), {}, DataError, "texts: row 2: empty text"),
        ((["a", "b"], ["x", "y"]), {"bits": 3}, SchemeError, "bits is 3, must be one of 1, 2, 4"),
        ((["a", "b"], ["x", "y"]), {"epoch": 3}, RecipeError, "unknown key 'epoch'; did you mean 'epochs'"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_training(rows, options, error, message):
    with pytest.raises(error, match=message):
        bibert.train(rows, **options)
