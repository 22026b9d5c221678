"""The endpoints of /api."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response, Security
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from squire.errors import UnknownName
from squire.server import models as served
from squire.server import schemas
from squire.server.batching import Batcher, Done
from squire.server.models import Answers, Connections, FactCheck, Model, Options, Reasons, Way, __version__
from squire.server.problems import Problem, as_json
from squire.server.schemas import MAX_EDGES, MAX_LABEL, MAX_MATCHES, Annotator, Label

CHUNK = 4  # questions of a batch that are decoded at once: between two chunks other requests have their turn
Result = TypeVar("Result")


class Service:
    """The models by name, and the threads that decode for them."""

    batcher: Batcher  # while the application runs

    def __init__(self, models: Mapping[str, Model], writable: bool = False) -> None:
        self.models, self.writable, self.writing = dict(models), writable, threading.Lock()

    def is_default(self, model: Model) -> bool:
        return model is next(iter(self.models.values()))

    def submit(
        self, model: Model, queries: Sequence[served.Query], options: Options, *, wait: bool = False
    ) -> Coroutine[Any, Any, Done[bytes]]:
        work = partial(model.answer_all, options=options)
        return self.batcher.submit(work, queries, (model, options), wait=wait)  # after a change it is another one

    async def decode(self, request: Request, work: Callable[[], bytes]) -> Response:
        """Runs any other work in a decoding thread."""
        done = await while_connected(request, self.batcher.submit(lambda _: [work()], [None]))
        return _json(done.results[0])

    async def lines(self, model: Model, body: schemas.BatchBody, start: int, *, wait: bool) -> bytes:
        """One chunk of a batch: a line of JSON for each question."""
        parsed = await run_in_threadpool(_parse, model, body.questions[start : start + CHUNK])
        queries = [one for one in parsed if not isinstance(one, bytes)]
        answers = iter((await self.submit(model, queries, body.options(), wait=wait)).results if queries else [])
        return b"".join((one if isinstance(one, bytes) else next(answers)) + b"\n" for one in parsed)

    async def stream(self, model: Model, body: schemas.BatchBody, first: bytes) -> AsyncIterator[bytes]:
        """All chunks of a batch, of which the first is there already."""
        yield first
        for start in range(CHUNK, len(body.questions), CHUNK):
            yield await self.lines(model, body, start, wait=True)


def _parse(model: Model, questions: Sequence[schemas.QuestionBody]) -> list[served.Query | bytes]:
    """The ids of each question, or the error that it gets."""
    parsed: list[served.Query | bytes] = []
    for one in questions:
        try:
            parsed.append(model.query(one.head, one.relation, one.tail))
        except UnknownName as error:
            parsed.append(as_json(Problem.from_error(error).content()))
    return parsed


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Cancels the work if the client disconnects: cancelled requests are skipped."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Problem(499, "the client disconnected.")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schemas.ErrorBody} for status in statuses}


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]


async def _model(service: ServiceDep, model: str) -> Model:
    if model not in service.models:
        message = f"no model {model!r} here. There is: {', '.join(service.models)}."
        raise Problem(404, message, code="unknown_model")
    return service.models[model]


ModelDep = Annotated[Model, Depends(_model)]
Text = Annotated[str, Query(max_length=MAX_LABEL, description="What was typed.", examples=["cost"])]
Matches = Annotated[int, Query(ge=1, le=MAX_MATCHES)]

# Checked by `security`, before anything is read; this only tells clients about it.
TOKEN = Security(HTTPBearer(auto_error=False, description="Needed if the service was started with a token."))
ALWAYS = (400, 401, 403, 408, 413, 503)  # 503: all connections are taken, or the service is stopping

api = APIRouter(prefix="/api", responses=_errors(*ALWAYS))
model_api = APIRouter(prefix="/api/models/{model}", responses=_errors(*ALWAYS, 404, 422), dependencies=[TOKEN])
posted = _errors(415)
decoding = _errors(415, 429)


@api.get("/health", tags=["models"])
async def health(service: ServiceDep) -> schemas.Health:
    """Whether the service is up. Needs no token."""
    return schemas.Health(status="ok", version=__version__, models=list(service.models))


@api.get("/models", tags=["models"], response_model=list[schemas.ModelSummary], dependencies=[TOKEN])
async def models(service: ServiceDep) -> Any:
    """All models; the first is the default."""
    return [model.summary() | {"default": service.is_default(model)} for model in service.models.values()]


@model_api.get("", tags=["models"], response_model=schemas.ModelCard)
def model_card(service: ServiceDep, model: ModelDep) -> Any:
    """What a model is, and how good, beside the rules and the frequency of answers."""
    return model.card() | {"default": service.is_default(model)}


@model_api.get("/entities", tags=["labels"], response_model=dict[str, list[schemas.EntityMatch]])
def entities(model: ModelDep, q: Text = "", limit: Matches = 10) -> Any:
    """Entities whose label begins with the text, then those with a word that does, then similar ones."""
    return {"matches": model.find_entities(q, limit)}


@model_api.get("/relations", tags=["labels"], response_model=dict[str, list[schemas.RelationMatch]])
def relations(
    model: ModelDep,
    q: Text = "",
    head: Annotated[Label | None, Query(description="Relations that fit this head come first.")] = None,
    tail: Annotated[Label | None, Query(description="Relations that fit this tail come first.")] = None,
    limit: Matches = 50,
) -> Any:
    """Relations, found like entities."""
    return {"matches": model.find_relations(q, head, tail, limit)}


@model_api.get("/neighbourhood", tags=["labels"], response_model=schemas.Neighbourhood)
def neighbourhood(
    model: ModelDep,
    entity: Annotated[Label, Query(examples=["Costa Rica"])],
    limit: Annotated[int, Query(ge=1, le=MAX_EDGES)] = 40,
    start: Annotated[int, Query(ge=0, le=2**31, description="Edges to leave out at the beginning.")] = 0,
    relation: Annotated[Label | None, Query(description="Only edges of this relation.")] = None,
    way: Annotated[Way | None, Query(description="Only edges from the entity, to it, or both ways.")] = None,
) -> Any:
    """Edges of an entity, taking turns over its relations, and how many there are of each."""
    return model.neighbourhood(entity, limit, start, relation, way)


@model_api.get("/doubt", tags=["questions"], response_model=schemas.Doubts, responses=_errors(429))
async def doubt(
    request: Request,
    service: ServiceDep,
    model: ModelDep,
    entity: Annotated[Label, Query(examples=["Costa Rica"])],
    limit: Matches = 5,
) -> Response:
    """The least likely facts of an entity, each judged as if it were not there: `squire doubt`."""
    await run_in_threadpool(model.entity_id, entity)
    return await service.decode(request, lambda: model.doubt(entity, limit))


@model_api.post("/answer", tags=["questions"], response_model=Answers, responses=decoding)
async def answer(request: Request, service: ServiceDep, model: ModelDep, body: schemas.AnswerBody) -> Response:
    """What the graph says, and the best new answers with their evidence: the JSON of `squire answer --json`."""
    if body.facts:
        return await service.decode(request, lambda: model.answer_if(body, schemas.rows_of(body.facts)))
    query = await run_in_threadpool(model.query, body.head, body.relation, body.tail)
    done = await while_connected(request, service.submit(model, [query], body.options()))
    request.scope["squire"]["log"]["batch_size"] = done.batch_size
    return _json(done.results[0])


async def _claim(model: Model, body: schemas.ClaimBody) -> served.Rows:
    """The supposed facts. Without any, an unknown name need not wait."""
    if not body.facts:
        await run_in_threadpool(model.query, body.head, body.relation)
        await run_in_threadpool(model.entity_id, body.tail)
    return schemas.rows_of(body.facts)


@model_api.post("/check", tags=["questions"], response_model=FactCheck, responses=decoding)
async def check(request: Request, service: ServiceDep, model: ModelDep, body: schemas.CheckBody) -> Response:
    """How likely a fact is, and what speaks for and against it: the JSON of `squire check --json`."""
    supposed = await _claim(model, body)
    return await service.decode(
        request, lambda: model.check(body.head, body.relation, body.tail, body.beam, supposed)
    )


@model_api.post("/connect", tags=["questions"], response_model=Connections, responses=decoding)
async def connect(request: Request, service: ServiceDep, model: ModelDep, body: schemas.ConnectBody) -> Response:
    """How two entities are connected, and what that suggests: the JSON of `squire connect --json`."""
    supposed = schemas.rows_of(body.facts)
    for entity in () if supposed else (body.first, body.second):
        await run_in_threadpool(model.entity_id, entity)
    return await service.decode(request, lambda: model.connect(body.first, body.second, body.hops, supposed))


@model_api.post("/why", tags=["questions"], response_model=Reasons, responses=decoding)
async def why(request: Request, service: ServiceDep, model: ModelDep, body: schemas.ClaimBody) -> Response:
    """What an answer hangs on, and what is behind its sources: the JSON of `squire why --json`."""
    supposed = await _claim(model, body)
    return await service.decode(request, lambda: model.why(body.head, body.relation, body.tail, supposed))


@model_api.post("/attention", tags=["questions"], response_model=schemas.AttentionMaps, responses=decoding)
async def attention(
    request: Request, service: ServiceDep, model: ModelDep, body: schemas.AttentionBody
) -> Response:
    """Which tokens of a path attend to which, layer by layer."""
    query = await run_in_threadpool(model.query, body.head, body.relation, body.tail)
    return await service.decode(request, lambda: model.attention(query, body.answer, body.layer, body.beam))


NDJSON = {
    "description": "One line per question.",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
}


@model_api.post(
    "/batch", tags=["questions"], response_class=StreamingResponse, responses={**decoding, 200: NDJSON}
)
async def batch(service: ServiceDep, model: ModelDep, body: schemas.BatchBody) -> Response:
    """Many questions: one line of JSON for each, in order, as soon as it is ready."""
    first = await service.lines(model, body, 0, wait=False)  # before the headers: a busy service answers 429
    return StreamingResponse(service.stream(model, body, first), media_type="application/x-ndjson")


@model_api.get("/annotation", tags=["annotation"], response_model=schemas.AnnotationProgress)
def annotation_progress(model: ModelDep, annotator: Annotated[Annotator, Query(examples=["ann"])]) -> Any:
    """How far an annotator is, and the next path to judge."""
    return model.annotation_progress(annotator)


@model_api.post("/annotation", tags=["annotation"], response_model=schemas.AnnotationProgress, responses=posted)
def judge(model: ModelDep, body: schemas.JudgementBody) -> Any:
    """Records how convincing a path is; the last judgement of a question counts."""
    return model.judge(body.annotator, body.number, body.score)


@model_api.get("/review", tags=["review"], response_model=schemas.ReviewCards, responses=_errors(429))
async def review(
    request: Request, service: ServiceDep, model: ModelDep, start: Annotated[int, Query(ge=0, le=2**31)] = 0
) -> Response:
    """Predicted and doubtful facts that nobody has decided about yet."""
    return await service.decode(request, lambda: model.review(start))


@model_api.post("/review", tags=["review"], response_model=schemas.ReviewProgress, responses=posted)
def decide(model: ModelDep, body: schemas.DecisionBody) -> Any:
    """Records a decision in the run folder, where `squire add` finds the accepted facts. The last one counts."""
    return model.decide(body.head, body.relation, body.tail, body.decision)
