"""Figures in README and docs are those of the results files, and every results file says where it comes from."""

import json
import re
from pathlib import Path

import pytest

from bibert.lab.bottleneck import effects
from bibert.lab.paper import TABLE_1
from bibert.lab.reproduced import load_cells, markdown, mean_scores

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
EXPERIMENTS = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODELS = {"teacher": "full_precision", "baseline": "baseline", "bibert": "bibert"}  # by run
FILES = sorted(RESULTS.glob("**/*.json"))


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def rows_of(text, model):
    """The cells of the table rows whose first cell begins with the name of a model."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in rows if row[0].split(" (")[0] == model]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_a_results_file_names_command_commit_machine_and_date(path):
    assert {"command", "commit", "machine", "date"} <= load(path).keys()
    assert load(path)["command"].startswith("bibert ")


@pytest.mark.parametrize(("run", "model"), MODELS.items())
def test_the_table_of_sst_2_is_that_of_the_runs(run, model):
    result = load(RESULTS / f"sst2-{run}" / "result.json")
    best = max(point["accuracy"] for point in result["evaluations"])
    assert result["metrics"]["dev_accuracy"] == best
    curve = ", ".join(f"{point['step']}: {100 * point['accuracy']:.1f}" for point in result["evaluations"])
    steps = str(result["evaluations"][-1]["step"])
    entry = EXPERIMENTS.split("## 2026-11-15: MiniLM-L6 on SST-2", 1)[1].split("\n## ", 1)[0]
    assert [row[2:] for row in rows_of(entry, model)] == [[f"{100 * best:.2f}", steps, curve]]


@pytest.mark.parametrize("run", MODELS)
def test_the_log_of_a_run_holds_its_evaluations(run):
    lines = [json.loads(line) for line in (RESULTS / f"sst2-{run}" / "log.jsonl").read_text().splitlines()]
    logged = {(line["step"], line["eval_dev_accuracy"]) for line in lines if "eval_dev_accuracy" in line}
    result = load(RESULTS / f"sst2-{run}" / "result.json")
    assert {(point["step"], point["accuracy"]) for point in result["evaluations"]} <= logged


def other_settings(cell):
    """In which respect a short run of a student differs from the others, beside learning rate, batch and steps."""
    yield from (f"{name} = {weight:g}" for name, weight in cell.recipe["weights"].items())
    if cell.recipe["norm_scope"] != "sample":
        yield f"a norm per {cell.recipe['norm_scope']}"
    if cell.recipe["dropout"]:
        yield f"dropout {cell.recipe['dropout']:g}"
    if cell.augmented:
        yield "variants of the texts"
    if cell.origin["start"] and cell.origin["start"]["sha256"] == cell.origin["teacher_sha256"]:
        yield f"taught by its start, {cell.origin['start']['scheme']}"


def trial(cell):
    """A run of docs/results/trials-sst2.json as a row of the tables in docs/experiments.md."""
    recipe = cell.recipe
    if cell.scheme != "full_precision":
        numbers = [f"{number:g}" for number in (recipe["learning_rate"], recipe["batch_size"], cell.steps)]
        return [cell.scheme, *numbers, ", ".join(other_settings(cell)), f"{cell.score:.1f}"]
    curve = ", ".join(f"{step}: {100 * value:.1f}" for step, value in cell.evaluations)
    settings = [f"{recipe[name]:g}" for name in ("learning_rate", "batch_size", "epochs", "dropout")]
    return [*settings, f"{cell.score:.2f}", curve]


def test_every_short_run_is_in_the_tables_as_it_came_out():
    cells = [trial(cell) for cell in load_cells(RESULTS / "trials-sst2.json")]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in EXPERIMENTS.splitlines()]
    assert len(cells) == 23
    assert all(lines.count(cell) == 1 for cell in cells)


def test_the_quickstart_table_of_the_readme_is_that_of_its_results_file():
    result = load(RESULTS / "quickstart.json")
    for model, accuracy in result["accuracy"].items():
        (row,) = rows_of(README, model)
        assert row[-1] == f"{100 * accuracy:.1f}", model
    assert f"{result['seconds']:.0f} s on two cores" in README


def test_what_is_said_of_looks_into_training_is_what_they_found():
    found = load(RESULTS / "probes-sst2.json")
    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8").replace("\n", " ")
    entropy, direction = found["entropy_of_attention"], found["direction"]
    assert max(entropy["baseline"]["greatest_head"]) == 0
    mean, steps = entropy["bibert"]["mean"], entropy["bibert"]["steps"]
    least = min(range(len(mean)), key=mean.__getitem__)
    assert f"{mean[0]:.2f} on average at the start, {mean[least]:.2f} at step {steps[least]}" in text
    assert f"and {mean[-1]:.2f} at the end" in text
    context = found["entropy_of_context_at_the_end"]
    assert f"({context['baseline']:.2f} and {context['bibert']:.2f} bits)" in text
    scores, bibert = direction["baseline"]["scores"], direction["bibert"]
    towards, away = (f"{100 * scores[way]:.0f} %" for way in ("matching", "mismatching"))
    steps = (f"{scores[f'{way}_margin']:.2f}" for way in ("matching", "mismatching"))
    assert f"({towards} of them, mean step {next(steps)}) more than away ({away}, {next(steps)})" in text
    assert f"({100 * bibert['scores']['matching']:.0f} and {100 * bibert['scores']['mismatching']:.0f} %)" in text
    assert f"{100 * bibert['value']['matching']:.0f} % of their similarities" in text
    assert f"{100 * direction['baseline']['value']['matching']:.0f} %, hardly more than by chance" in text


def test_what_is_said_of_bottlenecks_is_what_their_runs_gave():
    accuracies = mean_scores(load_cells(RESULTS / "bottlenecks.json"), "sst2")
    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
    said = text.partition("## Bottlenecks")[2].partition("\n## ")[0].replace("\n", " ")
    assert f"The baseline has {accuracies['baseline']:.1f} %" in said
    points = [effect.ours.points for effect in effects("sst2", accuracies)]
    assert len(points) == 9
    assert all(f"{gain:+.1f}" in said for gain in points)


def test_the_ablation_of_the_readme_is_that_of_its_results_file():
    cells = load_cells(RESULTS / "ablation.json")
    table = re.search(r"<!-- docs/results/ablation\.json -->\n(.*?)\n<!-- end -->", README, flags=re.DOTALL)
    assert table[1] == markdown(cells, TABLE_1).strip()
    rivals = ("baseline", "baseline+bi_attention", "baseline+dmd")
    for task in ("cola", "sst2", "stsb"):
        scores = {cell.scheme: cell.score for cell in cells if cell.task == task}
        assert all(scores["bibert"] > scores[rival] for rival in rivals)
        said = ", ".join(f"`{scheme}` {scores[scheme]:.1f}" for scheme in (*rivals, "bibert", "bibert_plus"))
        assert task == "sst2" or said in EXPERIMENTS


FLAGSHIP = load_cells(RESULTS / "flagship.json")
POLISHED = load_cells(RESULTS / "polished.json")
POLISHED_AGAIN = load_cells(RESULTS / "polished-again.json")
MIXED = load_cells(RESULTS / "mixed.json")


@pytest.mark.parametrize(
    ("title", "cells", "teachers"),
    [
        ("2026-11-16: the flagship", FLAGSHIP, FLAGSHIP),
        ("2026-11-16: the flagship learns on", POLISHED, FLAGSHIP),
        ("2026-11-16: the flagship learns on again", POLISHED_AGAIN, FLAGSHIP),
        ("2026-11-17: `bibert` with more texts and a running mean from the start", MIXED, MIXED),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_tables_of_the_flagship_are_those_of_its_runs(title, cells, teachers):
    teacher = next(one.score for one in teachers if one.scheme == "full_precision")
    entry = EXPERIMENTS.split(f"## {title},", 1)[1].split("\n## ", 1)[0]
    assert cells
    for scheme in {cell.scheme for cell in cells}:
        expected = [
            [
                cell.origin["bits"],
                f"{cell.score:.2f}",
                f"{100 * cell.score / teacher:.1f}",
                f"{cell.steps:,}",
                ", ".join(f"{step:,}: {100 * value:.1f}" for step, value in cell.evaluations),
            ]
            for cell in cells
            if cell.scheme == scheme
        ]
        assert [row[1:] for row in rows_of(entry, scheme)] == expected


def test_the_readme_says_of_the_model_in_the_package_what_its_runs_say():
    scores = {cell.scheme: cell.score for cell in [*FLAGSHIP, *POLISHED, *POLISHED_AGAIN]}
    shipped = ROOT / "src" / "bibert" / "models" / "sst2.bibert"
    opening = README.split("## Install", 1)[0].replace("\n", " ")
    long = re.search(r"\| 30 and more \| \d+ \| ([\d.]+) % \|", shipped.with_suffix(".md").read_text("utf-8"))
    assert f"with 30 words and more it gets {long[1]} % right" in opening
    assert f"{shipped.stat().st_size / 1e6:.1f} MB, {scores['bibert_plus']:.1f} % on SST-2's dev set" in opening
    assert f"has {scores['full_precision']:.1f} %" in opening


def test_the_readme_says_what_texts_and_mean_brought():
    after, before = (next(cell for cell in cells if cell.scheme == "bibert") for cells in (MIXED, FLAGSHIP))
    assert after.steps == before.steps
    assert f"BiBERT had {after.score:.1f} % on SST-2, without them {before.score:.1f} %" in README
