"""Named benchmarks: where they lie on this machine, and how they come here, proven.

A name is looked for in the folders of SQUIRE_DATA, in the package, then in the cache; `fetch_dataset`
fills the cache. A dataset enters the cache as one folder of train.tsv, valid.tsv, test.tsv (UTF-8, tab
between head, relation and tail) and source.json, which says where each came from and what proved it;
the folder appears by one rename, after the last check.

It does not know which benchmarks there are (see `catalogue`), ids or graphs (see `io`), nor how bytes travel (see
`download`). It prints nothing, and
imports PyKEEN, with torch behind it, only when a name begins with `pykeen:` or all names are asked for.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rapidfuzz import fuzz, process

from squire.errors import DownloadError, UnknownName
from squire.graph.benchmarks.catalogue import SPLITS, TABLE, Dataset, SplitFile
from squire.graph.benchmarks.download import fetch, publish, read_member, staging

FileProgress = Callable[[str, int, int | None], None]
"""Called with the name of a file, the bytes that are here and the bytes there will be (None: not said)."""

_BY_HAND = "If you have it, put train.txt, valid.txt, test.txt in a folder {name} below one of SQUIRE_DATA."


@dataclass(frozen=True)
class Row:
    """One line of a listing; `where` is a folder, or how to come by one."""

    name: str
    where: str
    facts: int | None
    note: str


def names() -> list[str]:
    """Every name that `resolve` takes: the table, then PyKEEN's if it is installed."""
    with suppress(DownloadError):
        return [*TABLE, *_pykeen_names()]
    return list(TABLE)


def lookup(name: str) -> Dataset:
    """The entry of a name or an alias, whatever its case and hyphens."""
    for dataset in TABLE.values():
        if _key(name) in _keys(dataset):
            return dataset
    raise UnknownName("dataset", name, _nearest(name, [*TABLE]))


def describe() -> list[Row]:
    """Every dataset: where it is, or how to get it."""
    rows = []
    for dataset in TABLE.values():
        where = locate(dataset.name) or ("download" if dataset.splits else "not available")
        note = f"{dataset.title} {dataset.unavailable or dataset.note}".strip()
        rows.append(Row(dataset.name, str(where), dataset.facts, note))
    foreign = names()[len(TABLE) :]
    rows += [Row(name, str(locate(name) or "download"), None, "As PyKEEN loads it.") for name in foreign]
    return rows


def locate(name: str) -> Path | None:
    """The folder of this name on this machine: below SQUIRE_DATA, in the package, in the cache; or None."""
    wanted = {_key(name)} - {""}
    with suppress(UnknownName):
        wanted = _keys(lookup(name))
    own = [Path(folder).expanduser() for folder in os.environ.get("SQUIRE_DATA", "").split(os.pathsep) if folder]
    for home in (*own, Path(str(resources.files("squire") / "data")), _home()):
        # A folder that is not there or not readable holds nothing, as with PATH.
        with suppress(OSError):
            for folder in sorted(home.iterdir(), key=lambda path: (path.name != name, path.name)):
                hidden = folder.name.startswith(".")  # half-done work of `download`
                if not hidden and _key(folder.name) in wanted and any(folder.glob("train*")):
                    return folder
    return None


def resolve(path_or_name: str, *, download: bool = False, progress: FileProgress | None = None) -> Path:
    """What the user means: a path that exists, else a dataset, which is fetched only if `download`."""
    if path_or_name and Path(path_or_name).exists():
        return Path(path_or_name)
    if (found := locate(path_or_name)) is not None:
        return found
    try:
        name = _pykeen_name(path_or_name) or _obtainable(path_or_name).name
    except UnknownName as error:  # here it may as well be a mistyped path
        raise UnknownName("path or dataset", path_or_name, error.nearest) from None
    if not download:
        raise DownloadError(f"{name} is not on this machine. Get it with: squire data fetch {name}")
    return fetch_dataset(name, progress=progress)


def fetch_dataset(name: str, *, progress: FileProgress | None = None) -> Path:
    """The folder of a dataset; downloaded and verified first if it is not on this machine."""
    if (found := locate(name)) is not None:
        return found
    if (foreign := _pykeen_name(name)) is not None:
        return _export_pykeen(foreign, _home())
    return install(_obtainable(name), _home(), progress=progress)


def install(dataset: Dataset, home: Path, *, progress: FileProgress | None = None) -> Path:
    """Download and verify a dataset and put it below `home` as a whole."""
    try:
        with staging(home, dataset.name) as kept:
            raw = _download(dataset, kept, progress)
            contents: dict[str, bytes] = {}
            proofs: dict[str, Any] = {}
            for split, file in dataset.splits.items():
                try:
                    contents[split] = _tidy(read_member(raw[file.url], file.member), file.url)
                    proofs[split] = _prove(file, contents[split])
                except DownloadError:
                    raw[file.url].unlink(missing_ok=True)  # else the next call would take it for good
                    raise
            folder = _publish(home, dataset.name, dataset.note, contents, proofs)
            shutil.rmtree(kept, ignore_errors=True)
            return folder
    except DownloadError as error:
        raise DownloadError(f"{dataset.name}: {error} {_BY_HAND.format(name=dataset.name)}") from error


