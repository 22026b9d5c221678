"""Request and response bodies with examples, from which FastAPI makes the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from squire.errors import SettingError
from squire.server.models import SCORES, Aggregate, Decision, Evidence, Options, RankedBy, Way
from squire.studies import ANNOTATOR, check_annotator

# Limits of one request; also in docs/service.md.
MAX_K, MAX_BEAM, MAX_BATCH = 100, 1024, 1000
MAX_LABEL = 2000  # characters
MAX_SUPPOSED = 100  # facts that count for one question
MAX_MATCHES, MAX_EDGES = 200, 500  # labels of one search, edges of one neighbourhood


def _integer(value: Any) -> Any:
    """In JSON, 5 and 5.0 are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _score(value: float) -> float:
    if value not in SCORES:
        raise ValueError("expected 1, 0.5 or 0")
    return value


def _annotator(name: str) -> str:
    try:
        return check_annotator(name)
    except SettingError as error:
        raise ValueError(str(error).partition(": ")[2].rstrip(".")) from None


def _name(label: str) -> str:
    if "\0" in label:
        raise ValueError("a name cannot contain a NUL character")
    return label


INTEGER = BeforeValidator(_integer)  # placed after the bounds, or these would be missing from the document
Label = Annotated[
    str,
    Field(min_length=1, max_length=MAX_LABEL, json_schema_extra={"pattern": r"^[^\x00]*$"}),
    AfterValidator(_name),
]
Beam = Annotated[
    int, Field(ge=1, le=MAX_BEAM, description="Paths kept at each step; default: the recipe's."), INTEGER
]
Score = Annotated[float, AfterValidator(_score), Field(json_schema_extra={"enum": [1, 0.5, 0]})]
Annotator = Annotated[
    str,
    AfterValidator(_annotator),
    Field(
        description="Who judges; every annotator has a file of their own.",
        json_schema_extra={"pattern": f"^{ANNOTATOR}$"},
    ),
]
# Either head or tail is given; the other one is asked for.
ONE_END = {
    "oneOf": [
        {"required": ["head"], "properties": {"head": {"type": "string"}, "tail": {"type": "null"}}},
        {"required": ["tail"], "properties": {"head": {"type": "null"}, "tail": {"type": "string"}}},
    ]
}
ASK_TAIL = {"head": "Niger", "relation": "official language"}
ASK_HEAD = {"head": None, "relation": "official language", "tail": "Portuguese"}


