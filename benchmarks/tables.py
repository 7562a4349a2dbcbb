"""The tables of README.md, one function per benchmark, rendered from the results files; `make docs` inserts them.

Rendering needs neither torch nor a rival engine.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from math import floor
from pathlib import Path
from statistics import median
from typing import Any

from bibert.lab.rivals.benchmark import QUIET
from bibert.lab.rivals.engines import OURS

MB = 1e6
DIFFERENT = ("different_tokens", "different_logits")
Results = Mapping[str, Any]


def engine(results: Results) -> str:
    """One table for each architecture: an engine per row, a shape per column."""
    shapes, tables = results["shapes"], []
    for name, engines in results["architectures"].items():
        rows = [[each["name"], *_megabytes(each), *(_engine_time(each, shape) for shape in shapes)] for each in engines]
        tables.append(_table([name, "file MB", "memory MB", *(f"{shape} ms" for shape in shapes)], rows))
    return "\n\n".join([*tables, _origin(results, results["least_cpu_share"])])


def front(results: Results) -> str:
    """Accuracy, size and time of every contender."""
    dev_rows, share = results["dev_rows"], min(results["cpu_share"].values())
    rows = [
        [
            point["name"],
            f"{100 * point['correct'] / dev_rows:.1f}",
            f"{point['shipped_bytes'] / MB:.2f}",
            *(_time(point["name"], point[key], "{:.3g}", "{:.2g}") for key in ("one", "batch")),
        ]
        for point in results["points"]
    ]
    heads = ["engine", "dev accuracy %", "size MB", "one text, ms", f"{results['batch']} texts, ms for each"]
    busy = ["Other programs kept the machine busy: these times are provisional."] if share < QUIET else []
    inputs = f"seed {results['seed']}, {dev_rows} rows, at most {results['max_length']} tokens, "
    added = [
        f"{point['name']} was added later by its ratio to {results['points'][0]['name']}: commit {run['commit']}, "
        f"{run['cpu']}, {run['rounds']} rounds, never less than {floor(100 * run['cpu_share'])}% of a CPU."
        for point in results["points"]
        if (run := point.get("added"))
    ]
    return "\n\n".join([_table(heads, rows), *busy, _origin(results, share, inputs), *added])


def training_step(results: Results) -> str:
    """Ratios of training steps, and the peak memory of some."""
    ratios = []
    for title, value in results["ratios"].items():
        low, high = value["quartiles"]
        ratios.append([title, f"{value['median']:.2f}", f"{low:.2f} to {high:.2f}", f"{value['of_totals']:.2f}"])
    memory = [[name, f"{value:.0f}"] for name, value in results["peak_memory_mb"].items()]
    about = results["about"]
    origin = (
        f"{about['command']}; commit {about['commit']}, {about['cpu']}, {about['threads']} thread, "
        f"seed {about['seed']}, torch {about['torch']}, {about['date']}."
    )
    heads = ["ratio", "median", "quartiles", "of the sums"]
    return "\n\n".join([_table(heads, ratios), _table(["peak memory of", "MB"], memory), origin])


def training_rival(results: Results) -> str:
    """Speed and peak memory of a distillation beside those of another commit."""
    rows = []
    for scheme, found in results["schemes"].items():
        for clock, speed in found["speed"].items():
            low, high = speed["quartiles"]
            median, of_totals = speed["median"], speed["of_totals"]
            title = f"{scheme}: samples per second, by {clock}"
            rows.append([title, f"{median:.2f}", f"{low:.2f} to {high:.2f}", f"{of_totals:.2f}"])
        ours, rival = found["peak_memory_mb"]
        rows.append([f"{scheme}: peak memory, {ours:.0f} MB / {rival:.0f} MB", f"{ours / rival:.2f}", "", ""])
    about = results["about"]
    origin = (
        f"{about['command']}; commit {about['commit']}, {about['cpu']}, torch {about['versions']['torch']}, "
        f"{about['date']}."
    )
    heads = [f"ratio to commit {results['rival']}", "median", "quartiles", "of the sums"]
    return f"{_table(heads, rows)}\n\n{origin}"


def small_data(results: Results) -> str:
    """Test accuracy of a default training beside a bag of words, a row for each task and number of labelled rows."""
    rows = []
    for row in sorted(results["rows"], key=lambda one: (one["task"], one["rows"])):
        ours, words = (100 * row[model]["test_accuracy"] for model in ("metrics", "bag_of_words"))
        rows.append([row["task"], f"{row['rows']:,}", f"{words:.1f}", f"{ours:.1f}", f"{ours - words:+.1f}"])
        rows[-1] += [f"{row['minutes']} ({row['threads']})"]
    runs = sorted({(row["commit"], row["cpu"], row["seed"], row["date"]) for row in results["rows"]})
    origin = "; ".join(f"commit {commit}, {cpu}, seed {seed}, {date}" for commit, cpu, seed, date in runs)
    heads = ["task", "labelled rows", "bag of words", "bibert train", "gain", "minutes (threads)"]
    return f"{_table(heads, rows)}\n\npython benchmarks/small_data.py <tasks>; {origin}."


def serving(results: Results) -> str:
    """Requests a second of both servers by model and number of clients, and their memory."""
    rows = []
    for model, found in results["models"].items():
        (_, ours), (rival, theirs) = found["requests_per_second"].items()
        for clients, ratio in found["ratio"].items():
            speeds = [f"{median(turns[clients]):,.0f}" for turns in (ours, theirs)]
            late = [f"{median(found['p99_ms'][name][clients]):.1f}" for name in found["requests_per_second"]]
            times = f"{ratio['median']:.1f} ({ratio['low']:.1f}-{ratio['high']:.1f})"
            rows.append([f"{model}, {found['shape']}", clients, *speeds, times, *late])
    heads = [
        "model",
        "clients",
        "bibert, requests/s",
        f"FastAPI, {rival}",
        "times",
        "bibert, p99 ms",
        "FastAPI, p99 ms",
    ]
    memory = [
        [model, *(f"{value:.0f}" for value in found["memory_mb"].values())]
        for model, found in results["models"].items()
    ]
    of = ["worker of bibert", "both processes of bibert", "FastAPI"]
    return "\n\n".join([_table(heads, rows), _table(["memory MB of", *of], memory), _run(results)])


def serving_soak(results: Results) -> str:
    """Every trial of the server: what is promised, and what was found."""
    rows = []
    for name, found in results.items():
        share = float(found["command"].rpartition(" ")[2])
        kept = {True: "yes", False: "**no**", None: "not run"}[found["passed"]] + f", at {share:.0%}" * (share < 1)
        rows.append([name, found["what"].rstrip("."), _figures(found), kept])
    runs = sorted({_run(found).partition("; ")[2] for found in results.values()})
    command = "python benchmarks/serving_soak.py --only <id>"
    return "\n\n".join([_table(["id", "promise", "found", "kept"], rows), f"{command}; {' '.join(runs)}"])


def integrations(results: Results) -> str:
    """Rows a second of every engine beside the command's in the same run, and whether its answers are the same."""
    rows = []
    for run in results["runs"]:
        for name, found in run["engines"].items():
            same = f"{found['differ']:,} differ" if found["differ"] else "the same"
            speed = [f"{found['rows_per_second']:,}", f"{found['ratio']:.2f}"]
            rows.append([run["model"], name, f"{run['rows']:,}", *speed, same])
    heads = ["model", "engine", "rows", "rows/s", "times the command", "answers"]
    return "\n\n".join([_table(heads, rows), *map(_run, results["runs"])])


