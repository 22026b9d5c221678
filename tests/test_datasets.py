"""Named benchmarks: found where the user has them, fetched whole and proven, refused by name otherwise."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest
from http_server import FileServer, Served, running

from squire.errors import DownloadError, UnknownName
from squire.graph.benchmarks.catalogue import SPLITS, TABLE, Dataset, SplitFile
from squire.graph.benchmarks.datasets import (
    content_digest,
    fetch_dataset,
    install,
    list_datasets,
    locate,
    lookup,
    names,
    resolve,
)

FACTS = {"train": b"a\tr\tb\nb\tr\tc\n", "valid": b"a\ts\tc\n", "test": b"c\ts\ta\n"}
KG = Path(__file__).parents[2] / "shared" / "kg"  # public copies of benchmarks, on some machines only


@pytest.fixture
def server() -> Iterator[FileServer]:
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and no folders of the user's; returns where the cache keeps datasets."""
    monkeypatch.setenv("SQUIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SQUIRE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "datasets"


def put(folder: Path, suffix: str = ".txt") -> Path:
    folder.mkdir(parents=True)
    for split, content in FACTS.items():
        (folder / f"{split}{suffix}").write_bytes(content)
    return folder


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def offer(server: FileServer, name: str = "Toy", **served: bytes) -> Dataset:
    """A dataset of three files on the local server, proven by digest and number of facts."""
    splits = {}
    for split, content in (FACTS | served).items():
        facts, digest = content_digest(FACTS[split])
        splits[split] = SplitFile(server.serve(f"/{split}.txt", Served(content)), facts, digest=digest)
    return Dataset(name, "A toy.", splits, note="free")


@pytest.mark.parametrize("name", ["FB15K237", "FB15k-237", "fb15k237", "fb15k_237"])
def test_a_name_is_found_whatever_its_case_and_hyphens(name: str) -> None:
    assert lookup(name) is TABLE["FB15K237"]


def test_an_alias_is_found() -> None:
    assert lookup("kinships") is TABLE["Kinship"]
    assert lookup("CoDExSmall") is TABLE["CoDEx-S"]


def test_no_two_datasets_answer_to_one_name() -> None:
    known = [name for dataset in TABLE.values() for name in (dataset.name, *dataset.aliases)]
    assert [lookup(name).name for name in known] == [
        dataset.name for dataset in TABLE.values() for _ in (dataset.name, *dataset.aliases)
    ]


def test_an_unknown_name_comes_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown path or dataset 'FB15K273'\. Nearest: 'FB15K237'"):
        resolve("FB15K273")


def test_every_entry_can_be_had_or_says_why_not() -> None:
    for dataset in TABLE.values():
        assert (tuple(dataset.splits) == SPLITS) == (not dataset.unavailable and dataset.name != "world")
        for file in dataset.splits.values():
            assert file.url.startswith("https://")
            assert file.verified_by != "nothing"


def test_an_entry_says_what_proves_it() -> None:
    assert TABLE["FB15K237"].verified_by == "file checksum and content digest"
    assert TABLE["WN18RR"].verified_by == "file checksum"
    assert TABLE["NELL23K"].verified_by == "content digest"
    assert TABLE["CoDEx-S"].verified_by == "number of facts only"
    assert TABLE["FB15K237-20"].verified_by == "train: number of facts only; valid, test: content digest"
    assert SplitFile("https://example.org/f").verified_by == TABLE["FB100K"].verified_by == "nothing"


def test_folders_of_squire_data_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = put(tmp_path / "two" / "fb15k-237")
    monkeypatch.setenv("SQUIRE_DATA", os.pathsep.join(map(str, (tmp_path / "none", tmp_path / "two"))))
    assert locate("FB15K237") == second
    first = put(tmp_path / "one" / "FB15K237")
    monkeypatch.setenv("SQUIRE_DATA", os.pathsep.join(map(str, (tmp_path / "one", tmp_path / "two"))))
    assert locate("FB15K237") == first
    assert resolve("fb15k-237") == first


def test_a_folder_of_ones_own_name_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path / "données")
    monkeypatch.setenv("SQUIRE_DATA", str(tmp_path))
    assert resolve("DONNÉES") == folder
    assert locate("donnees") is None


def test_a_folder_without_a_train_file_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "UMLS").mkdir()
    monkeypatch.setenv("SQUIRE_DATA", str(tmp_path))
    assert locate("UMLS") is None


def test_a_path_is_never_taken_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "UMLS")
    monkeypatch.setenv("SQUIRE_DATA", str(tmp_path))
    assert locate("elsewhere/UMLS") is None
    with pytest.raises(UnknownName, match="unknown path or dataset 'elsewhere/UMLS'"):
        resolve("elsewhere/UMLS")


