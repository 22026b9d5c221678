"""All settings of a run, and the recipes that set them: commented TOML files, from the package or a user.

A recipe has four sections. Each is a frozen dataclass that checks itself, so that a wrong value is rejected, with
its key, before any work begins, wherever it came from: a file, an override, a run folder, or Python. This module
does not import torch.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from rapidfuzz import fuzz, process

from squire.core.files import replacing
from squire.core.run_files import BEST, GRAPH, INDEXES, LAST, RECIPE, check_run
from squire.errors import SettingError, UnknownName
from squire.graph.graph import Graph
from squire.graph.statistics import Stats
from squire.paths.sampling import MAX_HOPS

SUFFIX = ".toml"

# Far above what is useful, but low enough that a slip of the keyboard is rejected before memory is allocated.
MAX_LAYERS, MAX_DIM, MAX_FEEDFORWARD, MAX_BATCH_NODES = 100, 16_384, 65_536, 1_000_000
MAX_PATHS, MAX_EPOCHS, MAX_BEAM = 1_000, 10_000, 100_000

# ------------------------------------------------------------------------------------------------- sections


@dataclass(frozen=True)
class _Section:
    """A section of a recipe, which checks the types of its keys and then their values."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for key in fields(self):
            value = _typed(f"{self.section}.{key.name}", getattr(self, key.name), kinds[key.name])
            object.__setattr__(self, key.name, value)
        self._check()

    def _check(self) -> None:
        """Raise a SettingError for a value out of range."""

    def _expect(self, key: str, holds: bool, expected: str) -> None:
        if not holds:
            raise SettingError(f"{self.section}.{key} is {_shown(getattr(self, key))}: expected {expected}.")

    def _expect_share(self, *keys: str) -> None:
        for key in keys:
            self._expect(key, 0 <= getattr(self, key) <= 1, "a share from 0 to 1")

    def _expect_count(self, most: int, *keys: str) -> None:
        for key in keys:
            self._expect(key, 1 <= getattr(self, key) <= most, f"1 to {most:,}")


@dataclass(frozen=True)
class PathConfig(_Section):
    """The evidence paths to learn from (§3.2, §3.3, Appendix A)."""

    section: ClassVar[str] = "paths"

    rules: bool = True
    """Rule-enhanced learning: sample paths along mined rules first, then random ones."""
    min_confidence: float = 0.01
    """Ignore rules below this confidence."""
    hops: int = 3
    """N, the maximum path length."""
    per_triple: int = 6
    """Paths to sample for each fact and for its inverse."""
    edge_weight: int = 6
    """The weight, in paths, of a fact that has no path but its own edge. The paper: as many as any other fact."""
    fresh: bool = False
    """Sample new paths for every epoch, so that few per fact suffice. Not with `train.iterate`, which keeps
    them and adds more. The paper: the same paths in every epoch."""

    def _check(self) -> None:
        self._expect_share("min_confidence")
        self._expect("hops", 1 <= self.hops <= MAX_HOPS, f"1 to {MAX_HOPS}")
        self._expect_count(MAX_PATHS, "per_triple", "edge_weight")
        self._expect("edge_weight", self.edge_weight <= self.per_triple, "paths.per_triple or less")


