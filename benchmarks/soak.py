"""Everything reliability promises, in the quantity that CI has no time for; `make soak` runs this.

Each trial has the id of docs/reliability.md, runs a test of tests/, a script of benchmarks/ or a function of
benchmarks/soak_trials.py, and adds its count to docs/results/reliability.json. Its seed is the count that is already
there, so that a later run tries something new and quantities add up over days and machines.

    python benchmarks/soak.py                       # every trial that has not reached its quantity
    python benchmarks/soak.py F4 N1a --share 0.01   # some trials, a hundredth of the quantity
    python benchmarks/soak.py --list

The exit code is 1 if anything failed. Needs Linux; root for the trials with full disks, clang for N6, and its run-time
library for F2a (Debian: libclang-rt-14-dev).
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "reliability.json"
PROGRAMS = Path(sys.executable).parent
TOLD = re.compile(r"(\d+) (passed|failed|error)")  # the last line of pytest
Done = tuple[int, int]  # how many, and how many of them failed


@dataclass(frozen=True)
class Trial:
    """What is promised, how many trials of it are asked for, and how some of them are run."""

    what: str
    asked: int
    run: Callable[[int, int], Done]
    command: str  # what it runs, for the table
    grows: bool = True  # another run tries something else; otherwise only the largest run counts


def call(name: str, what: str, asked: int, *, grows: bool = True) -> Trial:
    """A trial of soak_trials.py."""

    def run(count: int, seed: int) -> Done:
        import soak_trials

        done: Done = getattr(soak_trials, name)(count, seed)
        return done

    return Trial(what, asked, run, f"soak_trials.{name}", grows)


def pytest(what: str, asked: int, *tests: str, each: int = 1, rounds: int = 0) -> Trial:
    """Tests, each of which tries `each` things; those with BIBERT_ROUNDS try `rounds` for each of these rounds."""

    def run(count: int, seed: int) -> Done:
        environment = os.environ | {"BIBERT_SEED": str(seed)}
        if rounds:
            environment["BIBERT_ROUNDS"] = str(max(1, -(-count // rounds)))
        words = ["-m", "pytest", "-q", "--timeout=0", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", *tests]
        done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        last = done.stdout.splitlines()[-1] if done.stdout else ""
        told = {kind: int(number) for number, kind in TOLD.findall(last)}
        if done.returncode:
            print(done.stdout[-3000:], file=sys.stderr)
        count = told.get("passed", 0) + told.get("failed", 0)
        failed = max(told.get("failed", 0) + told.get("error", 0), int(done.returncode != 0))
        if rounds and each == 0:  # one test has all the rounds
            count = int(environment["BIBERT_ROUNDS"]) * rounds
        return count * max(each, 1), failed

    return Trial(what, asked, run, "pytest " + " ".join(tests), grows=bool(rounds))


def native(what: str, asked: int, program: str, *, options: str = "", grows: bool = True) -> Trial:
    """A native test with its count and its first round, in a build with options of CMake."""

    def run(count: int, seed: int) -> Done:
        folder = built(options)
        done = subprocess.run([folder / "native" / "tests" / program, str(count), str(seed)], check=False)
        return count, int(done.returncode != 0)

    return Trial(what, asked, run, f"{program} {options}".strip(), grows)


def sanitized(count: int, _seed: int) -> Done:
    """Every native test with the address and undefined-behaviour sanitizers."""
    folder = built("-DBIBERT_SANITIZE=address,undefined")
    command = [PROGRAMS / "ctest", "--test-dir", folder, "--timeout", "1800", "--output-on-failure"]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    ends = re.findall(r"Test +#\d+: \w+ \.* *(\S+)", told)
    return min(len(ends), count), sum(end != "Passed" for end in ends) + (not ends)


def built(options: str, target: str = "all") -> Path:
    """The folder of a native build with options of CMake."""
    folder = ROOT / "build" / f"soak{re.sub(r'[^a-z]+', '-', options.lower())}"
    words = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={PROGRAMS / 'ninja'}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    words += ["-DBIBERT_TESTS=ON", "-S", str(ROOT), "-B", str(folder), *options.split()]
    for part in (words, ["--build", str(folder), "--target", target]):
        subprocess.run([PROGRAMS / "cmake", *part], check=True, stdout=subprocess.DEVNULL)
    return folder


def fuzz(count: int, seed: int) -> Done:
    """Inputs of libFuzzer; the corpus stays in build/."""
    command = ["make", "fuzz", f"FUZZ_INPUTS={count}", f"FUZZ_SEED={seed + 1}"]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False)
    ran = re.findall(r"stat::number_of_executed_units: (\d+)", done.stderr)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
    return int(ran[-1]) if ran else 0, int(done.returncode != 0)


def script(name: str, *options: str) -> dict[str, Any]:
    """What a script of benchmarks/ prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / name), *options]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def mutants(count: int, seed: int) -> Done:
    """Files with a changed structure."""
    found = script("file_mutants.py", "--mutants", str(count), "--first", str(seed))
    return found["mutants"], len(found["raised"]) + len(found["aborted"]) + len(found["hung"])