def test_the_cache_is_searched_last(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = put(cache / "UMLS", ".tsv")
    assert locate("umls") == cached
    monkeypatch.setenv("SQUIRE_DATA", str(tmp_path / "own"))
    assert locate("umls") == cached
    own = put(tmp_path / "own" / "UMLS")
    assert locate("umls") == own


def test_the_cache_is_below_xdg_cache_home_or_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SQUIRE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert locate("UMLS") is None
    assert put(tmp_path / "xdg" / "squire" / "datasets" / "UMLS") == locate("UMLS")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert locate("UMLS") is None
    assert put(tmp_path / "me" / ".cache" / "squire" / "datasets" / "UMLS") == locate("UMLS")


def test_an_existing_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(put(tmp_path / "here" / "world").parent)
    assert resolve("world") == Path("world")


def test_the_package_brings_its_own_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(visible(resolve("world"))) >= {"train.tsv", "valid.tsv", "test.tsv"}
    monkeypatch.setattr(resources, "files", lambda package: tmp_path / package)
    with pytest.raises(DownloadError, match="world should be in the package but is not"):
        resolve("world", download=True)
    folder = put(tmp_path / "squire" / "data" / "world", ".tsv")
    assert resolve("world") == folder


def test_resolve_downloads_only_when_told_to() -> None:
    with pytest.raises(
        DownloadError, match=r"NELL23K is not on this machine\. Get it with: squire data fetch NELL23K"
    ):
        resolve("nell-23k")


@pytest.mark.parametrize("name", ["KACC-M", "FB100K"])
def test_what_cannot_be_downloaded_says_why_and_what_to_do(name: str) -> None:
    with pytest.raises(DownloadError, match=f"{name} cannot be downloaded: .*in a folder {name} in one of SQUIRE"):
        fetch_dataset(name)


def test_a_dataset_is_installed_whole_with_its_source(server: FileServer, cache: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    folder = install(offer(server), cache, progress=lambda *call: calls.append(call))
    assert visible(cache) == ["Toy"]
    assert visible(folder) == ["source.json", "test.tsv", "train.tsv", "valid.tsv"]
    assert {split: (folder / f"{split}.tsv").read_bytes() for split in SPLITS} == FACTS
    source = json.loads((folder / "source.json").read_text(encoding="utf-8"))
    assert source["splits"]["train"]["url"] == server.url("/train.txt")
    assert source["splits"]["train"]["verified_by"] == "content digest"
    assert source["sha256"]["test.tsv"] == hashlib.sha256(FACTS["test"]).hexdigest()
    assert [call[0] for call in calls] == ["train.txt", "valid.txt", "test.txt"]


def test_a_named_dataset_is_fetched_once(server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "Toy", offer(server))
    assert resolve("toy", download=True) == cache / "Toy"
    assert fetch_dataset("TOY") == cache / "Toy"
    assert len(server.log) == 3


def test_order_and_line_endings_do_not_matter_to_the_proof(server: FileServer, cache: Path) -> None:
    folder = install(offer(server, train=b"b\tr\tc\r\n\r\na\tr\tb\r\n"), cache)
    assert (folder / "train.tsv").read_bytes() == b"b\tr\tc\na\tr\tb\n"


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (b"a\tr\tb\n", r"train.txt: expected 2 facts, found 1\."),
        (b"a\tr\tb\nb\tr\td\n", "train.txt: expected content sha256:[0-9a-f]{64}, found sha256:"),
        (b"a\tr\tb\nb r c\n", "train.txt, line 2: expected head, relation and tail with tabs, found b'b r c'"),
        (b"<html>sorry</html>", "train.txt, line 1: expected head, relation and tail"),
    ],
)
def test_what_is_not_the_dataset_never_enters_the_cache(
    server: FileServer, cache: Path, train: bytes, words: str
) -> None:
    with pytest.raises(DownloadError, match=f"^Toy: .*{words}.*If you have it, put .* in a folder Toy"):
        install(offer(server, train=train), cache)
    assert visible(cache) == []
    assert install(offer(server), cache) == cache / "Toy"  # nothing bad was left to stumble over


def test_a_missing_file_leaves_nothing_and_says_what_to_do(server: FileServer, cache: Path) -> None:
    toy = offer(server)
    del server.files["/test.txt"]
    with pytest.raises(DownloadError, match=r"^Toy: .*404 Not Found.*in a folder Toy in one of SQUIRE_DATA"):
        install(toy, cache)
    assert visible(cache) == []


