"""Texts to labels: shapes and scores like transformers' pipeline, in the order of the input, for any iterable."""

import inspect
import json
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bibert.errors import EngineError, ModelFileError
from bibert.packed.file import save
from bibert.runtime.classifier import WINDOW, Answers, load, sigmoid, softmax
from bibert.runtime.engine import available_isas

TEXTS = ["the film is good", "bad", "", "Café unable, [MASK]! " * 20, "中文 film", "hello world"]
PAIRS = ["is it?", "the film is bad " * 9, "good", "", "film", "world"]
LOGITS = arrays(np.float32, (3, 4), elements=st.floats(-1e6, 1e6, width=32))


@pytest.fixture(scope="module")
def classifier(model_file):
    return load(model_file)


@pytest.fixture(scope="module")
def regression(new_packed, tmp_path_factory):
    path = tmp_path_factory.mktemp("regression") / "model.bibert"
    save(new_packed(labels=1), path)
    return load(path)


@given(LOGITS)
def test_softmax_is_a_distribution_in_the_order_of_the_logits(logits):
    scores = softmax(logits)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-15)  # four float64 terms
    assert (np.diff(np.take_along_axis(scores, logits.argsort(axis=1), axis=1)) >= 0).all()
    assert scores.dtype == np.float64


@given(LOGITS)
def test_sigmoid_never_overflows_and_is_a_half_at_zero(logits):
    scores = sigmoid(logits)
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_allclose(sigmoid(-logits), 1 - scores, atol=1e-15)
    assert sigmoid(np.zeros(1, dtype=np.float32))[0] == 0.5


def test_labels_are_ranked_by_score_and_equal_scores_by_number():
    answers = Answers(("a", "b", "c", "d"), np.array([[0.2, 0.3, 0.2, 0.3], [1.0, 0.0, 0.0, 0.0]]))
    assert answers.best() == [{"label": "b", "score": 0.3}, {"label": "a", "score": 1.0}]
    assert [entry["label"] for entry in answers.ranked()[0]] == ["b", "d", "a", "c"]
    assert answers.ranked(1) == [[entry] for entry in answers.best()]
    assert len(answers.ranked(9)[0]) == 4
    assert {type(entry["score"]) for entry in answers.best()} == {float}


def test_answers_hold_labels_and_probabilities_of_texts_and_pairs(classifier, regression):
    rows = [TEXTS[0], (TEXTS[1], PAIRS[1])]
    answers = classifier.answers(rows)
    assert answers.best() == [*classifier.predict(TEXTS[0]), *classifier.predict(TEXTS[1], PAIRS[1])]
    assert np.array_equal(answers.scores, softmax(classifier.logits(rows)))
    assert np.array_equal(answers.scores[:1], classifier.predict_proba(TEXTS[0]))
    assert (classifier.logits(rows).dtype, classifier.logits(rows).shape) == (np.float32, (2, 3))
    assert np.array_equal(regression.answers(rows).scores, regression.logits(rows).astype(float))


def test_answers_are_the_same_alone_and_in_the_order_of_the_texts(classifier):
    alone = [classifier.predict(text)[0] for text in TEXTS]
    assert len({answer["label"] for answer in alone}) > 1
    assert classifier.predict(TEXTS * 100) == alone * 100  # more than a window
    assert list(classifier.predict_stream(TEXTS * 3, window=4)) == alone * 3
    assert np.array_equal(classifier.logits(TEXTS * 100), np.tile(classifier.logits(TEXTS), (100, 1)))


@pytest.mark.parametrize("kind", [tuple, iter, np.array, lambda texts: (text for text in texts), dict.fromkeys])
def test_any_iterable_of_texts_is_accepted(classifier, kind):
    assert classifier.predict(kind(TEXTS)) == classifier.predict(TEXTS)


def test_no_texts_give_no_answers(classifier):
    assert classifier.predict([]) == classifier.predict([], []) == classifier([]) == []
    assert classifier.logits([]).shape == classifier.predict_proba(iter([])).shape == (0, 3)


