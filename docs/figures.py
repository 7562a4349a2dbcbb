"""Draw docs/figures/entropy.svg, entropy-layers.svg, direction.svg and bottleneck.svg from the results files.

Run it as `python docs/figures.py`. The other figures have commands of their own, in docs/analysis.md.
"""

import json
from pathlib import Path

import numpy as np

from bibert.lab.direction import FIELDS, THINGS, distilled_by
from bibert.lab.look import SITES
from bibert.lab.plots.charts import Band, draw_bottlenecks, draw_directions, draw_entropies
from bibert.lab.plots.style import save_figure
from bibert.lab.record import History
from bibert.lab.tables import load_bottlenecks
from bibert.nn.schemes import get_scheme

HERE = Path(__file__).parent
RESULTS, FIGURES = HERE / "results", HERE / "figures"


def read_bands(tables: dict) -> dict[str, Band]:
    """The entropies of a model: mean, lowest and highest head of each site."""
    names = ("mean", "least_head", "greatest_head")
    return {site: Band(*(np.array(tables[site][name]) for name in names)) for site in SITES}


def history(scheme: str, looks: dict) -> History:
    """The moves of a run as its probe would give them; means over heads stand for one head."""
    moved = {thing: {way: np.array(looks[thing][way])[:, None, None] for way in FIELDS[:2]} for thing in THINGS}
    return History(scheme, scheme, distilled_by(get_scheme(scheme)), [], {}, looks["steps"], moved)


def main() -> None:
    """Draw every figure."""
    probes = json.loads((RESULTS / "probes-sst2.json").read_text(encoding="utf-8"))
    layers = json.loads((RESULTS / "entropy-layers.json").read_text(encoding="utf-8"))
    through = {scheme: (course["steps"], read_bands(course)) for scheme, course in probes["entropy"].items()}
    by_layer = {name: (range(6), read_bands(tables)) for name, tables in layers["by_layer"].items()}
    moves = {scheme: history(scheme, looks) for scheme, looks in probes["direction_by_look"].items()}
    changes = load_bottlenecks(RESULTS / "bottlenecks.json")["sst2"].changes
    for figure, name in (
        (draw_entropies(through, "step"), "entropy"),
        (draw_entropies(by_layer, "layer"), "entropy-layers"),
        (draw_directions(moves), "direction"),
        (draw_bottlenecks({"SST-2": changes}), "bottleneck"),
    ):
        save_figure(figure, FIGURES / f"{name}.svg")


if __name__ == "__main__":
    main()