def test_two_at_the_same_time_do_not_disturb_each_other(server: FileServer, cache: Path) -> None:
    toy = offer(server)
    for served in server.files.values():
        served.chunk, served.pause = 4, 0.02
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: install(toy, cache), range(4)))
    assert set(folders) == {cache / "Toy"}
    assert {split: (cache / "Toy" / f"{split}.tsv").read_bytes() for split in SPLITS} == FACTS
    assert sorted(path.name for path in cache.iterdir()) == ["Toy"]


def test_something_else_in_the_place_of_the_folder_is_named(server: FileServer, cache: Path) -> None:
    (cache / "Toy").mkdir(parents=True)
    (cache / "Toy" / "mine").write_text("")
    with pytest.raises(DownloadError, match=r"Toy is in the way .*remove it"):
        install(offer(server), cache)
    assert [path.name for path in cache.iterdir()] == ["Toy"]


def test_a_cache_that_cannot_be_written_is_said_clearly(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"Toy: cannot write .*SQUIRE_CACHE"):
        install(offer(server), tmp_path / "file" / "datasets")


def test_the_listing_has_every_name_and_where_it_is(cache: Path) -> None:
    put(cache / "UMLS", ".tsv")
    rows = {row.name: row for row in list_datasets()}
    assert list(rows) == names()
    assert rows["UMLS"].where == str(cache / "UMLS")
    assert rows["UMLS"].facts == 6_529
    assert rows["WN18RR"].where == rows["pykeen:nations"].where == "download"
    assert rows["FB100K"].where == "not available"
    assert "no public copy" in rows["FB100K"].note


@pytest.mark.parametrize(("name", "facts"), [("pykeen:Nations", 1_992), ("PyKEEN:umls", 6_529)])
def test_a_dataset_of_pykeen_is_exported(cache: Path, name: str, facts: int) -> None:
    folder = resolve(name, download=True)
    assert folder == cache / name.lower().replace(":", "-")
    assert locate(name) == folder
    digests = {split: content_digest((folder / f"{split}.tsv").read_bytes()) for split in SPLITS}
    assert sum(number for number, _ in digests.values()) == facts
    if name.endswith("umls"):
        assert {split: digest for split, (_, digest) in digests.items()} == {
            split: file.digest for split, file in TABLE["UMLS"].splits.items()
        }
    source = json.loads((folder / "source.json").read_text(encoding="utf-8"))
    assert source["splits"]["test"]["verified_by"] == "nothing"
    assert source["splits"]["test"]["from"].startswith("PyKEEN 1.")


def test_an_unknown_name_of_pykeen_comes_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown path or dataset 'pykeen:natoins'\. Nearest: 'pykeen:nations'"):
        resolve("pykeen:natoins")


def test_what_pykeen_cannot_load_is_said_clearly(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pykeen.datasets import dataset_resolver

    def fail(*_: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(dataset_resolver, "make", fail)
    with pytest.raises(DownloadError, match=r"pykeen:wn18: PyKEEN could not load it \(no route to host\)"):
        fetch_dataset("pykeen:wn18")
    assert not cache.exists()


def test_without_pykeen_the_rest_works_and_its_names_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen.datasets", None)
    assert names() == list(TABLE)
    with pytest.raises(DownloadError, match=r"pip install 'squire-kg\[pykeen\]'"):
        fetch_dataset("pykeen:nations")


def test_importing_and_locating_need_neither_pykeen_nor_torch() -> None:
    code = "import sys; from squire.graph.benchmarks import datasets; datasets.locate('pykeen:nations')\n"
    code += "sys.exit(' '.join({'pykeen', 'torch'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr.strip() == ""


def test_the_digest_is_that_of_the_sorted_different_lines() -> None:
    expected = hashlib.sha256("a\tr\tb\né\tr\tb\n".encode()).hexdigest()
    for text in ("é\tr\tb\na\tr\tb\na\tr\tb\n", "a\tr\tb\r\né\tr\tb"):
        assert content_digest(text.encode()) == (2, expected)


def test_the_table_agrees_with_the_files_that_are_on_this_machine() -> None:
    package = Path(str(resources.files("pykeen") / "datasets"))
    sources = {"UMLS": package / "umls", "Kinship": package / "kinships"}
    sources |= {name: KG / name for name in TABLE if (KG / name).is_dir()}
    for name, folder in sources.items():
        for split, file in TABLE[name].splits.items():
            content = (folder / f"{split}.txt").read_bytes()
            facts, digest = content_digest(content)
            assert (name, split, facts, file.digest or digest) == (name, split, file.facts, digest)
            crlf = content.replace(b"\n", b"\r\n")  # as FB15K237 is published
            sums = {"sha256:" + hashlib.sha256(content).hexdigest(), "md5:" + hashlib.md5(crlf).hexdigest()}
            assert file.checksum is None or file.checksum in sums
    assert {"UMLS", "Kinship"} <= set(sources)
    assert TABLE["NELL23K"].facts == 35_358