def test_pairs_differ_from_single_texts_and_may_be_a_single_pair(classifier):
    found = classifier.predict(TEXTS, PAIRS)
    assert found != classifier.predict(TEXTS)
    assert classifier.predict(iter(TEXTS), iter(PAIRS)) == found
    assert classifier.predict(TEXTS[0], PAIRS[0]) == found[:1]
    assert classifier.predict(list(zip(TEXTS, PAIRS, strict=True))) == found


BAD = {
    "fewer pairs than texts": ((TEXTS, PAIRS[:4]), "row 4: .*no pair"),
    "fewer texts than pairs": ((iter(TEXTS[:2]), iter(PAIRS)), "row 2: .*no text"),
    "a list and a single pair": ((TEXTS, "film"), "single text"),
    "a text and a list of pairs": (("film", PAIRS), "single text"),
    "a number among texts": (([*TEXTS, 3.0],), r"row 6: 3\.0 \(float\)"),
    "a number among pairs": ((TEXTS, [*PAIRS[:5], None]), r"row 5: .*None \(NoneType\)"),
    "nothing": ((None,), r"texts: None \(NoneType\)"),
    "pairs that are a number": ((TEXTS, 5), r"pairs: 5 \(int\)"),
}


def test_a_text_is_never_read_beyond_the_most_characters(classifier):
    for text in ("中" * 10**7, " " * 10**7, "a" * 10**7):
        classifier.predict([text[:1000]])
        tracemalloc.start()
        classifier.predict([text, text], [text, text])
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < len(text) // 2  # no copy of it, and no list of its characters


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_a_row_that_is_not_a_text_is_refused_with_its_number(classifier, arguments, message):
    with pytest.raises(EngineError, match=message):
        classifier.predict(*arguments)


def test_the_number_of_a_bad_row_counts_all_windows(classifier):
    stream = classifier.predict_stream(["film"] * 7 + [None], window=3)
    assert len([next(stream) for _ in range(6)]) == 6
    with pytest.raises(EngineError, match="row 7: None"):
        next(stream)


def test_a_stream_is_read_a_window_at_a_time(classifier):
    read = []

    def texts():
        for number in range(10**9):
            read.append(number)
            yield TEXTS[number % len(TEXTS)]

    stream = classifier.predict_stream(texts(), window=5)
    assert read == []
    assert [next(stream) for _ in range(6)] == classifier.predict(TEXTS)
    assert len(read) == 10
    next(classifier.predict_stream(texts()))
    assert len(read) == 10 + WINDOW
    for window in (0, "a", 2.5):
        with pytest.raises(EngineError, match=f"window is {window!r}"):
            classifier.predict_stream(TEXTS, window=window)


def test_a_regression_has_values_and_no_probabilities(regression):
    values = regression.logits(TEXTS)[:, 0].astype(float).tolist()
    assert regression.predict(TEXTS) == [{"label": "negative", "score": value} for value in values]
    assert regression(TEXTS[0], top_k=None) == [{"label": "negative", "score": values[0]}]
    assert regression(TEXTS[0], function_to_apply="softmax") == [{"label": "negative", "score": 1.0}]
    with pytest.raises(EngineError, match=r"regression.*logits"):
        regression.predict_proba(TEXTS)
    with pytest.raises(EngineError, match=r"min_score is 0\.5.*regression.*leave it out"):
        regression.predict([], min_score=0.5)


def test_a_classifier_describes_itself(model_file, classifier):
    other = load(str(model_file), threads=1, isa="reference")
    assert other.labels == ("negative", "neutral", "positive")
    assert (other.max_length, other.about, other.config.hidden) == (32, {"seed": 5}, 40)
    assert (other.engine.threads, other.isa) == (1, "reference")
    assert repr(other) == "<TextClassifier 2 x 40 on reference: negative, neutral, positive>"
    assert other.predict(TEXTS * 10) == classifier.predict(TEXTS * 10)


def test_a_closed_classifier_is_refused(model_file):
    with load(model_file) as classifier:
        assert classifier.predict(TEXTS)
    with pytest.raises(EngineError, match="closed"):
        classifier.predict(TEXTS)


