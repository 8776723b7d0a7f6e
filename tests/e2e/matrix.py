"""The official SDKs over the whole matrix of turns in which the model reads removed texts back: each API, whole and
streamed, each way in which the proxy's calls and the client's come together, and each way in which a second call fails.

It is about what is said, not how fast: a debug build waits for its state file as long as it has to.

Usage: matrix.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import openai
from checks import attempt, check, conclude
from matrix_chat import Chat
from matrix_messages import Messages
from matrix_responses import Chained, Responses
from matrix_turns import ARGUMENTS, EVERY_TOOL, LEAVINGS, NEEDLE, OWN, STREAMED, TOOL, TURNS, WHOLE
from stand import Provider, Proxy, messages, write_config
from wiretap import Recorder, Tap

DIALECTS = [Chat(), Responses(), Chained(), Messages()]
WINDOW = 200_000
MAX_RESULT_CHARS = 2_000
LINES, LONG_TURNS, LONG_LINES = 60, 11, 50
# What no client is ever to see: the names of the proxy's tools, the ids of the model's calls of them, its prefix.
TRACES = [b"read_evicted", b"session_", b"memory_", b"own_", b"compactproxy"]
KEY = "sk-e2e-matrix"
# In a release build on a busy machine a commit may take too long, and a request goes as it is, for good.
PATIENT_BUILD = {"COMPACTPROXY_BUILD": "target/debug", "COMPACTPROXY_TEST_STORE_SECONDS": "60"}
POLICY = f"""
[[policy]]
match = {{ model = "{EVERY_TOOL}" }}
tools = {{ inject = "always" }}
"""


def lines(count, what):
    return "\n".join(f"{n:04} {what}: nothing of note, all rows were read and written as they were" for n in range(count))


LONG = f"{lines(LINES, 'before')}\n{NEEDLE}\n{lines(LINES, 'after')}"


class Talk:
    """One conversation, in which a long result has just come."""

    def __init__(self, dialect, mode, turn):
        self.dialect, self.mode, self.turn = dialect, mode, turn
        self.name = f"{dialect.name}, {mode}: {turn.name}"
        self.model = f"{dialect.name}-{mode}-{turn.name}"
        self.thinks = bool(getattr(turn, "thoughts", ""))
        self.items = dialect.user(f"Work on {self.model}.")
        if getattr(turn, "long", False):
            for n in range(LONG_TURNS):
                self.items += dialect.said(f"Step {n}.") + dialect.user(lines(LONG_LINES, f"of turn {n}"))
        self.items += dialect.called("call_0") + dialect.answered([("call_0", LONG)], "What does it say?")
        self.fresh, self.previous = self.items[:], None
        self.usage = None

    def goes_on(self, had):
        """Takes an answer into the history as the SDK gave it, runs its calls, and says something."""
        answer = had.items if self.mode == WHOLE else self.dialect.as_sent(had)
        self.fresh = self.dialect.answered([(id, "done") for id, _, _ in had.calls], "Go on.")
        self.items = [*self.items, *answer, *self.fresh]
        self.previous = had.id


class Stand:
    """The provider, the tap before it, the proxy."""

    def __init__(self, folder):
        self.provider = Provider(folder, 0, WINDOW, folder / "script.json")
        self.tap = Tap(self.provider.address)
        self.provider.address = self.tap.address
        write_config(folder, self.provider, MAX_RESULT_CHARS, POLICY)
        os.environ |= PATIENT_BUILD
        self.proxy = Proxy(folder)


class Client:
    """One SDK client, and what it is given."""

    def __init__(self, dialect, proxy):
        self.dialect, self.wire = dialect, Recorder()
        self.sdk = dialect.client(proxy.root, self.wire, KEY)

    def asks(self, talk):
        """One answer, whole or by the SDK's own accumulator."""
        request = self.dialect.request(talk)
        if talk.mode == WHOLE:
            had = self.dialect.read(self.dialect.create(self.sdk, request))
        else:
            with self.dialect.stream(self.sdk, request) as stream:
                events = [event for event in stream if self.dialect.delta(event) is not None]
                had = self.dialect.read(self.dialect.final(stream))
            self.dialect.well_formed(events, had)
        self.no_trace()
        return had

    def no_trace(self):
        seen = [trace for trace in TRACES if trace in self.wire.body]
        assert not seen, f"{seen} in {bytes(self.wire.body)}"

    def reads(self, talk, until):
        """Reads the deltas of a stream until that is enough, and leaves it."""
        text = ""
        with self.dialect.stream(self.sdk, self.dialect.request(talk)) as stream:
            for event in stream:
                text += self.dialect.delta(event)
                if until(text):
                    break
        return text


