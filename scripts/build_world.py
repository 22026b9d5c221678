"""Build the bundled knowledge graph `world`: countries, languages, currencies, waters, organisations.

It joins two sources: the Unicode CLDR, as shipped inside Babel (English names, official languages, scripts,
currencies), and the hand-written tables in `scripts/world/` (borders, capitals, memberships and the rest).

    pip install squire-kg[world]
    python scripts/build_world.py           # writes train.tsv, valid.tsv and test.tsv
    python scripts/build_world.py --check   # writes nothing; exit code 1 if the bundled files differ

The release of Babel in BABEL_RELEASE gives the same bytes everywhere. Another one carries other CLDR data: it
may stop the build (a language the tables do not know) or change facts. Look at the difference before you ship.

What it does not know: anything after the day in AS_OF; facts that are contested (they are left out, so an
absent fact is not a false one); which of a country's languages has how many speakers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from babel.core import Locale, get_global
from babel.numbers import get_territory_currencies

Fact = tuple[str, str, str]

HERE = Path(__file__).resolve().parent
TABLES = HERE / "world"
OUTPUT = HERE.parent / "src" / "squire" / "data" / "world"

# The Babel release whose CLDR data the bundled files were built from, and the tables were checked against.
BABEL_RELEASE = "2.18"
# CLDR lists currencies with their dates of use, so the day must be fixed for the build to be repeatable.
AS_OF = date(2026, 11, 1)
SEED = "squire world 1"
# One held-out fact in ten for each of valid and test, relation by relation.
HELD_OUT_SHARE = 0.1

# What stands at either end of a relation. It is how the build notices one label used for two things, such as
# Luxembourg for the country and its capital. None: several kinds of thing may stand there.
KINDS: dict[str, tuple[str | None, str | None]] = {
    "borders": ("place", "place"),
    "capital": ("place", "city"),
    "currency": ("place", "currency"),
    "drives on": ("place", "side"),
    "flows into": ("water", "water"),
    "flows through": ("water", "place"),
    "form of government": ("place", "government"),
    "formerly part of": ("place", "former state"),
    "gained independence from": ("place", "place"),
    "headquartered in": ("organisation", "city"),
    "in region": ("place", "region"),
    "in subregion": ("place", "region"),
    "is a": (None, "class"),
    "language family": ("language", "family"),
    "language phylum": ("language", "family"),
    "largest religion": ("place", "religion"),
    "lies on": ("city", "water"),
    "located in": ("city", "place"),
    "member of": (None, "organisation"),
    "mountain range": ("place", "mountains"),
    "official language": (None, "language"),
    "part of": (None, None),
    "pegged to": ("currency", "currency"),
    "regional language": ("place", "language"),
    "shore on": ("place", "water"),
    "sovereign state": ("place", "place"),
    "standard time": ("place", "time"),
    "written in": ("language", "script"),
}

# Facts of these relations stay in train: most cities have little else that hints at their country, and without
# the part-of tree the other facts could not be reasoned about.
NEVER_HELD_OUT = {"capital", "headquartered in", "located in", "part of", "pegged to"}


def table(name: str) -> dict[str, Any]:
    """Read one hand-written table."""
    return tomllib.loads((TABLES / f"{name}.toml").read_text(encoding="utf-8"))


def plain(name: str) -> str:
    """Spell CLDR's typographic shorthand out: "St. Kitts & Nevis" becomes "Saint Kitts and Nevis"."""
    return name.replace("St. ", "Saint ").replace(" & ", " and ").replace("’", "'")


class LabelIndex:
    """English labels for the codes of places, languages and currencies."""

    def __init__(self, places: dict[str, str], languages: dict[str, str], currencies: dict[str, str]) -> None:
        english = Locale("en")
        self._places = {**english.territories, **places}
        self._languages = {**english.languages, **languages}
        self._currencies = {**english.currencies, **currencies}

    def place(self, code: str) -> str:
        return plain(self._places[code])

    def language(self, code: str) -> str:
        return plain(self._languages[code])

    def currency(self, code: str) -> str:
        name = plain(self._currencies[code])
        # CLDR writes all of them with capitals but the newest one, the Caribbean guilder.
        return " ".join(word[0].upper() + word[1:] if word != "and" else word for word in name.split())

    def any(self, token: str) -> str:
        """The label of a token in a table: two capitals are a place, three a currency, else it is a label."""
        if re.fullmatch("[A-Z]{2}", token):
            return self.place(token)
        if re.fullmatch("[A-Z]{3}", token):
            return self.currency(token)
        return token


