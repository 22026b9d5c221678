"""Named benchmarks: where they are on this machine, and how they are downloaded and verified.

A name is looked up in the folders of SQUIRE_DATA, in the package, then in the cache, which `fetch_dataset` fills.
A dataset in the cache is one folder of train.tsv, valid.tsv and test.tsv (UTF-8, tabs between head, relation and
tail), and source.json, which says where each file came from and how it was verified. The folder appears by one
rename, after the last check.

PyKEEN, and with it torch, is imported only for names that start with `pykeen:` and for the list of all names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rapidfuzz import fuzz, process

from squire.core.progress import Progress, no_progress
from squire.errors import DownloadError, SettingError, UnknownName
from squire.graph.benchmarks.catalogue import SPLITS, TABLE, Dataset, SplitFile
from squire.graph.benchmarks.download import fetch

_BY_HAND = "If you have it, put train.txt, valid.txt and test.txt in a folder {name} in one of SQUIRE_DATA."


@dataclass(frozen=True)
class Row:
    """One line of the list of datasets."""

    name: str
    where: str  # a folder, "download" or "not available"
    facts: int | None
    note: str


def names() -> list[str]:
    """Every name that `resolve` accepts: the catalogue, then PyKEEN's if it is installed."""
    with suppress(DownloadError):
        return [*TABLE, *_pykeen_names()]
    return list(TABLE)


def lookup(name: str) -> Dataset:
    """The catalogue's entry for a name or an alias, whatever its case and hyphens."""
    for dataset in TABLE.values():
        if _key(name) in _keys(dataset):
            return dataset
    raise UnknownName("dataset", name, _nearest(name, [*TABLE]))


def list_datasets() -> list[Row]:
    """Every dataset, and where it is."""
    rows = []
    for dataset in TABLE.values():
        where = locate(dataset.name) or ("download" if dataset.splits else "not available")
        note = f"{dataset.title} {dataset.unavailable or dataset.note}".strip()
        rows.append(Row(dataset.name, str(where), dataset.facts, note))
    pykeen = names()[len(TABLE) :]
    rows += [Row(name, str(locate(name) or "download"), None, "As PyKEEN loads it.") for name in pykeen]
    return rows


def locate(name: str) -> Path | None:
    """The folder of a dataset on this machine: in SQUIRE_DATA, in the package or in the cache; or None."""
    wanted = {_key(name)} - {""}
    with suppress(UnknownName):
        wanted = _keys(lookup(name))
    own = [Path(folder).expanduser() for folder in os.environ.get("SQUIRE_DATA", "").split(os.pathsep) if folder]
    for home in (*own, Path(str(resources.files("squire") / "data")), _home()):
        # A missing or unreadable folder is skipped, as in PATH.
        with suppress(OSError):
            for folder in sorted(home.iterdir(), key=lambda path: (path.name != name, path.name)):
                hidden = folder.name.startswith(".")  # a download in progress
                if not hidden and _key(folder.name) in wanted and any(folder.glob("train*")):
                    return folder
    return None


def resolve(path_or_name: str | Path, *, download: bool = False, progress: Progress = no_progress) -> Path:
    """A path that exists, else the folder of a dataset, which is downloaded only if `download`."""
    if not isinstance(path_or_name, str | Path):
        raise SettingError(f"source={path_or_name!r}: expected a path or the name of a dataset.")
    if str(path_or_name) and Path(path_or_name).exists():
        return Path(path_or_name)
    name = str(path_or_name)
    if (found := locate(name)) is not None:
        return found
    try:
        name = _pykeen_name(name) or _obtainable(name).name
    except UnknownName as error:  # it may just as well be a mistyped path
        raise UnknownName("path or dataset", name, error.nearest) from None
    if not download:
        raise DownloadError(f"{name} is not on this machine. Get it with: squire data fetch {name}")
    return fetch_dataset(name, progress=progress)


def fetch_dataset(name: str, *, progress: Progress = no_progress) -> Path:
    """The folder of a dataset; downloaded and verified first if it is not on this machine."""
    if (found := locate(name)) is not None:
        return found
    if (pykeen := _pykeen_name(name)) is not None:
        return _export_pykeen(pykeen, _home())
    return install(_obtainable(name), _home(), progress=progress)


def install(dataset: Dataset, home: Path, *, progress: Progress = no_progress) -> Path:
    """Download and verify a dataset, and put its folder into `home`."""
    try:
        with _writing(home):
            home.mkdir(parents=True, exist_ok=True)
        contents: dict[str, bytes] = {}
        sources: dict[str, Any] = {}
        for split, file in dataset.splits.items():
            stage = partial(progress, Path(urlsplit(file.url).path).name)
            contents[split] = _tidy(fetch(file.url, checksum=file.checksum, progress=stage), file.url)
            sources[split] = _verify(file, contents[split])
        return _publish(home, dataset.name, dataset.note, contents, sources)
    except DownloadError as error:
        raise DownloadError(f"{dataset.name}: {error} {_BY_HAND.format(name=dataset.name)}") from error


def content_digest(content: bytes) -> tuple[int, str]:
    """The number of distinct lines, and the SHA-256 of these lines, sorted, each with one newline."""
    lines = sorted({line.removesuffix(b"\r") for line in content.split(b"\n")} - {b""})
    return len(lines), hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()


