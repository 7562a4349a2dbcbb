"""A task a tiny model learns in seconds: which of two words stands in a text of one to ten words."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bibert.data.examples import Split, TextData
from bibert.training.recipe import Recipe
from bibert.training.teacher import finetune

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
TEACHER = Recipe(learning_rate=1e-2, epochs=6, batch_size=16, max_length=16, eval_every=4, log_every=1)


def _split(rows: int, seed: int, marks: tuple[str, ...]) -> Split:
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(rows):
        label = rng.randrange(len(marks))
        words = rng.choices(WORDS, k=rng.randint(0, 9))
        words.insert(rng.randint(0, len(words)), marks[label])
        texts.append(" ".join(words))
        labels.append(float(label))
    return Split(tuple(texts), None, tuple(labels), f"made up (seed {seed})")


@pytest.fixture(scope="session")
def data() -> TextData:
    """64 texts to train on, 24 to select by; two classes."""
    return TextData(
        name="good or bad",
        train=_split(64, 0, ("bad", "good")),
        dev={"dev": _split(24, 1, ("bad", "good"))},
        label_names=("negative", "positive"),
        metrics=("accuracy", "f1"),
        source="made up",
    )


@pytest.fixture(scope="session")
def scores() -> TextData:
    """The same with scores from 0 to 2 and a second text, as STS-B has."""

    def paired(split: Split) -> Split:
        return Split(split.texts, tuple(reversed(split.texts)), split.labels, split.origin)

    marks = ("bad", "fair", "good")
    dev = {"dev": paired(_split(24, 3, marks))}
    return TextData("scores", paired(_split(64, 2, marks)), dev, (), ("spearman", "pearson"), "made up")


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory, save_untrained: Callable[..., Path]) -> Path:
    """An untrained two-layer BERT with its tokenizer."""
    texts = [" ".join([*WORDS, "bad", "fair", "good"])]
    folder = tmp_path_factory.mktemp("start") / "model"
    return save_untrained(folder, texts, max_position_embeddings=32, initializer_range=0.05)


@pytest.fixture(scope="session")
def teacher_recipe() -> Recipe:
    """Enough for the teacher to learn the task."""
    return TEACHER


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory, start: Path, data: TextData) -> Path:
    """A fine-tuned teacher."""
    run = tmp_path_factory.mktemp("teacher")
    finetune(start, data, run, TEACHER)
    return run / "model"


@pytest.fixture(scope="session")
def weights_of() -> Callable[[Path], bytes]:
    """A function that reads the weights of a model folder as they are on the disk."""
    return lambda folder: (folder / "model.safetensors").read_bytes()
