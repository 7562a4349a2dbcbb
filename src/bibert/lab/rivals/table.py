"""The rivals, one row each, and how any engine is loaded. What a row needs is imported when it is built or loaded."""

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bibert.errors import BibertError, did_you_mean
from bibert.lab.rivals import onnx_engines, openvino_engines, torch_engines
from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.inputs import Run


@dataclass(frozen=True)
class Rival:
    """An engine that runs a BERT in full precision or int8.

    Attributes:
        name: as the command line writes it, and the stem of its files.
        packages: what it imports; pip knows each by the same name.
        build: writes a model into a folder and returns the file to load.
        load: makes that file ready to run with a number of threads, at its best for inputs of one shape.
        load_for_texts: the same for inputs of changing shape; None where `load` is as good.
    """

    name: str
    packages: tuple[str, ...]
    build: Callable[[Blueprint, Path], Path]
    load: Callable[[Path, int], Run]
    load_for_texts: Callable[[Path, int], Run] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed."""
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)

    def bytes_in(self, folder: Path) -> int:
        """What its files take, of the folder it was built in."""
        return sum(file.stat().st_size for file in folder.glob(f"{self.name}.*"))


_TORCH = ("torch", "transformers")
_ONNX = (*_TORCH, "onnx", "onnxscript", "onnxruntime")
_OPENVINO = (*_TORCH, "openvino")
_ROWS = (
    Rival("torch-fp32", _TORCH, torch_engines.build_fp32, torch_engines.load_fp32),
    Rival("torch-int8", _TORCH, torch_engines.build_int8, torch_engines.load_int8),
    Rival("onnx-fp32", _ONNX, onnx_engines.build_fp32, onnx_engines.load),
    Rival("onnx-int8", _ONNX, onnx_engines.build_int8, onnx_engines.load),
    Rival(
        "openvino-fp32",
        _OPENVINO,
        openvino_engines.build_fp32,
        openvino_engines.load_fp32,
        openvino_engines.load_fp32_for_texts,
    ),
    Rival(
        "openvino-int8",
        (*_OPENVINO, "nncf"),
        openvino_engines.build_int8,
        openvino_engines.load_int8,
        openvino_engines.load_int8_for_texts,
    ),
)
RIVALS: Mapping[str, Rival] = MappingProxyType({rival.name: rival for rival in _ROWS})

OURS = "bibert"


def _load_ours(path: Path, threads: int) -> Run:
    from bibert.runtime.engine import Engine  # here: the memory of a rival's process must not hold our library

    return Engine.load(path, threads=threads).logits


LOADERS: Mapping[str, Callable[[Path, int], Run]] = MappingProxyType(
    {OURS: _load_ours, **{rival.name: rival.load for rival in _ROWS}}
)


def get_rivals(names: Iterable[str]) -> tuple[Rival, ...]:
    """The rivals of these names, each once; all of them for no name.

    Raises:
        BibertError: there is no such rival.
    """
    wanted = tuple(dict.fromkeys(names)) or tuple(RIVALS)
    for name in wanted:
        if name not in RIVALS:
            raise BibertError(f"there is no rival {name!r}; {did_you_mean(name, RIVALS)}")
    return tuple(RIVALS[name] for name in wanted)
