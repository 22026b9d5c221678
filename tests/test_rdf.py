"""RDF: literals on request, prefixes for display, blank nodes that keep their names, labels that are no IRIs."""

from pathlib import Path

import pyoxigraph as ox
import pytest
from graphs import facts_of, write
from hypothesis import given
from hypothesis import strategies as st

from squire.graph.checking import Fault
from squire.graph.formats.rdf import MINTED, label_of, term_of
from squire.graph.graph import Graph
from squire.graph.loading import check_graph, load_graph

XML = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="http://e.org/">\n{}</rdf:RDF>\n'


def whole(path: Path, *, literals: bool = False) -> Graph:
    return load_graph(path, literals=literals, holdout=(0, 0))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.nt", '<e:a> <e:p> <e:b> .\n<e:a> <e:name> "A\\n"@en .\n'),
        ("x.ttl", '@prefix e: <e:> .\ne:a e:p e:b ; e:name "A\\n"@en .\n'),
    ],
)
def test_literals_are_skipped_and_counted_or_kept(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path / name, text)
    assert facts_of(whole(path)) == {("e:a", "e:p", "e:b")}
    assert check_graph(path).findings[Fault.LITERAL].count == 1
    assert facts_of(whole(path, literals=True)) == {("e:a", "e:p", "e:b"), ("e:a", "e:name", '"A\\n"@en')}


def test_declared_prefixes_shorten_what_is_shown(tmp_path: Path) -> None:
    graph = whole(write(tmp_path / "x.ttl", "@prefix ex: <http://e.org/> .\nex:a ex:p ex:b .\n"))
    assert [graph.labels.shorten(label) for label in graph.labels.entities] == ["ex:a", "ex:b"]


def test_prefixes_of_rdf_xml_are_kept(tmp_path: Path) -> None:
    fact = '<rdf:Description rdf:about="http://e.org/a"><ex:p rdf:resource="http://e.org/b"/></rdf:Description>\n'
    graph = whole(write(tmp_path / "x.rdf", XML.format(fact)))
    assert graph.labels.prefixes["ex"] == "http://e.org/"


def test_entities_of_a_document_type_are_expanded(tmp_path: Path) -> None:
    text = XML.replace("http://e.org/", "&ex;").format('<ex:C rdf:about="&ex;a"/>')
    path = write(tmp_path / "x.owl", f'<!DOCTYPE rdf:RDF [<!ENTITY ex "http://e.org/">]>\n{text}')
    rdf_type = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    assert facts_of(whole(path)) == {("http://e.org/a", rdf_type, "http://e.org/C")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.ttl", "@prefix e: <e:> .\ne:a e:p [ e:q e:b ; e:r [ e:q e:c ] ] .\n_:given e:q e:b .\n"),
        (
            "x.rdf",
            XML.format(
                '<rdf:Description rdf:about="e:a"><ex:p><rdf:Description><ex:q rdf:resource="e:b"/>'
                '</rdf:Description></ex:p></rdf:Description><ex:C rdf:nodeID="given"/>\n'
            ),
        ),
    ],
)
def test_nameless_nodes_get_the_same_labels_each_time(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path / name, text)
    assert whole(path) == whole(path)
    assert "_:given" in whole(path).labels.entities
    assert "_:x-anon-1" in whole(path).labels.entities


def test_nameless_nodes_of_two_splits_are_not_the_same(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / f"{split}.ttl", "<e:a> <e:p> [] .\n")
    graph = load_graph(tmp_path)
    assert not facts_of(graph, "train") & facts_of(graph, "test")


def test_statements_about_statements_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.nt", "<e:a> <e:p> <e:b> .\n<e:a> <e:says> <<( <e:a> <e:p> <e:b> )>> .\n")
    finding = check_graph(path).findings[Fault.QUOTED]
    assert (finding.count, finding.examples) == (1, [f"{path}:2"])


def test_comments_and_blank_lines_are_part_of_ntriples(tmp_path: Path) -> None:
    path = write(tmp_path / "x.nt", "# a comment\n\n<e:a> <e:p> <e:b> . # another\r\n")
    assert check_graph(path).findings == {}
    assert facts_of(whole(path)) == {("e:a", "e:p", "e:b")}


@pytest.mark.parametrize(
    ("label", "term"),
    [
        ("http://e.org/a", "<http://e.org/a>"),
        ("New York", "<urn:squire:New%20York>"),
        ("50%", "<urn:squire:50%25>"),
        ("_:x", "_:x"),
        ("_:not a node", "<urn:squire:_%3Anot%20a%20node>"),
        ('"lit"@en', '"lit"@en'),
        ('"half', "<urn:squire:%22half>"),
        ("urn:squire:x", "<urn:squire:urn%3Asquire%3Ax>"),
    ],
)
def test_a_label_as_a_term(label: str, term: str) -> None:
    assert term_of(label, may_be_literal=True) == term


def test_a_literal_label_in_a_place_where_rdf_allows_none() -> None:
    assert term_of('"lit"', may_be_literal=False) == "<urn:squire:%22lit%22>"


def test_a_blank_label_in_a_place_where_rdf_allows_none() -> None:
    assert term_of("_:x", may_be_blank=False) == "<urn:squire:_%3Ax>"


@given(
    st.lists(
        st.sampled_from(["", "urn:squire:", "a:b", "a%3Ab", "%", "%41", "A", "%ff", "%FF", "%25"]), max_size=5
    )
)
def test_different_iris_have_different_labels(pieces: list[str]) -> None:
    """What we would not have written is not decoded: `%FF` is no text, `%41` and `A` are two IRIs."""
    nodes = {f"{MINTED}{''.join(pieces[:n])}" for n in range(len(pieces) + 1)} | {"a:b", "A:b"}
    valid = [ox.NamedNode(iri) for iri in nodes if is_iri(iri)]
    assert len({label_of(node) for node in valid}) == len(valid)
    assert all(label_of(node) for node in valid)


def is_iri(text: str) -> bool:
    try:
        ox.NamedNode(text)
    except ValueError:
        return False
    return True