def test_a_tokenizer_that_does_not_fit_names_the_file(new_packed, tmp_path):
    save(new_packed(tokenizer=b"garbage"), tmp_path / "model.bibert")
    with pytest.raises(ModelFileError, match=r"model\.bibert: tokenizer: .*read"):
        load(tmp_path / "model.bibert")
    save(new_packed(vocabulary=50), tmp_path / "model.bibert")
    with pytest.raises(ModelFileError, match=r"model\.bibert: tokenizer: model.vocab is an object of \d+, .* 1 to 50;"):
        load(tmp_path / "model.bibert")


@pytest.fixture(scope="module")
def both(tmp_path_factory, save_untrained):
    """A student as transformers' pipeline, and as a packed file."""
    from transformers import pipeline

    from bibert.export import pack
    from bibert.nn.checkpoint import load_classifier

    folder = tmp_path_factory.mktemp("student")
    labels = dict(enumerate(("bad", "fair", "good")))
    save_untrained(folder, [*TEXTS, *PAIRS], scheme="bibert", id2label=labels, initializer_range=0.5)
    student = load_classifier(folder)
    save(pack(student, max_length=64), folder / "student.bibert")
    student.model.eval()
    theirs = pipeline("text-classification", model=student.model, tokenizer=student.tokenizer)
    ours = load(folder)
    assert len({entry["label"] for entry in ours.predict([*TEXTS, *PAIRS])}) > 1
    return theirs, ours


DICTS = [{"text": text, "text_pair": pair} for text, pair in zip(TEXTS[:3], PAIRS[:3], strict=True)]
CALLS = {
    "a text": lambda pipe: pipe(TEXTS[0]),
    "a text, all labels": lambda pipe: pipe(TEXTS[0], top_k=None),
    "a text, one label": lambda pipe: pipe(TEXTS[0], top_k=1),
    "a list": lambda pipe: pipe(TEXTS[:3]),
    "a list of one": lambda pipe: pipe(TEXTS[:1]),
    "a list, two labels": lambda pipe: pipe(TEXTS[:3], top_k=2),
    "a list, one label": lambda pipe: pipe(TEXTS[:3], top_k=1),
    "a pair": lambda pipe: pipe(DICTS[0]),
    "a pair, all labels": lambda pipe: pipe(DICTS[0], top_k=None),
    "a text in a dictionary": lambda pipe: pipe({"text": TEXTS[0]}),
    "pairs": lambda pipe: pipe(DICTS),
    "pairs, all labels": lambda pipe: pipe(DICTS, top_k=None),
    "sigmoid": lambda pipe: pipe(TEXTS[:3], top_k=None, function_to_apply="sigmoid"),
    "none": lambda pipe: pipe(TEXTS[:3], function_to_apply="none"),
    "softmax": lambda pipe: pipe(TEXTS[0], function_to_apply="softmax"),
    "a generator": lambda pipe: list(pipe(text for text in TEXTS[:3])),
}


def assert_alike(found, expected):
    """Equal shapes and labels; scores that differ by float32's rounding of theirs."""
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found.keys() == expected.keys() == {"label", "score"}
        assert found["label"] == expected["label"]
        assert found["score"] == pytest.approx(expected["score"], abs=1e-6)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_call_answers_like_the_pipeline_of_transformers(both, call):
    theirs, ours = both
    assert_alike(call(ours), call(theirs))


class Column:
    """A data set by the old protocol, as `KeyDataset` of transformers is one."""

    def __getitem__(self, row: int) -> str:
        return TEXTS[row]

    def __len__(self) -> int:
        return len(TEXTS)


def test_a_call_accepts_generators_old_data_sets_numpys_numbers_and_upper_case(classifier):
    answers = classifier(text for text in TEXTS)
    assert inspect.isgenerator(answers)
    assert list(answers) == classifier(Column()) == classifier.predict(Column()) == classifier.predict(TEXTS)
    assert classifier(TEXTS, top_k=np.int64(2)) == classifier(TEXTS, top_k=2)
    assert classifier(TEXTS, function_to_apply="NONE") == classifier(TEXTS, function_to_apply="none")