def content_digest(content: bytes) -> tuple[int, str]:
    """The number of different lines, and the SHA-256 over them, sorted, each with one newline."""
    lines = sorted({line.removesuffix(b"\r") for line in content.split(b"\n")} - {b""})
    return len(lines), hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()


def _home() -> Path:
    """Where the cache keeps datasets."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("SQUIRE_CACHE") or Path(base, "squire")).expanduser() / "datasets"


def _key(name: str) -> str:
    """FB15k-237, fb15k237 and FB15K237 are one name; a path is none."""
    return "" if re.search(r"[/\\]", name) else re.sub(r"[\W_]", "", name.casefold())


def _keys(dataset: Dataset) -> set[str]:
    return {_key(name) for name in (dataset.name, *dataset.aliases)}


def _nearest(name: str, known: list[str]) -> list[str]:
    choices = {candidate: _key(candidate) for candidate in known}
    return [hit[2] for hit in process.extract(_key(name), choices, scorer=fuzz.WRatio, limit=3, score_cutoff=60)]


def _obtainable(name: str) -> Dataset:
    dataset = lookup(name)
    if dataset.unavailable:
        by_hand = _BY_HAND.format(name=dataset.name)
        raise DownloadError(f"{dataset.name} cannot be downloaded: {dataset.unavailable} {by_hand}")
    if not dataset.splits:
        raise DownloadError(f"{dataset.name} should be in the package but is not: install squire-kg again.")
    return dataset


def _download(dataset: Dataset, folder: Path, progress: FileProgress | None) -> dict[str, Path]:
    """Every address once, an archive of three splits too."""
    raw: dict[str, Path] = {}
    for file in dataset.splits.values():
        if file.url not in raw:
            name = Path(urlsplit(file.url).path).name
            report = None if progress is None else partial(progress, name)
            target = folder / f"{len(raw)}-{name}"
            raw[file.url] = fetch(file.url, target, checksum=file.checksum, size=file.size, progress=report)
    return raw


def _tidy(raw: bytes, url: str) -> bytes:
    """One newline a fact, no empty lines (FB15K237 is published with carriage returns); three columns each."""
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


def _prove(file: SplitFile, content: bytes) -> dict[str, Any]:
    """Hold the facts against what is known of them; what goes into source.json."""
    facts, digest = content_digest(content)
    if file.facts is not None and facts != file.facts:
        raise DownloadError(f"{file.url}: expected {file.facts:,} facts, found {facts:,}.")
    if file.digest is not None and digest != file.digest:
        raise DownloadError(f"{file.url}: expected content sha256:{file.digest}, found sha256:{digest}.")
    known = {key: value for key, value in vars(file).items() if value is not None}
    return known | {"facts": facts, "verified_by": file.verified_by}


def _publish(home: Path, name: str, note: str, contents: Mapping[str, bytes], proofs: dict[str, Any]) -> Path:
    """The folder of a dataset, with source.json beside the splits."""
    files = {f"{split}.tsv": content for split, content in contents.items()}
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    source = {"name": name, "note": note, "sha256": sums, "splits": proofs}
    text = json.dumps(source, indent=2, ensure_ascii=False) + "\n"
    return publish(home, name.replace(":", "-"), files | {"source.json": text.encode()})


def _pykeen_resolver() -> Any:
    try:
        from pykeen.datasets import dataset_resolver
    except ImportError as error:
        raise DownloadError(f"PyKEEN's datasets need PyKEEN ({error}): pip install 'squire-kg[pykeen]'") from error
    return dataset_resolver


def _pykeen_names() -> list[str]:
    return [f"pykeen:{key}" for key in sorted(_pykeen_resolver().lookup_dict)]


def _pykeen_name(name: str) -> str | None:
    """A name of PyKEEN's as it is listed, in lower-case letters and digits; None if it is not of theirs."""
    prefix, _, rest = name.partition(":")
    if prefix.lower() != "pykeen":
        return None
    listed, known = f"pykeen:{_key(rest)}", _pykeen_names()
    if listed not in known:
        raise UnknownName("dataset", name, _nearest(name, known))
    return listed


def _export_pykeen(name: str, home: Path) -> Path:
    """Have PyKEEN load a dataset and write its labelled triples as ours."""
    resolver = _pykeen_resolver()
    try:
        loaded = resolver.make(name.partition(":")[2])
        factories = zip(SPLITS, (loaded.training, loaded.validation, loaded.testing), strict=True)
        contents = {split: _labelled(factory) for split, factory in factories if factory is not None}
    except Exception as error:  # PyKEEN downloads and unpacks by many libraries, each with its own errors
        raise DownloadError(f"{name}: PyKEEN could not load it ({error}).") from error
    proofs = {}
    for split, content in contents.items():
        facts = content_digest(_tidy(content, name))[0]
        proofs[split] = {"from": f"PyKEEN {metadata.version('pykeen')}", "facts": facts, "verified_by": "nothing"}
    note = "PyKEEN leaves out the facts of valid and test whose entities or relations are not in train."
    return _publish(home, name, note, contents, proofs)


def _labelled(factory: Any) -> bytes:
    rows = factory.label_triples(factory.mapped_triples)  # (triple, 3) of str
    return "".join("\t".join(row) + "\n" for row in rows).encode()
