"""The general stage: a whole encoder binarized on plain text, without a task, as a start for any task.

The student copies the full-precision encoder: directions of queries, keys, values and hidden states in every layer. Its
pooled first token learns the encoder's sentence embedding, so a classifier on it starts from sentences that mean
something. `distill --start` and `train` take the result as any other model.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback, set_seed

from bibert.data.encoding import EncodedSplit, check_length, encode
from bibert.data.examples import Split, TextData
from bibert.data.metrics import score_answers
from bibert.distill.losses import sentence
from bibert.distill.objective import TERMS, Objective
from bibert.errors import CheckpointError, DataError, RecipeError, SchemeError
from bibert.nn import model_folder
from bibert.nn.checkpoint import Classifier, load_classifier
from bibert.nn.model import evaluating
from bibert.nn.schemes import Scheme, as_scheme
from bibert.training.callbacks import JsonLog
from bibert.training.loop import TrainingData, dropout_overrides, training_arguments
from bibert.training.provenance import request_of
from bibert.training.recipe import Recipe
from bibert.training.run import finish, finished_metrics, opened
from bibert.training.student import DistillTrainer, FrozenTeacher, check_vocabulary, next_student, train_heads

STAGE = "general"
WEIGHTS = {"dmd_query": 1.0, "dmd_key": 1.0, "dmd_value": 1.0, "hidden_direction": 1.0, "sentence_direction": 3.0}
DEV_ROWS = 1000
TEXTS_PER_PAIR = 8  # two of eight neighbouring texts make a pair, so that both token types are learned


class GeneralTrainer(DistillTrainer):
    """Evaluates the pooled first token against the teacher's sentence embedding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.compute_metrics = lambda found: score_answers(found.predictions, found.label_ids, self.data.metrics)

    def prediction_step(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> tuple[None, Tensor, Tensor]:
        """The student's and the teacher's embeddings, as answers and labels."""
        texts = {name: value for name, value in self._prepare_inputs(inputs).items() if name != "labels"}
        assert self.teacher is not None
        with evaluating(model):
            student, teacher = model(**texts, trace=("pooled",)).trace, self.teacher(texts, ("pooled",)).trace
        assert teacher is not None
        return None, student.pooled, sentence(teacher.hidden_states[-1], teacher.mask)


def general_data(texts: Split) -> TextData:
    """Plain texts as data without labels: the first thousand are set aside and measure progress."""
    if len(texts) < DEV_ROWS + TEXTS_PER_PAIR:
        needed = f"{DEV_ROWS + TEXTS_PER_PAIR:,} are needed, of which {DEV_ROWS:,} are set aside"
        raise DataError(f"{texts.origin}: has {len(texts):,} different texts, {needed}; add texts")
    parts = slice(DEV_ROWS, None), slice(DEV_ROWS)
    train, dev = (Split(texts.texts[rows], None, texts.labels[rows], texts.origin) for rows in parts)
    return TextData("general", train, {"dev": dev}, (), ("cosine",), texts.origin)


def generalize(  # noqa: PLR0913 - two models, a scheme, data, a place and a recipe, as `distill`
    encoder: str | Path,
    scheme: Scheme | str,
    data: TextData,
    output: Path,
    recipe: Recipe,
    *,
    start: str | Path | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **arguments: Any,
) -> dict[str, float]:
    """Binarize a full-precision encoder on the texts of `general_data`; returns and resumes as `distill` does.

    `start` is a student of the same architecture to continue from, such as the result at another position of the dial.
    """
    scheme = as_scheme(scheme)
    if len(scheme.schedule) > 1:
        stages = f"scheme {scheme.name!r} has {len(scheme.schedule)} stages"
        raise SchemeError(f"{stages}, and the general stage is one; choose a scheme with one")
    objective = general_objective(recipe)
    encoder, start = model_folder(encoder), None if start is None else model_folder(start)
    models = {"teacher": encoder} if start is None else {"teacher": encoder, "start": start}
    request = request_of("generalize", data, recipe, **models) | {"scheme": scheme.to_dict()}
    with opened(output, request) as run:
        if (done := finished_metrics(run)) is not None:
            return done
        set_seed(recipe.seed)
        teacher = load_classifier(encoder, (), dropout_overrides(recipe))
        if teacher.model.config.quantization.is_quantized:
            raise CheckpointError(f"{encoder}: is a quantized student; give a full-precision BERT")
        before = teacher
        if start is not None:
            before = load_classifier(start, (), dropout_overrides(recipe))
            check_vocabulary(start, before, teacher)
        encoded = encode_general(data, teacher, recipe)
        student = next_student(before, scheme, 0, encoded, recipe.batch_size)
        train_heads(student, objective)
        training = training_arguments(recipe, encoded, run.stage(STAGE), **arguments)
        watching: list[TrainerCallback] = [JsonLog(run.log, STAGE), *callbacks]
        frozen = FrozenTeacher(teacher.model, training.device)
        trainer = GeneralTrainer(student, recipe, training, encoded, watching, teacher=frozen, objective=objective)
        trainer.train_from_last_checkpoint()
        metrics = trainer.dev_metrics()
        finish(run, student, metrics)
        return metrics


def general_objective(recipe: Recipe) -> Objective:
    """The terms of the general stage, changed by the recipe's weights; none may read logits, which mean nothing yet."""
    objective = Objective({**WEIGHTS, **recipe.weights}, recipe.norm_scope, recipe.mask_padding)
    if labelled := [name for name in objective.weights if TERMS[name].logits]:
        raise RecipeError(f"recipe: weights.{labelled[0]} needs a task, the general stage has none; leave it out")
    return objective


def encode_general(data: TextData, classifier: Classifier, recipe: Recipe) -> TrainingData:
    """Token ids of single texts, and of some neighbours as pairs."""
    check_length(recipe.max_length, classifier.model.config.max_position_embeddings)
    texts, tokenizer = data.train.texts, classifier.tokenizer
    first, second = texts[0:-1:TEXTS_PER_PAIR], texts[1::TEXTS_PER_PAIR]
    single = tuple(text for row, text in enumerate(texts) if row % TEXTS_PER_PAIR > 1)
    rows = ((single, None), (first, second))
    parts = [Split(ones, pairs, (0,) * len(ones), data.train.origin) for ones, pairs in rows]
    train = EncodedSplit.joined([encode(part, tokenizer, recipe.max_length) for part in parts])
    dev = {name: encode(split, tokenizer, recipe.max_length) for name, split in data.dev.items()}
    return TrainingData(train, dev, data.metrics)
