"""RDF in and out, by pyoxigraph. A label is an IRI, `_:name` (blank node), or a literal as N-Triples writes it.

Other labels (such as `New York` from a TSV) are written as IRIs of a namespace of squire's own, and become
themselves again when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote
from xml.parsers import expat

import pyoxigraph as ox

from squire.core.files import format_suffix, line_blocks, open_bytes
from squire.graph.checking import Fault, Report
from squire.graph.formats.delimited import ROWS_PER_BLOCK, ReadOptions, open_past_bom
from squire.graph.triples import Block

MINTED = "urn:squire:"
VOCABULARY = "urn:squire-vocabulary:"  # of statements about predictions
REIFIER = f"{VOCABULARY}prediction:"  # of a predicted triple
NO_ELEMENT = "no element found"  # expat's message when a document ends early
# The random name that pyoxigraph gives to a blank node without a name in the file.
RANDOM_NAME = re.compile("_:[a-f][0-9a-f]{23,31}")
LINE_FORMATS = {
    ".nt": ox.RdfFormat.N_TRIPLES,
    ".ntriples": ox.RdfFormat.N_TRIPLES,
    ".nq": ox.RdfFormat.N_QUADS,
}
OTHER_FORMATS = {
    ".ttl": ox.RdfFormat.TURTLE,
    ".trig": ox.RdfFormat.TRIG,
    ".rdf": ox.RdfFormat.RDF_XML,
    ".owl": ox.RdfFormat.RDF_XML,
    ".xml": ox.RdfFormat.RDF_XML,
}


def read_rdf(path: Path, options: ReadOptions, report: Report, prefixes: dict[str, str]) -> Iterator[Block]:
    """Any RDF format by its suffix; the prefixes it declares are added to `prefixes`."""
    suffix = format_suffix(path)
    read = _read_lines if suffix in LINE_FORMATS else partial(_read_whole, prefixes=prefixes)
    rows: list[tuple[str, str, str]] = []
    positions: list[int] = []
    nameless: dict[str, str] = {}
    stem = re.sub("[^A-Za-z0-9]", "-", path.name.partition(".")[0])
    for number, where, quad in read(path, report):
        row = _labels(quad, options.literals, where, report)
        if row:
            if suffix in OTHER_FORMATS:
                row = _stable(row, nameless, stem)
            rows.append(row)
            positions.append(number)
        if len(rows) == ROWS_PER_BLOCK:
            yield Block.from_rows(rows, positions)
            rows, positions = [], []
    if rows:
        yield Block.from_rows(rows, positions)


def _read_lines(path: Path, report: Report) -> Iterator[tuple[int, str, ox.Quad]]:
    """N-Triples and N-Quads have one statement a line, so every statement's line is known."""
    rdf_format = LINE_FORMATS[format_suffix(path)]
    number = 0
    with open_past_bom(path, report) as stream:
        for block in line_blocks(stream):
            for line in block.splitlines():
                number += 1
                where = f"{path}:{number}"
                try:
                    for quad in ox.parse(line, rdf_format):
                        yield number, where, quad
                except SyntaxError as error:
                    report.add(*_fault_of(error, where))


def _read_whole(path: Path, report: Report, prefixes: dict[str, str]) -> Iterator[tuple[int, str, ox.Quad]]:
    """Formats whose statements have no line of their own: positions count statements."""
    rdf_format = OTHER_FORMATS[format_suffix(path)]
    if rdf_format == ox.RdfFormat.RDF_XML and not _check_xml(path, report, prefixes):
        return
    with open_past_bom(path, report) as stream:
        parser = ox.parse(stream, rdf_format)
        try:
            for number, quad in enumerate(parser, 1):
                yield number, f"{path}, statement {number}", quad
        except SyntaxError as error:
            # The parser cannot continue after an error.
            report.add(*_fault_of(error, f"{path}:{error.lineno}" if error.lineno else str(path)))
        prefixes.update(parser.prefixes)


def _check_xml(path: Path, report: Report, prefixes: dict[str, str]) -> bool:
    """Whether it is well-formed; pyoxigraph gives no line, accepts a file that ends early, and drops prefixes."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartNamespaceDeclHandler = lambda prefix, uri: prefixes.setdefault(prefix or "", uri or "")
    with open_bytes(path) as stream:
        try:
            while chunk := stream.read(1 << 16):
                parser.Parse(chunk)
            if parser.CurrentByteIndex > 0:  # an empty file is reported elsewhere
                parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            early = "the document ends before its elements do"
            report.add(Fault.SYNTAX, f"{path}:{error.lineno}", early if reason == NO_ELEMENT else reason)
            return False
    return True


def _fault_of(error: SyntaxError, where: str) -> tuple[Fault, str, str]:
    """The parser's message, without its own description of the position."""
    text = str(error.msg)
    reason = text.partition(": ")[2] or text if text.startswith("Parser error at") else text
    return Fault.ENCODING if "UTF-8" in reason else Fault.SYNTAX, where, reason


def _labels(quad: ox.Quad, literals: bool, where: str, report: Report) -> tuple[str, str, str] | None:
    head, tail = label_of(quad.subject), label_of(quad.object)
    if head is None or tail is None or head.startswith(REIFIER):
        report.add(Fault.QUOTED, where)
        return None
    if isinstance(quad.object, ox.Literal) and not literals:
        report.add(Fault.LITERAL, where, tail[:80])
        return None
    return head, label_of(quad.predicate) or "", tail


def _stable(row: tuple[str, str, str], nameless: dict[str, str], stem: str) -> tuple[str, str, str]:
    """Name blank nodes without a name in order of appearance, so that the same file gives the same graph."""
    head, relation, tail = (
        nameless.setdefault(label, f"_:{stem}-anon-{len(nameless) + 1}") if RANDOM_NAME.fullmatch(label) else label
        for label in row
    )
    return head, relation, tail


def label_of(term: object) -> str | None:
    """The label of a term; None for a statement about a statement."""
    if isinstance(term, ox.NamedNode):
        iri = term.value
        label = unquote(iri.removeprefix(MINTED)) if iri.startswith(MINTED) else ""
        # Only what `term_of` could have written: two IRIs must not become one label, or an empty one.
        return label if label and term_of(label, may_be_blank=False) == f"<{iri}>" else iri
    return str(term) if isinstance(term, (ox.BlankNode, ox.Literal)) else None


def term_of(label: str, may_be_literal: bool = False, may_be_blank: bool = True) -> str:
    """A label as N-Triples writes it, such that `label_of` gives the label back."""
    if may_be_literal and label.startswith('"') and _is_literal(label):
        return label
    if may_be_blank and label.startswith("_:") and _accepts(ox.BlankNode, label[2:]):
        return label
    if not label.startswith(MINTED) and _accepts(ox.NamedNode, label):
        return f"<{label}>"
    return f"<{MINTED}{quote(label, safe='')}>"


def _accepts(kind: Callable[[str], object], value: str) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _is_literal(label: str) -> bool:
    try:
        quads = list(ox.parse(f"<urn:s> <urn:p> {label} .", ox.RdfFormat.N_TRIPLES))
    except SyntaxError:
        return False
    return len(quads) == 1 and str(quads[0].object) == label