BAD_CALLS = {
    "no label": ((TEXTS,), {"top_k": 0}, "top_k is 0.*all 3"),
    "a number as a text": ((TEXTS,), {"top_k": "2"}, "top_k is '2'"),
    "a number": ((5,), {}, r"inputs: 5 \(int\)"),
    "an array without rows": ((np.array(5),), {}, r"inputs: array\(5\) \(ndarray\)"),
    "a function that is a number": ((TEXTS,), {"function_to_apply": 1}, "function_to_apply is 1"),
    "an unknown function": ((iter(TEXTS),), {"function_to_apply": "softmacks"}, "'softmacks'.*'softmax'"),
    "an unknown key": (({"sentence": "film"},), {}, r"\['sentence'\].*'text'"),
}


@pytest.mark.parametrize(("arguments", "options", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_call_with_an_unknown_value_is_refused(classifier, arguments, options, message):
    with pytest.raises(EngineError, match=message):
        classifier(*arguments, **options)


def test_predicting_imports_nothing_heavy(model_file):
    code = (
        "import json, sys, bibert\n"
        f"bibert.load({str(model_file)!r}).predict('a film')\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"torch", "transformers", "huggingface_hub", "typer", "rich", "safetensors", "datasets", "pyarrow"}
    assert set(json.loads(done.stdout)) & heavy == set()


def test_the_temperature_of_a_file_changes_its_probabilities_and_nothing_else(classifier, new_packed, tmp_path):
    save(replace(new_packed(), temperature=2.0), tmp_path / "warm.bibert")
    warm, logits = load(tmp_path / "warm.bibert"), classifier.logits(TEXTS)
    assert np.array_equal(warm.logits(TEXTS), logits)
    np.testing.assert_allclose(warm.predict_proba(TEXTS), softmax(logits / np.float32(2)), rtol=1e-12)
    assert [row["label"] for row in warm.predict(TEXTS)] == [row["label"] for row in classifier.predict(TEXTS)]
    assert warm.predict(TEXTS) == warm(TEXTS) == warm(TEXTS, function_to_apply="softmax") != classifier(TEXTS)
    for name in ("sigmoid", "none"):
        assert warm(TEXTS, function_to_apply=name) == classifier(TEXTS, function_to_apply=name)


def test_a_label_below_the_least_score_is_empty_and_keeps_its_score(classifier):
    sure = classifier.predict(TEXTS)
    scores = sorted(row["score"] for row in sure)
    found = classifier.predict(TEXTS, min_score=scores[2])
    assert [row["score"] for row in found] == [row["score"] for row in sure]
    expected = [row["label"] if row["score"] >= scores[2] else "" for row in sure]
    assert [row["label"] for row in found] == expected
    assert expected.count("") == 2


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, float("nan")])
def test_a_least_score_that_no_probability_has_is_refused_before_a_text_is_read(classifier, value):
    with pytest.raises(EngineError, match=f"min_score is {value}, must .* 0 .* 1"):
        classifier.predict_stream(iter(()), min_score=value)


def test_a_pickle_has_the_contents_of_the_file_and_gives_the_same_answers(model_file, tmp_path):
    path = shutil.copy(model_file, tmp_path)
    with load(path, threads=2, isa="reference") as classifier:
        classifier.predict(TEXTS)
        contents = pickle.dumps(classifier)
        expected = classifier.logits(TEXTS)
    Path(path).unlink()
    restored = pickle.loads(contents)
    assert np.array_equal(restored.logits(TEXTS), expected)
    assert (restored.labels, restored.about, restored.engine.threads) == (classifier.labels, classifier.about, 2)
    assert restored.isa == available_isas()[0]
    restored.save(path)
    assert Path(path).read_bytes() == model_file.read_bytes()


def test_a_damaged_pickle_is_refused_as_a_damaged_file_is(classifier, model_file):
    contents = bytearray(pickle.dumps(classifier))
    contents[contents.index(model_file.read_bytes()) + model_file.stat().st_size - 1] ^= 1
    with pytest.raises(ModelFileError, match="SHA-256"):
        pickle.loads(bytes(contents))
