"""The named benchmarks: where each comes from, and how its files are verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class SplitFile:
    """The file of one split at its source, and what is known about it."""

    url: str
    facts: int | None = None  # distinct ones
    checksum: str | None = None  # of the bytes at `url`: sha256:… or md5:…
    digest: str | None = None  # of the facts, see `content_digest`

    @property
    def verified_by(self) -> str:
        """How a download of it is verified."""
        checks = {"file checksum": self.checksum, "content digest": self.digest}
        words = " and ".join(word for word, known in checks.items() if known is not None)
        return words or ("number of facts only" if self.facts is not None else "nothing")


@dataclass(frozen=True)
class Dataset:
    """A benchmark by name."""

    name: str
    title: str
    splits: Mapping[str, SplitFile] = field(default_factory=dict)
    note: str = ""  # licence and citation, as far as known
    aliases: tuple[str, ...] = ()
    unavailable: str = ""  # why it cannot be downloaded; empty if it can

    @property
    def facts(self) -> int | None:
        """Facts in all splits; None if the source does not say."""
        numbers = [file.facts for file in self.splits.values()]
        return sum(n for n in numbers if n is not None) if numbers and None not in numbers else None

    @property
    def verified_by(self) -> str:
        """How a download is verified, for each split if that differs."""
        kinds: dict[str, list[str]] = {}
        for split, file in self.splits.items():
            kinds.setdefault(file.verified_by, []).append(split)
        if len(kinds) == 1:
            return next(iter(kinds))
        return "; ".join(f"{', '.join(splits)}: {kind}" for kind, splits in kinds.items()) or "nothing"


def _files(
    base: str,
    facts: Sequence[int],
    digests: Sequence[str | None] = (None, None, None),
    checksums: Sequence[str | None] = (None, None, None),
) -> dict[str, SplitFile]:
    """`base`train.txt and so on, with what is known about each in the order of SPLITS."""
    return {
        split: SplitFile(f"{base}{split}.txt", facts[i], checksums[i], digests[i])
        for i, split in enumerate(SPLITS)
    }


# Addresses are pinned to a commit or a tag. The digests were computed from public copies.
_RAW = "https://raw.githubusercontent.com"
_SQUIRE = f"{_RAW}/bys0318/SQUIRE/448db4d56d679ce38c13f460be6aa25fd43220f3/data"
_ROTATE = f"{_RAW}/DeepGraphLearning/KnowledgeGraphEmbedding/617062aaedf53bf4d6b44450a580a96dc30e0632/data"
_CODEX = f"{_RAW}/tsafavi/codex/e805ea2f512d7f0f8e44f213bc4db51dac0de118/data/triples"
_PYKEEN = f"{_RAW}/pykeen/pykeen/v1.11.1/src/pykeen/datasets"
_CODEX_NOTE = "Safavi and Koutra 2020; from Wikidata (CC0). No checksums are published."

# One value a line would take three screens.
# fmt: off
TABLE: dict[str, Dataset] = {dataset.name: dataset for dataset in (
    Dataset("world", "A small graph of the countries of the world; included in the package."),
    Dataset("FB15K237", "Freebase less its inverse relations, standard split.", _files(
        f"{_ROTATE}/FB15k-237/", (272_115, 17_535, 20_466),
        ("8d2a771809b0f38f2824c839f25ec57e3a187405049112751e72c82ee9eb3e12",
         "1c4febacc6daabc6f3f8e72650935126ef208b098be3a90a81780ba69401836d",
         "a7156e4560d173ee2e3e8504c490e95d14fa893f1863a6d584d2f5053489a647"),
        ("md5:c05b87b9ac00f41901e016a2092d7837", "md5:6a94efd530e5f43fcf84f50bc6d37b69",
         "md5:f5bdf63db39f455dec0ed259bb6f8628")),
        "Toutanova and Chen 2015; from Freebase (CC BY). Checksums as torchdrug and AmpliGraph give them."),
    Dataset("NELL995", "NELL, the split of the SQUIRE paper.", _files(
        f"{_SQUIRE}/NELL995/", (117_937, 7_377, 7_392),
        (None,
         "9cb1cd331066753b536ee6ed064d4212b1b5fde68288a230abc8dd677b72626b",
         "fa892db176f42791e381b17d0fd24564ccd9b32abd248ed19ad224923fb7f813")),
        "Xiong et al. 2017, Bai et al. 2022; no licence stated. Nothing is published to verify train."),
    Dataset("FB15K237-20", "A fifth of FB15K237's train, the split of the SQUIRE paper.", _files(
        f"{_SQUIRE}/FB15K237-20/", (54_423, 16_963, 19_776),
        (None,
         "6bf3a5a463ffdd7cda5dcb43c5c1a0c92d307fce5aae2a5ef69f5756419a339a",
         "ba6e79adeab55395b14be9ece6515a87497cd6df2b6a48d989b0ba0949031f8a")),
        "Lv et al. 2020; from Freebase (CC BY). Nothing is published to verify train."),
    Dataset("NELL23K", "Sparse NELL, the split of the SQUIRE paper.", _files(
        f"{_SQUIRE}/NELL23K/", (25_445, 4_961, 4_952),
        ("ed5982994c5476640f4abd8f1b9c206a845ebb12a0201865c713b6609570114e",
         "bc2fc2b3f46fb65cff3c82d25d10224fe765f7c63b3a9586fc26b6b7026cb636",
         "9238badd7e75bcafcf5af1869b29739f6d206a04c3fcfec3b8885d4fd93ebccd")),
        "Lv et al. 2020; no licence stated."),
    Dataset("KACC-M", "Wikidata, a larger graph of the SQUIRE paper.", note="Zhou et al. 2021.", unavailable=(
        "Its authors (thunlp/KACC) publish it in splits by task, and the SQUIRE paper's repository has no copy of "
        "the one it used.")),
    Dataset("FB100K", "Freebase, a larger graph of the SQUIRE paper.", unavailable=(
        "The paper's repository does not have it, and no public copy is known.")),
    Dataset("WN18RR", "WordNet less its inverse relations.", _files(
        f"{_ROTATE}/wn18rr/", (86_835, 3_034, 3_134), checksums=(
            "md5:35e81af3ae233327c52a87f23b30ad3c", "md5:74a2ee9eca9a8d31f1a7d4d95b5e0887",
            "md5:2b45ba1ba436b9d4ff27f1d3511224c9")),
        "Dettmers et al. 2018; WordNet licence. Checksums as torchdrug gives them."),
    Dataset("CoDEx-S", "Wikidata, small.", _files(
        f"{_CODEX}/codex-s/", (32_888, 1_827, 1_828)),
        _CODEX_NOTE, ("CoDExSmall",)),
    Dataset("CoDEx-M", "Wikidata, medium.", _files(
        f"{_CODEX}/codex-m/", (185_584, 10_310, 10_311)),
        _CODEX_NOTE, ("CoDExMedium",)),
    Dataset("CoDEx-L", "Wikidata, large.", _files(
        f"{_CODEX}/codex-l/", (551_193, 30_622, 30_622)),
        _CODEX_NOTE, ("CoDExLarge",)),
    Dataset("UMLS", "A semantic network of medicine.", _files(
        f"{_PYKEEN}/umls/", (5_216, 652, 661),
        ("de6801fd5ca13372b5a0f314462fac674346badc292462c58e2f2852c147534f",
         "64c7771d5b5e2b5d76eaf93c758b45130c89cf419c5b963689956209ec213c95",
         "cc119a3289e7f3a4f389b9f9e42d76e36a305f48ae5292315cfd0488083a2e14"),
        ("sha256:873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
         "sha256:025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
         "sha256:a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014")),
        "Kok and Domingos 2007. Checksums of the files in PyKEEN 1.11.1's wheel."),
    Dataset("Kinship", "Who is what to whom among the Alyawarra.", _files(
        f"{_PYKEEN}/kinships/", (8_544, 1_068, 1_074),
        ("ebbbfcdbc08e6e9c9c4f8a40e4eb60ac25e105d6f65bb7f4c7234cf9c5f4a539",
         "e4f7d94a2bc5373e7306edcc42458a99a9ef4218c7cd0137a47db10dd1c2b88b",
         "1d2f6e45db7d59ef6e92822f73fd4350cb0bfa2f043c3fa054aa05a0b4bdd821"),
        ("sha256:738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
         "sha256:c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
         "sha256:05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88")),
        "Kemp et al. 2006. Checksums of the files in PyKEEN 1.11.1's wheel.", ("Kinships",)),
)}