def played(client, talk):
    """A turn, and those behind it."""
    turn = talk.turn
    if turn.error:
        return refused(client, talk)
    if turn.breaks:
        return broken_off(client, talk)
    had = client.asks(talk)
    same("text", had.text, turn.text)
    same("thoughts", had.thoughts, turn.thoughts)
    same("calls", had.calls, [(id, TOOL, ARGUMENTS) for id in turn.calls])
    talk.usage = had.usage
    for text in turn.then:
        talk.goes_on(had)
        had = client.asks(talk)
        same("the next text", had.text, text)


def same(what, had, expected):
    assert had == expected, f"{what}: {had!r} instead of {expected!r}"


def refused(client, talk):
    """The client is told the error in the way that its SDK has for it; the same turn again is answered."""
    try:
        client.asks(talk)
    except client.dialect.errors as error:
        client.no_trace()
        assert talk.turn.error in str(error), f"{error!r}"
        if talk.mode == WHOLE:
            same("status", error.status_code, 429)
    else:
        raise AssertionError("there was no error")
    same("the same turn again", client.asks(talk).text, "Done.")


def broken_off(client, talk):
    """What was said before the connection broke is with the client, and it is told that this was not all."""
    said = []

    def read(text):
        said.append(text)
        return False

    try:
        client.reads(talk, read)
    except (openai.APIConnectionError, httpx2.TransportError):
        client.no_trace()
        assert said[-1].startswith(talk.turn.text), said
    else:
        raise AssertionError("the stream ended well")
    same("the same turn again", client.asks(talk).text, "Done.")


def left(client, talk, stand):
    """The client goes while the upstream has not answered to the end: its call ends, and nothing of it is left."""
    leaving = talk.turn

    def seen(text):
        if leaving.seen not in text:
            return False
        stand.provider.wait_for(f"waits {talk.model}")
        return True

    if talk.mode == STREAMED and leaving.seen:
        text = client.reads(talk, seen)
        assert text.startswith(leaving.seen), text
        client.no_trace()
    else:
        asyncio.run(cancelled(talk, stand))
    stand.tap.wait_for_end(talk.model)
    had = client.asks(talk)
    same("the same turn again", had.text, "Done.")
    talk.goes_on(had)
    same("the next turn", client.asks(talk).text, "Done.")


async def cancelled(talk, stand):
    """An asynchronous client whose task is cancelled when the upstream has the last of its calls."""
    dialect = talk.dialect
    async with dialect.async_client(stand.proxy.root, KEY) as client:

        async def whole():
            await dialect.create(client, dialect.request(talk))

        async def streamed():
            async with dialect.stream(client, dialect.request(talk)) as stream:
                async for event in stream:
                    assert not dialect.delta(event)

        task = asyncio.create_task(whole() if talk.mode == WHOLE else streamed())
        await asyncio.to_thread(stand.provider.wait_for, f"waits {talk.model}")
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task


def through(dialect, talks, stand):
    client = Client(dialect, stand.proxy)
    for talk in talks:
        if talk.turn in LEAVINGS:
            attempt(talk.name, lambda: left(client, talk, stand))
        else:
            attempt(talk.name, lambda: played(client, talk))


class Seen:
    """What the upstream had of a conversation, call by call."""

    def __init__(self, talk, requests):
        self.talk, self.dialect, self.turn = talk, talk.dialect, talk.turn
        self.requests = [request for request in requests if f'"model":"{talk.model}"' in request["body"]]
        self.bodies = [request["body"] for request in self.requests]
        self.parsed = [json.loads(body) for body in self.bodies]
        self.steps = self.turn.script(self.dialect)

    def offers(self, at):
        return OWN in json.dumps(self.parsed[at]["tools"])


