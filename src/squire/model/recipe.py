"""Everything that can be set about a run, and the recipes that set it: commented TOML, in the package or a user's.

A recipe has four sections. Each is a frozen dataclass that checks itself, so a wrong value is refused by its key
before any work begins, wherever it came from: a file, `--set`, a run folder, or Python. This module knows neither
torch nor the graph; what a value does is the business of whoever reads it.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from rapidfuzz import fuzz, process

from squire.errors import SettingError, UnknownName
from squire.paths.sampling import MAX_HOPS

if TYPE_CHECKING:
    from squire.graph.statistics import Stats

SUFFIX = ".toml"

# ------------------------------------------------------------------------------------------------- sections


@dataclass(frozen=True)
class _Section:
    """A table of a recipe: checks the types of its keys, then what they say."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for key in fields(self):
            value = _typed(f"{self.section}.{key.name}", getattr(self, key.name), kinds[key.name])
            object.__setattr__(self, key.name, value)
        self._check()

    def _check(self) -> None:
        """Raise for values that make no sense."""

    def _expect(self, key: str, holds: bool, expected: str) -> None:
        if not holds:
            raise SettingError(f"{self.section}.{key} is {_shown(getattr(self, key))}: expected {expected}.")

    def _expect_share(self, *keys: str) -> None:
        for key in keys:
            self._expect(key, 0 <= getattr(self, key) <= 1, "a share from 0 to 1")

    def _expect_positive(self, *keys: str) -> None:
        for key in keys:
            self._expect(key, getattr(self, key) >= 1, "1 or more")


@dataclass(frozen=True)
class PathConfig(_Section):
    """Which evidence paths to learn from (§3.2, §3.3, Appendix A)."""

    section: ClassVar[str] = "paths"

    rules: bool = True
    """Rule-enhanced learning: paths along mined rules come first, random ones fill up."""
    min_confidence: float = 0.01
    """Rules below this confidence are not walked."""
    hops: int = 3
    """N, the longest path."""
    per_triple: int = 6
    """Paths to draw for each fact and its inverse."""
    edge_weight: int = 6
    """How many paths a fact counts as that has none but its own edge. The paper: as many as any other."""

    def _check(self) -> None:
        self._expect_share("min_confidence")
        self._expect("hops", 1 <= self.hops <= MAX_HOPS, f"1 to {MAX_HOPS}")
        self._expect_positive("per_triple", "edge_weight")
        self._expect("edge_weight", self.edge_weight <= self.per_triple, "paths.per_triple or less")


@dataclass(frozen=True)
class ModelConfig(_Section):
    """The transformer (§3.2, Appendix A). The sizes are the paper's, the switches ours."""

    section: ClassVar[str] = "model"

    layers: int = 6
    """Encoder layers."""
    dim: int = 256
    """d, the width of an embedding and of every layer."""
    feedforward: int = 512
    """Width inside the feed-forward part of a layer."""
    heads: int = 4
    """Attention heads; each sees dim / heads numbers."""
    dropout: float = 0.1
    """Share of values dropped in every layer."""
    input_dropout: float = 0.0
    """Share dropped from the embeddings that enter the first layer."""
    output_dropout: float = 0.0
    """Share dropped from what meets the embeddings again at the output."""
    typed: bool = True
    """Only relations or the end after an entity, only entities after a relation; the paper: any token, always."""
    prior: bool = True
    """Entity scores start from how often each entity is the tail of the relation; the paper: from nothing."""
    norm_first: bool = True
    """Normalise before each part of a layer, not after it, as the paper does."""
    activation: Literal["relu", "gelu"] = "gelu"
    """Inside the feed-forward part of a layer; the paper: relu."""
    max_hops: int = 3
    """Longest path that there are positions for."""

    def _check(self) -> None:
        self._expect_positive("layers", "dim", "feedforward", "heads")
        if self.dim % self.heads:
            raise SettingError(
                f"model.dim is {self.dim}, no multiple of model.heads, which is {self.heads}: change one of them."
            )
        for key in ("dropout", "input_dropout", "output_dropout"):
            self._expect(key, 0 <= getattr(self, key) < 1, "a share from 0 to less than 1")
        self._expect("max_hops", 1 <= self.max_hops <= MAX_HOPS, f"1 to {MAX_HOPS}")


