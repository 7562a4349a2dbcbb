"""A packed model in DuckDB, Polars, pandas, Ray Data and Spark: the rows of `bibert predict`, nulls, and bad input."""

import json
import sys
import tempfile

import pytest

from bibert.errors import DataError, EngineError
from bibert.integrations import answers, classifier_of
from bibert.runtime.classifier import load
from bibert.sklearn import BibertClassifier

MODEL = "sst2"
TEXTS = [
    "a gorgeous, witty film",
    "dull",
    "",
    "Ünïcödé 中文 🎬 and a\ttab",
    "very long " * 200,
    *(f"{word} {number}" for number in range(700) for word in ("good", "bad", "a bad film")),  # several chunks
]
Rows = list[tuple[str | None, float | None]]  # labels and scores


def with_duckdb(texts, model):
    duckdb = pytest.importorskip("duckdb", reason="pip install 'bibert[duckdb]' to run this")
    import pyarrow

    from bibert.integrations.duckdb import register

    connection = duckdb.connect()
    connection.register("reviews", pyarrow.table({"text": pyarrow.array(texts, "string"), "row": range(len(texts))}))
    register(connection, model)
    found = connection.sql("SELECT a.label, a.score FROM (SELECT row, bibert_scored(text) a FROM reviews) ORDER BY row")
    rows = found.fetchall()
    labels = connection.sql("SELECT bibert(text) FROM reviews ORDER BY row").fetchall()
    assert [label for (label,) in labels] == [label for label, _ in rows]
    return rows


def with_polars(texts, model):
    pl = pytest.importorskip("polars", reason="pip install 'bibert[polars]' to run this")
    import bibert.integrations.polars  # noqa: F401 - registers the namespace

    frame = pl.DataFrame({"text": texts}, {"text": pl.String})
    found = frame.bibert.predict("text", model, prefix="my_")
    assert found.columns == ["text", "my_label", "my_score"]
    assert found.equals(frame.lazy().bibert.predict("text", model, prefix="my_").collect(engine="streaming"))
    assert frame.select(pl.col("text").bibert.predict(model).struct.field("label")).rows() == found[["my_label"]].rows()
    return found[["my_label", "my_score"]].rows()


def with_pandas(texts, model):
    pd = pytest.importorskip("pandas", reason="pip install 'bibert[pandas]' to run this")
    import bibert.integrations.pandas  # noqa: F401 - registers the accessor

    frame = pd.DataFrame({"text": texts}, index=[f"row {number}" for number in range(len(texts))])
    found = frame.bibert.predict("text", model)
    assert list(frame) == ["text"]
    assert found.index.equals(frame.index)
    assert found["score"].dtype == "float32"
    found = found.astype(object).where(found.notna(), None)
    return list(zip(found["label"], found["score"], strict=True))


def with_ray(texts, model):
    ray = pytest.importorskip("ray", reason="pip install 'bibert[ray]' to run this")
    import pyarrow
    from pyarrow.parquet import write_table

    from bibert.integrations.ray import predict

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)  # where an actor of one CPU would wait for ever
    try:
        with tempfile.TemporaryDirectory() as folder:  # reading a file takes tasks of a whole CPU
            write_table(pyarrow.table({"text": texts, "row": range(len(texts))}), f"{folder}/rows.parquet")
            rows = predict(ray.data.read_parquet(folder), "text", model).sort("row").take_all()
    finally:
        ray.shutdown()
    return [(row["label"], row["score"]) for row in rows]


def with_spark(texts, model):
    pytest.importorskip("pyspark", reason="pip install 'bibert[spark]' to run this")
    from pyspark.sql import SparkSession

    from bibert.integrations.spark import predict, register

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = session.createDataFrame(list(enumerate(texts)), "row int, text string").repartition(2)
        rows = predict(frame, "text", model).orderBy("row").select("label", "score").collect()
        register(session, model)
        frame.createOrReplaceTempView("rows")
        answers = session.sql("SELECT bibert(text), bibert_scored(text) a FROM rows ORDER BY row").collect()
        assert [(row[0], row.a.score) for row in answers] == [tuple(row) for row in rows]
    finally:
        session.stop()
    return [tuple(row) for row in rows]


