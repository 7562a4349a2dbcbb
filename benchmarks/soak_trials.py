"""Trials of reliability that no test and no other script has: leaks, forks, full disks, kills, compilers, exact bits.

Each function takes how much to do and a seed, and returns how many it did and how many of them failed.
benchmarks/soak.py runs them and keeps the results.
"""

import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from file_mutants import WORDS, tokenizer_values
from random_models import random_packed

from bibert.data.examples import Split
from bibert.errors import BibertError
from bibert.lab.synthetic import make_reviews
from bibert.machine import peak_memory_bytes
from bibert.models import DEFAULT, find_file
from bibert.packed.file import load as load_packed
from bibert.packed.file import save
from bibert.packed.schema import PackedConfig
from bibert.runtime.classifier import TextClassifier, load
from bibert.runtime.engine import available_isas
from bibert.runtime.journal import journal_of

ROOT = Path(__file__).parents[1]
SHAPE = PackedConfig(2, 64, 2, 32, 128, 33, positions=512, token_types=2, labels=2)
MB = 2**20
WARM_UP = 20_000  # texts, until the memory of the process has reached its size
LOADS = 100  # the same for loads: 30,000 words of a tokenizer leave holes, which fill within about 80
ROWS_PER_KILL = 20_000
CHILD_SECONDS = 120  # a child that takes longer hangs, even on a busy machine
Done = tuple[int, int]  # how many, and how many of them failed


@contextlib.contextmanager
def tiny_model() -> Iterator[Path]:
    """A packed file of two layers that reads texts of up to 512 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.bibert"
        save(random_packed(SHAPE, 0, json.dumps(tokenizer_values()).encode()), path)
        yield path


def text_of(draw: random.Random, most: int) -> str:
    """Random words of the tiny model's tokenizer."""
    return " ".join(draw.choices([*WORDS[5:], "unknown"], k=draw.randint(1, most)))


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def no_leak(count: int, seed: int) -> Done:
    """Texts of 1 to 512 tokens, in calls of 1 to 600; fails if memory grows by more than 1 MB after a warm-up."""
    draw, done, before = random.Random(seed), -WARM_UP, 0
    with tiny_model() as path, load(path, threads=2) as classifier:
        while done < count:
            if not before and done >= 0:
                gc.collect()
                before = resident_bytes()
            texts = [text_of(draw, 512 if draw.random() < 0.05 else 30) for _ in range(draw.choice([1, 7, 64, 600]))]
            classifier.predict(texts)
            done += len(texts)
        gc.collect()
        grown = resident_bytes() - before
    print(f"grown by {grown / MB:.2f} MB", file=sys.stderr)
    return done, int(grown > MB)


def load_and_close(count: int, _seed: int) -> Done:
    """Load the shipped model and close it; fails if memory or open files grow."""
    path, at_start, before = find_file(DEFAULT), peak_memory_bytes(), (0, 0)
    for number in range(count + LOADS):
        if number == LOADS:
            before = (resident_bytes(), len([*Path("/proc/self/fd").iterdir()]))
        with load(path) as classifier:
            classifier.predict(["a good film"])
        if number == 0:
            first = peak_memory_bytes() - at_start
    gc.collect()
    grown, files = resident_bytes() - before[0], len([*Path("/proc/self/fd").iterdir()]) - before[1]
    print(f"grown by {grown / MB:.2f} MB, the first load took {first / MB:.1f} MB", file=sys.stderr)
    return count, (grown > MB) + (files != 0)


