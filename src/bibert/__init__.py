"""BERT in one bit: binarize a BERT classifier, distill it, evaluate it, run it on a CPU as one small file.

The public names below are loaded when they are first asked for, so `import bibert` costs milliseconds and
needs neither torch nor transformers. Everything else lives in the subpackages and is imported from there.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bibert.data.columns import Columns
    from bibert.data.examples import Split, TextData
    from bibert.data.glue import load_glue
    from bibert.data.tables import load_table
    from bibert.errors import BibertError
    from bibert.learn import train
    from bibert.nn.checkpoint import load_classifier
    from bibert.nn.model import BiBertForSequenceClassification
    from bibert.nn.schemes import SCHEMES, Scheme, get_scheme
    from bibert.nn.students import binarize
    from bibert.runtime.classifier import TextClassifier, load
    from bibert.runtime.engine import Engine

    __version__: str

__all__ = [
    "SCHEMES",
    "BiBertForSequenceClassification",
    "BibertError",
    "Columns",
    "Engine",
    "Scheme",
    "Split",
    "TextClassifier",
    "TextData",
    "__version__",
    "binarize",
    "get_scheme",
    "load",
    "load_classifier",
    "load_glue",
    "load_table",
    "train",
]

_HOME_OF = {
    **dict.fromkeys(("SCHEMES", "Scheme", "get_scheme"), "bibert.nn.schemes"),
    "BiBertForSequenceClassification": "bibert.nn.model",
    "binarize": "bibert.nn.students",
    "load_classifier": "bibert.nn.checkpoint",
    "Columns": "bibert.data.columns",
    **dict.fromkeys(("Split", "TextData"), "bibert.data.examples"),
    "load_glue": "bibert.data.glue",
    "load_table": "bibert.data.tables",
    "Engine": "bibert.runtime.engine",
    **dict.fromkeys(("TextClassifier", "load"), "bibert.runtime.classifier"),
    "train": "bibert.learn",
    "BibertError": "bibert.errors",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms that only this answer needs

    try:
        return version("bibert")
    except PackageNotFoundError:  # the sources are on the path, but were never installed
        return "0+unknown"