ENGINES = [with_duckdb, with_polars, with_pandas, with_ray, with_spark]
by_engine = pytest.mark.parametrize("label_with", ENGINES, ids=lambda engine: engine.__name__.removeprefix("with_"))


@pytest.fixture(autouse=True)
def workers_with_bibert(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def of_the_command(bibert, tmp_path_factory) -> Rows:
    """What `bibert predict` writes for the texts; scores as the 32-bit numbers that they are."""
    folder = tmp_path_factory.mktemp("command")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    assert bibert("predict", "-m", MODEL, "--input", rows, "--output", folder / "out.jsonl") == 0
    lines = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    found = [(row["label"], as_written(row["score"])) for row in map(json.loads, lines)]
    assert {label for label, _ in found} == {"negative", "positive", ""}  # a blank text has no label
    return found


def as_written(score):
    """The number that the shortest decimals of a 32-bit float stand for."""
    import numpy as np

    return None if score is None else float(np.float32(score))


@pytest.mark.filterwarnings("default")  # those of the engines are not ours
@by_engine
def test_every_engine_gives_the_labels_and_scores_of_the_command(label_with, of_the_command):
    expected = [*of_the_command[:3], (None, None), *of_the_command[3:]]
    texts = [*TEXTS[:3], None, *TEXTS[3:]]
    found = [(label, as_written(score)) for label, score in label_with(texts, MODEL)]
    assert found == expected


def test_scikit_learn_gives_the_labels_and_scores_of_the_command(of_the_command):
    fitted = BibertClassifier.from_packed(MODEL)
    scores = map(as_written, fitted.predict_proba(TEXTS).max(axis=1))
    found = list(zip(fitted.predict(TEXTS).tolist(), scores, strict=True))
    # An estimator must give every row a class, a blank one too.
    assert [row for row, text in zip(found, TEXTS, strict=True) if text.strip()] == [
        row for row in of_the_command if row[0]
    ]


@pytest.mark.parametrize("label_with", [with_polars, with_pandas, with_duckdb], ids=["polars", "pandas", "duckdb"])
def test_a_frame_without_rows_or_without_texts_has_no_answers(label_with):
    assert label_with([], MODEL) == []
    assert label_with([None, None], MODEL) == [(None, None)] * 2


@pytest.mark.parametrize("name", ["polars", "pandas"])
def test_a_column_that_is_there_already_is_kept(name):
    engine = pytest.importorskip(name)
    __import__(f"bibert.integrations.{name}")
    frame = engine.DataFrame({"text": ["a film"], "label": ["mine"]})
    with pytest.raises(DataError, match=r"'label' already; .*prefix"):
        frame.bibert.predict("text", MODEL)
    assert list(frame.bibert.predict("text", MODEL, prefix="new_").columns)[2:] == ["new_label", "new_score"]


def test_a_value_that_is_no_text_is_refused_with_its_row():
    with pytest.raises(EngineError, match=r"row 2: 3 \(int\)"):
        answers(load(MODEL), ["a film", None, 3])


def test_a_regression_answers_with_the_name_of_its_score(tmp_path, save_untrained):
    from bibert.export import pack
    from bibert.nn.checkpoint import load_classifier
    from bibert.runtime.classifier import TextClassifier

    folder = save_untrained(tmp_path, ["a film"], scheme="bibert", num_labels=1, id2label={0: "stars"})
    classifier = TextClassifier(pack(load_classifier(folder), max_length=16))
    labels, scores = answers(classifier, ["a film", None])
    assert labels == ["stars", None]
    assert [as_written(scores[0]), scores[1]] == [classifier.logits("a film")[0, 0], None]


def test_a_classifier_is_used_as_it_is_unless_its_threads_differ():
    classifier = load(MODEL, threads=2)
    assert classifier_of(classifier) is classifier_of(classifier, 2) is classifier
    assert classifier_of(classifier, 1).engine.threads == classifier_of(MODEL, 1).engine.threads == 1
