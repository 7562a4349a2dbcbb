"""The quickstart: generated sentences, a teacher, and a packed student for each position of the dial.

`cli.quickstart` measures the packed files.
"""

from collections.abc import Callable
from pathlib import Path

from transformers import TrainerCallback, set_seed

from bibert.data.encoding import train_tokenizer
from bibert.data.examples import TextData
from bibert.export import pack
from bibert.nn.checkpoint import Classifier, load_classifier
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification
from bibert.packed.file import save
from bibert.training.provenance import provenance
from bibert.training.recipe import Recipe
from bibert.training.run import save_classifier
from bibert.training.student import distill
from bibert.training.teacher import finetune

TRAIN_ROWS, DEV_ROWS = 8000, 1000  # of generated sentences
SHAPE = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
TEACHER = Recipe(learning_rate=5e-4, epochs=4, batch_size=32, max_length=64, eval_every=250)
STUDENT = Recipe(learning_rate=1e-3, epochs=2, batch_size=32, max_length=64, eval_every=250)
STUDENTS = ("bibert", "bibert_2", "bibert_4")  # activations of 1, 2 and 4 bits

Watch = Callable[[str], list[TrainerCallback]]  # callbacks that show the training of a model by its name


def quickstart(data: TextData, output: Path, watch: Watch, seed: int = 0) -> float:
    """Train a teacher, distill and pack each student; the teacher's dev accuracy. A killed quickstart resumes."""
    output.mkdir(parents=True, exist_ok=True)
    save_classifier(untrained(data, seed), output / "start")
    learned = finetune(output / "start", data, output / "teacher", TEACHER, callbacks=watch("teacher"))
    about = {"data": "generated sentences", "seed": seed}
    for scheme in STUDENTS:
        distill(output / "teacher", scheme, data, output / scheme, STUDENT, callbacks=watch(scheme))
        student = load_classifier(output / scheme)
        temperature = provenance(output / scheme).get("temperature", 1.0)
        packed = pack(  # verified bit for bit
            student, data.dev["dev"], max_length=STUDENT.max_length, about=about, temperature=temperature
        )
        save(packed, packed_file(output, scheme))
    return learned["dev_accuracy"]


def packed_file(output: Path, scheme: str) -> Path:
    """The packed student of a scheme."""
    return output / f"{scheme}.bibert"


def untrained(data: TextData, seed: int) -> Classifier:
    """A small BERT with random weights, and a tokenizer trained on the data."""
    tokenizer = train_tokenizer(data.train.texts)
    set_seed(seed)
    config = BiBertConfig(vocab_size=len(tokenizer), max_position_embeddings=STUDENT.max_length, **SHAPE)
    return Classifier(BiBertForSequenceClassification(config), tokenizer)