def _home() -> Path:
    """Where the cache keeps datasets."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("SQUIRE_CACHE") or Path(base, "squire")).expanduser() / "datasets"


def _key(name: str) -> str:
    """The same for FB15k-237, fb15k237 and FB15K237; empty for a path."""
    return "" if re.search(r"[/\\]", name) else re.sub(r"[\W_]", "", name.casefold())


def _keys(dataset: Dataset) -> set[str]:
    return {_key(name) for name in (dataset.name, *dataset.aliases)}


def _nearest(name: str, known: list[str]) -> list[str]:
    choices = {candidate: _key(candidate) for candidate in known}
    return [hit[2] for hit in process.extract(_key(name), choices, scorer=fuzz.WRatio, limit=3, score_cutoff=60)]


def _obtainable(name: str) -> Dataset:
    """The entry of a dataset that can be downloaded."""
    dataset = lookup(name)
    if dataset.unavailable:
        by_hand = _BY_HAND.format(name=dataset.name)
        raise DownloadError(f"{dataset.name} cannot be downloaded: {dataset.unavailable} {by_hand}")
    if not dataset.splits:
        raise DownloadError(f"{dataset.name} should be in the package but is not: install squire-kg again.")
    return dataset


def _tidy(raw: bytes, url: str) -> bytes:
    """One fact a line, without empty lines and carriage returns (FB15K237 has them); checks the columns."""
    lines = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        fact = line.removesuffix(b"\r")
        if fact and (fact.count(b"\t") != 2 or not all(fact.split(b"\t"))):
            raise DownloadError(
                f"{url}, line {number}: expected head, relation and tail with tabs, found {line!r:.99}."
            )
        if fact:
            lines.append(fact + b"\n")
    return b"".join(lines)


def _verify(file: SplitFile, content: bytes) -> dict[str, Any]:
    """Compare the facts with what is known of them; gives the file's entry in source.json."""
    facts, digest = content_digest(content)
    if file.facts is not None and facts != file.facts:
        raise DownloadError(f"{file.url}: expected {file.facts:,} facts, found {facts:,}.")
    if file.digest is not None and digest != file.digest:
        raise DownloadError(f"{file.url}: expected content sha256:{file.digest}, found sha256:{digest}.")
    known = {key: value for key, value in vars(file).items() if value is not None}
    return known | {"facts": facts, "verified_by": file.verified_by}


def _publish(home: Path, name: str, note: str, contents: Mapping[str, bytes], sources: dict[str, Any]) -> Path:
    """Write the folder of a dataset and rename it into place; if another process was faster, keep its folder."""
    files = {f"{split}.tsv": content for split, content in contents.items()}
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    source = {"name": name, "note": note, "sha256": sums, "splits": sources}
    files["source.json"] = (json.dumps(source, indent=2, ensure_ascii=False) + "\n").encode()
    folder = home / name.replace(":", "-")
    with _writing(home):
        home.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=home))
    try:
        with _writing(temporary):
            for file, content in files.items():
                (temporary / file).write_bytes(content)
            temporary.chmod(0o755)  # mkdtemp makes it private, but a cache may be shared
        try:
            temporary.rename(folder)
        except OSError as error:
            if not all((folder / file).is_file() for file in files):
                raise DownloadError(
                    f"{folder} is in the way ({error.strerror}): remove it and try again."
                ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a failure of the disk (full, read-only) into a DownloadError."""
    try:
        yield
    except OSError as error:
        raise DownloadError(
            f"cannot write {path}: {error.strerror or error}. Free some space or make it writable, or set "
            "SQUIRE_CACHE to another folder."
        ) from error


# ------------------------------------------------------------------------------------------------- PyKEEN


def _pykeen_resolver() -> Any:
    try:
        from pykeen.datasets import dataset_resolver
    except ImportError as error:
        raise DownloadError(f"PyKEEN's datasets need PyKEEN ({error}): pip install 'squire-kg[pykeen]'") from error
    return dataset_resolver


def _pykeen_names() -> list[str]:
    return [f"pykeen:{key}" for key in sorted(_pykeen_resolver().lookup_dict)]


def _pykeen_name(name: str) -> str | None:
    """A dataset of PyKEEN's by its canonical name; None if the name does not start with `pykeen:`."""
    prefix, _, rest = name.partition(":")
    if prefix.lower() != "pykeen":
        return None
    canonical, known = f"pykeen:{_key(rest)}", _pykeen_names()
    if canonical not in known:
        raise UnknownName("dataset", name, _nearest(name, known))
    return canonical


def _export_pykeen(name: str, home: Path) -> Path:
    """Let PyKEEN load a dataset and write its labelled triples into the cache."""
    resolver = _pykeen_resolver()
    try:
        loaded = resolver.make(name.partition(":")[2])
        factories = zip(SPLITS, (loaded.training, loaded.validation, loaded.testing), strict=True)
        contents = {split: _labelled(factory) for split, factory in factories if factory is not None}
    except Exception as error:  # PyKEEN downloads and unpacks with many libraries, each with its own errors
        raise DownloadError(f"{name}: PyKEEN could not load it ({error}).") from error
    sources = {}
    for split, content in contents.items():
        facts = content_digest(_tidy(content, name))[0]
        sources[split] = {"from": f"PyKEEN {metadata.version('pykeen')}", "facts": facts, "verified_by": "nothing"}
    note = "PyKEEN leaves out facts of valid and test whose entities or relations are not in train."
    return _publish(home, name, note, contents, sources)


def _labelled(factory: Any) -> bytes:
    rows = factory.label_triples(factory.mapped_triples)  # (triple, 3) of str
    return "".join("\t".join(row) + "\n" for row in rows).encode()