def damage(kind: str, layers: int) -> Callable[[int, int], Done]:
    """Files with flipped bits or cuts."""

    def run(count: int, seed: int) -> Done:
        words = [f"--{name}={count if name == kind else 0}" for name in ("flips", "cuts")]
        found = script("file_damage.py", *words, f"--layers={layers}", f"--seed={seed}")[kind]
        return found["refused"] + found["accepted"], found["accepted"]

    return run


TSAN = "-DBIBERT_SANITIZE=thread"
TRIALS = {
    "F1": pytest(
        "bad files made by hand are refused with the field's name",
        60,
        "tests/packed/test_bad_files.py",
        "tests/packed/test_tokenizer.py",
    ),
    "F2a": Trial("inputs of libFuzzer through the C API, ASan and UBSan: no report", 10_000_000, fuzz, "make fuzz"),
    "F2b": Trial(
        "mutants of tokenizer, header and numbers, 512 MB: no abort, none above 1 s",
        1_000_000,
        mutants,
        "file_mutants.py",
    ),
    "F3": Trial("files of 4.4 MB with one flipped bit are refused", 20_000, damage("flips", 6), "file_damage.py"),
    "F4": Trial("files that were cut are refused", 100_000, damage("cuts", 1), "file_damage.py"),
    "F5": pytest(
        "hostile headers are refused with 512 MB of memory",
        200,
        "tests/packed/test_damage.py::test_a_hostile_header_is_refused_with_half_a_gigabyte_of_memory_and_in_time",
        each=120,
    ),
    "F6": pytest(
        "no pickle is run, and inference imports neither pickle's users nor torch",
        10,
        "tests/test_imports.py",
        "tests/packed/test_file.py::test_a_pickle_is_not_run",
        "tests/nn/test_checkpoint.py",
    ),
    "F7": pytest(
        "files of every version give the bits they gave then",
        2,
        "tests/packed/test_golden.py::test_a_file_of_an_older_bibert_gives_the_bits_it_gave_then",
    ),
    "F8a": pytest(
        "kills of a writer leave the old file or the new one",
        200,
        "tests/packed/test_damage.py::test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_file_whole",
        each=0,
        rounds=1,
    ),
    "F8b": call("full_disk", "a full disk keeps the old file and is named", 20),
    "F9": pytest(
        "models of random shape are read and written as the same bytes",
        1_000,
        "tests/packed/test_file.py::test_any_model_comes_back_equal_and_is_saved_as_the_same_bytes",
        each=0,
        rounds=1,
    ),
    "N1a": native("random shapes on every instruction set: the bits of the plain kernels", 10_000, "model_test"),
    "N1b": pytest(
        "random networks: torch, numpy and engine give the same bits",
        1_000,
        "tests/parity/test_random_networks.py::test_random_shapes_give_the_bits_of_the_torch_graph",
        rounds=5,
    ),
    "N2": call("same_on_threads", "texts on 1 to 16 threads have the same bits", 16_000),
    "N3": call("same_in_batches", "texts alone and in random batches have the same bits", 40_000),
    "N4": call("same_as_graph", "texts have the bits of the torch graph", 10_000),
    "N5": call("same_signs", "signs of any number follow the definition", 1_000_000),
    "N6": call("same_from_compilers", "gcc and clang, -O0 and -O3: one digest of the logits of 500 texts", 2_000),
    "N7": pytest(
        "numbers that are not finite are refused with their name, or never returned",
        20,
        *(
            "tests/test_export.py",
            "tests/nn/test_checkpoint.py",
            "tests/packed/test_bounds.py",
            "tests/parity/test_range.py",
        ),
        *("-k", "finite or range or bound or epsilon or half"),
    ),
    "M1": Trial("native tests under ASan and UBSan", 7, sanitized, "make test-sanitizers", grows=False),
    "M2": native("predictions of 16 threads that share a model, TSan", 10_000, "threads_test", options=TSAN),
    "M3": call("no_leak", "predictions with at most 1 MB more memory", 1_000_000),
    "M4": call("load_and_close", "loads without more memory or open files", 1_000),
    "M5": call("on_few_cpus", "processes bound to some CPUs give the same answers", 6),
    "M6": call("after_fork", "children by fork, spawn and forkserver answer", 100),
    "M7": pytest(
        "only kernels use instructions of newer CPUs, and an old CPU runs the library",
        6,
        "tests/native/test_library.py",
    ),
    "T1": pytest(
        "kills of a training end with the same weights",
        50,
        "tests/training/test_kill.py::test_a_run_killed_ten_times_ends_with_the_same_weights",
        each=11,
        rounds=11,
    ),
    "T2": pytest(
        "a training on a full disk names it, and resumes to the same weights",
        20,
        "tests/training/test_kill.py::test_a_run_on_a_disk_that_fills_up_names_it_and_resumes_to_the_same_weights",
        rounds=1,
    ),
    "T3": pytest(
        "SIGTERM and SIGINT save a checkpoint and end with 143 and 130",
        20,
        "tests/training/test_kill.py::test_a_process_that_gets_a_signal_exits_with_its_code",
        rounds=2,
    ),
    "T4": pytest(
        "the same seed gives the same weights",
        3,
        "tests/training/test_loop.py::test_the_same_seed_gives_the_same_weights",
    ),
    "T5": pytest(
        "one of two training processes killed: the other ends within a minute, and the run resumes",
        5,
        "tests/training/test_distributed.py::test_if_one_process_is_killed_the_other_ends_too_and_the_run_resumes",
        rounds=1,
    ),
    "T6": pytest("bad data give one line with the place and the remedy", 40, "tests/data/test_readers.py"),
    "T7": pytest(
        "a loss or gradient that is not finite ends the run with its name",
        5,
        "tests/training/test_loop.py",
        "tests/training/test_optimizer.py",
        *("-k", "finite or nan_loss"),
    ),
    "T8": pytest(
        "a second run in a folder is refused",
        2,
        "tests/training/test_resume.py::test_a_locked_folder_is_refused_with_the_process_that_holds_it",
        "tests/training/test_run.py::test_the_request_and_the_versions_are_noted_and_a_second_run_is_refused",
    ),
    "C1": call("stream", "lines of a stream: flat memory, order kept", 10_000_000),
    "C2": call(
        "predict_killed", "kills of predict, 20,000 rows for each in one file: the bytes of an undisturbed run", 50
    ),
    "C3a": pytest(
        "closed and full outputs, wrong paths, signals: one line, no traceback",
        20,
        *("tests/cli/test_app.py", "tests/cli/test_predict.py", "tests/cli/test_console.py"),
        *("-k", "closed or full or reader or signal or ctrl or one_line or cannot"),
    ),
    "C3b": call("predict_on_full_disk", "predict into a full disk: one line with the path, no torn output", 20),
    "C4": pytest("odd bytes, long lines and no lines are read as documented", 30, "tests/runtime/test_tables.py"),
    "C5": pytest(
        "a missing extra is answered with its pip line",
        8,
        *("tests/cli/test_app.py", "tests/data/test_readers.py"),
        *("-k", "extra or missing_package or light_install"),
    ),
}


