"""Does an engine that holds the data label it as fast as `bibert predict`, and with the same answers?

The same rows go from one Parquet file through the command, every integration that is installed and the server; they
take turns. A turn starts with the file and ends with all labels and scores in memory; it includes loading the model,
but not starting Ray, Spark or the server. All of them may use every CPU. Spark needs pandas 2: run it in an environment
of its own; a later run adds its engines to the results file, each with the ratio to the command's turns beside it.

    python benchmarks/integrations.py SENTENCES.txt[.gz] [--rows 50000] [--rounds 3] [--model sentiment_4] [--only ray]
"""

import argparse
import asyncio
import atexit
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from serving_client import Client, Server, crowd
from tables import integrations as rendered

from bibert import machine
from bibert.cli.console import say
from bibert.data.lines import Decoding, open_input
from bibert.data.readers import FORMATS

Answers = list[tuple[str, float]]  # scores as 32-bit numbers
COMMAND = "bibert predict"
SERVER = "bibert serve"
RESULTS = Path(__file__).parent / "results" / "integrations.json"
TEXTS_OF_A_REQUEST, CONNECTIONS = 32, 8
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]


def by_command(rows: Path, model: str) -> Any:
    """Label the file with the command."""
    labelled = rows.with_name("labelled.parquet")
    words = ["predict", "-m", model, "--input", str(rows), "--output", str(labelled), "--force"]
    subprocess.run([sys.executable, "-m", "bibert", *words], check=True, stderr=subprocess.DEVNULL)
    return pyarrow.parquet.read_table(labelled)


def by_duckdb(rows: Path, model: str) -> Any:
    """Label it in SQL."""
    import duckdb

    from bibert.integrations.duckdb import register

    connection = duckdb.connect()
    register(connection, model)
    query = f"SELECT row, unnest(bibert_scored(text)) FROM '{rows}' ORDER BY row"
    return connection.sql(query).to_arrow_table()


def by_polars(rows: Path, model: str) -> Any:
    """Label a lazy frame."""
    import polars as pl

    import bibert.integrations.polars  # noqa: F401

    return pl.scan_parquet(rows).bibert.predict("text", model).collect().to_arrow()


def by_pandas(rows: Path, model: str) -> Any:
    """Label a frame."""
    import pandas as pd

    import bibert.integrations.pandas  # noqa: F401

    return pyarrow.Table.from_pandas(pd.read_parquet(rows).bibert.predict("text", model))


def by_sklearn(rows: Path, model: str) -> Any:
    """Label a list of texts."""
    from bibert.sklearn import BibertClassifier

    classifier, table = BibertClassifier.from_packed(model), pyarrow.parquet.read_table(rows)
    probabilities = classifier.predict_proba(table["text"].to_pylist())
    labels, scores = classifier.classes_[probabilities.argmax(axis=1)], probabilities.max(axis=1).astype("float32")
    return table.append_column("label", [labels.tolist()]).append_column("score", [scores])


def by_ray(rows: Path, model: str) -> Any:
    """Label a data set."""
    import ray

    from bibert.integrations.ray import predict

    dataset = predict(ray.data.read_parquet(str(rows)), "text", model)
    return pyarrow.concat_tables(ray.get(dataset.to_arrow_refs())).sort_by("row")


def by_spark(rows: Path, model: str) -> Any:
    """Label a frame with a partition for each CPU."""
    from pyspark.sql import SparkSession

    from bibert.integrations.spark import predict

    session = SparkSession.builder.getOrCreate()
    frame = session.read.parquet(str(rows)).repartition(os.cpu_count() or 1)
    return predict(frame, "text", model).toArrow().sort_by("row")