def country_facts(labels: LabelIndex, countries: dict[str, dict[str, str]]) -> Iterator[Fact]:
    """The tables that list places under a common tail: members of an organisation, shores of a sea."""
    for relation, tails in countries.items():
        for tail, codes in tails.items():
            for code in codes.split():
                yield labels.place(code), relation, labels.any(tail)


def thing_facts(labels: LabelIndex) -> Iterator[Fact]:
    """Rivers, capitals on the water, organisations, currencies: the tables that list tails under a head."""
    for relation, heads in table("things").items():
        for head, tails in heads.items():
            for tail in tails.split("; "):
                yield labels.any(head), relation, labels.any(tail)


def city_facts(labels: LabelIndex) -> Iterator[Fact]:
    """Capitals, and other cities with their country and waters."""
    for code, city in table("capitals").items():
        yield labels.place(code), "capital", city
    for city, line in table("cities").items():
        country, *waters = line.split("; ")
        yield city, "located in", labels.place(country)
        for water in waters:
            yield city, "lies on", water


def border_facts(labels: LabelIndex) -> Iterator[Fact]:
    """Each land border once, from the label that sorts first; the README of the graph says why."""
    for code, neighbours in table("borders").items():
        for neighbour in neighbours.split():
            first, second = sorted((labels.place(code), labels.place(neighbour)))
            yield first, "borders", second