def same_on_threads(count: int, seed: int) -> Done:
    """Texts on 1 to 16 threads and on one: the same bits."""
    texts, wrong = make_reviews(max(count // 16, 1), seed).texts, 0
    with load(threads=1) as alone:
        expected = alone.logits(texts)
    for threads in range(1, 17):
        with load(threads=threads) as classifier:
            wrong += differing(classifier.logits(texts), expected)
    return 16 * len(texts), wrong


def same_in_batches(count: int, seed: int) -> Done:
    """Texts alone and in 20 random batches each: the same bits."""
    draw, texts, wrong = random.Random(seed), make_reviews(max(count // 20, 2), seed).texts, 0
    with load() as classifier:
        expected = np.concatenate([classifier.logits([text]) for text in texts])
        for _ in range(20):
            order = draw.sample(range(len(texts)), len(texts))
            while order:
                rows, order = order[: (size := draw.randint(1, 200))], order[size:]
                wrong += differing(classifier.logits([texts[row] for row in rows]), expected[rows])
    return 20 * len(texts), wrong


def same_as_graph(count: int, seed: int) -> Done:
    """Texts through the shipped model as a torch network and as a packed file: the same bits."""
    from bibert.export import pack, verify
    from bibert.nn.checkpoint import load_classifier

    draw, reviews = random.Random(seed), make_reviews(count, seed).texts
    texts = tuple(" ".join(draw.sample(text.split(), len(text.split()))) for text in reviews)
    network = load_classifier(find_file(DEFAULT))
    max_length = load_packed(find_file(DEFAULT)).max_length
    rows = Split((*reviews[: count // 2], *texts[count // 2 :]), None, (0.0,) * len(texts), "reviews")
    return verify(network, pack(network, max_length=max_length), rows), 0


def same_signs(count: int, seed: int) -> Done:
    """Numbers with random bits, from denormal to infinite: sign, bool and sign after GELU follow their definition."""
    import torch

    from bibert.nn import functional as fn

    bits = np.random.default_rng(seed).integers(0, 2**32, count + count // 100, dtype=np.uint32)
    bits[: count // 10] &= np.uint32(0x807F_FFFF)  # denormal numbers and zeros
    bits[: count // 100] &= np.uint32(0x8000_0000)
    values = bits.view(np.float32)[~np.isnan(bits.view(np.float32))]
    x, sign = torch.from_numpy(values), np.where(values >= 0, 1, -1)
    wrong = [fn.sign(x).numpy() != sign, fn.gelu_sign(x).numpy() != sign, fn.bool_(x).numpy() != (values >= 0)]
    return len(values), int(np.logical_or.reduce(wrong).sum())


def same_from_compilers(count: int, seed: int) -> Done:
    """Builds by gcc and clang, without and with optimization: the logits of texts have one digest on every ISA."""
    builds = list(product(("g++", "clang++"), ("-O0", "-O3")))
    texts, digests = make_reviews(max(count // len(builds), 1), seed).texts, {}
    program = "import bibert, hashlib, json, sys; texts = json.load(sys.stdin)\n"
    program += "print(hashlib.sha256(bibert.load().logits(texts).tobytes()).hexdigest())"
    for compiler, level in builds:
        library = build(f"{compiler}{level}", compiler, level)
        isas = available_isas() if level == "-O3" else available_isas()[:-1]  # plain kernels at -O0 take minutes
        for isa in isas:
            environment = os.environ | {"BIBERT_LIBRARY": str(library), "BIBERT_ISA": isa}
            command = [sys.executable, "-c", program]
            done = subprocess.run(
                command, input=json.dumps(texts), env=environment, capture_output=True, text=True, check=True
            )
            digests[compiler, level, isa] = done.stdout
    print(f"{len(digests)} digests, {len(set(digests.values()))} different", file=sys.stderr)
    return len(builds) * len(texts), (len(set(digests.values())) - 1) * len(texts)


def build(name: str, compiler: str, level: str) -> Path:
    """The library, built by a compiler with one flag of optimization."""
    folder, programs = ROOT / "build" / f"compiler-{name}", Path(sys.executable).parent
    options = [f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_FLAGS={level}"]
    ninja = [f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}", "-G", "Ninja"]
    for words in ([*ninja, *options, "-S", str(ROOT), "-B", str(folder)], ["--build", str(folder), "-j", "1"]):
        subprocess.run([str(programs / "cmake"), *words], check=True, capture_output=True)
    return folder / "libbibert.so"


def answer(path: Path, cpus: tuple[int, ...] = ()) -> bytes:
    """A digest of some answers, in a new process that may be bound to CPUs."""
    signal.alarm(CHILD_SECONDS)
    if cpus:
        os.sched_setaffinity(0, cpus)
    with load(path) as classifier:
        return digest_of(classifier)


def digest_of(classifier: TextClassifier) -> bytes:
    """A digest of the answers to some texts."""
    return hashlib.sha256(classifier.logits(["a good film", "b a s", "aaa " * 300]).tobytes()).digest()


def on_few_cpus(count: int, _seed: int) -> Done:
    """Processes bound to one CPU or to some: the same answers."""
    allowed = sorted(os.sched_getaffinity(0))
    sets = [(cpu,) for cpu in allowed] + [tuple(allowed), tuple(allowed[:2]), ()]
    with tiny_model() as path:
        expected = answer(path)
        signal.alarm(0)
        wrong = 0
        for number in range(count):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                wrong += pool.submit(answer, path, sets[number % len(sets)]).result() != expected
    return count, wrong


def after_fork(count: int, _seed: int) -> Done:
    """Children by fork, with the parent's model, and by spawn and forkserver, with their own: right answers in time."""
    with tiny_model() as path, load(path, threads=2) as classifier:
        expected, wrong = digest_of(classifier), 0
        for number in range(count):
            if number % 4 < 2:
                child = os.fork()
                if child == 0:
                    signal.alarm(CHILD_SECONDS)
                    os._exit(digest_of(classifier) != expected)
                wrong += os.waitpid(child, 0)[1] != 0
            else:
                context = multiprocessing.get_context(("spawn", "forkserver")[number % 4 - 2])
                with ProcessPoolExecutor(1, context) as pool:
                    wrong += pool.submit(answer, path).result() != expected
    return count, wrong


@contextlib.contextmanager
def small_disk(size: int) -> Iterator[Path]:
    """A file system of so many bytes, in memory; needs root."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def full_disk(count: int, seed: int) -> Done:
    """Write a model over another one on disks that hold the old one and a part of the new one: the old one stays."""
    draw, wrong = random.Random(seed), 0
    old, new = (random_packed(SHAPE, number, b"{}" + b" " * (number * 2 * MB)) for number in (0, 1))
    for _ in range(count):
        with small_disk(MB // 2 + draw.randrange(3 * MB // 2)) as disk:
            save(old, disk / "model.bibert")
            try:
                save(new, disk / "model.bibert")
                wrong += 1
            except (BibertError, OSError) as error:
                wrong += str(disk) not in str(error)
            wrong += load_packed(disk / "model.bibert").digest != old.digest
            wrong += [file.name for file in disk.iterdir()] != ["model.bibert"]
    return count, wrong


def predict_on_full_disk(count: int, seed: int) -> Done:
    """`bibert predict` into a disk that is too small: one line with the path, exit code above 0, no torn output."""
    draw, wrong = random.Random(seed), 0
    with tiny_model() as model:
        rows = model.parent / "in.txt"
        rows.write_text("a good film, a good film, a good film\n" * 60_000)
        for _ in range(count):
            with small_disk(draw.randrange(4096, 3 * MB)) as disk:
                done = subprocess.run(
                    predict(model, rows, disk / "out.csv"), capture_output=True, text=True, check=False
                )
                said = [line for line in done.stderr.splitlines() if str(disk) in line]
                wrong += done.returncode == 0 or len(said) != 1 or "Traceback" in done.stderr
                wrong += (disk / "out.csv").exists()
    return count, wrong


def predict(model: Path, rows: Path, output: Path) -> list[str]:
    """The command that labels a file on one thread."""
    words = ["-m", str(model), "-i", str(rows), "-o", str(output), "--threads", "1"]
    return [sys.executable, "-m", "bibert", "predict", *words]


def stream(count: int, seed: int) -> Done:
    """Lines through standard input of `bibert predict`: memory stays flat within 20 MB, and the order is kept."""
    draw, sizes = random.Random(seed), []
    texts = [text_of(draw, 12) for _ in range(997)]
    with tiny_model() as model:
        command = [sys.executable, "-m", "bibert", "predict", "-m", str(model), "--threads", "1"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin
        assert process.stdout
        writer = os.fork()
        if writer == 0:
            with process.stdin:
                for number in range(count):
                    process.stdin.write(texts[number % len(texts)] + "\n")
            os._exit(0)
        process.stdin.close()
        wrong = done = 0
        for done, line in enumerate(process.stdout, start=1):
            wrong += line.rstrip("\n").split("\t")[-1] != texts[(done - 1) % len(texts)]
            if done % max(count // 50, 1) == 0:
                sizes.append(int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"))
        os.waitpid(writer, 0)
        code = process.wait()
    later = sizes[len(sizes) // 10 : -1]
    print(f"memory {min(later) / MB:.1f} to {max(later) / MB:.1f} MB", file=sys.stderr)
    return done, wrong + (max(later) - min(later) > 20 * MB) + (code != 0) + (done != count)


def predict_killed(count: int, seed: int) -> Done:
    """Kill `bibert predict` on one large file again and again, then let it end: the bytes of an undisturbed run."""
    draw, rows = random.Random(seed), ROWS_PER_KILL * count
    with tiny_model() as model:
        folder = model.parent
        with (folder / "in.csv").open("w") as file:
            file.write("text,number\n")
            file.writelines(f"{text_of(draw, 12)},{number}\n" for number in range(rows))
        subprocess.run(predict(model, folder / "in.csv", folder / "whole.csv"), check=True, capture_output=True)
        again, journal, killed = (
            predict(model, folder / "in.csv", folder / "out.csv"),
            journal_of(folder / "out.csv"),
            0,
        )
        whole = (folder / "whole.csv").stat().st_size
        for _ in range(count):
            size = journal.stat().st_size if journal.exists() else 0
            moment = size + draw.randrange(1, max(2, whole // (2 * count)))
            with subprocess.Popen(again, stderr=subprocess.DEVNULL) as process:
                late = time.monotonic() + draw.uniform(0, 30)  # so that kills while rows are read again happen too
                while process.poll() is None and time.monotonic() < late:
                    if journal.exists() and journal.stat().st_size >= moment:
                        break
                    time.sleep(0.001)
                killed += process.poll() is None
                process.send_signal(signal.SIGKILL)
        subprocess.run(again, check=False, capture_output=True)
        names = sorted(path.name for path in folder.iterdir())
        same = (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
        return killed, int(not same) + (names != ["in.csv", "out.csv", "tiny.bibert", "whole.csv"])


def differing(found: np.ndarray, expected: np.ndarray) -> int:
    """Rows whose bits differ."""
    return int((found.view(np.int32) != expected.view(np.int32)).any(axis=1).sum())
