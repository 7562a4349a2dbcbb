"""`BibertClassifier`: what scikit-learn does with an estimator of texts, and what is left of it without torch."""

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import bibert
from bibert.errors import EngineError
from bibert.packed.file import save
from bibert.sklearn import BibertClassifier

SHORT = {"max_length": 16, "batch_size": 16, "learning_rate": 1e-2, "precision": "float32"}


@pytest.fixture(scope="module")
def unfitted(start):
    return BibertClassifier(start=start, max_steps=60, changes=SHORT, random_state=0)


@pytest.fixture(scope="module")
def rows(data):
    """Texts in an array, and labels that are neither texts nor 0 and 1."""
    return np.array(data.train.texts), np.array([(-3, 7)[int(label)] for label in data.train.labels])


@pytest.fixture(scope="module")
def fitted(unfitted, rows):
    return clone(unfitted).fit(*rows)


def test_fit_learns_and_answers_in_the_labels_it_was_given(fitted, rows):
    assert fitted.classes_.tolist() == [-3, 7]
    assert fitted.model_.labels == ("-3", "7")
    assert fitted.score(*rows) > 0.8
    probabilities = fitted.predict_proba(rows[0])
    assert probabilities.shape == (64, 2)
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], fitted.predict(rows[0]))
    assert fitted.predict([]).tolist() == []


def test_a_clone_has_the_parameters_and_nothing_learned(fitted, unfitted):
    copy = clone(fitted)
    assert copy.get_params() == unfitted.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(["one"])
    assert copy.set_params(bits=1, max_steps=2).bits == 1


def test_the_same_random_state_gives_the_same_bits_and_another_one_does_not(unfitted, rows):
    short = clone(unfitted).set_params(max_steps=2)
    first, again = (clone(short).fit(*rows).model_.logits(rows[0]) for _ in range(2))
    assert np.array_equal(first, again)
    other = clone(short).set_params(random_state=np.random.RandomState(1)).fit(*rows)
    assert not np.array_equal(first, other.model_.logits(rows[0]))


def test_it_is_a_step_of_a_pipeline_that_is_validated_and_searched(unfitted, rows):
    lower = FunctionTransformer(lambda texts: np.char.lower(np.asarray(texts, dtype=str)))
    pipeline = make_pipeline(lower, clone(unfitted).set_params(max_steps=2))
    assert cross_val_score(pipeline, *rows, cv=2, error_score="raise").shape == (2,)
    search = GridSearchCV(pipeline, {"bibertclassifier__bits": [1, 4]}, cv=2, error_score="raise").fit(*rows)
    assert search.best_params_["bibertclassifier__bits"] in (1, 4)
    assert set(search.predict(rows[0])) <= {-3, 7}


def test_pairs_are_rows_of_two_texts(unfitted, rows):
    pairs = list(zip(rows[0], reversed(rows[0]), strict=True))
    fitted = clone(unfitted).set_params(max_steps=1).fit(pairs, rows[1])
    assert np.array_equal(fitted.predict_proba(pairs), fitted.model_.predict_proba(*zip(*pairs, strict=True)))
    assert np.array_equal(fitted.predict_proba(np.array(pairs)), fitted.predict_proba(pairs))


def test_a_table_is_refused_and_a_failed_fit_leaves_the_model(fitted, rows):
    pandas, before = pytest.importorskip("pandas"), fitted.predict(rows[0])
    for method in (fitted.predict, lambda table: fitted.fit(table, rows[1])):
        with pytest.raises(EngineError, match="column of texts"):
            method(pandas.DataFrame({"text": rows[0]}))
    with pytest.raises(bibert.BibertError, match="texts and"):
        fitted.fit(rows[0][:-1], rows[1])
    assert np.array_equal(fitted.predict(rows[0]), before)


@pytest.mark.parametrize("module", [pickle, joblib], ids=["pickle", "joblib"])
def test_a_fitted_one_predicts_elsewhere_without_torch(fitted, rows, module, tmp_path):
    path = tmp_path / "fitted"
    with path.open("wb") as file:
        module.dump(fitted, file)
    code = (
        f"import sys, {module.__name__}\n"
        f"with open({str(path)!r}, 'rb') as file: fitted = {module.__name__}.load(file)\n"
        f"print(fitted.predict({rows[0].tolist()}).tolist())\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(fitted.predict(rows[0]).tolist())


def test_a_packed_file_is_a_fitted_classifier(packed_file):
    fitted = BibertClassifier.from_packed(packed_file)
    assert fitted.classes_.tolist() == ["negative", "positive"]
    assert fitted.predict(["a film"]).tolist() == [bibert.load(packed_file).predict("a film")[0]["label"]]


def test_a_regression_is_no_classifier(regression_file):
    with pytest.raises(EngineError, match="regression"):
        BibertClassifier.from_packed(regression_file)


@pytest.fixture
def regression_file(tmp_path, save_untrained):
    from bibert.export import pack
    from bibert.nn.checkpoint import load_classifier

    folder = save_untrained(tmp_path / "scores", ["a film"], scheme="bibert", num_labels=1)
    save(pack(load_classifier(folder), max_length=16), tmp_path / "scores.bibert")
    return tmp_path / "scores.bibert"


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["one", "two"], [0.5, 1.5], "continuous"),
        (["one", "two", "three"], ["a", "b"], "3 texts and 2 labels"),
        ("one", ["a", "b", "a"], r"X is one text, .*\[X\]"),
    ],
)
def test_rows_that_cannot_be_learned_are_refused(unfitted, texts, labels, message):
    with pytest.raises((ValueError, bibert.BibertError), match=message):
        clone(unfitted).fit(texts, labels)
