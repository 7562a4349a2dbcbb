"""Showing results: one table of models and metrics, or the same as JSON."""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from bibert.cli.console import print_json, print_table

Metrics = Mapping[str, Mapping[str, float]]  # by model and then by metric: {"student": {"dev_accuracy": 0.9}}


def show_metrics(metrics: Metrics, places: Mapping[str, Path], json: bool) -> None:
    """Print the metrics of one or more trainings; in a distributed run only the first process prints."""
    from bibert.training.run import is_main_process

    if is_main_process():
        print_metrics(metrics, places, json)


def print_metrics(metrics: Metrics, places: Mapping[str, Path | str], json: bool) -> None:
    """Print the metrics of one or more models.

    Args:
        metrics: see above.
        places: where each model is; one without a place is not kept anywhere.
        json: as JSON, with fractions instead of percentages.
    """
    found = {name: str(places[name]) if name in places else None for name in metrics}
    if json:
        print_json({name: {"metrics": dict(values), "model": found[name]} for name, values in metrics.items()})
        return
    names = list(dict.fromkeys(metric for values in metrics.values() for metric in values))
    table = Table("model", *(metric.replace("_", " ") for metric in names), "where")
    for name, values in metrics.items():
        cells = [f"{100 * values[metric]:.1f}" if metric in values else "" for metric in names]
        table.add_row(name, *cells, found[name] or "")
    print_table(table)
