"""Accidental and malicious damage: truncated files, flipped bits, hostile headers with little memory, a killed writer.

benchmarks/file_damage.py does the first two to a file of realistic size.
"""

import json
import os
import random
import subprocess
import sys

import pytest

from bibert.errors import ModelFileError
from bibert.packed.file import load, save

FLIPS = 4_000
KILLS, SEED = int(os.environ.get("BIBERT_ROUNDS", "100")), os.environ.get("BIBERT_SEED", "0")


@pytest.fixture(params=[1, 2], ids="version {}".format)
def small_file(request, make_model, make_levels, tmp_path):
    """A file of about 8 kB with every optional part, half header and half data."""
    path = tmp_path / "small.bibert"
    save((make_model if request.param == 1 else make_levels)(), path)
    return path


def is_refused(path):
    """Whether `load` raises its own error; any other error is a failure of the test."""
    try:
        load(path)
    except ModelFileError as error:
        return str(error).startswith(f"{path}: ")
    return False


def test_a_file_that_is_truncated_or_extended_is_refused(small_file):
    whole = small_file.stat().st_size
    for size in (whole + 4096, whole + 8, whole + 7, whole + 1, *reversed(range(whole))):
        os.truncate(small_file, size)
        assert is_refused(small_file), size


def test_a_file_with_one_flipped_bit_is_refused(small_file):
    places = random.Random(0).sample(range(8 * small_file.stat().st_size), FLIPS)
    good = small_file.read_bytes()
    descriptor = os.open(small_file, os.O_WRONLY)
    try:
        for place in places:
            byte, bit = divmod(place, 8)
            os.pwrite(descriptor, bytes([good[byte] ^ 1 << bit]), byte)
            assert is_refused(small_file), place
            os.pwrite(descriptor, good[byte : byte + 1], byte)
    finally:
        os.close(descriptor)
    assert not is_refused(small_file)


HOSTILE = """
import resource, sys
from pathlib import Path
from bibert.errors import ModelFileError
from bibert.packed.file import load

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

resource.setrlimit(resource.RLIMIT_AS, (512 * 2**20, 512 * 2**20))
before = peak()
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        load(path)
    except ModelFileError as error:
        print(str(error).removeprefix(f"{path}: "))
    assert peak() - before <= path.stat().st_size + 64 * 2**20, path
"""


def hostile_headers(good):
    """Headers that ask for too much: memory, time, or depth of the stack."""
    length = int.from_bytes(good[:8], "little")
    text = good[8 : 8 + length].decode().rstrip()
    metadata = json.loads(text)["__metadata__"]
    config = json.loads(metadata["config"])
    for field in ("layers", "hidden", "heads", "intermediate", "vocabulary", "positions", "labels"):
        for value in (48, 256, 4096, 16384, 2**16, 2**20, 2**31, 2**62, 10**30, -1):
            changed = json.dumps(config | {field: value}, separators=(",", ":"), sort_keys=True)
            yield text.replace(json.dumps(metadata["config"]), json.dumps(changed))
    for number in (2**31, 2**32, 2**62, 2**63, 2**64, 10**30, -(2**62)):
        yield text.replace('"shape":[12,1]', f'"shape":[{number},{number}]')
        yield text.replace('"shape":[17]', f'"shape":[{number}]')
        yield text.replace('"data_offsets":[0,', f'"data_offsets":[{number},')
    for piece in ("[", '{"a":', '"', '\\"', "9", "1e", "\\u0000", "[[],", '{"":0},'):
        yield piece * (900_000 // len(piece))
        yield '{"__metadata__":' + piece * (900_000 // len(piece))
        yield '{"__metadata__":{"config":' + json.dumps(piece * 40_000) + "}}"
    labels = json.dumps('["a"' + ',"a"' * 150_000 + "]")
    yield '{"__metadata__":{"format":"bibert","version":"1","labels":' + labels + "}}"
    yield "{" + ",".join(f'"{number}":0' for number in range(80_000)) + "}"


@pytest.fixture
def hostile_files(small_file, tmp_path):
    """Files with these headers and the data of a good one."""
    good, folder = small_file.read_bytes(), tmp_path / "hostile"
    folder.mkdir()
    data = good[8 + int.from_bytes(good[:8], "little") :]
    for number, text in enumerate(hostile_headers(good)):
        raw = text.encode() + b" " * (-len(text.encode()) % 8)
        (folder / f"{number:03}").write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return sorted(folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of resources")
def test_a_hostile_header_is_refused_with_half_a_gigabyte_of_memory_and_in_time(hostile_files):
    command = [sys.executable, "-c", HOSTILE, hostile_files[0].parent]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == len(hostile_files) >= 100


def test_javascript_refuses_hostile_headers_and_damage(small_file, hostile_files, check_in_javascript):
    messages = {}
    for path in hostile_files:
        with pytest.raises(ModelFileError) as refusal:
            load(path)
        messages[path] = str(refusal.value).removeprefix(f"{path}: ")
    check_in_javascript([small_file], messages)


WRITER = """
import os, random, signal, sys, time
from bibert.packed.file import load, save

path, models = sys.argv[1], [load(name) for name in sys.argv[2:]]
start = time.perf_counter()
save(models[0], path)
longest = max(0.02, 4 * (time.perf_counter() - start))  # long enough for both models on a slow disk
whole, moments, seen = {model.digest for model in models}, random.Random(SEED), set()
for _ in range(KILLS):
    child = os.fork()
    if child == 0:
        while True:
            for model in models:
                save(model, path)
    time.sleep(moments.uniform(0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = load(path)
    assert found.digest in whole
    seen.add(found.digest)
print(len(seen))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_file_whole(make_model, tmp_path):
    names = [tmp_path / "one.bibert", tmp_path / "two.bibert"]
    for seed, name in enumerate(names):  # of different sizes, and large enough to be written in several steps
        save(make_model(seed=seed, vocabulary=10_000, tokenizer=bytes(400_000 + 50_000 * seed)), name)
    folder = tmp_path / "out"
    folder.mkdir()
    command = [
        sys.executable,
        "-c",
        WRITER.replace("KILLS", str(KILLS)).replace("SEED", SEED),
        folder / "model.bibert",
        *names,
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120 + KILLS, check=False)
    assert run.stderr == ""
    assert run.stdout == "2\n"  # both models were there after some kill
    left = [file for file in folder.iterdir() if file.name != "model.bibert"]
    assert all(file.name.startswith(".model.bibert.") for file in left)  # a killed process cannot tidy up
