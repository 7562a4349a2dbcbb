"""Can a packed file crash, hang or exhaust the process? Changes the structure of files, and loads and runs each one.

A mutant is a tiny model whose tokenizer, header or numbers were changed at a few places: other types, huge numbers,
long lists, parts of other tokenizers, missing and repeated keys. Its digest is that of an honest file, so that every
check behind the digest is reached. Children with little memory load the mutants and classify texts with those that
load. A child that dies is an abort, and names the seed of its mutant; a mutant that takes more than a second of CPU is
a hang.

    python benchmarks/file_mutants.py [--mutants 50000] [--first 0] [--megabytes 512]

Prints a JSON object with the counts; `raised`, `aborted` and `hung` list seeds and must be empty. `--first` is the
first seed: a seed always makes the same mutant. A million mutants take about 25 minutes of one core. Needs Linux.
"""

import argparse
import functools
import hashlib
import json
import marshal
import math
import mmap
import os
import random
import resource
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads reserve more memory than a child may have
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from random_models import random_packed, with_bits
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from bibert.errors import ModelFileError
from bibert.packed.file import PackedModel
from bibert.packed.header import ALIGNMENT, LENGTH_BYTES, ZERO_DIGEST, encode
from bibert.packed.schema import DTYPES, PackedConfig
from bibert.runtime.classifier import load

PER_CHILD = 2000  # mutants
LARGEST = 4_000_000  # bytes that a change may add
HANG, KILL = 1.0, 20.0  # seconds of CPU of a mutant that is reported, seconds until its child is killed
TEXTS = ["", "a good film", "aaaa [MASK] b\u0301 \u4e2d\u6587 \U0001f600\0" * 20, "a" * 2_000]
LONGEST = "a" * 100_000  # for one file in twenty: the tokenizer takes longer for it than everything else for all
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "b", "##b", "good", "film", "##s", "\u4e2d")
SHAPE = PackedConfig(1, 20, 2, 10, 33, 16, positions=8, token_types=2, labels=2)

EXPECTED = ("refused", "accepted")
Outcome = str  # one of these, or what was raised


def tokenizer_values() -> dict[str, Any]:
    """A small tokenizer.json of BERT."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = [(word, numbers[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    tokenizer.add_special_tokens(list(WORDS[:5]))
    tokenizer.add_tokens(["[new]"])
    values: dict[str, Any] = json.loads(tokenizer.to_str())
    return values


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
STRANGERS: list[Any] = [  # parts of other tokenizers, and values that are too large or of another type
    {"type": "Sequence", "normalizers": [REPLACE] * 3},
    {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 50},
    {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": False},
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "Unigram", "unk_id": 0, "vocab": [["a" * 5000, 0.0], ["[UNK]", 0.0]]},
    {"type": "BPE", "dropout": 0.5, "vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": None},
    {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
    {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
    {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
    {"Sequence": {"id": "B", "type_id": 1}},
    {"Fixed": 10**9},
    *(None, True, False, 0, 1, -1, 15, 16, 63, 64, 100, 101, 2**31, 2**32, 2**63, 10**30, 0.5, -0.0, 1e308),
    *("", "a", "##", "A", "B", "[UNK]", "[nothing]", " ", "\0", "\u0301", "\ud800", "x" * 65, "a" * 5000, "bibert"),
    *([], {}, [[]] * 500, {"a": {"a": {"a": {}}}}, list(range(2000)), {str(n): n for n in range(2000)}),
]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-12, 511.0, 512.0, 5000.0, 32767.0, 40000.0, 1e10, -1e20, 3e38, -3e38]
NUMBERS += [math.inf, -math.inf, math.nan]


def places_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place inside a value: its container and its key."""
    entries: Any = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, one in entries:
        yield value, key
        yield from places_of(one)


def copied(value: Any) -> Any:
    """A copy of values of JSON and all their parts, sooner than by `copy.deepcopy`."""
    return marshal.loads(marshal.dumps(value))


