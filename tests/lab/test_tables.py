"""Changes of the baseline from accuracies: which there are, how far from the baseline, and how sure that is."""

import math

import pytest

from bibert.data.glue import TASKS
from bibert.lab.tables import DEV_TEXTS, effects, standard_error
from bibert.nn.schemes import STRUCTURES

OURS = {
    "bibert": 88.0,
    "baseline": 80.0,
    "baseline(kept=mha)": 87.0,
    "baseline(kept=embedding)": 81.0,
    "baseline(kept=mha+pooler)": 87.5,
    "baseline(without=mha)": 79.0,
    "baseline(gain=row)": 81.0,
}


def test_changes_stand_in_the_papers_order_and_ours_of_the_same_kind_after_them():
    found = effects("sst2", OURS)
    assert [(effect.change, effect.what) for effect in found] == [
        *(("kept", structure) for structure in STRUCTURES),
        *(("without", term) for term in ("attention", "mha", "hidden")),
        ("kept", "mha+pooler"),
    ]


def test_differences_are_to_the_baseline_of_the_same_side():
    by_scheme = {effect.scheme: effect for effect in effects("sst2", OURS)}
    mha = by_scheme["baseline(kept=mha)"]
    assert (mha.ours.accuracy, mha.ours.points) == (87.0, 7.0)
    assert mha.paper.points == pytest.approx(11.49)
    assert by_scheme["baseline(kept=embedding)"].paper is None
    assert by_scheme["baseline(without=attention)"].ours is None


def test_a_task_of_nobodys_figure_has_ours_alone():
    assert [
        (effect.scheme, effect.paper) for effect in effects("rte", {"baseline": 50.0, "baseline(kept=mha)": 55.0})
    ] == [("baseline(kept=mha)", None)]


def test_the_error_is_that_of_two_binomial_shares():
    assert standard_error(80.0, 80.0, 872) == pytest.approx(100 * math.sqrt(2 * 0.8 * 0.2 / 872))
    assert standard_error(100.0, 100.0, 872) == 0
    assert standard_error(77.6, 89.09, 872) < 2


def test_errors_are_known_for_the_tasks_that_are_scored_by_accuracy():
    assert set(DEV_TEXTS) == {key for key, task in TASKS.items() if task.metrics[0] == "accuracy"}