def by_server(rows: Path, _model: str) -> Any:
    """Send it to the server, 32 texts at a time over 8 connections."""
    table = pyarrow.parquet.read_table(rows)
    texts = table["text"].to_pylist()
    found: list[Any] = [None] * len(texts)

    async def ask(client: Client, number: int) -> None:
        part = slice(number * TEXTS_OF_A_REQUEST, (number + 1) * TEXTS_OF_A_REQUEST)
        status, body = await client.predict([[text] for text in texts[part]])
        if status != 200:
            raise RuntimeError(f"the server answered {status}: {body[:200]!r}")
        found[part] = [answer[0] for answer in json.loads(body)]

    server = Server(PORT, None)  # type: ignore[arg-type]
    asyncio.run(crowd(CONNECTIONS, -(-len(texts) // TEXTS_OF_A_REQUEST), ask, server))
    labels, scores = ([one[key] for one in found] for key in ("label", "score"))
    return table.append_column("label", [labels]).append_column("score", [np.array(scores, dtype=np.float32)])


ENGINES: Mapping[str, Callable[[Path, str], Any]] = {
    "duckdb": by_duckdb,
    "polars": by_polars,
    "pandas": by_pandas,
    "sklearn": by_sklearn,
    "ray": by_ray,
    "pyspark": by_spark,
    SERVER: by_server,
}
MODULES = {SERVER: "granian"}  # of engines that are no module


def start(engine: str, model: str) -> None:
    """Start what an engine keeps running."""
    if engine == SERVER:
        command = [sys.executable, "-m", "bibert", "serve", model, "--port", str(PORT)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        atexit.register(process.terminate)
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", PORT)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server did not start")
    if engine == "ray":
        import ray

        ray.init(include_dashboard=False, log_to_driver=False)
    if engine == "pyspark":
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()


def summarize(seconds: Mapping[str, Sequence[float]], answers: Mapping[str, Answers]) -> dict[str, Any]:
    """Speeds, their ratio to the command's within a turn, and how many answers differ."""
    expected, found = answers[COMMAND], {}
    for name, turns in seconds.items():
        ratio = median(theirs / ours for theirs, ours in zip(seconds[COMMAND], turns, strict=True))
        differ = sum(one != other for one, other in zip(answers[name], expected, strict=True))
        speed = len(expected) / median(turns)
        found[name] = {"rows_per_second": round(speed), "ratio": round(ratio, 2), "differ": differ}
    return found


def main() -> None:
    """Write the rows, let the engines take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", type=Path, help="one text a line")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="sentiment_4")
    parser.add_argument("--only", action="append", choices=ENGINES, help="may be repeated")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    engines = {COMMAND: by_command}
    for name in options.only or ENGINES:
        if importlib.util.find_spec(MODULES.get(name, name)) is None:
            say(f"{name}: not installed")
            continue
        engines[name] = ENGINES[name]
        start(name, options.model)
    with open_input(options.sentences) as source:
        chunks = FORMATS["txt"](source, Decoding()).chunks(options.rows)
        texts = [str(row.cells["text"]) for row in islice((row for chunk in chunks for row in chunk), options.rows)]
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    answers: dict[str, Answers] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"row": range(len(texts)), "text": texts}), rows)
        for turn in range(options.rounds):
            for name, label in engines.items():
                began = time.perf_counter()
                table = label(rows, options.model)
                seconds[name].append(time.perf_counter() - began)
                columns = (table[column].to_pylist() for column in ("label", "score"))
                answers[name] = list(zip(*columns, strict=True))
                say(f"round {turn + 1}, {name}: {seconds[name][-1]:.1f} s")
    about = machine.about([*(name for name in engines if name in ENGINES and name != SERVER), "granian"])
    command = f"python benchmarks/integrations.py <sentences> --rows {len(texts)} --rounds {options.rounds}"
    command += "".join(f" --only '{name}'" for name in options.only or ())
    before = json.loads(options.output.read_text(encoding="utf-8"))["runs"] if options.output.exists() else []
    run = {"command": f"{command} --model {options.model}", "model": options.model, "machine": about}
    results = {"runs": [*before, run | {"rows": len(texts), "engines": summarize(seconds, answers)}]}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(rendered(results))


if __name__ == "__main__":
    main()