def change(draw: random.Random, values: Any) -> None:
    """Change one place: replace, remove, repeat, insert, or exchange it."""
    places = list(places_of(values))
    container, key = draw.choice(places)
    stranger = draw.choice(STRANGERS)
    other, other_key = draw.choice(places)
    kind = draw.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = copied(other[other_key])
    elif kind == 2 and isinstance(container, list):
        most = max(1, LARGEST // len(json.dumps(container[key])))  # copies of copies would fill the memory
        container[key:key] = [copied(container[key]) for _ in range(min(draw.choice([1, 20, 5000]), most))]
    elif kind == 3 and isinstance(container, dict):
        container[draw.choice(["type", "x", *map(str, container)])] = copied(stranger)
    elif kind == 4 and isinstance(container[key], str):
        container[key] = container[key] + draw.choice(["a", "\n", "0", "\\", '"', "\u0301"]) * draw.choice([1, 100])
    else:
        container[key] = copied(stranger)


def spelled(draw: random.Random, values: Any) -> bytes:
    """The text of changed values; sometimes some of its bytes are changed too."""
    text = bytearray(json.dumps(values, separators=(",", ":")).encode())
    for _ in range(draw.choice([0, 0, 0, 1, 5])):
        start = draw.randrange(len(text))
        piece = draw.choice([b"", b"[", b"{", b'"', b"\\", b",", b"9" * 40, b"[" * 5000, b"\xff", b"\\ud800", b"1e999"])
        text[start : start + draw.randrange(8)] = piece
    return bytes(text) or b" "


front_of = functools.lru_cache(maxsize=64)(encode)


def signed(front: bytes, data: bytes) -> bytes:
    """A file with its digest."""
    digest = hashlib.sha256(front + data).hexdigest()
    return front.replace(ZERO_DIGEST.encode(), digest.encode(), 1) + data


class Mutants:
    """The mutant of each seed."""

    def __init__(self) -> None:
        self._tokenizer = tokenizer_values()
        whole = json.dumps(self._tokenizer).encode()
        self._models = [random_packed(shape, 0, whole) for shape in (SHAPE, with_bits(SHAPE, 2))]

    def make(self, seed: int) -> bytes:
        """The bytes of a file."""
        draw = random.Random(seed)
        model = draw.choice(self._models)
        kind = draw.choice([self._other_tokenizer] * 5 + [self._other_header] * 3 + [self._other_numbers] * 2)
        return kind(draw, model)

    def _other_tokenizer(self, draw: random.Random, model: PackedModel) -> bytes:
        values = copied(self._tokenizer)
        for _ in range(draw.choice([1, 1, 2, 4])):
            change(draw, values)
        tokenizer = spelled(draw, values)
        return signed(front_of(model, len(tokenizer)), model.data[: model.weights_bytes].tobytes() + tokenizer)

    def _other_header(self, draw: random.Random, model: PackedModel) -> bytes:
        values = json.loads(front_of(model, model.specs[-1].nbytes)[LENGTH_BYTES:])
        metadata = values["__metadata__"]
        part = draw.choice(["config", "config", "labels", "about", "metadata", "table"])
        if part in metadata:  # JSON inside JSON
            inside = [json.loads(metadata[part])]
            change(draw, inside)
            metadata[part] = json.dumps(inside, separators=(",", ":"), sort_keys=True)[1:-1]
        else:
            change(draw, metadata if part == "metadata" else values)
        text = spelled(draw, values)
        text += b" " * (-len(text) % ALIGNMENT)
        return signed(len(text).to_bytes(LENGTH_BYTES, "little") + text, model.data.tobytes())

    def _other_numbers(self, draw: random.Random, model: PackedModel) -> bytes:
        data = bytearray(model.data)
        for _ in range(draw.choice([1, 2, 8])):
            spec = draw.choice(model.specs[:-1])
            size = DTYPES[spec.dtype].itemsize
            for at in range(spec.offset, spec.offset + spec.nbytes, size):
                if draw.random() < 0.5:
                    is_float = spec.dtype == "F32"
                    data[at : at + size] = struct.pack("<f", draw.choice(NUMBERS)) if is_float else draw.randbytes(size)
        return signed(front_of(model, model.specs[-1].nbytes), bytes(data))


def judge(path: Path, seed: int) -> Outcome:
    """Load a file and classify texts with it."""
    texts = [*TEXTS, *TEXTS[:2], *([LONGEST] if seed % 20 == 0 else [])]
    try:
        with load(path, threads=1) as classifier:
            answers = classifier.predict(texts)
        return "accepted" if all(math.isfinite(answer["score"]) for answer in answers) else "score not finite"
    except ModelFileError as error:
        return "refused" if str(error).startswith(f"{path}: ") else f"unclear: {error}"
    except BaseException as error:  # noqa: BLE001, a panic in Rust is not an Exception
        return f"{type(error).__name__}: {error}"


def survey(run: Callable[[int], Outcome], seeds: range, megabytes: int) -> dict[str, Any]:
    """Run every seed in children with little memory, and count the outcomes."""
    found: dict[str, Any] = {"raised": {}, "aborted": [], "hung": []}
    shared = memoryview(mmap.mmap(-1, 24)).cast("Q")  # the seed that a child is at, and how many it refused, accepted
    next_seed = seeds.start
    while next_seed < seeds.stop:
        end = min(next_seed + PER_CHILD, seeds.stop)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _run_all(run, range(next_seed, end), megabytes, shared, writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            for line in lines:
                seed, seconds, outcome = json.loads(line)
                if outcome not in EXPECTED:
                    found["raised"][seed] = outcome
                if seconds > HANG:
                    found["hung"].append(seed)
        next_seed = shared[0] + 1
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            found["aborted"].append(shared[0])
    return {"mutants": len(seeds), "refused": shared[1], "accepted": shared[2], **found}


def _run_all(run: Callable[[int], Outcome], seeds: range, megabytes: int, shared: memoryview, writer: int) -> None:
    """The life of a child: it counts in `shared`, and writes a line for each seed that is not as it should be."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, megabytes * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _run_each(run, seeds, shared, writer)
        os._exit(0)
    finally:  # an error must not unwind to what belongs to the parent
        os._exit(1)


def _run_each(run: Callable[[int], Outcome], seeds: range, shared: memoryview, writer: int) -> None:
    for seed in seeds:
        shared[0] = seed
        signal.setitimer(signal.ITIMER_REAL, KILL)  # without a handler, the signal ends the child
        start = time.perf_counter()
        outcome = run(seed)
        if outcome in EXPECTED:
            shared[1 + EXPECTED.index(outcome)] += 1
        seconds = time.perf_counter() - start
        if seconds > HANG:  # on a busy machine this says little: once more, by the time of the CPU
            start = time.process_time()
            run(seed)
            seconds = time.process_time() - start
        if seconds > HANG or outcome not in EXPECTED:
            os.write(writer, f"{json.dumps([seed, seconds, outcome[:200]])}\n".encode())


def main() -> None:
    """Survey mutants, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=512)
    options = parser.parse_args()
    mutants, start = Mutants(), time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # in memory: a million files on no disk
        path = Path(folder) / "mutant.bibert"

        def run(seed: int) -> Outcome:
            path.write_bytes(mutants.make(seed))
            return judge(path, seed)

        result = survey(run, range(options.first, options.first + options.mutants), options.megabytes)
    print(json.dumps(result | {"seconds": round(time.perf_counter() - start, 1)}))


if __name__ == "__main__":
    main()