def browser(results: Results) -> str:
    """Times and ratios in Node and in Chromium, and downloads, an engine per row."""
    places = [place for place in ("node", "chromium") if place in results]
    rival = next(name for name in results["download_bytes"] if "onnxruntime" in name)
    heads, rows = ["engine", "download MB"], []
    heads += [f"{place.capitalize()}, {shape} ms" for place in places for shape in results[place][rival]]
    for name, size in results["download_bytes"].items():
        timings = [timing for place in places for timing in results[place][name].values()]
        rows.append([name, f"{size / MB:.1f}", *(_browser_time(timing) for timing in timings)])
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if name != OURS)
    origin = f"{results['command']}; commit {machine['commit']}, {machine['cpu']}, one thread, {versions}"
    return f"{_table(heads, rows)}\n\n{origin}, {machine['date']}."


def parity(results: Results) -> str:
    """Texts that were compared, and how many differ, by bits and place."""
    heads = ["bits", "model", "where", "texts", "tokens of a text", "other tokens", "other logits"]
    groups: dict[tuple[int, str, str], list[Results]] = {}
    for run in results["runs"]:
        groups.setdefault((run["bits"], run["model"], run["where"]), []).append(run)
    rows = []
    for (bits, model, where), runs in groups.items():
        texts, tokens, logits = (sum(run[key] for run in runs) for key in ("texts", *DIFFERENT))
        lengths = f"{min(run['shortest'] for run in runs)} to {max(run['longest'] for run in runs)}"
        rows.append([str(bits), f"`{model}`", where, f"{texts:,}", lengths, str(tokens), str(logits)])
    origins = sorted({(run["commit"], run["cpu"], run["seed"], run["date"]) for run in results["runs"]})
    origin = "; ".join(f"commit {commit}, {cpu}, seed {seed}, {date}" for commit, cpu, seed, date in origins)
    return f"{_table(heads, rows)}\n\n{results['command']}; {origin}."