@dataclass(frozen=True)
class ModelConfig(_Section):
    """The transformer (§3.2, Appendix A). Default sizes are the paper's; the switches are ours."""

    section: ClassVar[str] = "model"

    layers: int = 6
    """Encoder layers."""
    dim: int = 256
    """d, the size of embeddings and of every layer."""
    feedforward: int = 512
    """Hidden size of the feed-forward network in a layer."""
    heads: int = 4
    """Attention heads, each of size dim / heads."""
    dropout: float = 0.1
    """Dropout probability in every layer."""
    input_dropout: float = 0.0
    """Dropout probability of the input embeddings."""
    output_dropout: float = 0.0
    """Dropout probability of the output states, before they are compared with the embeddings."""
    typed: bool = True
    """Predict only relations or the end after an entity, only entities after a relation. The paper: any token."""
    prior: bool = True
    """Initialise entity scores from how often each entity is a tail of the relation. The paper: no prior."""
    norm_first: bool = True
    """Apply layer normalisation before each part of a layer (pre-norm). The paper: after it."""
    activation: Literal["relu", "gelu"] = "gelu"
    """Activation of the feed-forward network. The paper: relu."""
    max_hops: int = 3
    """Longest path that the model has position embeddings for."""
    edge_rank: int = 0
    """Size of the edge embeddings (ComplEx), whose score of each edge is added to the transformer's. 0, as in the
    paper: none."""
    edge_names: bool = False
    """Entities whose names share words share a part of their edge embeddings. The paper: names are not used."""

    def _check(self) -> None:
        self._expect_count(MAX_LAYERS, "layers")
        self._expect_count(MAX_DIM, "dim", "heads")
        self._expect_count(MAX_FEEDFORWARD, "feedforward")
        if self.dim % self.heads:
            raise SettingError(
                f"model.dim is {self.dim}, which is not a multiple of model.heads ({self.heads}): change "
                "one of them."
            )
        for key in ("dropout", "input_dropout", "output_dropout"):
            self._expect(key, 0 <= getattr(self, key) < 1, "a share from 0 to less than 1")
        self._expect("max_hops", 1 <= self.max_hops <= MAX_HOPS, f"1 to {MAX_HOPS}")
        self._expect("edge_rank", 0 <= self.edge_rank <= MAX_DIM, f"0 (none) to {MAX_DIM:,}")
        if self.edge_rank and not self.typed:
            raise SettingError("model.edge_rank needs model.typed = true: change one of them.")

    def num_parameters(self, num_tokens: int) -> int:
        """The size of a model with so many tokens, without its prior."""
        dim, wide = self.dim, self.feedforward
        layer = 4 * dim * dim + 2 * dim * wide + 9 * dim + wide  # attention, feed-forward, two normalisations
        embeddings = (num_tokens + 2 + 2 * self.max_hops) * dim
        norm = 2 * dim if self.norm_first else 0
        edges = (num_tokens * 2 + 1) * self.edge_rank
        return embeddings + self.layers * layer + 2 * (dim * dim + dim) + norm + edges


@dataclass(frozen=True)
class TrainConfig(_Section):
    """The loss, the optimizer and its schedule (§3.2, §3.4, Table 6)."""

    section: ClassVar[str] = "train"

    epochs: int = 30
    """Passes over the paths: n in Algorithm 1. With `iterate`, iteration k = 2 … N adds n / k more, at least 1."""
    learning_rate: float = 5e-4
    """Peak learning rate of the schedule."""
    smoothing: float = 0.8
    """Label smoothing, the paper's ε: the weight of the target; all other tokens share the rest. 1 is none."""
    mask_probability: float = 0.15
    """The paper's p: the probability that a path entity is masked, and excluded from the loss."""
    mask_with: Literal["mask", "random"] = "mask"
    """What replaces a masked entity: <mask> as in the paper, or a random entity as in the authors' code."""
    warmup: float = 0.1
    """The paper's α: the share of steps in which the learning rate rises to its peak, before it falls to 0."""
    clip: float = 1.0
    """Maximum gradient norm; larger gradients are scaled down. 0 is no limit."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    batch_nodes: int = 2048
    """Maximum number of prefix-tree nodes in a step: the batch size, which also determines the memory used."""
    sampled_entities: int = 0
    """Entities sampled as negatives in each step; with 0, or if the graph has no more, all entities are used."""
    fact_passes: int = 0
    """Passes over the facts themselves in each epoch: the queried edge with all its tails, three tokens a query.
    The paper: none, a fact is seen only as the end of a path."""
    edge_passes: int = 20
    """With `model.edge_rank`, passes over the facts to fit the edge embeddings; fewer if valid gets no better."""
    edge_penalty: float = 0.05
    """The weight of the penalty on edge embeddings (N3)."""
    edge_search: bool = False
    """Double that as long as valid is ranked better after a few passes. The run keeps the value that was found."""
    edge_sampled: int = 0
    """As `sampled_entities`, while the edge embeddings are fitted."""
    hold_back: bool = False
    """Never show the model the first of the parts of train that a fusion hides, so that a fusion can learn how far
    to trust the model. The paper: the model sees all of train."""
    seed: int = 0
    """Random seed of the paths, the initial weights, the order of batches, the masks and the dropout."""
    valid_queries: int = 500
    """Queries of valid that are evaluated after each epoch to select the best weights; always the same ones."""
    valid_beam: int = 32
    """Beam width for them; smaller than `decode.beam`, since it runs after every epoch."""
    iterate: bool = False
    """Iterative training (Algorithm 1): add paths that start with first hops predicted by the model."""
    iterate_learning_rate: float = 0.2
    """From the second iteration on, the peak is this share of `learning_rate`. The authors' code: a fifth."""
    iterate_beam: int = 8
    """Beam width for the predicted first hops, of which each new path samples one by its probability."""
    iterate_paths: int = 6
    """New paths for each fact and its inverse in an iteration. The paper: as many as in the first (§3.4)."""

    def _check(self) -> None:
        self._expect_count(MAX_EPOCHS, "epochs")
        self._expect_count(MAX_BATCH_NODES, "batch_nodes")
        self._expect_count(MAX_BEAM, "valid_beam", "iterate_beam")
        self._expect_count(MAX_PATHS, "iterate_paths")
        self._expect("fact_passes", 0 <= self.fact_passes <= MAX_EPOCHS, f"0 to {MAX_EPOCHS:,}")
        self._expect_count(MAX_EPOCHS, "edge_passes")
        self._expect("edge_penalty", 0 <= self.edge_penalty < math.inf, "0 or more")
        self._expect("valid_queries", self.valid_queries >= 1, "1 or more")
        self._expect("learning_rate", 0 < self.learning_rate <= 1, "a number above 0, at most 1")
        self._expect("smoothing", 0 < self.smoothing <= 1, "the weight of the target, above 0, at most 1")
        self._expect("mask_probability", 0 <= self.mask_probability < 1, "a share from 0 to less than 1")
        self._expect_share("warmup", "weight_decay")
        self._expect("clip", 0 <= self.clip < math.inf, "0 (no limit) or more")
        for key in ("sampled_entities", "edge_sampled"):
            self._expect(key, getattr(self, key) >= 0, "0 (all compete) or more")
        self._expect("seed", 0 <= self.seed < 2**63, "0 to 2^63 - 1")
        self._expect("iterate_learning_rate", 0 < self.iterate_learning_rate <= 1, "a share above 0, at most 1")


