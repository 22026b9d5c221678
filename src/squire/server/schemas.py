"""What is sent and what comes back, with examples; the OpenAPI document is made of these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from squire.reasoning.answers import Answer, Evidence, Origin
from squire.server.limits import ANNOTATOR_CHARACTERS, BATCH, BEAM, NAME_CHARACTERS, K
from squire.server.models import Options
from squire.studies import SCORES


def _whole(value: Any) -> Any:
    """To JSON, 5 and 5.0 are one number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _score(value: float) -> float:
    if value not in SCORES:
        raise ValueError("expected 1, 0.5 or 0")
    return value


WHOLE = BeforeValidator(_whole)  # after the bounds, which else would not be in the document
Score = Annotated[float, AfterValidator(_score), Field(json_schema_extra={"enum": [1, 0.5, 0]})]
Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS)]
Beam = Annotated[int, Field(ge=1, le=BEAM, description="Paths kept at each step; else the recipe's."), WHOLE]
AnnotatorName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_ .\-]*$",
        min_length=1,
        max_length=ANNOTATOR_CHARACTERS,
        description="Who judges; each annotator has files of their own.",
    ),
]
# One end is given and the other is asked for: in words for programs that read the document.
ONE_END = {
    "oneOf": [
        {"required": ["head"], "properties": {"head": {"type": "string"}, "tail": {"type": "null"}}},
        {"required": ["tail"], "properties": {"head": {"type": "null"}, "tail": {"type": "string"}}},
    ]
}
TAILS = {"head": "Costa Rica", "relation": "official language"}
HEADS = {"head": None, "relation": "official language", "tail": "Portuguese"}


class Body(BaseModel):
    """Unknown keys are refused: they are typing errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _about(*examples: dict[str, Any], **schema: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples), **schema})


class QuestionBody(Body):
    """(head, relation, ?), or (?, relation, tail)."""

    model_config = _about(TAILS, HEADS, **ONE_END)
    head: Name | None = Field(None, description="The entity to ask about; null to ask for it.")
    relation: Name
    tail: Name | None = Field(None, description="Given if the head is asked for.")

    @model_validator(mode="after")
    def _one_end(self) -> QuestionBody:
        if (self.head is None) == (self.tail is None):
            raise ValueError("ask for the head or for the tail: give the other one, and the relation")
        return self


class OptionsBody(Body):
    """How to answer."""

    k: Annotated[int, Field(ge=1, le=K), WHOLE] = Field(10, description="How many answers.")
    grounded: bool = Field(False, description="Walk edges of the graph only.")
    include_known: bool = Field(False, description="Also answers that are in the graph already.")
    beam: Beam | None = None
    aggregate: Literal["sum", "max"] | None = Field(
        None, description="Rank by all paths to an answer, or by the best one; else the recipe's."
    )
    ranking: Literal["paths", "fused"] | None = Field(
        None, description="By the model's paths, or by all evidence; else as the model does by itself."
    )

    def options(self) -> Options:
        return Options(self.k, self.grounded, self.include_known, self.beam, self.aggregate, self.ranking)


class AnswerBody(QuestionBody, OptionsBody):
    """A question, and how to answer it."""

    model_config = _about({**TAILS, "k": 3}, {**HEADS, "grounded": True}, **ONE_END)


class BatchBody(OptionsBody):
    """Many questions, answered alike."""

    model_config = _about({"questions": [TAILS, HEADS], "k": 1})
    questions: list[QuestionBody] = Field(min_length=1, max_length=BATCH)


class ExplainBody(Body):
    """A fact in question."""

    model_config = _about({**TAILS, "tail": "Spanish"})
    head: Name
    relation: Name
    tail: Name
    beam: Beam | None = None


class AttentionBody(QuestionBody):
    """A question, and whose path to look at."""

    model_config = _about({**TAILS, "answer": "Spanish"}, **ONE_END)
    answer: Name | None = Field(None, description="Whose best path; else the best new answer's.")
    layer: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = Field(None, description="From 1; else all layers.")
    beam: Beam | None = None


class JudgementBody(Body):
    """How convincing a path is."""

    model_config = _about({"annotator": "ann", "number": 0, "score": 0.5})
    annotator: AnnotatorName
    number: Annotated[int, Field(ge=0, le=2**31), WHOLE] = Field(description="Of the question.")
    score: Score = Field(description="1 reasonable, 0.5 partially, 0 unreasonable.")


# ------------------------------------------------------------------------------------------------------ answers


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    models: list[str]


class ModelLine(BaseModel):
    name: str
    graph: str
    entities: int
    relations: int
    facts: int
    fused: bool
    default: bool


class ExampleQuestion(BaseModel):
    head: str
    relation: str


class RequestLimits(BaseModel):
    k: int
    beam: int
    batch: int


class ModelCard(ModelLine):
    """What a model is, and how good."""

    step: int
    recipe: dict[str, Any]
    version: str
    description: str
    quality: list[dict[str, Any]] = Field(description="What 'squire evaluate' found: rows with signatures …")
    limits: RequestLimits
    examples: list[ExampleQuestion]


class EntityMatch(BaseModel):
    name: str
    degree: int


class EntityMatches(BaseModel):
    matches: list[EntityMatch]


class RelationMatch(BaseModel):
    name: str
    facts: int
    fits: bool = Field(description="Do entities of the given head's and tail's kind have it?")


class RelationMatches(BaseModel):
    matches: list[RelationMatch]


class Triple(BaseModel):
    head: str
    relation: str
    tail: str


class Explanation(BaseModel):
    """Where an answer stands, and why."""

    question: Triple
    is_fact: bool = Field(description="Is it a fact of the graph already?")
    rank: int | None = Field(description="Among answers that are not in the graph; null if nothing leads there.")
    answer: Answer | None
    origin: Origin


class NeighbourEdge(Triple):
    outgoing: bool


class Neighbourhood(BaseModel):
    entity: str
    degree: int
    edges: list[NeighbourEdge]
    left_out: int


class AttentionMaps(BaseModel):
    """Layers × heads × tokens × tokens: of the third on the fourth."""

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


class Standing(BaseModel):
    """How far an annotator is, and what comes next."""

    annotator: str
    total: int
    judged: int
    next: PathToJudge | None
    summary: dict[str, Any] | None


class ErrorAbout(BaseModel):
    code: str
    message: str
    nearest: list[str] = []


class ErrorBody(BaseModel):
    """What went wrong."""

    error: ErrorAbout
    request_id: str