def done_so_far(name: str, runs: list[dict[str, Any]]) -> int:
    """How many of a trial the results hold, without those of failed runs."""
    counts = [run["count"] for run in runs if run["id"] == name and not run["failures"]]
    return sum(counts) if TRIALS[name].grows else max(counts, default=0)


def attempt(name: str, share: float, path: Path) -> bool:
    """Run a trial, or what is left of it, add its result to the file, and return whether nothing failed."""
    from bibert import machine
    from bibert.files import write_whole

    trial, runs = TRIALS[name], read(path)["trials"]
    seed, wanted = sum(run["count"] for run in runs if run["id"] == name), max(1, round(share * trial.asked))
    if trial.grows and (left := trial.asked - done_so_far(name, runs)) > 0:
        wanted = min(wanted, left)
    print(f"== {name}: {trial.what}", file=sys.stderr, flush=True)
    start = time.perf_counter()
    try:
        count, failures = trial.run(wanted, seed)
    except Exception as error:  # noqa: BLE001, the others still run
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        count, failures = 0, 1
    result = {
        "id": name,
        "command": f"python benchmarks/soak.py {name} --share {share:g}",
        "seed": seed,
        "count": count,
        "failures": failures,
        "seconds": round(time.perf_counter() - start, 1),
        "commit": machine.commit(),
        "machine": machine.cpu_name(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }
    print(json.dumps(result), flush=True)
    results = read(path)  # again: a trial takes hours, and another one may have written
    lines = ",\n".join(json.dumps(run) for run in (*results["trials"], result))
    path.parent.mkdir(exist_ok=True)
    with write_whole(path) as file:
        file.write(f'{{"trials": [\n{lines}\n]}}\n')
    return failures == 0


def read(path: Path = RESULTS) -> dict[str, Any]:
    """The results so far."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"trials": []}
    return found


def table(results: dict[str, Any]) -> list[list[str]]:
    """Rows of docs/reliability.md: id, what, asked, done, failures, what runs it."""
    rows = []
    for name, trial in TRIALS.items():
        failures = sum(run["failures"] for run in results["trials"] if run["id"] == name)
        done = done_so_far(name, results["trials"])
        counts = [f"{trial.asked:,}", f"{done:,}", str(failures) if done or failures else ""]
        rows.append([name, trial.what, *counts, f"`{trial.command}`"])
    return rows


def main() -> None:
    """Run trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("ids", nargs="*", metavar="ID", help="trials; without any, those below their quantity")
    parser.add_argument("--share", type=float, default=1.0, help="of the quantity")
    parser.add_argument("--list", action="store_true", help="show what there is, and what is done")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to add to")
    options = parser.parse_args()
    if unknown := [name for name in options.ids if name not in TRIALS]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(TRIALS)}")
    if options.list:
        for row in table(read(options.results)):
            print("\t".join(row[:5]))
        return
    runs = read(options.results)["trials"]
    names = options.ids or [name for name, trial in TRIALS.items() if done_so_far(name, runs) < trial.asked]
    failed = [name for name in names if not attempt(name, options.share, options.results)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