@dataclass(frozen=True)
class DecodeConfig(_Section):
    """How the trained model is searched for answers."""

    section: ClassVar[str] = "decode"

    beam: int = 256
    """Beam width: hypotheses kept at each step of the beam search."""
    aggregate: Literal["sum", "max", "pool"] = "sum"
    """The score of an answer: the sum over all its paths (the paper's self-consistency), its best path, or `pool`:
    patterns of relations that lead there along known edges, and the model's own opinion of the queried edge, as a
    weighted geometric mean. A beam is then so many patterns."""
    edge_weight: float = 0.3
    """The weight of that opinion in a `pool`; the paths have the rest."""
    prune: float = 0.0
    """Drop paths whose probability is below this share of that of the tenth new answer by the queried edge alone;
    such paths hardly change the first answers. Only with `sum`. The paper: 0, no pruning."""
    known_share: float = 0.9
    """Guided search: the probability that a step follows a known edge where there is one. The model then need not
    memorise the graph in order to follow its edges. The paper: 0, the model alone (docs/LOG.md)."""
    edge_ends: bool = True
    """A path that consists of the queried edge always ends there, since it has already answered the query. It is
    shown as evidence only if no other path leads to the answer. The paper: no, the model may continue; a model
    that has memorised its facts then ends at these and nowhere else (docs/LOG.md)."""

    def _check(self) -> None:
        self._expect_count(MAX_BEAM, "beam")
        self._expect_share("edge_weight")
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
    """The name of a built-in recipe, or of the user's file."""
    about: str = ""
    """One sentence on what it is for."""
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
                f"train.sampled_entities is {self.train.sampled_entities}, but model.typed is false, so that "
                "every token is predicted: set train.sampled_entities to 0 or model.typed to true."
            )

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries of plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], source: str = "recipe") -> Recipe:
        """Inverse of `to_dict`; missing keys get their defaults, and errors name the `source`."""
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
    """Names of the built-in recipes, sorted."""
    return sorted(file.name.removesuffix(SUFFIX) for file in _folder().iterdir() if file.name.endswith(SUFFIX))


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a built-in recipe by name, or a TOML file, and apply `overrides` such as `train.epochs=3`."""
    names = recipe_names()
    if isinstance(name_or_path, str) and name_or_path in names:
        name, source = name_or_path, f"recipe {name_or_path}"
        content = _parsed((_folder() / (name + SUFFIX)).read_bytes(), source)
    elif Path(name_or_path).is_file() or Path(name_or_path).suffix == SUFFIX or isinstance(name_or_path, Path):
        name, source = Path(name_or_path).stem, str(name_or_path)
        content = _parsed(_file_bytes(Path(name_or_path)), source)
    else:
        raise UnknownName("recipe", name_or_path, _nearest(name_or_path, {name: name for name in names}))
    for override in overrides:
        _override(content, override)
        source += f", {override}"
    return Recipe.from_dict({"name": name, **content}, source)


def recipe_for(stats: Stats) -> str:
    """The name of the recipe that `auto` chooses for a graph.

    - `large` from 500,000 facts or 200,000 entities, like the paper's two large graphs (640,000 and 1,010,000
      facts), where a softmax over all entities costs more than it gains.
    - `sparse` below 1.5 facts per head: NELL23K has 1.1. A model would memorise them.
    - `small` below 20,000 facts.
    - `medium` below 5 facts per head: NELL995 has 1.9, FB15K237-20 4.1.
    - `dense` otherwise: FB15K237 has 18.7.
    """
    if stats.facts >= 500_000 or stats.entities >= 200_000:
        return "large"
    if stats.degree_mean < 1.5:
        return "sparse"
    if stats.facts < 20_000:
        return "small"
    return "medium" if stats.degree_mean < 5 else "dense"


def _folder() -> resources.abc.Traversable:
    return resources.files("squire.model") / "recipes"


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(
            f"{path}: cannot be read ({error.strerror}). Give a TOML file, or one of {', '.join(recipe_names())}."
        ) from None


def _parsed(content: bytes, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # Windows editors may add a byte order mark
    except ValueError as error:
        raise SettingError(f"{source}: not a TOML file ({error}).") from None


def _override(content: dict[str, Any], override: str) -> None:
    """Apply one `section.key=value`."""
    key, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not text:
        raise SettingError(f"{override!r}: expected key=value, for example train.epochs=3.")
    try:
        _check_known([key])
    except SettingError as error:
        raise SettingError(f"{override}: {error}") from None
    section, _, inner = key.partition(".")
    table = content.setdefault(section, {})
    if isinstance(table, dict):  # anything else is rejected together with the rest of the file
        table[inner] = _value(text)


def _value(text: str) -> object:
    """Parse a TOML value; a bare word is text, since a shell removes quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


