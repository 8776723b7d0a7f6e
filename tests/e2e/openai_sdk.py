"""The openai SDK on Chat Completions, unmodified, through the proxy: multi-turn tool loops far beyond the provider's window.

Usage: openai_sdk.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import asyncio
import sys
from pathlib import Path

import openai
import operating
import session as agent
from checks import attempt, check, conclude
from session import Session, play, play_async
from stand import WINDOW, Provider, Proxy, messages, write_config
from verdict import ACTIVATIONS, account, compacted, dies, finished, is_answer_to, recalled, rule_stood, unseen

STEPS = 36
REPLAYED = ("checkpoint", "evicted, checkpoint")  # what is said where a checkpoint only repeats what was done before


def without_the_proxy(provider):
    session = Session("direct", "planned-direct")
    said = "context_length_exceeded"
    dies("without the proxy", lambda: play(session, provider.url, agent.ask), openai.BadRequestError, said)
    return session


def bypassed(proxy):
    """A client that asks for it gets what it would get without the proxy."""
    session = Session("bypassed", "planned-bypassed", extra_headers={"x-compactproxy-bypass": "1"})
    said = "context_length_exceeded"
    dies("with the bypass header", lambda: play(session, proxy.url, agent.ask), openai.BadRequestError, said)
    check("with the bypass header nothing is done", not any(session.actions), str(session.actions))


def in_one_thread(proxy):
    """Streamed and not; with the window known, and with only the provider's refusals to go by; and asking for
    more output than there is room for."""
    modes = [("whole", agent.ask), ("streamed", agent.ask_streamed)]
    sessions = []
    for mode, how in modes:
        session = Session(f"planned-{mode}", f"planned-{mode}")
        attempt(f"planned, {mode}: no error", lambda: play(session, proxy.url, how))
        finished(session, f"planned, {mode}")
        compacted(session, f"planned, {mode}")
        sessions.append(session)
    for mode, how in modes:
        session = Session(f"unforeseen-{mode}", f"unforeseen-{mode}")
        attempt(f"unforeseen, {mode}: no error", lambda: play(session, proxy.url, how))
        finished(session, f"unforeseen, {mode}")
        check(f"unforeseen, {mode}: recovered", session.did("recovered"), str(session.actions))
        sessions.append(session)
    greedy = Session("greedy", "unforeseen-greedy", max_completion_tokens=WINDOW // 2)
    attempt("greedy: no error", lambda: play(greedy, proxy.url, agent.ask_streamed))
    finished(greedy, "greedy")
    check("greedy: the requested output was lowered", greedy.did("output-lowered"), str(greedy.actions))
    return [*sessions, greedy]


def side_by_side(proxy):
    """Two asynchronous clients at once."""
    whole, streamed = (Session(f"async-{mode}", f"planned-async-{mode}") for mode in ("whole", "streamed"))

    async def both():
        await asyncio.gather(
            play_async(whole, proxy.url, agent.ask_async), play_async(streamed, proxy.url, agent.ask_async_streamed)
        )

    attempt("async: no error", lambda: asyncio.run(both()))
    finished(whole, "async, whole")
    finished(streamed, "async, streamed")
    return [whole, streamed]


def killed_midway(proxy, folder):
    """kill -9 while a checkpoint is active, then the same turn again and on, on the same state.

    The turn is one after which the user says but a few words, so that the next one gives no reason for
    another checkpoint.
    """
    session = Session("killed", "planned-killed")
    with session.client(proxy.url) as client:
        while True:
            answer = agent.ask(client, session)
            _, calls = answer
            if session.actions[-1] in REPLAYED and not calls:
                break
            if not session.take(*answer):
                raise AssertionError(f"there was no occasion to kill the proxy: {session.actions}")
    check("the proxy was killed with -9", proxy.kill() == -9)
    second = Proxy(folder)
    turn = len(session.actions) - 1
    attempt("after kill -9: no error", lambda: play(session, second.url, agent.ask))
    finished(session, "after kill -9")
    return second, session, turn


def replayed(session, turn, requests):
    """The turn before the kill, the same turn after it, and the one that follows."""
    bodies = [request["body"] for request in requests if is_answer_to(session, request)]
    before, again, following = bodies[turn : turn + 3]
    check("after kill -9 the same turn goes out byte for byte", before == again)
    known, longer = messages(before), messages(following)
    check(
        "after kill -9 the next turn begins with the same bytes",
        longer[: len(known)] == known,
        str(session.actions[turn : turn + 3]),
    )


def what_the_provider_saw(sessions, requests, total):
    for session in sessions:
        rule_stood(session, requests)
        accepted = [request for request in requests if is_answer_to(session, request)]
        if session.model.startswith("planned"):
            recalled(session, session.model, STEPS, requests)
        check(f"{session.model}: every answer was the provider's", len(accepted) == len(session.actions))
    unforeseen = [session for session in sessions if session.model.startswith("unforeseen")]
    unseen([session for session in sessions if session not in unforeseen], unforeseen, requests, total)
    check("the provider was asked for a summary", total["side_calls"] >= 1)
    actions = [action for session in sessions for said in session.actions for action in said.split(", ")]
    check("at least one eviction", "evicted" in actions)
    check("at least one checkpoint", any(action in ACTIVATIONS for action in actions))
    check("at least one recovery", "recovered" in actions)
    account(sessions, total)


def main(folder):
    provider = Provider(folder, STEPS)
    write_config(folder, provider)
    direct = without_the_proxy(provider)
    proxy = Proxy(folder)
    bypassed(proxy)
    sessions = in_one_thread(proxy) + side_by_side(proxy)
    survivor = attempt("kill -9 midway is survived", lambda: killed_midway(proxy, folder))
    requests, total = provider.record()
    if survivor:
        proxy, killed, turn = survivor
        sessions.append(killed)
        attempt("the turns around kill -9 are found", lambda: replayed(killed, turn, requests))
    what_the_provider_saw(sessions, requests, total)
    if survivor:
        bodies = [request["body"] for request in requests if is_answer_to(sessions[0], request)]
        attempt("the reader answers", lambda: operating.read_back(proxy, sessions[0], bodies))
        attempt("the command compacts", lambda: operating.compacted(proxy, direct))
        attempt("the admin port answers", lambda: operating.operated(proxy))


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
