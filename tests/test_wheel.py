"""The wheel is whole: built, installed and used where the checkout cannot be seen."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from small_run import TINY

HOME = Path(__file__).resolve().parents[1]
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(["fastapi", "starlette", "pydantic", "uvicorn", "pandas", "pykeen"]))
import squire
print(squire.Run("demo").answer("Saint Barthélemy", "currency"))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and the dependencies of the one that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a build leaves files behind
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(HOME / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOME / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(
        *pip, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(folder), str(source), at=folder
    )
    shutil.rmtree(source)
    (wheel,) = folder.glob("squire_kg-*.whl")

    home = folder / "venv"
    venv.create(home, symlinks=True)
    python = str(home / "bin" / "python")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel), at=folder)
    # In a .pth file, so that those of the parent, which lead to the checkout, are not read.
    (home / SITE / "parent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return home


def run(*command: str, at: Path) -> str:
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=at, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_installed_package_is_the_wheels(environment: Path, tmp_path: Path) -> None:
    found = run(str(environment / "bin" / "python"), "-c", "import squire; print(squire.__file__)", at=tmp_path)
    assert Path(found.strip()).is_relative_to(environment)


def test_recipes_page_and_types_are_inside(environment: Path) -> None:
    inside = environment / SITE / "squire"
    for folder, pattern in (("model/recipes", "*.toml"), ("server/static", "**/*.*"), ("data/world", "*")):
        there, here = (
            {path.relative_to(root / folder) for path in (root / folder).glob(pattern) if path.is_file()}
            for root in (inside, HOME / "src" / "squire")
        )
        assert there == here, folder
    assert (inside / "py.typed").is_file()


def test_the_commands_of_the_demo_run(environment: Path, tmp_path: Path) -> None:
    squire = str(environment / "bin" / "squire")
    assert "5,233" in run(squire, "data", "stats", "world", at=tmp_path)
    tiny = [part for setting in (*TINY, "train.epochs=1", "train.valid_queries=20") for part in ("--set", setting)]
    run(squire, "train", "world", "--out", "demo", "--no-fuse", *tiny, at=tmp_path)
    assert "MRR" in run(squire, "evaluate", "demo", "--relations", "0", "--sample", "20", at=tmp_path)
    assert "Euro" in run(squire, "answer", "demo", "Saint Barthélemy", "currency", at=tmp_path)
    # And without the extras.
    python = str(environment / "bin" / "python")
    assert "Euro" in run(python, "-c", WITHOUT_EXTRAS, at=tmp_path)


def test_every_import_is_declared() -> None:
    """Tests run with the tools of developers installed, so a missing dependency would not show."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["server"], *extras["frames"], *extras["compare"], *extras["mcp"]]
    # FastAPI is built on these two.
    allowed = {re.split(r"[<>=\[]", one)[0].lower() for one in declared} | {"pydantic", "starlette"}
    allowed |= {"c_clause", "clause"}  # PyClause is not on PyPI
    distributions = packages_distributions()
    for file in sorted((HOME / "src").rglob("*.py")):
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))) - {"squire"} - sys.stdlib_module_names:
            assert {one.lower() for one in distributions.get(name, [name])} & allowed, f"{file}: {name}"


def imported(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}