def wheels(results: Results) -> str:
    """The wheels of `make wheels`, and what ran."""
    found = results["wheels"]
    heads = [head for head in next(iter(found.values())) if head != "machine"]
    rows = [[f"`{tag}`", *(wheel[head] for head in heads)] for tag, wheel in found.items()]
    machines = [wheel["machine"] for wheel in found.values()]
    builds = {(one["commit"], one["cpu"], one["versions"]["ziglang"], one["date"]) for one in machines}
    origin = "; ".join(f"commit {commit}, {cpu}, zig {zig}, {date}" for commit, cpu, zig, date in sorted(builds))
    return f"{_table(['wheel', *heads], rows)}\n\n{results['command']}; {origin}."


RENDERERS: Mapping[str, Callable[[Results], str]] = {
    "engine": engine,
    "front": front,
    "training_step": training_step,
    "training_rival": training_rival,
    "small_data": small_data,
    "serving": serving,
    "serving_soak": serving_soak,
    "integrations": integrations,
    "browser": browser,
    "parity": parity,
    "wheels": wheels,
}


def render(path: Path) -> str:
    """The table of a results file as Markdown; the part of its name before a hyphen is the benchmark."""
    return RENDERERS[path.stem.partition("-")[0]](json.loads(path.read_text(encoding="utf-8")))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])


def _origin(results: Results, cpu_share: float, inputs: str = "") -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if name != OURS)
    return (
        f"{results['command']}; commit {machine['commit']}, {machine['cpu']} ({machine['isa']}), "
        f"threads: {machine['threads']}, never less than {floor(100 * cpu_share)}% of a CPU, {inputs}"
        f"Python {machine['python']}, {versions}, {machine['date']}."
    )


def _run(results: Results) -> str:
    about = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return f"{results['command']}; commit {about['commit']}, {about['cpu']}, {versions}, {about['date']}."


def _figures(found: Results) -> str:
    """What a trial found, in words; `each` has details."""
    words = []
    for key, value in found.items():
        if key in ("what", "command", "each", "passed", "machine"):
            continue
        name, _, unit = key.rpartition("_") if key.rpartition("_")[2] in ("ms", "s", "mb", "us") else (key, "", "")
        if isinstance(value, Mapping):
            words += [f"{count:,} x {one}" for one, count in value.items()]
        else:
            number = f"{value:,g}" if isinstance(value, float) else f"{value:,}"
            words.append(f"{name.replace('_', ' ')} {number} {unit.replace('mb', 'MB')}".strip())
    return ", ".join(words)


def _megabytes(engine: Results) -> list[str]:
    if engine["note"]:  # why it was not run
        return [engine["note"], ""]
    return [f"{engine[field] / MB:.1f}" for field in ("file_bytes", "peak_bytes")]


def _engine_time(engine: Results, shape: str) -> str:
    timing = engine["timings"].get(shape)
    return "" if timing is None else _time(engine["name"], timing, "{:.2f}", "{:.1f}")


def _browser_time(timing: Results) -> str:
    """The median, and for ours how many times as fast as the rival, with the quartiles."""
    median = f"{timing['median_ms']:.2f}"
    if "times_as_fast" not in timing:
        return median
    ratio = timing["times_as_fast"]
    return f"{median}, **x{ratio['median']:.1f}** ({ratio['quartiles'][0]:.1f}-{ratio['quartiles'][1]:.1f})"


def _time(name: str, timing: Results, milliseconds: str, times: str) -> str:
    """The median, then its ratio to ours with the quartiles; the last two arguments are number formats."""
    median, ratio = milliseconds.format(timing["median_ms"]), timing["ratio"]
    if name == OURS:
        return median
    middle, low, high = (times.format(ratio[key]) for key in ("median", "low", "high"))
    return f"{median}, x{middle} ({low}-{high})"
