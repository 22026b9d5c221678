"""The service under load, on this machine alone: one client; one beside batches of 1,000 questions; 64; 64 among
clients that misbehave.

    python benchmarks/serve.py runs/demo                 # 10 s, 10 s, 60 s and 60 s
    python benchmarks/serve.py runs/demo --seconds 5     # 5 s each

Starts `squire serve` as a process of its own, with a token. Good requests must all be answered; speed is reported
and never judged here. Also times name search over 100,000 names. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from measure import Figures, report

from squire.graph.graph import Graph
from squire.server.autocomplete import LabelSearch

CLIENTS, TOKEN = 64, "load-test"
NAMES, BATCH = 100_000, 1000


@dataclass
class Outcome:
    """What a phase has seen."""

    seconds: list[float] = field(default_factory=list)  # of each good request
    failures: list[str] = field(default_factory=list)  # good requests that were not answered
    bad: Counter[str] = field(default_factory=Counter)  # what misbehaving clients were told
    elapsed: float = 0.0

    def figures(self, name: str) -> Figures:
        milliseconds = 1000 * np.array(self.seconds or [np.nan])
        return {
            f"{name}_queries_per_s": round(len(self.seconds) / self.elapsed, 1),
            f"{name}_p50_ms": round(float(np.percentile(milliseconds, 50)), 1),
            f"{name}_p99_ms": round(float(np.percentile(milliseconds, 99)), 1),
            f"{name}_answered": len(self.seconds),
            f"{name}_failed": len(self.failures),
        }


class Load:
    """Clients of one service."""

    def __init__(self, address: str, questions: Sequence[dict[str, str]]) -> None:
        self.address, self._questions = address, questions
        self.path = f"{address}api/models/model/answer"
        self._host, port = address.removeprefix("http://").rstrip("/").split(":")
        self._port = int(port)

    async def phase(
        self, seconds: float, clients: int, *, misbehaving: bool = False, batches: bool = False
    ) -> Outcome:
        """Good clients ask one question after the other; beside them, if wanted, four of each bad kind, or one who
        asks large batches.
        """
        outcome, begun = Outcome(), time.perf_counter()
        until = begun + seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(limits=limits, timeout=120, headers=headers) as client:
            good = [self._good(client, outcome, until, number) for number in range(clients)]
            kinds = [self._slow, self._huge, self._malformed, self._unauthorised] if misbehaving else []
            bad = [self._bad(kind, outcome, until) for kind in kinds for _ in range(4)]
            large = asyncio.ensure_future(self._batches(client)) if batches else None
            await asyncio.gather(*good, *bad)
            if large:
                large.cancel()
        outcome.elapsed = time.perf_counter() - begun
        return outcome

    async def _good(self, client: httpx.AsyncClient, outcome: Outcome, until: float, number: int) -> None:
        # Everyone begins elsewhere, so that no two ask the same at once.
        questions = itertools.islice(itertools.cycle(self._questions), number, None)
        while time.perf_counter() < until:
            begun = time.perf_counter()
            try:
                found = await client.post(self.path, json={**next(questions), "k": 10})
                if found.status_code != 200 or "answers" not in found.json():
                    raise ValueError(f"{found.status_code} {found.text[:200]}")
                outcome.seconds.append(time.perf_counter() - begun)
            except (httpx.HTTPError, ValueError) as error:
                waited, left = time.perf_counter() - begun, until - time.perf_counter()
                outcome.failures.append(f"{error!r} after {waited:.1f} s, {left:.1f} s before the end")

    async def _batches(self, client: httpx.AsyncClient) -> None:
        """One legal batch after the other."""
        questions = list(itertools.islice(itertools.cycle(self._questions), BATCH))
        while True:
            async with client.stream(
                "POST", self.path.replace("/answer", "/batch"), json={"questions": questions}
            ) as lines:
                lines.raise_for_status()
                async for _ in lines.aiter_lines():
                    pass

    async def _bad(self, kind: Callable[[], Awaitable[str]], outcome: Outcome, until: float) -> None:
        while time.perf_counter() < until:
            outcome.bad[f"{kind.__name__.strip('_')}: {await kind()}"] += 1
            await asyncio.sleep(0.2)  # bad, not mad: the processor is for the good ones

    async def _slow(self) -> str:
        """A body that comes a byte a second."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: 500\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\r\n"
        return await self._raw([head.encode(), *[b" "] * 60], pause=1.0)

    async def _huge(self) -> str:
        """Three megabytes in chunks that do not say how many will come."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self._host}\r\nTransfer-Encoding: chunked\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\r\n"
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        return await self._raw([head.encode(), *[chunk] * 48, b"0\r\n\r\n"])

    async def _malformed(self) -> str:
        return await self._raw([b"\x00\x01 not HTTP at all\r\n\r\n"])

    async def _unauthorised(self) -> str:
        async with httpx.AsyncClient(timeout=120) as client:
            try:
                return str((await client.post(self.path, json=self._questions[0])).status_code)
            except httpx.HTTPError as error:
                return type(error).__name__

    async def _raw(self, parts: Sequence[bytes], pause: float = 0.0) -> str:
        """The status that these bytes are answered with, or `closed`."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        answer = asyncio.ensure_future(reader.read(65536))
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                if pause:
                    await asyncio.wait({answer}, timeout=pause)
                if answer.done():
                    break
            said = await asyncio.wait_for(answer, 60)
            return said.split(b" ")[1].decode() if said else "closed"
        except (OSError, TimeoutError) as error:
            return type(error).__name__
        finally:
            answer.cancel()
            writer.close()


