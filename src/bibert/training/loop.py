"""What fine-tuning and distillation share: `transformers.Trainer`, driven by a recipe.

It adds length-grouped batches that do not depend on the number of processes, the recipe's optimizer and clipping,
checkpoints that count only once their manifest is written, and every loss term in the log. The losses are defined in
`teacher` and `student`; the run folder is in `run`.

Four private methods of the Trainer are overridden, because it has no public hook there: `_get_train_sampler`,
`_get_grad_norm`, `_save_checkpoint` and `_load_best_model`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerState
from transformers.trainer_utils import EvalLoopOutput

from bibert.data.encoding import Collator, EncodedSplit, LengthGroupedSampler, check_length, check_types, encode
from bibert.data.examples import TextData
from bibert.data.metrics import score
from bibert.errors import NumericError, RecipeError
from bibert.nn.checkpoint import Classifier
from bibert.nn.model import NO_CLASS, label_loss
from bibert.nn.products import in_int8
from bibert.training.callbacks import EpochOrder, Interruption, RunningMean
from bibert.training.evaluate import fit_temperature
from bibert.training.optimizer import clip_all, clip_each, make_optimizer, not_finite
from bibert.training.recipe import Precision, Recipe
from bibert.training.resume import disk_space, drop_old_checkpoints, last_checkpoint, write_manifest
from bibert.training.run import size_in_bytes

KEPT_CHECKPOINTS = 2  # the newest two; the best one is kept as well
CHECKPOINT_PER_MODEL = 3  # the weights and Adam's two moments
FAST: dict[Precision, tuple[str, ...]] = {"int8": ("avx512_vnni", "avx_vnni"), "bfloat16": ("bf16",)}  # by instructions
CLIP = {"tensor": clip_each, "global": clip_all}
REMEDY = "lower the learning rate; the last checkpoint is kept"


@dataclass(frozen=True)
class TrainingData:
    """Encoded texts, and the metrics; the first metric on the first dev split selects the best model."""

    train: EncodedSplit
    dev: Mapping[str, EncodedSplit]
    metrics: tuple[str, ...]
    unlabelled: EncodedSplit | None = None

    def all_rows(self) -> EncodedSplit:
        """The labelled rows, then the unlabelled ones."""
        return self.train if self.unlabelled is None else EncodedSplit.joined([self.train, self.unlabelled])

    def reported_metrics(self) -> list[str]:
        """The names under which the Trainer reports the metrics; the first one selects."""
        return [f"eval_{split}_{metric}" for split in self.dev for metric in self.metrics]


class BertTrainer(Trainer):  # type: ignore[misc]
    """Trains a classifier by a recipe; subclasses define the loss."""

    optimizer: torch.optim.Optimizer | None  # made by create_optimizer

    def __init__(
        self,
        classifier: Classifier,
        recipe: Recipe,
        arguments: TrainingArguments,
        data: TrainingData,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        self.recipe = recipe
        self.data = data
        self.class_weights: Tensor | None = None
        if recipe.class_weights and classifier.model.num_labels > 1:
            counts = np.bincount(data.train.labels.astype(np.int64), minlength=classifier.model.num_labels)
            self.class_weights = torch.tensor(counts.mean() / counts.clip(1), dtype=torch.float32)
        extra = () if data.unlabelled is None else data.unlabelled.lengths
        self.sampler = LengthGroupedSampler(
            data.train.lengths, recipe.batch_size, recipe.seed, extra, texts_per_batch(recipe, data)
        )
        self.interruption = Interruption()
        self.evaluated: dict[str, EvalLoopOutput] = {}  # the last evaluation of each dev split
        self.term_sums: dict[str, Tensor] = {}
        self.term_steps = 0
        patience = [EarlyStoppingCallback(early_stopping_patience=recipe.patience)] if recipe.patience else []
        super().__init__(
            model=classifier.model,
            args=arguments,
            data_collator=Collator(classifier.tokenizer.pad_token_id),
            train_dataset=data.all_rows(),
            # Rows in order of length halve the padding of an evaluation; no metric depends on the order.
            eval_dataset={
                name: Subset(split, np.argsort(split.lengths, kind="stable").tolist())
                for name, split in data.dev.items()
            },
            processing_class=classifier.tokenizer,
            compute_metrics=lambda found: score(found.predictions, found.label_ids, data.metrics),
            callbacks=[EpochOrder(self.sampler), *patience, *callbacks, self.interruption],
        )
        for shown in (ProgressCallback, PrinterCallback):  # the caller's callbacks show progress
            self.remove_callback(shown)
        self.running_mean = RunningMean(self.model, recipe.average) if recipe.average else None
        if self.running_mean is not None:
            self.add_callback(self.running_mean)

    def train_from_last_checkpoint(self) -> None:
        """Train to the end, from the newest whole checkpoint if there is one, and load the best model.

        Raises `Interrupted` on SIGTERM or Ctrl-C, after a checkpoint was written; `NumericError` if the loss or a
        gradient is not finite; `CheckpointError` if the disk is full.
        """
        with self.accelerator.main_process_first():
            checkpoint = last_checkpoint(Path(self.args.output_dir))
        try:
            with self.interruption.installed():
                if checkpoint is None:
                    self.train()
                elif not self._load_best_if_trained(checkpoint):
                    self.train(resume_from_checkpoint=str(checkpoint))
        except BaseException:
            self.callback_handler.on_train_end(self.args, self.state, self.control)  # progress bars close
            raise
        self.running_mean = None  # the best model was loaded, and that is a mean already
        self.interruption.raise_if_noted(self.args, self.state)

    def _load_best_if_trained(self, checkpoint: Path) -> bool:
        """Whether training had ended at `checkpoint`; if so load the best model, as resuming would add a step."""
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        stopped = state.stateful_callbacks["TrainerControl"]["args"]["should_training_stop"]
        if not stopped or (state.global_step == state.max_steps < self.args.max_steps):  # the run is to go on longer
            return False
        state.init_training_references(self, state.max_steps, state.num_train_epochs, None)
        best = state.best_global_step or state.global_step
        state.best_model_checkpoint = str(checkpoint.with_name(f"checkpoint-{best}"))
        self.state = state
        self.callback_handler.on_train_begin(self.args, self.state, self.control)
        self._load_best_model()
        self.callback_handler.on_train_end(self.args, self.state, self.control)
        return True

    def _load_best_model(self) -> None:
        if self.recipe.select == "last":
            self.state.best_model_checkpoint = str(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")
        super()._load_best_model()

    def dev_metrics(self) -> dict[str, float]:
        """The metrics of the model on every dev split, as `{"dev_accuracy": 0.9, …}`."""
        results = self.evaluate()
        return {name.removeprefix("eval_"): results[name] for name in self.data.reported_metrics()}

    def temperature(self) -> float:
        """The temperature that fits the last evaluation of the first dev split, on which the model was selected."""
        found = self.evaluated[f"eval_{next(iter(self.data.dev))}"]
        return fit_temperature(np.asarray(found.predictions), np.asarray(found.label_ids))

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:  # noqa: ARG002
        return self.sampler

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """The recipe's optimizer."""
        if self.optimizer is None:
            self.optimizer = make_optimizer(self.model if model is None else model, self.recipe)
        return self.optimizer

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One forward and backward pass; raises on a loss that is not finite, before it reaches a weight."""
        loss: Tensor = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise NumericError(f"the loss is {loss.item()} at step {self.state.global_step + 1}; {REMEDY}")
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Clip the gradient as the recipe says and return its norm; `max_grad_norm` is 0, so nothing else clips."""
        self.accelerator.unscale_gradients()  # of 16-bit training; does nothing otherwise
        norm = CLIP[self.recipe.clip](model.parameters(), self.recipe.clip_norm or math.inf)
        scaled = self.accelerator.scaler is not None  # which skips the step and lowers the scale
        if not torch.isfinite(norm) and not scaled:
            name, step = not_finite(self.model), self.state.global_step + 1
            raise NumericError(f"the gradient of {name} is not finite at step {step}; {REMEDY}")
        return norm

    def precision(self, model: Any) -> AbstractContextManager[None]:
        """Inside, products are computed in the recipe's precision in training, and in float32 otherwise."""
        several = self.args.n_gpu > 1 and self.recipe.precision == "fastest"  # DataParallel would compute in float16
        precision: Precision = self.recipe.precision if model.training and not several else "float32"
        return products_in(precision, self.args.device.type)

    def gold_loss(self, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """The loss of logits against `labels`, by the recipe."""
        weights = None if self.class_weights is None else self.class_weights.to(labels.device)
        return lambda logits: label_loss(logits, labels, weights, self.recipe.label_smoothing)

    def note_terms(self, terms: Mapping[str, Tensor]) -> None:
        """Add the loss terms of one batch to the means of the next log line."""
        for name, value in terms.items():
            self.term_sums[name] = self.term_sums.get(name, torch.zeros_like(value)) + value
        self.term_steps += 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means of the loss terms with every line that has a loss."""
        if "loss" in logs and self.term_steps:
            for name, total in self.term_sums.items():
                mean = self.accelerator.reduce(total / self.term_steps, reduction="mean")
                logs[f"loss_{name}"] = mean.item()
            self.term_sums, self.term_steps = {}, 0
        super().log(logs, start_time)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate one dev split, with the mean of the weights if there is one."""
        with self._mean_in_place():
            found = super().evaluation_loop(*args, **kwargs)
        self.evaluated[kwargs["metric_key_prefix"]] = found
        return found

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir)
        checkpoint = folder / f"checkpoint-{self.state.global_step}"
        models = CHECKPOINT_PER_MODEL + (self.running_mean is not None)
        with disk_space(checkpoint, models * size_in_bytes(self.model)):
            with self._mean_in_place():
                super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                if self.running_mean is not None:
                    self.running_mean.save_weights(checkpoint)
                write_manifest(checkpoint)
        if self.args.should_save:
            drop_old_checkpoints(folder, KEPT_CHECKPOINTS, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()

    def _mean_in_place(self) -> AbstractContextManager[None]:
        return nullcontext() if self.running_mean is None else self.running_mean.in_place()


def products_in(precision: Precision, device: str) -> AbstractContextManager[None]:
    """Inside, networks compute products in `precision`; the backward pass uses the precision of the forward pass."""
    if precision == "fastest":
        known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older versions of torch
        if device == "cpu":
            precision = next((kind for kind, names in FAST.items() if any(map(known.get, names))), "float32")
        else:
            precision = "bfloat16" if device == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    if precision == "int8":
        return in_int8()
    return torch.autocast(device, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def encode_data(data: TextData, classifier: Classifier, recipe: Recipe) -> TrainingData:
    """Turn texts into token ids, after checking that they fit the model."""
    check_length(recipe.max_length, classifier.model.config.max_position_embeddings)
    train = encode(data.train, classifier.tokenizer, recipe.max_length)
    check_types(train, classifier.model.config.type_vocab_size)
    dev = {name: encode(split, classifier.tokenizer, recipe.max_length) for name, split in data.dev.items()}
    if data.unlabelled is None:
        return TrainingData(train, dev, data.metrics)
    rows = encode(data.unlabelled, classifier.tokenizer, recipe.max_length)
    missing = np.full(len(rows), NO_CLASS) if data.label_names else np.full(len(rows), np.nan, dtype=np.float32)
    return TrainingData(train, dev, data.metrics, replace(rows, labels=missing))


def dropout_overrides(recipe: Recipe) -> dict[str, float]:
    """The recipe's dropout as fields of a model's configuration."""
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
    return dict.fromkeys(names, recipe.dropout)


def texts_per_batch(recipe: Recipe, data: TrainingData) -> int:
    """How many rows of a batch are unlabelled; at least one is labelled."""
    share = recipe.texts_share
    wanted = max(round(share * recipe.batch_size), int(share > 0))
    return 0 if data.unlabelled is None else min(wanted, recipe.batch_size - 1)


def planned_steps(recipe: Recipe, epoch: int) -> int:
    """The optimizer steps of a training: its epochs of so many steps each, within the recipe's limits."""
    wanted = max(math.ceil(recipe.epochs * epoch), recipe.min_steps)
    return min(wanted, recipe.max_steps or wanted)


def training_arguments(recipe: Recipe, data: TrainingData, folder: Path, **changes: Any) -> TrainingArguments:
    """The Trainer's arguments for a recipe, with `changes`; checkpoints go to `folder`.

    Several processes share each batch evenly and compute the loss of one process, with four exceptions: accelerate
    fills up the last batch of an epoch from its beginning; `norm_scope = "batch"` sees only a process's own share; so
    do `lsq` (the size of the tensor scales the gradient of a step) and `ema_symmetric` (which measures its range); and
    the gold loss is a mean over the labelled rows of each process.
    """
    if data.unlabelled is not None and not texts_per_batch(recipe, data):
        shares = f"batch_size {recipe.batch_size} and texts_share {recipe.texts_share:g}"
        raise RecipeError(f"recipe: {shares} leave no row for unlabelled texts; raise both, or give no texts")
    epoch = math.ceil(len(data.train) / (recipe.batch_size - texts_per_batch(recipe, data)))
    steps = planned_steps(recipe, epoch)
    interval = min(recipe.eval_every or epoch, max(steps // max(recipe.evaluations, 1), 1))
    arguments = TrainingArguments(
        output_dir=str(folder),
        learning_rate=recipe.learning_rate,
        max_steps=steps,
        warmup_steps=recipe.warmup,
        lr_scheduler_type="linear",
        max_grad_norm=0.0,  # `BertTrainer` clips
        per_device_eval_batch_size=64,
        eval_strategy="steps",
        eval_steps=interval,
        save_strategy="steps",
        save_steps=interval,
        restore_callback_states_from_checkpoint=True,  # or early stopping would count from 0 again
        load_best_model_at_end=True,
        metric_for_best_model=data.reported_metrics()[0],
        greater_is_better=True,
        logging_steps=recipe.log_every,
        logging_nan_inf_filter=False,
        seed=recipe.seed,
        data_seed=recipe.seed,
        label_names=["labels"],
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
        **{
            "report_to": "none",
            # Apple's GPU has no float64, in which exact scores are computed; and without `use_cpu` the processes of a
            # distributed CPU run do not find each other.
            "use_cpu": not (torch.cuda.is_available() or torch.xpu.is_available()),
            "ddp_find_unused_parameters": False,  # every trained parameter gets a gradient
            **changes,
        },
    )
    processes = arguments.world_size * max(arguments.n_gpu, 1)
    if recipe.batch_size % processes:
        raise RecipeError(f"recipe: batch_size is {recipe.batch_size}, not a multiple of the {processes} processes")
    if arguments.n_gpu > 1 and recipe.precision == "bfloat16":  # DataParallel would compute in float16
        problem = f"precision is {recipe.precision}, but one process would use {arguments.n_gpu} GPUs"
        remedy = f"start one process per GPU: torchrun --nproc-per-node {arguments.n_gpu} -m bibert ..."
        raise RecipeError(f"recipe: {problem}; {remedy}")
    arguments.per_device_train_batch_size = recipe.batch_size // processes
    return arguments
