"""LabelIndex and ids: stable, found by label or short form, and a wrong name is answered with the nearest."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squire.errors import UnknownName
from squire.graph.labels import LabelIndex, Labels

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
OWN = "http://example.org/city/"


def labels_of(*entities: str, prefixes: dict[str, str] | None = None) -> Labels:
    return Labels(LabelIndex(entities, "entity"), LabelIndex(["borders"], "relation"), prefixes or {})


@given(st.lists(texts))
def test_ids_are_ranks_of_the_sorted_distinct_labels(given_labels: list[str]) -> None:
    labels = LabelIndex(given_labels, "entity")
    assert list(labels) == sorted(set(given_labels))
    assert [labels[i] for i in range(len(labels))] == list(labels)


@given(st.lists(texts), texts)
def test_find_gives_the_id_or_nothing(given_labels: list[str], other: str) -> None:
    labels = LabelIndex(given_labels, "entity")
    for number, label in enumerate(labels):
        assert labels.find(label) == number
    assert (other in labels) == (other in given_labels)
    assert (labels.find(other) is None) == (other not in given_labels)


def test_what_is_no_text_is_no_label() -> None:
    number: object = 3
    assert number not in LabelIndex(["3"], "entity")


def test_a_slice_of_labels_is_a_list() -> None:
    assert LabelIndex(["c", "a", "b"], "entity")[1:] == ["b", "c"]


def test_labels_are_equal_if_their_texts_are() -> None:
    assert LabelIndex(["b", "a"], "entity") == LabelIndex(pa.array(["a", "b"], pa.large_string()), "entity")
    assert LabelIndex(["a"], "entity") != LabelIndex(["b"], "entity")


def test_nearest_looks_past_case_and_small_slips() -> None:
    labels = LabelIndex(["Austria", "Australia", "Zimbabwe", "Malta"], "entity")
    assert labels.nearest("austira")[0] == "Austria"
    assert "Zimbabwe" not in labels.nearest("austira")


def test_nothing_is_near_to_nonsense() -> None:
    assert LabelIndex(["Austria"], "entity").nearest("qqqqqq") == []


def test_an_unknown_entity_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"^unknown entity 'Austira'\. Nearest: 'Austria'\.$") as caught:
        labels_of("Austria", "Chad").entity_id("Austira")
    assert caught.value.nearest == ("Austria",)


def test_an_unknown_relation_says_that_it_is_a_relation() -> None:
    with pytest.raises(UnknownName, match=r"^unknown relation 'xyzzy'\.$"):
        labels_of("Austria").relation_id("xyzzy")


def test_the_nearest_are_shown_short() -> None:
    labels = labels_of(f"{OWN}Vienna", prefixes={"city": OWN})
    with pytest.raises(UnknownName, match="Nearest: 'city:Vienna'"):
        labels.entity_id("city:Viena")


def test_a_name_is_found_by_its_label_and_by_its_short_form() -> None:
    labels = labels_of("Austria", f"{OWN}Vienna", prefixes={"city": OWN})
    assert labels.entity_id(f"{OWN}Vienna") == labels.entity_id("city:Vienna") == 1


def test_a_label_goes_before_a_short_form_that_reads_alike() -> None:
    labels = labels_of("city:Vienna", f"{OWN}Vienna", prefixes={"city": OWN})
    assert labels.entities[labels.entity_id("city:Vienna")] == "city:Vienna"


@pytest.mark.parametrize(
    ("label", "short"),
    [
        (f"{OWN}Vienna", "city:Vienna"),
        ("http://example.org/Vienna", "ex:Vienna"),  # the longest namespace that fits
        ("http://www.w3.org/2002/07/owl#sameAs", "owl:sameAs"),  # known without being declared
        ("urn:places:7", "place:7"),
        ("urn:other:7", "urn:other:7"),
        (OWN, OWN),  # nothing would be left of it
        ("New York", "New York"),
        ("http://nowhere.org/x", "http://nowhere.org/x"),
    ],
)
def test_shorten_and_expand(label: str, short: str) -> None:
    labels = labels_of("x", prefixes={"city": OWN, "ex": "http://example.org/", "place": "urn:places:"})
    assert labels.shorten(label) == short
    assert labels.expand(short) == label


def test_a_declared_prefix_goes_before_a_well_known_one() -> None:
    labels = labels_of("x", prefixes={"owl": "http://birds.org/"})
    assert labels.expand("owl:barn") == "http://birds.org/barn"


def test_the_empty_prefix_works() -> None:
    labels = labels_of("x", prefixes={"": OWN})
    assert labels.shorten(f"{OWN}Vienna") == ":Vienna"
    assert labels.expand(":Vienna") == f"{OWN}Vienna"


def test_a_name_is_found_in_any_case_if_it_is_the_only_one() -> None:
    labels = labels_of("Vienna", "Georgia", "georgia", "Straße")
    assert labels.entity(labels.entity_id("vienna")) == "Vienna"
    assert labels.entity(labels.entity_id("STRASSE")) == "Straße"
    assert labels.entity(labels.entity_id("georgia")) == "georgia"
    with pytest.raises(UnknownName, match="GEORGIA"):
        labels.entity_id("GEORGIA")