# ------------------------------------------------------------------------------------------------- run folders


def save_settings(folder: Path, graph: Graph, recipe: Recipe) -> None:
    """Write the graph and the recipe of a new run into its folder."""
    graph.save(folder / GRAPH)
    save_recipe(folder, recipe)


def save_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe of a run into its folder."""
    with replacing(folder / RECIPE) as temporary:
        temporary.write_text(json.dumps(recipe.to_dict(), indent=1), encoding="utf-8")


def load_settings(folder: Path) -> tuple[Graph, Recipe]:
    """Read the graph and the recipe of a run."""
    check_run(folder)
    try:
        recipe = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except ValueError as error:  # includes invalid UTF-8
        raise SettingError(
            f"{folder / RECIPE}: not JSON ({error}). Restore it from a copy, or train again."
        ) from None
    return Graph.load(folder / GRAPH, folder / INDEXES / "trained"), Recipe.from_dict(recipe, str(folder / RECIPE))


def has_model(folder: Path) -> bool:
    """Whether a run folder contains a trained model."""
    return any(any(folder.glob(f"{name}*.safetensors")) for name in (BEST, LAST))


# ------------------------------------------------------------------------------------------------- checks


def _check_known(keys: Iterable[str]) -> None:
    for key in keys:
        if key not in KEYS:
            raise _unknown_key(key)


def _unknown_key(key: str) -> SettingError:
    """The error for an unknown key, with the nearest keys of any section, or else the nearest section."""
    section, _, last = key.rpartition(".")
    by_last = {known: known.rpartition(".")[2] for known in KEYS}
    exact = [known for known, end in by_last.items() if end == last]
    near = exact or _nearest(last, by_last) or _nearest(section or last, {name: name for name in SECTIONS})
    hint = f" Nearest: {', '.join(repr(known) for known in near)}." if near else ""
    return SettingError(f"unknown key {key!r}.{hint}")


def _nearest(name: str, known: Mapping[str, str]) -> list[str]:
    """The keys of `known` whose values are most similar to `name`, at most three."""
    found = process.extract(name.casefold(), known, scorer=fuzz.WRatio, limit=3, score_cutoff=70)
    return [match for _, _, match in found]


def _typed(key: str, value: object, kind: Any) -> object:
    """Check the type of a value; an int is converted where a float is expected."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            words = " or ".join(_shown(choice) for choice in get_args(kind))
            raise SettingError(f"{key} is {_shown(value)}: expected {words}.")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # not isinstance: a bool is an int
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
        raise SettingError(f"{key} is {_shown(value)}: expected {words}.")
    return value


def _shown(value: object) -> str:
    """The value as it is written in TOML."""
    return json.dumps(value, ensure_ascii=False, default=str)