@dataclass(frozen=True)
class TrainConfig(_Section):
    """The loss, the optimizer and its schedule (§3.2, §3.4, Table 6)."""

    section: ClassVar[str] = "train"

    epochs: int = 30
    """Passes over the paths: n of Algorithm 1. With `iterate`, iteration k = 2 … N adds n / k more, at least 1."""
    learning_rate: float = 5e-4
    """Peak of the schedule."""
    smoothing: float = 0.8
    """The paper's ε: the weight of the target; the rest is spread over all other tokens. 1 is no smoothing."""
    mask_probability: float = 0.15
    """The paper's p: share of the entities in a path that are hidden from what follows, and not learned from."""
    mask_with: Literal["mask", "random"] = "mask"
    """What hides them: <mask> as in the paper, or a random entity as in the authors' code."""
    warmup: float = 0.1
    """The paper's α: share of the steps in which the learning rate rises to its peak; then it falls to 0."""
    clip: float = 1.0
    """Largest norm of the gradient; a larger one is scaled down to it. 0 is no limit."""
    weight_decay: float = 0.0
    """Pull of the weights towards 0, apart from the gradient (AdamW)."""
    batch_nodes: int = 2048
    """Nodes of prefix trees in a step, at most: the batch size, and the memory."""
    sampled_entities: int = 0
    """How many entities are drawn to compete with a step's targets; 0: all compete, as where there are no more."""
    seed: int = 0
    """Decides the paths, the first weights, the order, the masks and the dropout."""
    valid_queries: int = 500
    """Questions of valid that are asked after each epoch, to keep the best weights; always the same ones."""
    valid_beam: int = 32
    """Paths kept at each step for them: fewer than for real questions, since it is done so often."""
    iterate: bool = False
    """Iterative training (Algorithm 1): add paths that begin with the model's own first hops."""
    iterate_learning_rate: float = 0.2
    """From the second iteration on, the peak is this share of `learning_rate`; the authors' code: a fifth."""
    iterate_beam: int = 8
    """Beginnings kept for each query, of which every new path draws one by its probability."""
    iterate_paths: int = 6
    """New paths for each fact and its inverse in an iteration; the paper: as many as at first (§3.4)."""

    def _check(self) -> None:
        self._expect_positive("epochs", "batch_nodes", "valid_queries", "valid_beam")
        self._expect_positive("iterate_beam", "iterate_paths")
        self._expect("learning_rate", 0 < self.learning_rate <= 1, "a number above 0, at most 1")
        self._expect("smoothing", 0 < self.smoothing <= 1, "the weight of the target, above 0, at most 1")
        self._expect("mask_probability", 0 <= self.mask_probability < 1, "a share from 0 to less than 1")
        self._expect_share("warmup", "weight_decay")
        self._expect("clip", 0 <= self.clip < math.inf, "0 (no limit) or more")
        self._expect("sampled_entities", self.sampled_entities >= 0, "0 (all compete) or more")
        self._expect("seed", 0 <= self.seed < 2**63, "0 to 2^63 - 1")
        self._expect("iterate_learning_rate", 0 < self.iterate_learning_rate <= 1, "a share above 0, at most 1")


@dataclass(frozen=True)
class DecodeConfig(_Section):
    """How answers are found with the trained model."""

    section: ClassVar[str] = "decode"

    beam: int = 256
    """Paths kept at each step of the beam search."""
    aggregate: Literal["sum", "max"] = "sum"
    """An answer's score: all its paths together (the paper's self-consistency), or its best one."""
    prune: float = 0.0
    """Drop paths less than this share as probable as the tenth new answer by the queried edge alone, which cannot
    change the answers that people look at. Of `sum` only; the paper: none."""
    known_share: float = 0.9
    """With this probability a step goes where known edges lead, if there are any; else where the model infers. So
    the graph need not be learned by heart to be walked. The paper: 0, the model alone (docs/LOG.md)."""
    edge_ends: bool = True
    """Is the queried edge itself always a whole path? The paper: no, the model may think that it leads on. Ours:
    yes, since whoever walks the queried relation has answered; a model that knows its facts by heart ends at these
    and nowhere else (docs/LOG.md). And it is shown as evidence only where no other path leads to the answer."""

    def _check(self) -> None:
        self._expect_positive("beam")
        for key in ("prune", "known_share"):
            self._expect(key, 0 <= getattr(self, key) < 1, "a share from 0 to less than 1")


SECTIONS: Mapping[str, type[_Section]] = {
    kind.section: kind for kind in (PathConfig, ModelConfig, TrainConfig, DecodeConfig)
}
HEADER = ("name", "about")
KEYS = tuple(f"{name}.{key.name}" for name, kind in SECTIONS.items() for key in fields(kind))