def upstream(talk, requests):
    """Every call of one conversation."""
    seen, turn = Seen(talk, requests), talk.turn
    # None was refused, and no signed thought was dropped for another history than it was bound to.
    assert {(request["verdict"], request["dropped_blocks"]) for request in seen.requests} == {("accepted", 0)}
    assert seen.offers(0) and NEEDLE not in seen.bodies[0], "what is long was not removed, or no tool came for it"
    if turn in LEAVINGS:
        same("calls", len(seen.bodies), turn.calls + 2)
        same("the same turn again", seen.bodies[turn.calls], seen.bodies[0])
        return
    if turn.error or turn.breaks:
        return
    same("calls", len(seen.bodies), len(seen.steps) + turn.then.count("Done."))
    offering = [at for at in range(len(seen.bodies)) if at not in (turn.anew, turn.last)]
    same("tools offered in", [at for at in range(len(seen.bodies)) if seen.offers(at)], offering)
    tools = [body["tools"] for body in seen.parsed if OWN in json.dumps(body["tools"])]
    assert all(frozen == tools[0] for frozen in tools), "they are frozen"
    counted(seen)
    if talk.dialect.name != "chained":  # there the provider has the history
        grown(seen)


def counted(seen):
    """The client's usage: of the prompt the last call's, of the output the sum."""
    answers = seen.turn.answers or tuple(range(len(seen.steps)))
    if seen.turn.anew and seen.talk.mode == STREAMED:
        answers = (0, *answers)
    parts = [seen.requests[at] for at in answers]
    prompt, cached, written, output = seen.talk.usage
    same("prompt and cache", (prompt, cached), (parts[-1]["prompt_tokens"], parts[-1]["cached_tokens"]))
    same("output", output, sum(part["completion_tokens"] for part in parts))


def grown(seen):
    """Each call goes on where the one before it ended, byte for byte, and what was hidden stands in it to the last."""
    turn, array = seen.turn, seen.dialect.array
    failed = [at for at, step in enumerate(seen.steps) if step["does"] != "say"]
    kept = [at for at in range(turn.grows, len(seen.bodies)) if at not in failed]
    histories = [messages(seen.bodies[at], array) for at in kept]
    for before, after in zip(histories, histories[1:]):
        for item, again in zip(before, after + [None] * len(before)):
            assert again and same_item(item, again), f"{item}\n{again}"
    last = seen.parsed[-1][array]
    names = seen.dialect.names(last)
    same("hidden calls", len(names) - names.count(TOOL), turn.hidden)
    same("what they found", NEEDLE in seen.bodies[-1], turn.hidden > 0)
    if not turn.long:
        # The first of the calls is that of the removed text.
        same("the client's calls", names.count(TOOL), 1 + len(turn.calls))


def same_item(item, again):
    """What a client has of its own it may write in its SDK's way."""
    hidden = "own_" in item
    return item == again if hidden else json.loads(item) == json.loads(again)


def matrix(dialect):
    turns = TURNS + LEAVINGS
    return [Talk(dialect, mode, turn) for mode in (WHOLE, STREAMED) for turn in turns if mode in turn.modes]


def main(folder):
    cells = {dialect: matrix(dialect) for dialect in DIALECTS}
    talks = [talk for each in cells.values() for talk in each]
    script = {talk.model: talk.turn.script(talk.dialect) for talk in talks}
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    stand = Stand(folder)
    with ThreadPoolExecutor(len(DIALECTS)) as pool:
        for done in [pool.submit(through, dialect, cells[dialect], stand) for dialect in DIALECTS]:
            done.result()
    check("the proxy ends with status 0", stand.proxy.stop() == 0)
    requests, total = stand.provider.record()
    check("0 violations", total["violations"] == [], str(total["violations"])[:400])
    for talk in talks:
        attempt(f"{talk.name}: the provider's side", lambda: upstream(talk, requests))
    print(f"       {len(talks)} cells, {total['requests']} calls of the provider")


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
