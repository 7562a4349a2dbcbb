"""The eight GLUE tasks of the paper, from a folder of GLUE's own TSV files or from the Hugging Face Hub.

The tasks are in glue.toml. Class ids follow the Hub's order from either source, so the outputs of a model mean the
same whichever one it was trained on.
"""

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from bibert.data.columns import Columns
from bibert.data.examples import Split, TextData
from bibert.data.lines import shown
from bibert.data.tables import Table, read_tsv, split_of, table_of_dataset
from bibert.errors import DataError, did_you_mean, one_line, require_extra

logger = logging.getLogger(__name__)

HUB_NAME = "nyu-mll/glue"
TRAIN_FILE = "train.tsv"


@dataclass(frozen=True)
class GlueTask:
    """One task: its files, columns, labels and metrics."""

    name: str  # as GLUE writes it, also the name of its folder
    columns: Columns  # of the TSV files
    hub_columns: Columns
    label_names: tuple[str, ...]  # by class id; empty for scores
    metrics: tuple[str, ...]  # the paper's metric first
    variants: int  # of each text in TinyBERT's augmentation
    written: tuple[str, ...] = ()  # the labels in the TSV files, by class id; empty if they are the names
    header: tuple[str, ...] = ()  # the columns of files that have no header line
    dev: Mapping[str, str] = field(default_factory=lambda: {"dev": ""})  # splits, and the ends of their file names
    broken_rows: int = 0  # how many unusable rows (no second question, a field missing) the released files may hold

    @property
    def key(self) -> str:
        """The short name, which is also the Hub's: sst2, stsb."""
        return _key(self.name)


def _key(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _task(name: str, row: Mapping[str, Any]) -> GlueTask:
    columns = {key: Columns(**row[key]) for key in ("columns", "hub_columns")}
    lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return GlueTask(name, **{**row, **columns, **lists})


_TABLES = tomllib.loads(resources.files("bibert.data").joinpath("glue.toml").read_text(encoding="utf-8"))
TASKS: Mapping[str, GlueTask] = {_key(name): _task(name, row) for name, row in _TABLES.items()}


def get_task(name: str) -> GlueTask:
    """Return the task of that name; case and dashes do not matter."""
    if _key(name) not in TASKS:
        raise DataError(f"there is no GLUE task {name!r}; {did_you_mean(_key(name), TASKS)}")
    return TASKS[_key(name)]


def load_glue(task: str, folder: Path, train_file: str = TRAIN_FILE) -> TextData:
    """Read a task such as `SST-2` from GLUE's TSV files: `folder` is the task's own, or holds those of all tasks.

    `train_file` names another training file in the same format, such as an augmented one. Raises `DataError` if a
    folder, file, column or label is missing or malformed.
    """
    row = get_task(task)
    home = _task_folder(row, Path(folder))
    train = load_glue_split(task, home / train_file)
    return TextData(row.name, train, load_glue_dev(task, folder), row.label_names, row.metrics, source=home)


def load_glue_dev(task: str, folder: Path) -> dict[str, Split]:
    """Read only the dev splits of a task; MNLI has two."""
    row = get_task(task)
    home = _task_folder(row, Path(folder))
    return {name: load_glue_split(task, home / f"dev{end}.tsv") for name, end in row.dev.items()}


def load_glue_split(task: str, path: Path) -> Split:
    """Read one labelled TSV file of a task."""
    row = get_task(task)
    table = read_tsv(path, row.header, ragged=row.broken_rows > 0)
    return _split_of(row, table, row.columns, row.written or row.label_names)


def load_glue_from_hub(task: str) -> TextData:
    """Read a task from the Hugging Face Hub (needs the network, or a filled cache)."""
    row = get_task(task)
    require_extra("train", "reading GLUE from the Hub")
    from datasets import load_dataset

    try:
        parts: Mapping[str, Any] = load_dataset(HUB_NAME, row.key)
    except (OSError, ValueError) as error:
        remedy = "check the network, or give a folder of GLUE's TSV files"
        raise DataError(f"{HUB_NAME}: cannot load {row.name} ({one_line(error)}); {remedy}") from None
    dev = {name: _hub_split(row, parts, f"validation{end}") for name, end in row.dev.items()}
    return TextData(row.name, _hub_split(row, parts, "train"), dev, row.label_names, row.metrics, source=HUB_NAME)


def _hub_split(task: GlueTask, parts: Mapping[str, Any], name: str) -> Split:
    if name not in parts:
        raise DataError(f"{HUB_NAME}/{task.key}: no split {name!r} (found {shown(parts)}); update datasets")
    table = table_of_dataset(parts[name], f"{HUB_NAME}/{task.key}/{name}")
    return _split_of(task, table, task.hub_columns, task.label_names)


def _task_folder(task: GlueTask, folder: Path) -> Path:
    if not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {problem}; give the folder that holds {task.name}/train.tsv")
    folders = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    home = next((name for name in folders if _key(name) == task.key), None)
    if home is not None:
        return folder / home
    if any(folder.glob("*.tsv")):
        return folder
    here = shown(folders) or "no folder"
    raise DataError(f"{folder}: no folder {task.name} in it (found {here}); put GLUE's {task.name} files there")


def _split_of(task: GlueTask, table: Table, columns: Columns, written: tuple[str, ...]) -> Split:
    for name in columns.names:
        if name not in table.columns:
            found = shown(table.columns)
            raise DataError(f"{table.header_place}: no column {name!r} among {found}; is it {task.name}?")
    needed = zip(*(table.columns[name] for name in columns.names), strict=True)
    whole = [row for row, cells in enumerate(needed) if all(cell is not None and str(cell).strip() for cell in cells)]
    broken = len(table) - len(whole)
    if 0 < broken <= task.broken_rows:  # with more of them, `split_of` names the first
        logger.warning("%s: dropped %d broken rows, which every release of %s has", table.origin, broken, task.name)
        table = table.take(whole)
    return split_of(table, columns, written)