def region_facts(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The region of each place, which follows from its subregion."""
    facts = list(facts)
    above = defaultdict(set)
    for head, relation, tail in facts:
        if relation == "part of":
            above[head].add(tail)
    for head, relation, tail in facts:
        if relation == "in subregion":
            # Sub-Saharan Africa lies between Eastern Africa and Africa; only the top is a region.
            yield from ((head, "in region", region) for region in above[tail] if region not in above)


def corrected(cldr: Iterable[str], code: str, more: dict[str, str], less: dict[str, str]) -> list[str]:
    """What CLDR says about a place, with the hand-written additions and removals."""
    wanted = {*cldr, *more.get(code, "").split()} - set(less.get(code, "").split())
    return sorted(wanted)


def currency_facts(labels: LabelIndex, codes: Iterable[str], places: dict[str, dict[str, str]]) -> Iterator[Fact]:
    """Currencies of places, and their common kinds (dollar, franc) where two currencies share one."""
    used = set()
    for code in codes:
        cldr = get_territory_currencies(code, AS_OF, AS_OF)
        for currency in corrected(cldr, code, places["currency_more"], places["currency_less"]):
            used.add(labels.currency(currency))
            yield labels.place(code), "currency", labels.currency(currency)
    kind_of = {name: name.split()[-1].lower() for name in used if " " in name}
    count = Counter(kind_of.values())
    yield from ((name, "is a", kind) for name, kind in kind_of.items() if count[kind] > 1)


def cldr_languages(code: str, status: str, same: dict[str, str]) -> set[str]:
    """Languages with that status in a place; `sr_Latn` and `sr` are one language in two scripts."""
    known = get_global("territory_languages").get(code, {})
    plain_codes = {key.split("_")[0] for key, facts in known.items() if facts["official_status"] == status}
    return {same.get(language, language) for language in plain_codes}


def spoken_facts(labels: LabelIndex, codes: Iterable[str], tables: dict[str, Any]) -> Iterator[Fact]:
    """Official and regional languages of places."""
    trusted = set(tables["regional_trusted"]["codes"].split())
    for code in codes:
        official = cldr_languages(code, "official", tables["same"])
        official = set(corrected(official, code, tables["official_more"], tables["official_less"]))
        regional = cldr_languages(code, "official_regional", tables["same"]) if code in trusted else set()
        regional = set(corrected(regional, code, tables["regional_more"], tables["regional_less"]))
        for language in official:
            yield labels.place(code), "official language", labels.language(language)
        for language in regional - official:
            yield labels.place(code), "regional language", labels.language(language)


def language_facts(labels: LabelIndex, tables: dict[str, Any]) -> Iterator[Fact]:
    """Families and scripts of languages, and the tree of families."""
    parent: dict[str, str] = tables["branch_of"]
    yield from ((branch, "part of", above) for branch, above in parent.items())
    for branch, languages in tables["family"].items():
        phylum = branch
        while phylum in parent:
            phylum = parent[phylum]
        for language in languages.split():
            yield labels.language(language), "language family", branch
            if phylum != branch:
                yield labels.language(language), "language phylum", phylum
            for script in scripts_of(language, tables):
                yield labels.language(language), "written in", script


def scripts_of(language: str, tables: dict[str, Any]) -> list[str]:
    """The likely script of a language in CLDR ("de_Latn_DE"), and the hand-written further ones."""
    likely = get_global("likely_subtags").get(language, "").split("_")[1:2]
    return [tables["scripts"][code] for code in corrected(likely, language, tables["script_more"], {})]


def all_facts() -> list[Fact]:
    """Every fact of the graph, sorted."""
    places, tables, countries = table("places"), table("languages"), table("countries")
    labels = LabelIndex(places["labels"], tables["labels"], places["currency_labels"])
    codes = sorted(code for line in countries["in subregion"].values() for code in line.split())
    facts = [
        *country_facts(labels, countries),
        *thing_facts(labels),
        *city_facts(labels),
        *border_facts(labels),
        *currency_facts(labels, codes, places),
        *spoken_facts(labels, codes, tables),
        *language_facts(labels, tables),
    ]
    facts += region_facts(facts)
    refuse_mistakes(facts)
    return sorted(facts)


def refuse_mistakes(facts: list[Fact]) -> None:
    """Stop on what a hand-written table can get wrong without anybody noticing."""
    twice = [fact for fact, count in Counter(facts).items() if count > 1]
    loops = [fact for fact in facts if fact[0] == fact[2]]
    kinds = defaultdict(set)
    for head, relation, tail in facts:
        for label, kind in zip((head, tail), KINDS[relation], strict=True):
            if kind is not None:
                kinds[label].add(kind)
    ambiguous = {label: sorted(found) for label, found in kinds.items() if len(found) > 1}
    families = {head for head, relation, _ in facts if relation == "language family"}
    bare = {tail for _, relation, tail in facts if KINDS[relation][1] == "language"} - families
    for problem, found in [
        ("facts written twice", twice),
        ("facts about themselves", loops),
        ("labels used for two kinds of thing", ambiguous),
        ("languages without a family", sorted(bare)),
    ]:
        if found:
            raise ValueError(f"{problem}: {found}")


def digest(fact: Fact) -> bytes:
    """A fixed shuffle: whether a fact is held out hardly depends on what is added to the graph later."""
    return hashlib.sha256("\t".join((SEED, *fact)).encode()).digest()


def split(facts: list[Fact]) -> dict[str, list[Fact]]:
    """Hold out facts of each relation, as long as train keeps enough to answer them.

    A fact may go when both of its ends keep two facts in train, and its tail keeps one of the same relation:
    an answer that was never seen in that role cannot be found by reasoning. And no other fact may join the
    same two ends, for that one would give the answer away.
    """
    joined = Counter(frozenset((head, tail)) for head, _, tail in facts)
    degree = Counter(label for head, _, tail in facts for label in (head, tail))
    role = Counter((relation, tail) for _, relation, tail in facts)
    of_relation = defaultdict(list)
    for fact in sorted(facts, key=digest):
        of_relation[fact[1]].append(fact)
    held_out: list[Fact] = []
    for relation in sorted(of_relation.keys() - NEVER_HELD_OUT):
        quota = 2 * round(HELD_OUT_SHARE * len(of_relation[relation]))
        for head, _, tail in of_relation[relation]:
            alone = joined[frozenset((head, tail))] == 1
            if quota and alone and degree[head] > 2 and degree[tail] > 2 and role[relation, tail] > 1:
                held_out.append((head, relation, tail))
                degree.subtract((head, tail))
                role[relation, tail] -= 1
                quota -= 1
    # Neighbours in `held_out` are of one relation, so taking every other one shares each relation evenly.
    valid, test = held_out[::2], held_out[1::2]
    train = set(facts) - set(held_out)
    return {"train.tsv": sorted(train), "valid.tsv": sorted(valid), "test.tsv": sorted(test)}


def build() -> dict[str, bytes]:
    """The files of the graph by name."""
    return {
        name: "".join("\t".join(fact) + "\n" for fact in facts).encode()
        for name, facts in split(all_facts()).items()
    }


def write(files: dict[str, bytes], folder: Path) -> None:
    """Write each file under a temporary name first, so that nobody reads half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        temporary = folder / f".{name}.tmp"
        temporary.write_bytes(content)
        os.replace(temporary, folder / name)


def differing(files: dict[str, bytes], folder: Path) -> list[str]:
    """Labels of the files that are missing in the folder or have other content there."""
    return [
        name
        for name, content in files.items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != content
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the bundled knowledge graph `world`.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the bundled files")
    check: bool = parser.parse_args().check
    files = build()
    for name, content in files.items():
        print(f"{name}: {content.count(bytes([10]))} facts, {len(content)} bytes")
    if not check:
        write(files, OUTPUT)
        return 0
    changed = differing(files, OUTPUT)
    print(f"differs from the bundled graph: {', '.join(changed)}" if changed else "identical to the bundled graph")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
