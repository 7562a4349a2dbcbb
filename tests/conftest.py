"""What every test gets: one thread per process, no network, optional data, a browser, tiny models made once.

The tiny task is one that a two-layer model learns in seconds: which of two words is in a text of one to ten words.
"""

import os
import random
import shutil
import signal
import sys
from pathlib import Path

# Before torch and tokenizers are imported by any test: they read these once.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel processes; more threads make them slower
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest
from hypothesis import settings

from bibert.data.examples import Split, TextData

sys.path.append(str(Path(__file__).parent))  # with import mode `importlib`, chromium.py is not found by name
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]

settings.register_profile("bibert", deadline=None)  # tests never assert on time
settings.load_profile("bibert")

# A shell starts background jobs with Ctrl-C ignored, and children inherit that; tests of Ctrl-C need what users have.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def glue_folder():
    """GLUE's TSV files (SST-2/train.tsv, ...), which cannot be part of the repository."""
    folder = os.environ.get("BIBERT_GLUE")
    if not folder:
        pytest.skip("set BIBERT_GLUE to a folder of GLUE's TSV files to run this")
    return Path(folder)


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and gives its path."""

    def write_file(name, content):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return write_file


@pytest.fixture(scope="session")
def tensors_of():
    """A function that makes random valid tensors for every part of a packed model but the tokenizer."""
    import numpy as np

    from bibert.packed.bits import pack_rows
    from bibert.packed.schema import columns_of_bits, tensor_specs

    def make(config, seed=0):
        draw, columns, tensors = np.random.default_rng(seed), columns_of_bits(config), {}
        for name, dtype, shape, _ in tensor_specs(config, 1)[:-1]:
            if dtype == "U64":
                tensors[name] = pack_rows(draw.random((shape[0], columns[name])) < 0.5)
            elif name.endswith("attention_threshold"):
                tensors[name] = -np.sort(-draw.integers(0, 4 * config.head_size, shape, dtype=np.int32))
            elif dtype == "I32":
                tensors[name] = draw.integers(-config.head_size, config.head_size + 1, shape, dtype=np.int32)
            elif name.endswith((".scale", ".rate", ".step")):
                part = np.float32(1 / 2**config.activation_bits)  # sums of large levels stay inside LayerNorm's range
                tensors[name] = draw.random(shape, dtype=np.float32) * part + np.float32(name.endswith(".rate"))
            else:
                tensors[name] = draw.standard_normal(shape, dtype=np.float32)
        return tensors

    return make


@pytest.fixture(scope="session")
def save_untrained():
    """A function that writes a two-layer BERT with random weights, and a tokenizer of the words of `texts`."""

    def save(folder, texts, **config):
        import torch  # not every test needs it

        from bibert.data.encoding import train_tokenizer
        from bibert.nn.layers import BiBertConfig
        from bibert.nn.model import BiBertForSequenceClassification

        tokenizer = train_tokenizer(texts)
        torch.manual_seed(0)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        model = BiBertForSequenceClassification(BiBertConfig(vocab_size=len(tokenizer), **shape | config))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


def _split(rows, seed, marks):
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
def data():
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
def scores():
    """The same with scores from 0 to 2 and a second text, as STS-B has."""

    def paired(split):
        return Split(split.texts, tuple(reversed(split.texts)), split.labels, split.origin)

    marks = ("bad", "fair", "good")
    dev = {"dev": paired(_split(24, 3, marks))}
    return TextData("scores", paired(_split(64, 2, marks)), dev, (), ("spearman", "pearson"), "made up")


@pytest.fixture(scope="session")
def start(tmp_path_factory, save_untrained):
    """An untrained two-layer BERT with its tokenizer."""
    texts = [" ".join([*WORDS, "bad", "fair", "good"])]
    folder = tmp_path_factory.mktemp("start") / "model"
    return save_untrained(folder, texts, max_position_embeddings=32, initializer_range=0.05)


@pytest.fixture(scope="session")
def teacher_recipe():
    """Enough for the teacher to learn the task."""
    from bibert.training.recipe import Recipe

    return Recipe(learning_rate=1e-2, epochs=6, batch_size=16, max_length=16, eval_every=4, log_every=1)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory, start, data, teacher_recipe):
    """A fine-tuned teacher."""
    from bibert.training.teacher import finetune

    run = tmp_path_factory.mktemp("teacher")
    finetune(start, data, run, teacher_recipe)
    return run / "model"


@pytest.fixture(scope="session")
def weights_of():
    """A function that reads the weights of a model folder as they are on the disk."""
    return lambda folder: (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def bibert():
    """The exit code of `bibert ...`."""

    from bibert.cli.app import run

    return lambda *words: run([str(word) for word in words])


@pytest.fixture(scope="session")
def student(tmp_path_factory, save_untrained):
    """The folder of a 1-1-1 student with Bi-Attention."""
    from bibert.lab.synthetic import synthetic_reviews

    names = {0: "negative", 1: "positive"}
    labels = {"id2label": names, "label2id": {name: label for label, name in names.items()}}
    texts = synthetic_reviews(200, 20, seed=0).train.texts
    folder = tmp_path_factory.mktemp("student")
    return save_untrained(folder, texts, scheme="bibert", max_position_embeddings=64, **labels)


@pytest.fixture(scope="session")
def packed_file(student, tmp_path_factory):
    """The same as one file."""
    from bibert.export import pack
    from bibert.nn.checkpoint import load_classifier
    from bibert.packed.file import save

    path = tmp_path_factory.mktemp("packed") / "student.bibert"
    save(pack(load_classifier(student), max_length=32), path)
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium; `browser.open(path or address)` gives a page, see chromium.py."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"put one of {', '.join(BROWSERS)} on the PATH to run this")
    from chromium import Chromium

    chromium = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()