@dataclass(frozen=True)
class Recipe:
    """All settings of a run."""

    name: str = "custom"
    """Of the package's recipe, or of the user's file."""
    about: str = ""
    """For whom it is, in a sentence."""
    paths: PathConfig = field(default_factory=PathConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        for key in HEADER:
            _typed(key, getattr(self, key), str)
        if self.model.max_hops < self.paths.hops:
            raise SettingError(
                f"model.max_hops is {self.model.max_hops}, but paths.hops is {self.paths.hops}: raise "
                "model.max_hops or lower paths.hops."
            )
        if self.train.sampled_entities and not self.model.typed:
            raise SettingError(
                f"train.sampled_entities is {self.train.sampled_entities}, but model.typed is false, so not only "
                "entities compete: set train.sampled_entities to 0 or model.typed to true."
            )

    def to_dict(self) -> dict[str, Any]:
        """As tables of plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], source: str = "recipe") -> Recipe:
        """Inverse of `to_dict`; a key left out has its default. Complaints name the source."""
        parts: dict[str, Any] = {}
        try:
            for key, value in content.items():
                if key in HEADER:
                    parts[key] = value
                elif key not in SECTIONS:
                    raise _unknown_key(key)
                elif not isinstance(value, Mapping):
                    raise SettingError(f"{key} is {_shown(value)}: expected a table of keys, [{key}].")
                else:
                    _check_known(f"{key}.{inner}" for inner in value)
                    parts[key] = SECTIONS[key](**value)
            return cls(**parts)
        except SettingError as error:
            raise SettingError(f"{source}: {error}") from None


# ------------------------------------------------------------------------------------------------- recipes


def recipe_names() -> list[str]:
    """The recipes in the package, sorted."""
    return sorted(file.name.removesuffix(SUFFIX) for file in _folder().iterdir() if file.name.endswith(SUFFIX))


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe of the package by its name, else a TOML file; then each of `overrides`, as `train.epochs=3`."""
    known = recipe_names()
    if isinstance(name_or_path, str) and name_or_path in known:
        name, source = name_or_path, f"recipe {name_or_path}"
        content = _parsed((_folder() / (name + SUFFIX)).read_bytes(), source)
    elif Path(name_or_path).is_file() or Path(name_or_path).suffix == SUFFIX or isinstance(name_or_path, Path):
        name, source = Path(name_or_path).stem, str(name_or_path)
        content = _parsed(_file_bytes(Path(name_or_path)), source)
    else:
        raise UnknownName("recipe", name_or_path, _nearest(name_or_path, dict(zip(known, known, strict=True))))
    for override in overrides:
        _override(content, override)
        source += f" --set {override}"
    return Recipe.from_dict({"name": name, **content}, source)


def recipe_for(stats: Stats) -> str:
    """The recipe that `auto` chooses for a graph of these figures.

    - `small` below 20,000 facts: a large model would learn them by heart. NELL23K, at 25,000, is above it.
    - `large` from 500,000 facts or 200,000 entities: the paper's two large graphs (640,000 and 1,010,000 facts),
      where six paths a fact or a softmax over all entities cost more than they give.
    - `sparse` below 5 facts a head: the paper's sparse graphs have 1.1 and 4.1, NELL995 1.9.
    - `dense` for the rest: FB15K237 has 18.7.
    """
    if stats.facts < 20_000:
        return "small"
    if stats.facts >= 500_000 or stats.entities >= 200_000:
        return "large"
    return "sparse" if stats.degree_mean < 5 else "dense"


def _folder() -> resources.abc.Traversable:
    return resources.files("squire.model") / "recipes"


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(
            f"{path}: cannot be read ({error.strerror}). To do: give a TOML file, or one of "
            f"{', '.join(recipe_names())}."
        ) from None


def _parsed(content: bytes, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # Windows editors may put a mark before the text
    except ValueError as error:
        raise SettingError(f"{source}: not a TOML file ({error}).") from None


def _override(content: dict[str, Any], override: str) -> None:
    """Apply one `section.key=value`."""
    key, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not text:
        raise SettingError(f"--set {override}: expected key=value, as in --set train.epochs=3.")
    try:
        _check_known([key])
    except SettingError as error:
        raise SettingError(f"--set {override}: {error}") from None
    section, _, inner = key.partition(".")
    table = content.setdefault(section, {})
    if isinstance(table, dict):  # what else it may be is refused with the rest of the file
        table[inner] = _value(text)


def _value(text: str) -> object:
    """A TOML value; a word without quotes is text, since a shell takes the quotes away."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


# ------------------------------------------------------------------------------------------------- checks


def _check_known(keys: Iterable[str]) -> None:
    for key in keys:
        if key not in KEYS:
            raise _unknown_key(key)


def _unknown_key(key: str) -> SettingError:
    """Its words: the keys that end like it, in whatever section, else the section it may mean."""
    section, _, last = key.rpartition(".")
    by_last = {known: known.rpartition(".")[2] for known in KEYS}
    exact = [known for known, end in by_last.items() if end == last]
    near = exact or _nearest(last, by_last) or _nearest(section or last, {name: name for name in SECTIONS})
    hint = f" Nearest: {', '.join(repr(known) for known in near)}." if near else ""
    return SettingError(f"unknown key {key!r}.{hint}")


def _nearest(name: str, known: Mapping[str, str]) -> list[str]:
    """Of the known names, those whose text is most like this one."""
    found = process.extract(name.casefold(), known, scorer=fuzz.WRatio, limit=3, score_cutoff=70)
    return [match for _, _, match in found]


def _typed(key: str, value: object, kind: Any) -> object:
    """The value, a whole number made a float where one is due; anything else must be of its kind."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            words = " or ".join(_shown(choice) for choice in get_args(kind))
            raise SettingError(f"{key} is {_shown(value)}: expected {words}.")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # not isinstance: true is no number
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
        raise SettingError(f"{key} is {_shown(value)}: expected {words}.")
    return value


def _shown(value: object) -> str:
    """As it is written in TOML."""
    return json.dumps(value, ensure_ascii=False, default=str)