def _config(*examples: dict[str, Any], **schema: Any) -> ConfigDict:
    """Refuses unknown keys: they are typing errors."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples), **schema})


class QuestionBody(BaseModel):
    """(head, relation, ?), or (?, relation, tail)."""

    model_config = _config(ASK_TAIL, ASK_HEAD, **ONE_END)
    head: Label | None = Field(None, description="Null to ask for the head.")
    relation: Label
    tail: Label | None = Field(None, description="Null to ask for the tail.")

    @model_validator(mode="after")
    def _one_end(self) -> QuestionBody:
        if (self.head is None) == (self.tail is None):
            raise ValueError("give either the head or the tail, and the relation")
        return self


class OptionsBody(BaseModel):
    """How to answer."""

    model_config = _config()
    k: Annotated[int, Field(ge=1, le=MAX_K), INTEGER] = Field(10, description="The number of new answers.")
    grounded: bool = Field(False, description="Only follow edges of the graph.")
    new_only: bool = Field(False, description="Leave out what the graph says already.")
    beam: Beam | None = None
    aggregate: Aggregate | None = Field(
        None, description="Rank by the sum over all paths or by the best path; default: the recipe's."
    )
    ranking: RankedBy | None = Field(
        None, description="Rank by the model's paths or by all evidence (fused); default: fused if possible."
    )

    among: list[Label] | None = Field(
        None, min_length=1, max_length=MAX_BATCH, description="The entities that may be answers."
    )
    type: Label | None = Field(None, description="Only entities of this type may be answers.")
    not_linked: bool = Field(False, description="Only entities that no fact links to the one asked about.")

    def options(self) -> Options:
        among = None if self.among is None else tuple(self.among)
        search = self.beam, self.aggregate, self.ranking
        return Options(self.k, self.grounded, self.new_only, *search, among, self.type, self.not_linked)


class FactBody(BaseModel):
    """A fact; its entities may be new."""

    model_config = _config({**ASK_TAIL, "tail": "French"})
    head: Label
    relation: Label
    tail: Label


Supposed = Annotated[
    list[FactBody], Field(max_length=MAX_SUPPOSED, description="What if these facts were true? Nothing is kept.")
]


def rows_of(facts: Sequence[FactBody]) -> list[tuple[str, str, str]]:
    """As rows of labels."""
    return [(one.head, one.relation, one.tail) for one in facts]


class AnswerBody(QuestionBody, OptionsBody):
    """A question, and how to answer it."""

    model_config = _config({**ASK_TAIL, "k": 3}, {**ASK_HEAD, "grounded": True}, **ONE_END)
    facts: Supposed = []


class BatchBody(OptionsBody):
    """Many questions with the same options."""

    model_config = _config({"questions": [ASK_TAIL, ASK_HEAD], "k": 1})
    questions: list[QuestionBody] = Field(min_length=1, max_length=MAX_BATCH)


class ClaimBody(FactBody):
    """A possible fact."""

    facts: Supposed = []


class CheckBody(ClaimBody):
    """A possible fact, and how far to search."""

    beam: Beam | None = None


class ConnectBody(BaseModel):
    """Two entities."""

    model_config = _config({"first": "Austria", "second": "Germany"})
    first: Label
    second: Label
    hops: Annotated[int, Field(ge=1, le=3), INTEGER] = Field(3, description="Facts in a path, at most.")
    facts: Supposed = []


class AttentionBody(QuestionBody):
    """A question, and the answer whose path is looked at."""

    model_config = _config({**ASK_TAIL, "answer": "French"}, **ONE_END)
    answer: Label | None = Field(None, description="Default: the best answer that is not in the graph.")
    layer: Annotated[int, Field(ge=1, le=1000), INTEGER] | None = Field(None, description="From 1; default: all.")
    beam: Beam | None = None


class JudgementBody(BaseModel):
    """How convincing a path is."""

    model_config = _config({"annotator": "ann", "number": 0, "score": 0.5})
    annotator: Annotator
    number: Annotated[int, Field(ge=0, le=2**31), INTEGER] = Field(description="The number of the question.")
    score: Score = Field(description="1 reasonable, 0.5 partially reasonable, 0 unreasonable.")


class DecisionBody(FactBody):
    """What a person says about a fact."""

    model_config = _config({**ASK_TAIL, "tail": "French", "decision": "accept"})
    decision: Decision


# ---------------------------------------------------------------------------------------------------- responses


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    models: list[str]


class ModelSummary(BaseModel):
    name: str
    graph: str
    entities: int
    relations: int
    facts: int
    fused: bool
    default: bool


class ModelCard(ModelSummary):
    """What a model is, and how good."""

    step: int
    recipe: dict[str, Any]
    version: str
    description: str
    missing: float | None = Field(description="Share of true facts that the graph is assumed to lack.")
    quality: list[dict[str, Any]] = Field(description="Results of `squire evaluate`: rows with signatures …")
    limits: dict[str, int] = {"k": MAX_K, "beam": MAX_BEAM, "batch": MAX_BATCH}
    examples: list[dict[str, str]] = Field(
        description="Questions: a head, a relation and, if it is known to be right, the answer."
    )


class EntityMatch(BaseModel):
    name: str
    degree: int


class RelationMatch(BaseModel):
    name: str
    facts: int
    fits: bool = Field(description="Whether entities similar to the given head and tail have this relation.")


class Triple(BaseModel):
    head: str
    relation: str
    tail: str


class NeighbourEdge(Triple):
    way: Way = Field(description="From the entity, to it, or both: then the fact is there in both directions.")


class NeighbourGroup(BaseModel):
    relation: str
    way: Way
    count: int


class Neighbourhood(BaseModel):
    entity: str
    degree: int
    edges: list[NeighbourEdge]
    left_out: int
    groups: list[NeighbourGroup] = Field(
        description="How many edges there are of each relation and direction; the largest group first."
    )


class Doubt(Triple):
    confidence: float = Field(description="How likely the fact would be if the graph did not have it.")
    against: str


class Doubts(BaseModel):
    facts: list[Doubt]
    judged: int
    left_out: int = Field(description="Facts that cannot be judged: nothing else is known about one end.")


class AttentionMaps(BaseModel):
    """Attention weights (layer, head, token, token): of the first token on the second."""

    signature: str
    question: str
    answer: str
    grade: str
    tokens: list[str]
    query_tokens: int
    weights: list[list[list[list[float]]]]
    layer: int | None


class PathToJudge(BaseModel):
    number: int
    question: Triple
    evidence: Evidence


class AnnotationProgress(BaseModel):
    """How far an annotator is, and the next path to judge."""

    annotator: str
    total: int
    judged: int
    next: PathToJudge | None
    summary: dict[str, Any] | None


class ReviewProgress(BaseModel):
    accepted: int
    rejected: int
    skipped: int
    counted: int = Field(description="Decisions that confidence takes into account; 0 while there are too few.")


class ReviewCard(Triple):
    is_fact: bool = Field(description="Whether the graph has it, but it is doubtful.")
    confidence: float | None
    why: str


class ReviewCards(BaseModel):
    """Facts to decide about."""

    cards: list[ReviewCard]
    next: int | None = Field(description="Where to go on; null if there are no more.")
    progress: ReviewProgress


class ErrorDetail(BaseModel):
    code: str
    message: str
    nearest: list[str] = []


class ErrorBody(BaseModel):
    error: ErrorDetail
    request_id: str
