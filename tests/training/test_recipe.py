"""Recipes: what a file may contain, what is refused, and that the presets are the paper's settings."""

from dataclasses import fields

import pytest

from bibert.errors import RecipeError
from bibert.nn.schemes import SCHEMES
from bibert.training.recipe import Recipe, load_recipe, presets
from bibert.training.student import stage_objectives

# Learning rate, epochs, tokens, steps between evaluations, seed: the released scripts, one per task.
PAPER = {
    "cola": (1e-4, 50, 64, 500, 42),
    "mnli": (5e-5, 5, 128, 1000, 42),
    "mrpc": (2e-4, 20, 128, 200, 42),
    "sst-2": (1e-4, 10, 64, 200, 42),
    "sts-b": (1e-4, 20, 128, 200, 42),
    "qqp": (1e-4, 5, 128, 1000, 42),
    "qnli": (1e-4, 10, 128, 1000, 101),
    "rte": (1e-5, 20, 128, 200, 42),
}


@pytest.mark.parametrize("family", ["paper", "released"])
@pytest.mark.parametrize("task", PAPER)
def test_presets_are_the_papers_settings(family, task):
    recipe = load_recipe(f"{family}-{task}")
    settings = (recipe.learning_rate, recipe.epochs, recipe.max_length, recipe.eval_every, recipe.seed)
    assert settings == PAPER[task]
    assert recipe.batch_size == 16
    assert (recipe.warmup, recipe.weight_decay, recipe.adam_epsilon) == (0.1, 0.01, 1e-6)
    assert (recipe.clip, recipe.clip_norm) == ("tensor", 1.0)


@pytest.mark.parametrize("task", PAPER)
def test_released_presets_differ_from_the_papers_as_the_released_code_does(task):
    paper, released = load_recipe(f"paper-{task}"), load_recipe(f"released-{task}")
    changed = {f.name for f in fields(Recipe) if getattr(paper, f.name) != getattr(released, f.name)}
    weights = {"weights"} if task != "sts-b" else set()
    assert changed == {"norm_scope", "mask_padding", "bias_correction", "dropout", *weights}
    assert (released.norm_scope, released.mask_padding, released.bias_correction) == ("batch", False, False)
    if weights:
        classes = 3 if task == "mnli" else 2
        assert released.weights == {"gold": 0.5, "prediction": pytest.approx(1 / classes)}


def test_every_preset_loads_and_suits_a_scheme():
    for name in presets():
        assert stage_objectives(SCHEMES["bibert"], load_recipe(name))


def test_a_file_sets_fields_and_leaves_the_others(write):
    recipe = load_recipe(write("recipe.toml", "learning_rate = 1e-3\nepochs = 2\n[weights]\ngold = 1\n"))
    assert recipe == Recipe(learning_rate=1e-3, epochs=2.0, weights={"gold": 1.0})


def test_a_file_starts_from_the_preset_it_extends(write):
    recipe = load_recipe(write("recipe.toml", 'extends = "released-cola"\nepochs = 1\n'))
    assert recipe.epochs == 1
    assert recipe.max_length == 64
    assert recipe.norm_scope == "batch"


def test_a_table_of_weights_changes_the_terms_that_it_names(write):
    kept = load_recipe("released-cola").weights
    assert load_recipe("released-cola", {"weights": {"gold": 0.3}}).weights == {**kept, "gold": 0.3}
    more = write("recipe.toml", 'extends = "released-cola"\nweights.mha = 2')
    assert load_recipe(more).weights == {**kept, "mha": 2.0}


def test_changes_override_a_preset_and_a_file_and_a_byte_order_mark_does_no_harm(write):
    assert load_recipe("paper-rte", {"seed": 7}).seed == 7
    assert load_recipe(write("recipe.toml", "seed = 3"), {"seed": 7}).seed == 7
    assert load_recipe(write("recipe.toml", "\ufeffseed = 3")).seed == 3


def test_epochs_lift_the_limits_of_a_preset_but_not_those_of_a_file(write):
    extended = write("recipe.toml", 'extends = "labels"\nmax_steps = 100')
    for name, limits in (("labels", (0, 0)), (extended, (0, 100))):
        recipe = load_recipe(name, {"epochs": 20.0})
        assert (recipe.min_steps, recipe.max_steps) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat = 1e-3", r"recipe.toml: unknown key 'learning_rat'; did you mean 'learning_rate'\?"),
        ("xyz = 1", "unknown key 'xyz'; choose one of learning_rate, epochs"),
        ('seed = "42"', r"seed is '42' \(str\); it must be of type int"),
        ("batch_size = 16.0", r"batch_size is 16.0 \(float\); it must be of type int"),
        ("bias_correction = 1", r"bias_correction is 1 \(int\); it must be of type bool"),
        ("learning_rate = true", r"learning_rate is True \(bool\); it must be of type float"),
        ('clip = "layer"', "clip is 'layer'; choose one of 'tensor', 'global'"),
        ("weights = 1.0", r"weights is 1.0; write a table \[weights\]"),
        ('weights = { gold = "much" }', r"weights.gold is 'much' \(str\); it must be of type float"),
        ('extends = "papr-cola"', r"extends 'papr-cola', which is not a preset; did you mean 'paper-cola'\?"),
        ("extends = [1]", "extends 1, which is not a preset"),
        ("seed = \n", r"recipe.toml: not valid TOML: .*line 1"),
        (b"\xff\xfe\x00", r"recipe.toml: not valid TOML"),
    ],
)
def test_a_wrong_key_type_or_value_in_a_file_is_refused(write, text, message):
    with pytest.raises(RecipeError, match=message) as refusal:
        load_recipe(write("recipe.toml", text))
    assert str(refusal.value).count("\n") == 0


def test_a_missing_file_is_refused_with_the_presets_there_are():
    with pytest.raises(RecipeError, match=r"no-such: .*presets: teacher"):
        load_recipe("no-such")


NAN, INFINITY = float("nan"), float("inf")
OUT_OF_RANGE = {  # values, and the fields that refuse them
    (0, -1): "batch_size max_length log_every",
    (0.0, -1.0, NAN, INFINITY): "learning_rate step_learning_rate epochs adam_epsilon",
    (-0.1, 1.0, NAN): "warmup dropout average label_smoothing texts_share",
    (-0.1, NAN, INFINITY): "weight_decay clip_norm",
    (-1,): "min_steps max_steps eval_every evaluations patience",
    (-1, 2**32): "seed",
}


@pytest.mark.parametrize(
    ("field", "values"), [(field, values) for values, names in OUT_OF_RANGE.items() for field in names.split()]
)
def test_a_value_out_of_range_is_refused_with_its_name(field, values):
    for value in values:
        with pytest.raises(RecipeError, match=f"recipe: {field} is {value};"):
            Recipe(**{field: value})


def test_a_recipe_becomes_plain_values_and_back():
    recipe = load_recipe("released-mnli")
    assert Recipe().with_changes(recipe.to_dict(), "test") == recipe
