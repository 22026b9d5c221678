"""The API, endpoint by endpoint: read the request, ask the model, send what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from squire.core.version import __version__
from squire.errors import UnknownName
from squire.reasoning.answers import Answers
from squire.server import annotating, cards
from squire.server import models as served
from squire.server.batcher import Batcher, Done
from squire.server.limits import EDGES, MATCHES, NAME_CHARACTERS
from squire.server.models import Model, Options
from squire.server.neighbourhood import neighbourhood
from squire.server.problems import Problem, as_json
from squire.server.schemas import (
    AnnotatorName,
    AnswerBody,
    AttentionBody,
    AttentionMaps,
    BatchBody,
    EntityMatches,
    ErrorBody,
    ExplainBody,
    Explanation,
    Health,
    JudgementBody,
    ModelCard,
    ModelLine,
    Name,
    Neighbourhood,
    QuestionBody,
    RelationMatches,
    Standing,
)

CHUNK = 8  # questions of a batch at once: between two chunks others have their turn
Result = TypeVar("Result")
Typed = Annotated[str, Query(max_length=NAME_CHARACTERS, description="What was typed.", examples=["cost"])]


class Service:
    """The models by their names, and the thread that asks them."""

    batcher: Batcher  # from start to end of the application

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = dict(models)

    def model(self, name: str) -> Model:
        if name not in self.models:
            raise Problem(404, f"no model {name!r} here: there is {', '.join(self.models)}.", code="unknown_model")
        return self.models[name]

    def is_default(self, model: Model) -> bool:
        return model is next(iter(self.models.values()))

    async def decode(self, request: Request, work: Callable[[], bytes]) -> Response:
        """Work for the thread that is nobody else's."""
        done = await self._while_connected(request, self.batcher.ask(lambda _: [work()], [None]))
        return _json(done.results[0])

    async def answer(self, request: Request, model: Model, query: served.Query, options: Options) -> Response:
        done = await self._while_connected(request, self.ask(model, [query], options))
        request.scope["squire"]["log"]["together"] = done.together
        return _json(done.results[0])

    def ask(
        self, model: Model, queries: Sequence[served.Query], options: Options, *, patient: bool = False
    ) -> Coroutine[Any, Any, Done[bytes]]:
        group = model.name, options
        return self.batcher.ask(partial(model.answer_all, options=options), queries, group, patient=patient)

    async def _while_connected(self, request: Request, work: Coroutine[Any, Any, Result]) -> Result:
        """What nobody waits for any more is not done."""
        doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Problem(499, "the client has gone.")
            return doing.result()
        finally:
            doing.cancel()
            gone.cancel()

    async def stream(self, model: Model, body: BatchBody, first: bytes) -> AsyncIterator[bytes]:
        """A line a question, in order; `first` are the lines of the first chunk."""
        yield first
        for start in range(CHUNK, len(body.questions), CHUNK):
            yield await self.lines(model, body, start, patient=True)

    async def lines(self, model: Model, body: BatchBody, start: int, *, patient: bool) -> bytes:
        queries = await run_in_threadpool(_understood, model, body.questions[start : start + CHUNK])
        asked = [query for query in queries if not isinstance(query, bytes)]
        found = iter((await self.ask(model, asked, body.options(), patient=patient)).results if asked else [])
        return b"".join((one if isinstance(one, bytes) else next(found)) + b"\n" for one in queries)


def _understood(model: Model, questions: Sequence[QuestionBody]) -> list[served.Query | bytes]:
    """The ids of each question, or what is wrong with it."""
    understood: list[served.Query | bytes] = []
    for one in questions:
        try:
            understood.append(model.query(one.head, one.relation, one.tail))
        except UnknownName as error:
            understood.append(as_json(Problem.from_error(error).content()))
    return understood


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorBody} for status in (400, 401, 403, *statuses)}


def api_router(service: Service) -> APIRouter:
    """All of /api."""
    router = APIRouter(prefix="/api")
    _about_models(router, service)
    _about_names(router, service)
    _about_questions(router, service)
    _about_judgements(router, service)
    return router


def _about_models(router: APIRouter, service: Service) -> None:
    @router.get("/health", tags=["models"], responses=_errors())
    async def health() -> Health:
        """Is the service there? Needs no token."""
        return Health(status="ok", version=__version__, models=list(service.models))

    @router.get("/models", tags=["models"], response_model=list[ModelLine], responses=_errors())
    async def models() -> Any:
        """All models; the first is the default."""
        return [cards.summary(model, service.is_default(model)) for model in service.models.values()]

    @router.get("/models/{model}", tags=["models"], response_model=ModelCard, responses=_errors(404))
    def model_card(model: str) -> Any:
        """What a model is, and how good, beside the rules and the frequency of answers."""
        one = service.model(model)
        return cards.card(one, service.is_default(one))


