"""The quickstart: from generated sentences to a packed file, which `cli.quickstart` measures, in two minutes."""

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
from bibert.training.recipe import Recipe
from bibert.training.run import RunFolder, save_classifier
from bibert.training.student import distill
from bibert.training.teacher import finetune

TRAIN_ROWS, DEV_ROWS = 8000, 1000  # of generated sentences
SHAPE = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
TEACHER = Recipe(learning_rate=5e-4, epochs=4, batch_size=32, max_length=64, eval_every=250)
STUDENT = Recipe(learning_rate=1e-3, epochs=2, batch_size=32, max_length=64, eval_every=250)
STUDENTS = ("baseline", "bibert")
SHIPPED, PACKED = "bibert", "model.bibert"  # the student to pack, and its file

Watch = Callable[[str], list[TrainerCallback]]  # callbacks that show the training of a model by its name


def quickstart(data: TextData, output: Path, watch: Watch, seed: int = 0) -> dict[str, float]:
    """Train a teacher, distill each student, pack one; the dev accuracy of each model. A killed quickstart resumes."""
    output.mkdir(parents=True, exist_ok=True)
    save_classifier(untrained(data, seed), output / "start")
    learned = {"teacher": finetune(output / "start", data, output / "teacher", TEACHER, callbacks=watch("teacher"))}
    teacher = RunFolder(output / "teacher").model
    for scheme in STUDENTS:
        learned[scheme] = distill(teacher, scheme, data, output / scheme, STUDENT, callbacks=watch(scheme))
    student = load_classifier(RunFolder(output / SHIPPED).model)
    about = {"data": "generated sentences", "seed": seed}
    save(pack(student, data.dev["dev"], max_length=STUDENT.max_length, about=about), output / PACKED)
    return {name: metrics["dev_accuracy"] for name, metrics in learned.items()}


def untrained(data: TextData, seed: int) -> Classifier:
    """A small BERT with random weights, and a tokenizer trained on the data."""
    tokenizer = train_tokenizer(data.train.texts)
    set_seed(seed)
    config = BiBertConfig(vocab_size=len(tokenizer), max_position_embeddings=STUDENT.max_length, **SHAPE)
    return Classifier(BiBertForSequenceClassification(config), tokenizer)
