"""Run a table of the paper: one teacher for each task, every scheme and seed distilled from it, runs collected.

    OUTPUT/sst2/teacher         a run folder (see `training.run`)
    OUTPUT/sst2/bibert-42       another, for a scheme and a seed; a training file that is not the task's own and a
                                start that is not the teacher come first in its name: train_aug-general_4-bibert-42
    OUTPUT/results.json         every finished run in OUTPUT, whoever trained it
    OUTPUT/table.md             the same runs beside the paper's figures

Finished runs are kept and killed ones resume, so the same call trains only what is missing. Several processes may share
one OUTPUT if they train different tasks, or different schemes or seeds of a task whose teacher is finished.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from bibert import machine
from bibert.data.examples import TextData
from bibert.data.glue import TASKS, TRAIN_FILE, get_task, load_glue, load_glue_from_hub
from bibert.errors import CheckpointError, DataError, RecipeError, one_line
from bibert.files import load_json, read_json_lines, write_whole
from bibert.lab.probe import probe_every
from bibert.lab.record import curve
from bibert.lab.tables import RESULTS, TEACHER, Cell, get_table, markdown, save_cells
from bibert.nn.layers import BiBertConfig
from bibert.nn.schemes import as_scheme, get_scheme
from bibert.training.provenance import provenance
from bibert.training.recipe import Recipe, load_recipe
from bibert.training.run import RunFolder, finished_metrics
from bibert.training.student import distill, stage_objectives
from bibert.training.teacher import finetune

Progress = Callable[[str], Sequence[TrainerCallback]]  # by the name of the run


@dataclass(frozen=True)
class Plan:
    """What to run; `{task}` in a recipe is replaced by the task, as in `paper-{task}`."""

    table: str  # the short name of the paper's table
    tasks: tuple[str, ...]  # keys of GLUE tasks
    schemes: tuple[str, ...]  # names; the teacher is trained in any case
    seeds: tuple[int, ...] = ()  # of the students; empty for the seed of their recipe
    checkpoint: str | None = None  # the BERT that teachers are fine-tuned from; None if they are finished
    recipe: str = "cpu-{task}"  # preset or file of the students
    teacher_recipe: str = "teacher"  # of the teachers, which take `max_length` from the students
    changes: dict[str, Any] = field(default_factory=dict)  # to the students' recipe
    glue: Path | None = None  # the folder of GLUE's TSV files; None for the Hub
    train_file: str = TRAIN_FILE  # of the students, in the folder of each task
    start: str | None = None  # the model that students are made from; None for their teacher
    probe_every: int = 0  # steps between two looks into a student; 0 for none

    def students_recipes(self, task: str) -> list[Recipe]:
        """The students' recipe for each of the seeds."""
        own = load_recipe(_for_task(self.recipe, task), self.changes)
        return [replace(own, seed=seed) for seed in self.seeds or (own.seed,)]

    def teachers_recipe(self, task: str) -> Recipe:
        """The teacher's recipe, with the students' number of tokens."""
        tokens = self.students_recipes(task)[0].max_length
        return load_recipe(_for_task(self.teacher_recipe, task), {"max_length": tokens})

    def load(self, task: str, train_file: str) -> TextData:
        """The data of a task from the Hub, or from its folder."""
        return load_glue_from_hub(task) if self.glue is None else load_glue(task, self.glue, train_file)

    def check(self) -> None:
        """Find mistakes in the plan before an hour is spent on its first run."""
        if "seed" in self.changes:
            raise RecipeError("a table takes its seeds from --seeds, not from a change of the recipe")
        if self.glue is None and self.train_file != TRAIN_FILE:
            raise DataError(f"{self.train_file} needs the folder of GLUE's TSV files; give the folder too")
        rows = [row for row in get_table(self.table).rows if row.scheme != TEACHER]
        if all(row.augmented for row in rows) and self.train_file == TRAIN_FILE:
            raise DataError(
                f"every student of {get_table(self.table).name} is trained on augmented texts; make a file of them "
                "with bibert augment in the folder of each task, and give its name with --train-file"
            )
        for task in self.tasks:
            self.teachers_recipe(task)
            for recipe in self.students_recipes(task):
                for scheme in self.schemes:
                    stage_objectives(get_scheme(scheme), recipe)


def _for_task(name: str, task: str) -> str:
    return name.replace("{task}", get_task(task).name.lower())


