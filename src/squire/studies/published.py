"""Published figures of systems that cannot be run here, each with its source. MRR, Hits@1, Hits@3, Hits@10."""

from __future__ import annotations

from typing import NamedTuple

PAPER = "Bai et al. 2022 (SQUIRE), Table 2"
HOGRN = "HoGRN, its authors' logs"
NBFNET, ADAPROP, KNOWFORMER = "NBFNet, README", "AdaProp, README", "KnowFormer, as tabulated by a third party"


class Published(NamedTuple):
    """A row below the line."""

    graph: str
    system: str
    side: str
    mrr: float | None
    hits1: float | None
    hits3: float | None
    hits10: float | None
    source: str


_TABLE_2 = {
    "TransE": ".425 .320 .475 .635 .371 .209 .473 .654 .263 .178 .288 .434 .179 .076 .208 .379",
    "ConvE": ".438 .342 .483 .627 .542 .449 .594 .709 .264 .187 .284 .422 .279 .193 .301 .467",
    "RotatE": ".426 .321 .474 .635 .513 .411 .570 .708 .265 .185 .286 .430 .217 .141 .232 .368",
    "TuckER": ".451 .357 .495 .635 .511 .422 .556 .682 .246 .178 .261 .384 .207 .143 .224 .338",
    "ConE": ".446 .345 .490 .645 .543 .448 .602 .715 .274 .193 .298 .437 .234 .158 .249 .400",
    "AnyBURL": "- .300 .405 .544 - .389 .521 .628 - .159 .240 .359 - .140 .203 .292",
    "MINERVA": ".275 .199 .306 .433 .391 .293 .449 .575 .123 .070 .133 .236 .151 .101 .159 .247",
    "MultiHopKG": ".407 .327 .443 .564 .467 .388 .512 .609 .231 .167 .250 .361 .178 .124 .188 .297",
    "RuleGuider": ".387 .297 .428 .563 .417 .344 .476 .582 .094 .042 .094 .210 .112 .030 .140 .273",
    "DacKGR": ".347 .274 .382 .493 .421 .347 .464 .554 .246 .180 .270 .386 .197 .133 .211 .337",
    "SQUIRE": ".421 .329 .465 .606 .498 .409 .550 .668 .249 .180 .272 .401 .233 .157 .256 .389",
    "SQUIRE + self-consistency": ".433 .341 .476 .617 .519 .434 .570 .682 .253 .180 .276 .406 .244 .165 .269 .412",
}
_GRAPHS = ("FB15K237", "NELL995", "FB15K237-20", "NELL23K")


def _paper() -> list[Published]:
    rows = []
    for system, text in _TABLE_2.items():
        figures = [None if word == "-" else float(word) for word in text.split()]
        for i, graph in enumerate(_GRAPHS):
            mrr, hits1, hits3, hits10 = figures[4 * i : 4 * i + 4]
            rows.append(Published(graph, system, "tail", mrr, hits1, hits3, hits10, PAPER))
    return rows


def _mrr(graph: str, system: str, side: str, mrr: float, source: str) -> Published:
    return Published(graph, system, side, mrr, None, None, None, source)


PUBLISHED: tuple[Published, ...] = (
    *_paper(),
    _mrr("FB15K237", "HoGRN", "tail", 0.432, HOGRN),
    _mrr("FB15K237-20", "HoGRN", "tail", 0.266, HOGRN),
    _mrr("NELL23K", "HoGRN", "tail", 0.292, HOGRN),
    _mrr("NELL23K", "HoGRN", "both", 0.247, HOGRN),
    _mrr("FB15K237", "NBFNet", "both", 0.415, NBFNET),
    _mrr("FB15K237", "AdaProp", "both", 0.417, ADAPROP),
    _mrr("FB15K237", "KnowFormer", "both", 0.430, KNOWFORMER),
    _mrr("WN18RR", "NBFNet", "both", 0.551, NBFNET),
    _mrr("WN18RR", "AdaProp", "both", 0.562, ADAPROP),
    _mrr("WN18RR", "KnowFormer", "both", 0.579, KNOWFORMER),
)
