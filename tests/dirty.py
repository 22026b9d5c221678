"""Dirty data, one fault at a time: what `test_check` and the command line are held against."""

import io
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from graphs import compress, write

from squire.graph.checking import Fault

GOOD = "a\tr\tb\nb\tr\tc\n"


@dataclass
class Case:
    """An input and the one kind of fault that it has."""

    name: str
    files: dict[str, str | bytes]
    fault: Fault
    places: list[str]  # below the folder
    count: int = 1
    detail: str = ""  # a pattern that the first example matches


def parquet(**columns: list[str | None]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def folder(
    train: str | bytes = GOOD, valid: str | bytes = "a\tr\tc\n", test: str | bytes = "c\tr\ta\n"
) -> dict[str, str | bytes]:
    return {"train.txt": train, "valid.txt": valid, "test.txt": test}


OPENKE: dict[str, str | bytes] = {
    "entity2id.txt": "2\na\t0\nb\t1\n",
    "relation2id.txt": "3\nr\t0\ns\t1\nq\t2\n",
    "train2id.txt": "3\n0 1 0\n0 1 1\n0 1 2\n",
    "valid2id.txt": "1\n1 0 0\n",
    "test2id.txt": "1\n1 0 1\n",
}
TURTLE = "@prefix e: <e:> .\ne:a e:p e:b .\n"
XML = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="e:">\n<e:C rdf:about="e:a"/>\n'
# Head, tail, relation, which nothing in the file says.
SWAPPED: dict[str, str | bytes] = {
    "train.csv": "".join(f"h{i},t{i},r\n" for i in range(30)),
    "valid.csv": "h0,t1,r\n",
    "test.csv": "h0,t2,r\n",
}
SWAPPED_PARQUET: dict[str, str | bytes] = {
    f"{split}.parquet": parquet(a=[f"h{i}" for i in heads], b=[f"t{i}" for i in tails], c=["r"] * len(heads))
    for split, heads, tails in (("train", range(30), range(30)), ("valid", [0], [1]), ("test", [0], [2]))
}
MANY = "".join(f"e{i}\tr\te{i + 1}\n" for i in range(500))

FATAL = [
    Case(
        "too few columns",
        folder(GOOD + "a\tr\n"),
        Fault.COLUMNS,
        ["train.txt:3"],
        detail="found 2 columns in 'a.tr'",
    ),
    Case("too many columns", folder(test="a\tr\tc\td\n"), Fault.COLUMNS, ["test.txt:1"], detail="found 4 columns"),
    Case("another separator", folder("a r b\nb r c"), Fault.COLUMNS, ["train.txt:1", "train.txt:2"], 2),
    Case(
        "columns in CSV", {"x.csv": "a,r,b\na,r\n"}, Fault.COLUMNS, ["x.csv:2"], detail="found 2 columns in 'a,r'"
    ),
    Case(
        "columns in Parquet",
        {"x.parquet": parquet(a=["b"], c=["d"])},
        Fault.COLUMNS,
        ["x.parquet"],
        detail="are a, c",
    ),
    Case("columns in OpenKE", OPENKE | {"train2id.txt": "1\n0 1\n"}, Fault.COLUMNS, ["train2id.txt:2"]),
    Case("empty head", folder("\tr\tb\n" + GOOD), Fault.EMPTY_FIELD, ["train.txt:1"], detail="'.tr.tb'"),
    Case("empty relation", folder(GOOD + "a\t\tb\n"), Fault.EMPTY_FIELD, ["train.txt:3"]),
    Case("empty tail", folder(GOOD + "a\tr\t"), Fault.EMPTY_FIELD, ["train.txt:3"]),
    Case("empty fields only", folder("\t\t\n" + GOOD), Fault.EMPTY_FIELD, ["train.txt:1"]),
    Case("empty field in CSV", {"x.csv": 'a,r,b\na,"",b\n'}, Fault.EMPTY_FIELD, ["x.csv:2"]),
    Case(
        "empty field in Parquet",
        {"x.parquet": parquet(head=["a", "b", None], relation=["r", "", "r"], tail=["b", "c", "d"])},
        Fault.EMPTY_FIELD,
        ["x.parquet, row 2", "x.parquet, row 3"],
        2,
    ),
    Case(
        "empty label in OpenKE",
        OPENKE | {"entity2id.txt": "2\na\t0\n\t1\n"},
        Fault.EMPTY_FIELD,
        ["entity2id.txt:3"],
        detail="id 1 has no label",
    ),
    Case(
        "bad UTF-8",
        folder(GOOD.encode() + b"a\tr\tM\xfcnchen\n"),
        Fault.ENCODING,
        ["train.txt:3"],
        detail="M.nchen",
    ),
    Case("bad UTF-8 in CSV", {"x.csv": b"a,r,b\na,r,M\xfcnchen\n"}, Fault.ENCODING, ["x.csv:2"]),
    Case("bad UTF-8 in N-Triples", {"x.nt": b"<e:a> <e:p> <e:\xff> .\n"}, Fault.ENCODING, ["x.nt:1"]),
    Case("bad UTF-8 in Turtle", {"x.ttl": TURTLE.encode() + b'e:a e:p "\xff" .'}, Fault.ENCODING, ["x.ttl:3"]),
    Case(
        "bad UTF-8 in OpenKE",
        OPENKE | {"entity2id.txt": b"2\na\t0\nM\xfcnchen\t1\n"},
        Fault.ENCODING,
        ["entity2id.txt:3"],
        detail="M.nchen",
    ),
    Case("NUL", folder(GOOD + "a\tr\tb\0c\n"), Fault.NUL, ["train.txt:3"], detail=r"a r b\\x00c$"),
    Case(
        "NUL in a relation",
        folder(valid="a\tr\0\tc\n", train=GOOD + "a\tr\0\tb\n"),
        Fault.NUL,
        ["train.txt:3", "valid.txt:1"],
        2,
    ),
    Case("NUL in CSV", {"x.csv": "a,r,b\n\0,r,b\n"}, Fault.NUL, ["x.csv:2"]),
    Case(
        "NUL in Parquet",
        {"x.parquet": parquet(head=["a", "b"], relation=["r", "r"], tail=["b", "\0"])},
        Fault.NUL,
        ["x.parquet, row 2"],
    ),
    Case("NUL in OpenKE", OPENKE | {"relation2id.txt": "3\nr\t0\ns\t1\nq\0\t2\n"}, Fault.NUL, ["train2id.txt:4"]),
    Case("no triples", folder(""), Fault.EMPTY, ["train.txt"]),
    Case("an empty file", {"x.tsv": ""}, Fault.EMPTY, ["x.tsv"]),
    Case("an empty CSV", {"x.csv": ""}, Fault.EMPTY, ["x.csv"]),
    Case("an empty N-Triples file", {"x.nt": "# nothing\n"}, Fault.EMPTY, ["x.nt"]),
    Case("an empty RDF/XML file", {"x.rdf": ""}, Fault.EMPTY, ["x.rdf"]),
    Case("an empty compressed file", {"x.tsv.gz": ""}, Fault.EMPTY, ["x.tsv.gz"]),
    Case("no train split", {"test.txt": GOOD, "valid.txt": GOOD}, Fault.MISSING_TRAIN, [""], detail="train"),
    Case(
        "no train split in OpenKE", {k: v for k, v in OPENKE.items() if k[:2] != "tr"}, Fault.MISSING_TRAIN, [""]
    ),
    Case(
        "unknown format",
        {"x.docx": "a"},
        Fault.BROKEN,
        ["x.docx"],
        detail=r"unknown format '\.docx'; known: .*\.tsv",
    ),
    Case("no Parquet file", {"x.parquet": b"PAR2"}, Fault.BROKEN, ["x.parquet"]),
    Case(
        "OpenKE without relations",
        {k: v for k, v in OPENKE.items() if k[:2] != "re"},
        Fault.BROKEN,
        [""],
        detail=r"relation2id\.txt",
    ),
    Case(
        "OpenKE count",
        OPENKE | {"train2id.txt": "7\n0 1 0\n"},
        Fault.SYNTAX,
        ["train2id.txt:1"],
        detail="says '7' lines follow, found 1",
    ),
    Case(
        "OpenKE label count",
        OPENKE | {"entity2id.txt": "3\na 0\nb 1\n"},
        Fault.SYNTAX,
        ["entity2id.txt:1"],
        detail="says '3'",
    ),
    Case(
        "OpenKE id too large",
        OPENKE | {"train2id.txt": "1\n0 2 0\n"},
        Fault.SYNTAX,
        ["train2id.txt:2"],
        detail="expected ids below 2 2 3, found 0 2 0",
    ),
    Case(
        "OpenKE id no number",
        OPENKE | {"test2id.txt": "1\n0 ² 0\n"},
        Fault.SYNTAX,
        ["test2id.txt:2"],
        detail="found 0 ² 0",
    ),
    Case(
        "OpenKE gap",
        OPENKE | {"entity2id.txt": "2\na 0\nb 2\n"},
        Fault.SYNTAX,
        ["entity2id.txt"],
        detail="without gaps, but 1 is missing",
    ),
    Case(
        "OpenKE id twice",
        OPENKE | {"entity2id.txt": "3\na 0\nb 1\nc 1\n"},
        Fault.SYNTAX,
        ["entity2id.txt:4"],
        detail="an id of its own",
    ),
    Case(
        "OpenKE label twice",
        OPENKE | {"entity2id.txt": "2\na 0\na 1\n"},
        Fault.SYNTAX,
        ["entity2id.txt:3"],
        detail="ids 0 and 1 have the same label 'a'",
    ),
    Case("OpenKE label without id", OPENKE | {"entity2id.txt": "2\na 0\nb\n"}, Fault.SYNTAX, ["entity2id.txt:3"]),
    Case(
        "CSV quote left open",
        {"x.csv": 'a,r,b\n"a,r,c\nd,r,e\n'},
        Fault.SYNTAX,
        ["x.csv:3"],
        detail="unexpected end of data",
    ),
    Case(
        "N-Triples",
        {"x.nt": "<e:a> <e:p> <e:b> .\n<e:a> <e:p>\n<e:b> <e:p> <e:c> .\nx\n"},
        Fault.SYNTAX,
        ["x.nt:2", "x.nt:4"],
        2,
    ),
    Case("N-Quads", {"x.nq": "<e:a> <e:p> <e:b> <e:g> .\n<e:a>\n"}, Fault.SYNTAX, ["x.nq:2"]),
    Case("Turtle", {"x.ttl": TURTLE + "e:a e:p\n e:b e:c .\n"}, Fault.SYNTAX, ["x.ttl:4"]),
    Case("Turtle that breaks off", {"x.ttl": TURTLE + "e:a e:p "}, Fault.SYNTAX, ["x.ttl:3"]),
    Case("RDF/XML", {"x.rdf": XML + "</wrong>\n"}, Fault.SYNTAX, ["x.rdf:3"], detail="mismatched tag"),
    Case(
        "RDF/XML that breaks off", {"x.rdf": XML}, Fault.SYNTAX, ["x.rdf:3"], detail="ends before its elements do"
    ),
    Case(
        "RDF/XML that is no RDF",
        {"x.rdf": XML + '<e:C rdf:ID="a b"/></rdf:RDF>'},
        Fault.SYNTAX,
        ["x.rdf"],
        detail="rdf:ID",
    ),
    *(
        Case(
            f"truncated {suffix}",
            {f"x.tsv{suffix}.cut": compress(MANY.encode(), suffix)[:-40]},
            Fault.BROKEN,
            [f"x.tsv{suffix}"],
        )
        for suffix in (".gz", ".xz", ".zst")
    ),
    Case("corrupt gzip", {"x.nt.gz.cut": b"no gzip at all"}, Fault.BROKEN, ["x.nt.gz"]),
    Case(
        "truncated xz of CSV", {"x.csv.xz.cut": compress(b"a,r,b\n" * 9, ".xz")[:-9]}, Fault.BROKEN, ["x.csv.xz"]
    ),
]

TWINS = "a\tover\tb\nb\tunder\ta\nc\tover\td\nd\tunder\tc\ne\tover\tf\n"
HARMLESS = [
    Case("byte order mark", folder("\ufeff" + GOOD), Fault.BOM, ["train.txt:1"]),
    Case("byte order mark in CSV", {"x.csv": "\ufeffa,r,b\n"}, Fault.BOM, ["x.csv:1"]),
    Case("byte order mark in N-Triples", {"x.nt": "\ufeff<e:a> <e:p> <e:b> ."}, Fault.BOM, ["x.nt:1"]),
    Case("byte order mark in Turtle", {"x.ttl": "\ufeff" + TURTLE}, Fault.BOM, ["x.ttl:1"]),
    Case("byte order mark in RDF/XML", {"x.rdf": f"\ufeff{XML}</rdf:RDF>"}, Fault.BOM, ["x.rdf:1"]),
    Case(
        "byte order mark in OpenKE",
        OPENKE | {"entity2id.txt": "\ufeff2\na 0\nb 1\n"},
        Fault.BOM,
        ["entity2id.txt:1"],
    ),
    Case("Windows line ends", folder("a\tr\tb\nb\tr\tc\r\nc\tr\td\r\n"), Fault.CRLF, ["train.txt:2"], 2),
    Case(
        "Windows line ends in OpenKE",
        OPENKE | {"train2id.txt": "3\r\n0 1 0\n0 1 1\r\n0 1 2\n"},
        Fault.CRLF,
        ["train2id.txt:1"],
        2,
    ),
    Case("a carriage return at the very end", folder(GOOD + "c\tr\td\r"), Fault.CRLF, ["train.txt:3"]),
    Case(
        "header",
        folder("subject\tpredicate\tobject\n" + GOOD),
        Fault.HEADER,
        ["train.txt:1"],
        detail="'subject.tpredicate.tobject'",
    ),
    Case(
        "blank lines",
        folder("\na\tr\tb\n\n\nb\tr\tc\n\n"),
        Fault.BLANK,
        ["train.txt:1", "train.txt:3", "train.txt:4", "train.txt:6"],
        4,
    ),
    Case("blank line in CSV", {"x.csv": "a,r,b\n\nb,r,c\n"}, Fault.BLANK, ["x.csv:2"]),
    Case(
        "blank line in OpenKE",
        OPENKE | {"train2id.txt": "3\n\n0 1 0\n0 1 1\n0 1 2\n"},
        Fault.BLANK,
        ["train2id.txt:2"],
    ),
    Case(
        "literals",
        {"x.nt": '<e:a> <e:p> <e:b> .\n<e:a> <e:p> "b" .\n<e:a> <e:p> "c" .\n'},
        Fault.LITERAL,
        ["x.nt:2", "x.nt:3"],
        2,
        '"b"',
    ),
    Case("literals in Turtle", {"x.ttl": TURTLE + "e:a e:p 5 .\n"}, Fault.LITERAL, ["x.ttl, statement 2"]),
    Case(
        "duplicates",
        folder("a\tr\tb\nb\tr\tc\na\tr\tb\na\tr\tb\n"),
        Fault.DUPLICATE,
        ["train.txt:3", "train.txt:4"],
        2,
        "a r b",
    ),
    Case(
        "duplicates in Parquet",
        {"x.parquet": parquet(head=["a", "a"], relation=["r", "r"], tail=["b", "b"])},
        Fault.DUPLICATE,
        ["x.parquet, row 2"],
    ),
    Case("duplicates in Turtle", {"x.ttl": TURTLE + "e:a e:p e:b .\n"}, Fault.DUPLICATE, ["x.ttl, statement 2"]),
    Case(
        "control characters",
        folder("a\tr\tb\x07\nb\x07\tr\tc\x1b[2J\n", "a\tr\tc\x1b[2J\n", "c\x1b[2J\tr\ta\n"),
        Fault.CONTROL,
        ["train.txt:1", "train.txt:2", "valid.txt:1", "test.txt:1"],
        4,
        r"a r b\\x07$",
    ),
    Case("a name of two lines", {"x.csv": 'a,r,b\na,r,"b\nc"\n'}, Fault.CONTROL, ["x.csv:3"]),
    Case("columns in an unknown order", SWAPPED, Fault.ORDER, ["train.csv"], detail="30 relations, 31 entities"),
    Case("columns of Parquet in an unknown order", SWAPPED_PARQUET, Fault.ORDER, ["train.parquet"]),
    Case("an empty split", folder(valid=""), Fault.EMPTY_SPLIT, ["valid.txt"]),
    Case(
        "a missing split", {"train.txt": GOOD, "test.txt": "c\tr\ta\n"}, Fault.MISSING_SPLIT, [""], detail="valid"
    ),
    Case("only train", {"train.txt": GOOD}, Fault.MISSING_SPLIT, ["", ""], 2),
    Case(
        "a missing split of OpenKE",
        {k: v for k, v in OPENKE.items() if k[:2] != "te"},
        Fault.MISSING_SPLIT,
        [""],
        detail="test",
    ),
]
SUSPICIOUS = [
    Case("self-loops", folder(GOOD + "c\tr\tc\n"), Fault.SELF_LOOP, ["train.txt:3"], detail="c r c"),
    Case("a test triple in train", folder(test="c\tr\ta\nb\tr\tc\n"), Fault.LEAK, ["test.txt:2"], detail="b r c"),
    Case("a valid triple in train", folder(valid="a\tr\tb\n"), Fault.LEAK, ["valid.txt:1"]),
    Case("a test triple in valid", folder(test="a\tr\tc\n"), Fault.LEAK, ["test.txt:1"]),
    Case(
        "a test triple whose inverse twin stands in train",
        folder(TWINS, "a\tover\td\n", "c\tover\tb\nf\tunder\te\n"),
        Fault.INVERSE_LEAK,
        ["test.txt:2"],
        detail="f under e",
    ),
    Case(
        "a test triple whose reverse stands in train under a symmetric relation",
        folder(
            "a\tnear\tb\nb\tnear\ta\nc\tnear\td\nd\tnear\tc\ne\tnear\tf\n",
            "a\tnear\tc\n",
            "f\tnear\te\na\tnear\te\n",
        ),
        Fault.INVERSE_LEAK,
        ["test.txt:1"],
    ),
    Case(
        "entities unseen in train",
        folder(test="x\tr\ty\nx\tr\tb\nb\tr\tz\n"),
        Fault.UNSEEN_ENTITY,
        ["test.txt:1", "test.txt:1", "test.txt:3"],
        3,
        "x$",
    ),
    Case(
        "a relation unseen in train",
        folder(valid="a\tq\tc\n"),
        Fault.UNSEEN_RELATION,
        ["valid.txt:1"],
        detail="q$",
    ),
]


def lay_out(case: Case, home: Path) -> Path:
    """Write the files; a path to the only one, or to the folder. `.cut` leaves the bytes as they are."""
    for name, content in case.files.items():
        if name.endswith(".cut"):
            data = content if isinstance(content, bytes) else content.encode()
            (home / name.removesuffix(".cut")).write_bytes(data)
        else:
            write(home / name, content)
    return next(home.iterdir()) if len(case.files) == 1 and "train.txt" not in case.files else home
