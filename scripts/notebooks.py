"""Execute the notebooks of docs/notebooks and store what their cells show: python scripts/notebooks.py

Plain Python, in one process and without Jupyter: cells run in their order, and the last expression of a cell is shown as
notebooks show it. The tests execute them in the same way (tests/test_notebooks.py).
"""

from __future__ import annotations

import ast
import base64
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def load(path: Path) -> dict[str, Any]:
    """Read a notebook."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def execute(notebook: dict[str, Any], name: str) -> None:
    """Run the code cells (modified: their outputs and counts); an error ends it, with the number of its cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, start=1):
        cell["execution_count"] = number
        cell["outputs"] = _run("".join(cell["source"]), f"{name}, cell {number}", number, names)


def _run(source: str, place: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(tree, place, "exec"), names)
        value = eval(compile(ast.Expression(last.value), place, "eval"), names) if isinstance(last, ast.Expr) else None
    outputs: list[dict[str, Any]] = []
    if said.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}
        )
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """Return what a notebook keeps of a value: text, and HTML or a picture if it has them."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if (html := getattr(value, "_repr_html_", lambda: None)()) is not None:
        data["text/html"] = html.splitlines(keepends=True)
    if (png := getattr(value, "_repr_png_", lambda: None)()) is not None:
        data["image/png"] = base64.b64encode(png).decode("ascii")
    return data


def main() -> None:
    """Execute all notebooks and write them back."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = load(path)
        execute(notebook, path.name)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
