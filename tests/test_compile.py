"""The kernels' cache: machine code is kept between runs, and never outlives the sources it came from."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from squire.core import compile as compiling

NOT_COMPILED = {"squire.graph.adjacency", "squire.core.ragged"}  # types, and what prepares arrays
OUTER = """
from squire.core.compile import kernel
from squire.deeper._inner import value

@kernel
def run(x):
    return value(x) + 1
"""
INNER = """
from squire.core.compile import inner_kernel

@inner_kernel
def value(x):
    return 10 * x
"""
MAIN = """
from squire._outer import run
print(run(1), sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with the real decorators and two small kernels in different files."""
    package = tmp_path / "squire"
    for folder in ("core", "deeper"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    (package / "__init__.py").touch()
    shutil.copy(compiling.__file__, package / "core")
    (package / "_outer.py").write_text(OUTER)
    (package / "deeper" / "_inner.py").write_text(INNER)
    return package


def start(package: Path, **environment: str) -> list[int]:
    """A new process: the result, cache hits and cache misses."""
    chosen = ("NUMBA_CACHE_DIR", "SQUIRE_CACHE", "XDG_CACHE_HOME")
    own = {key: value for key, value in os.environ.items() if key not in chosen}
    own |= {"PYTHONPATH": str(package.parent), "HOME": str(package.parent), **environment}
    done = subprocess.run([sys.executable, "-c", MAIN], env=own, capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


def test_a_change_in_another_file_is_seen_and_an_unchanged_kernel_is_not_compiled_again(package: Path) -> None:
    cache = package.parent / "cache"
    chosen = {"XDG_CACHE_HOME": str(cache)}
    assert start(package, **chosen) == [11, 0, 1]
    assert start(package, **chosen) == [11, 1, 0]
    (package / "deeper" / "_inner.py").write_text(INNER.replace("10 *", "20 *"))
    assert start(package, **chosen) == [21, 0, 1]
    assert start(package, **chosen) == [21, 1, 0]
    assert len(list((cache / "squire" / "kernels").iterdir())) == 2
    assert not list(package.rglob("*.nbi"))  # numba's own choice would be __pycache__


def test_numba_cache_dir_is_respected_and_an_unwritable_folder_is_not_needed(package: Path) -> None:
    chosen = package.parent / "chosen"
    assert start(package, NUMBA_CACHE_DIR=str(chosen)) == [11, 0, 1]
    assert list(chosen.rglob("*.nbi"))
    (package.parent / "file").touch()
    temporary = {"NUMBA_CACHE_DIR": str(package.parent / "file"), "TMPDIR": str(package.parent)}
    assert start(package, **temporary) == [11, 0, 1]
    assert start(package, **temporary) == [11, 1, 0]


def test_folders_of_old_versions_are_removed(tmp_path: Path) -> None:
    for age in range(6):
        folder = tmp_path / str(age)
        folder.mkdir()
        seconds = folder.stat().st_mtime - age * 10 * 3600
        os.utime(folder, (seconds, seconds))
    compiling._remove_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]  # 3 was used 30 hours ago


def test_other_users_of_numba_are_left_alone() -> None:
    before = vars(numba.config)["CACHE_DIR"]
    compiling.kernel(_doubled)
    assert vars(numba.config)["CACHE_DIR"] == before


def test_every_kernel_uses_the_decorator_and_only_what_the_hash_covers() -> None:
    """A constant from another module would be compiled in without being part of the hash."""
    sources = compiling.kernel_sources()
    covered = {_module(path) for path in sources} | NOT_COMPILED
    for path in compiling.PACKAGE.rglob("*.py"):
        imported = _imports(path)
        if path not in sources:
            assert "numba" not in imported, f"{path} must use squire.core.compile"
            continue
        own = {name for name in imported if name.startswith("squire")}
        assert own <= covered, f"{path} imports {own - covered}"


def _doubled(x: int) -> int:
    return 2 * x


def _module(path: Path) -> str:
    return ".".join(("squire", *path.relative_to(compiling.PACKAGE).with_suffix("").parts))


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names