def reproduce(plan: Plan, output: Path, progress: Progress) -> list[Cell]:
    """Train what is missing in `output`, and write the results after every run."""
    plan.check()
    for teacher in (output / task / "teacher" for task in plan.tasks):
        if plan.checkpoint is None and finished_metrics(RunFolder(teacher)) is None:
            raise DataError(
                f"{teacher}: holds no finished teacher, and there is no checkpoint to fine-tune one from; give "
                "one with --checkpoint, or collect finished runs with bibert reproduce collect"
            )
    texts = {task: plan.load(task, plan.train_file) for task in plan.tasks}  # now: a missing file must not end a table
    output.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    for task, data in texts.items():
        teacher = output / task / "teacher"
        if plan.checkpoint is not None:
            own = data if plan.train_file == TRAIN_FILE else plan.load(task, TRAIN_FILE)  # like the paper's teachers
            callbacks = progress(f"{task} teacher")
            finetune(plan.checkpoint, own, teacher, plan.teachers_recipe(task), callbacks=callbacks)
        cells = write_results(output, plan.table)
        other = [*([] if plan.train_file == TRAIN_FILE else [plan.train_file]), *([plan.start] if plan.start else [])]
        prefix = "".join(f"{Path(name).stem}-" for name in other)
        for scheme in plan.schemes:
            for recipe in plan.students_recipes(task):
                distill(
                    RunFolder(teacher).model,
                    get_scheme(scheme),
                    data,
                    output / task / f"{prefix}{scheme}-{recipe.seed}",
                    recipe,
                    start=plan.start,
                    probe=probe_every(plan.probe_every) if plan.probe_every else None,
                    callbacks=progress(f"{task} {scheme}"),
                )
                cells = write_results(output, plan.table)
    return cells


def write_results(output: Path, table: str) -> list[Cell]:
    """Collect every finished run of a folder into its results file and its table."""
    cells = list(collect(output))
    if not cells:
        return cells
    facts = machine.about(())
    about = {"command": f"bibert reproduce collect --table {table} -o {output.name}", "table": table}
    about |= {"commit": facts["commit"], "machine": facts["cpu"], "date": facts["date"]}
    save_cells(output / RESULTS, cells, about)
    with write_whole(output / "table.md") as file:
        file.write(markdown(cells, get_table(table)))
    return cells


def collect(output: Path) -> Iterator[Cell]:
    """The finished runs in a folder, task by task."""
    for task in TASKS:
        for notes in sorted(output.glob(f"{task}/*/run.json")):
            if finished_metrics(RunFolder(notes.parent)) is not None:
                yield cell_of(RunFolder(notes.parent), task)


def cell_of(run: RunFolder, task: str) -> Cell:
    """A finished run as a cell."""
    request, known = load_json(run.notes)["request"], provenance(run.model)
    if request["data"]["name"] != TASKS[task].name:
        both = f"was trained on {request['data']['name']}, its folder is that of {TASKS[task].name}"
        raise CheckpointError(f"{run.path}: {both}; move it to the folder of its task")
    scheme = as_scheme(request.get("scheme", TEACHER))
    evaluations = _evaluations(run, f"eval_dev_{TASKS[task].metrics[0]}")
    shape = BiBertConfig.from_pretrained(run.model)
    return Cell(
        task=task,
        scheme=scheme.name,
        augmented=Path(request["data"]["train"]).stem != Path(TRAIN_FILE).stem,  # the Hub's files have no suffix
        metrics=known["metrics"],
        best_step=max(evaluations, key=lambda point: point[1])[0],
        evaluations=evaluations,
        recipe=known["recipe"],
        backbone={"layers": shape.num_hidden_layers, "hidden": shape.hidden_size, "heads": shape.num_attention_heads},
        origin={
            "bits": str(scheme.bits),
            "stages": len(scheme.schedule),
            **{name: known[name] for name in ("commit", "versions", "cpu", "date", "teacher_sha256", "start")},
            "data_sha256": known["data"]["sha256"],
        },
    )


def _evaluations(run: RunFolder, metric: str) -> list[tuple[int, float]]:
    """Step and metric of each evaluation of the last stage."""
    try:
        events = read_json_lines(run.log)
        points = list(curve(events, events[-1]["stage"], metric).items()) if events else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{run.log}: is damaged ({one_line(error)}); move the run aside") from error
    if not points:
        raise CheckpointError(f"{run.log}: has no evaluation, although the run is finished; move the run aside")
    return points
