"""Is every damaged file refused? Flips single bits of a packed file, truncates it, and loads it after each damage.

Without --model it uses a model of 6 layers and 384 channels with random weights and a tokenizer of 470 kB. 20,000 flips
and 10,000 cuts of its 4.4 MB take some minutes, most of it for SHA-256.

    python benchmarks/file_damage.py [--model path/to/model.bibert] [--flips 20000] [--cuts 10000] [--layers 6]
        [--seed 0]

Prints a JSON object with the counts; `accepted` must be 0. Your file is not changed.
"""

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from random_models import random_packed

from bibert.errors import ModelFileError
from bibert.lab.architecture import ARCHITECTURES
from bibert.packed.file import load, save

TOKENIZER_BYTES = 470_000


def flips(path: Path, count: int, draw: random.Random) -> Iterator[None]:
    """Flip one bit of the file at each step, and restore it before the next."""
    places = draw.sample(range(8 * path.stat().st_size), count)
    with path.open("r+b", buffering=0) as file:
        for place in places:
            file.seek(place // 8)
            good = file.read(1)
            file.seek(place // 8)
            file.write(bytes([good[0] ^ 1 << place % 8]))
            yield
            file.seek(place // 8)
            file.write(good)


def cuts(path: Path, count: int, draw: random.Random) -> Iterator[None]:
    """Make the file shorter at each step."""
    for size in sorted(draw.sample(range(path.stat().st_size), count), reverse=True):
        os.truncate(path, size)
        yield


def count_refusals(path: Path, damages: Iterator[None]) -> dict[str, float]:
    """Load the file after each damage and count the results."""
    start, refused, accepted = time.perf_counter(), 0, 0
    for _ in damages:
        try:
            load(path)
            accepted += 1
        except ModelFileError:
            refused += 1
    return {"refused": refused, "accepted": accepted, "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Damage a copy of the file in every way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--flips", type=int, default=20_000)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--layers", type=int, default=6, help="fewer make a smaller file, which is read sooner")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, draw = Path(folder) / "damaged.bibert", random.Random(options.seed)
        if options.model:
            shutil.copy(options.model, path)
        else:
            tokenizer = random.Random(options.seed).randbytes(TOKENIZER_BYTES)
            config = replace(ARCHITECTURES["minilm-l6"], layers=options.layers)
            save(random_packed(config, options.seed, tokenizer), path)
        digest = load(path).digest
        result = {"bytes": path.stat().st_size, "flips": count_refusals(path, flips(path, options.flips, draw))}
        assert load(path).digest == digest, "a flip was not restored"
        result["cuts"] = count_refusals(path, cuts(path, options.cuts, draw))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