def _about_names(router: APIRouter, service: Service) -> None:
    @router.get(
        "/models/{model}/entities", tags=["names"], response_model=EntityMatches, responses=_errors(404, 422)
    )
    def entities(model: str, q: Typed = "", limit: Annotated[int, Query(ge=1, le=MATCHES)] = 10) -> Any:
        """Entities that begin so, then those with a word that does, then similar ones."""
        return {"matches": service.model(model).find_entities(q, limit)}

    @router.get(
        "/models/{model}/relations", tags=["names"], response_model=RelationMatches, responses=_errors(404, 422)
    )
    def relations(
        model: str,
        q: Typed = "",
        head: Annotated[Name | None, Query(description="Relations that fit it come first.")] = None,
        tail: Annotated[Name | None, Query(description="Relations that lead to its kind come first.")] = None,
        limit: Annotated[int, Query(ge=1, le=MATCHES)] = 50,
    ) -> Any:
        """Relations, found like entities."""
        return {"matches": service.model(model).find_relations(q, head, tail, limit)}

    @router.get(
        "/models/{model}/neighbourhood", tags=["names"], response_model=Neighbourhood, responses=_errors(404, 422)
    )
    def around(
        model: str,
        entity: Annotated[Name, Query(examples=["Costa Rica"])],
        limit: Annotated[int, Query(ge=1, le=EDGES)] = 40,
    ) -> Any:
        """Known facts of an entity, in turns over its relations."""
        one = service.model(model)
        return neighbourhood(one.graph, one.entity(entity), limit)


def _about_questions(router: APIRouter, service: Service) -> None:
    answering = _errors(404, 413, 422, 429)

    @router.post("/models/{model}/answer", tags=["questions"], response_model=Answers, responses=answering)
    async def answer(request: Request, model: str, body: AnswerBody) -> Response:
        """The best answers to a question, each with its evidence: the JSON of `squire answer --json`."""
        one = service.model(model)
        query = await run_in_threadpool(one.query, body.head, body.relation, body.tail)
        return await service.answer(request, one, query, body.options())

    @router.post("/models/{model}/explain", tags=["questions"], response_model=Explanation, responses=answering)
    async def explain(request: Request, model: str, body: ExplainBody) -> Response:
        """Where a given answer stands, and what speaks for it."""
        one = service.model(model)
        query = await run_in_threadpool(one.query, body.head, body.relation)
        tail = await run_in_threadpool(one.entity, body.tail)
        return await service.decode(request, lambda: one.explain(query, tail, body.beam))

    @router.post(
        "/models/{model}/attention", tags=["questions"], response_model=AttentionMaps, responses=answering
    )
    async def attention(request: Request, model: str, body: AttentionBody) -> Response:
        """Which tokens of a path look at which, layer by layer."""
        one = service.model(model)
        query = await run_in_threadpool(one.query, body.head, body.relation, body.tail)
        return await service.decode(request, lambda: one.attention(query, body.answer, body.layer, body.beam))

    ndjson = {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}

    @router.post(
        "/models/{model}/batch",
        tags=["questions"],
        response_class=StreamingResponse,
        responses={**answering, 200: {"description": "A line a question, in order.", **ndjson}},
    )
    async def batch(model: str, body: BatchBody) -> Response:
        """Many questions: a line of JSON for each, in order, as soon as it is there."""
        one = service.model(model)
        first = await service.lines(one, body, 0, patient=False)  # so that a busy service can still say so
        return StreamingResponse(service.stream(one, body, first), media_type="application/x-ndjson")


def _about_judgements(router: APIRouter, service: Service) -> None:
    @router.get(
        "/models/{model}/annotation", tags=["judging"], response_model=Standing, responses=_errors(404, 422)
    )
    def standing(model: str, annotator: Annotated[AnnotatorName, Query(examples=["ann"])]) -> Any:
        """How far an annotator is, and the next path to judge."""
        return annotating.standing(service.model(model).folder, annotator)

    @router.post(
        "/models/{model}/annotation", tags=["judging"], response_model=Standing, responses=_errors(404, 413, 422)
    )
    def judge(model: str, body: JudgementBody) -> Any:
        """Say how convincing a path is; the last judgement of a question counts."""
        return annotating.judge(service.model(model).folder, body.annotator, body.number, body.score)
