"""Showing results: one table of models and metrics, or the same as JSON."""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.training.run import is_main_process


def show_metrics(metrics: Mapping[str, Mapping[str, float]], folders: Mapping[str, Path], json: bool) -> None:
    """Print the metrics of one or more models; in a distributed run only the first process prints.

    Args:
        metrics: by model and then by metric, such as `{"student": {"dev_accuracy": 0.9}}`.
        folders: where each model is.
        json: as JSON, with fractions instead of percentages.
    """
    if not is_main_process():
        return
    if json:
        print_json({name: {"metrics": dict(values), "model": str(folders[name])} for name, values in metrics.items()})
        return
    names = list(dict.fromkeys(metric for values in metrics.values() for metric in values))
    table = Table("model", *(metric.replace("_", " ") for metric in names), "folder")
    for name, values in metrics.items():
        cells = [f"{100 * values[metric]:.1f}" if metric in values else "" for metric in names]
        table.add_row(name, *cells, str(folders[name]))
    print_table(table)