def search_figures() -> Figures:
    """The slowest kinds of search over many names: one letter, and a typing error."""
    rng = np.random.default_rng(0)
    syllables = ["ka", "ro", "mi", "ten", "sol", "bar", "lun", "ve", "dor", "shi", "an", "el", "ost", "gra", "pe"]
    words = ["".join(rng.choice(syllables, rng.integers(2, 5))).capitalize() for _ in range(5000)]
    chosen = rng.integers(len(words), size=(NAMES, 3)).tolist()
    names = [" ".join(words[word] for word in own[: 1 + own[0] % 3]) + f" {i}" for i, own in enumerate(chosen)]
    begun = time.perf_counter()
    search = LabelSearch(names, rng.integers(1, 1000, NAMES))
    figures: Figures = {"index_s": round(time.perf_counter() - begun, 2)}
    typed = {"prefix_ms": [name[:1] for name in names[:50]], "fuzzy_ms": [f"{n[:4]}x{n[4:]}" for n in names[:50]]}
    for kind, texts in typed.items():
        begun = time.perf_counter()
        for text in texts:
            search.find(text, 10)
        figures[kind] = round(1000 * (time.perf_counter() - begun) / len(texts), 2)
    return figures


def load_figures(run: Path, seconds: float | None) -> tuple[Figures, list[str]]:
    """All phases against a service of its own process, and what failed."""
    graph = Graph.load(run / "graph.graph")
    labels = graph.labels
    asked = (graph.test if len(graph.test) else graph.train.triples)[:200].tolist()
    questions = [
        {"head": labels.entities[head], "relation": labels.relations[relation]} for head, relation, _ in asked
    ]
    command = [sys.executable, "-m", "squire", "serve", f"model={run}", "--port", "0"]
    service = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | {"SQUIRE_TOKEN": TOKEN},
    )  # fmt: skip
    try:
        assert service.stdout is not None
        load = Load(service.stdout.readline().split(" at ")[1].strip(), questions)
        single = asyncio.run(load.phase(seconds or 10, 1))
        beside = asyncio.run(load.phase(seconds or 10, 1, batches=True))
        many = asyncio.run(load.phase(seconds or 60, CLIENTS))
        mixed = asyncio.run(load.phase(seconds or 60, CLIENTS, misbehaving=True))
        service.send_signal(signal.SIGTERM)
        figures = (
            single.figures("single")
            | beside.figures("beside_batch")
            | many.figures("many")
            | mixed.figures("mixed")
        )
        figures |= {"bad_clients": dict(sorted(mixed.bad.items())), "exit_code": service.wait(60)}
        return figures, single.failures + beside.failures + many.failures + mixed.failures
    finally:
        if service.poll() is None:
            service.kill()
            service.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--seconds", type=float, help="of each phase; else 10, 60 and 60")
    options = parser.parse_args()
    figures, failures = load_figures(options.run, options.seconds)
    for failure in failures[:10]:
        print("failed:", failure, file=sys.stderr)
    print(f"{CLIENTS} clients; 'mixed': beside 16 that are slow, huge, malformed or unauthorised")
    report(figures | search_figures(), {"fuzzy_ms": f"{NAMES:,} names"})
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
