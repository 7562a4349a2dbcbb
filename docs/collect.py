"""Collect what the site is made of in build/site-sources; `make site` runs this, and then mkdocs with mkdocs.yml.

Documents keep their places in the repository, so their links work in both. What they link to is copied as it is. The
reference of the Python API and the pages of notebooks are written here.

    python docs/collect.py                  # collect
    python docs/collect.py --run            # run the notebooks and keep what they print; `make docs` does it
"""

import contextlib
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import bibert

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "build" / "site-sources"
DEMO = ROOT / "build" / "demo"  # from `make demo`; the site has it at demo/ if it is there
DOCUMENTS = ("*.md", "docs/**/*.md", "benchmarks/*.md", "js/*.md", "src/bibert/models/*.md")
LINK = re.compile(r"\]\(([^)#\s]+)|src=\"([^\"]+)")
REFERENCE = """# Python

What `import bibert` offers. Everything else is internal, and may change without notice.

{names}

## scikit-learn

::: bibert.sklearn.BibertClassifier

## Integrations

[Integrations](integrations.md) has an example of each.

{engines}
"""


def linked(document: Path) -> list[Path]:
    """The files of the repository that a document links to."""
    found = LINK.findall(document.read_text("utf-8"))
    targets = [(document.parent / (one or other)).resolve() for one, other in found if "://" not in (one or other)]
    return [target for target in targets if target.is_file()]


def reference() -> str:
    """A page with every public name, from its docstring; mkdocstrings fills it in."""
    names = [name for name in bibert.__all__ if not name.startswith("_")]
    engines = sorted(path.stem for path in (ROOT / "src/bibert/integrations").glob("[a-z]*.py"))
    pages = [f"::: bibert.integrations.{name}" for name in engines]
    return REFERENCE.format(names="\n\n".join(f"::: bibert.{name}" for name in names), engines="\n\n".join(pages))


def page_of(notebook: dict[str, Any], name: str) -> str:
    """A notebook as Markdown: its text, its code and what it printed."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join(line for output in cell.get("outputs", []) for line in output["text"])
        parts += [f"```text\n{printed}```"] if printed else []
    return "\n\n".join([*parts, f"[Download this notebook]({name})", ""])


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what its cells print now."""
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec("".join(cell["source"]), names)
            text = printed.getvalue().splitlines(keepends=True)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}]
    return notebook


def run_notebooks() -> None:
    """Write every notebook with fresh outputs."""
    for path in ROOT.glob("docs/notebooks/*.ipynb"):
        fresh = run(json.loads(path.read_text("utf-8")))
        path.write_text(json.dumps(fresh, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def collect() -> None:
    """Write the folder of sources afresh."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    documents = [document for pattern in DOCUMENTS for document in ROOT.glob(pattern)]
    notebooks = [*ROOT.glob("docs/notebooks/*.ipynb")]
    others = [target for document in documents for target in linked(document)]
    for path in {*documents, *notebooks, *others, ROOT / "docs/site.css"}:
        copy = SOURCES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    if DEMO.exists():
        shutil.copytree(DEMO, SOURCES / "demo")
        with (SOURCES / "js/README.md").open("a", encoding="utf-8") as page:
            page.write("\n## Demo\n\n[The shipped models in your browser](../demo/index.html)\n")
    (SOURCES / "docs/api.md").write_text(reference(), encoding="utf-8")
    for path in notebooks:
        page = page_of(json.loads(path.read_text("utf-8")), path.name)
        (SOURCES / path.relative_to(ROOT)).with_suffix(".md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    run_notebooks() if sys.argv[1:] == ["--run"] else collect()
