"""The openai SDK, unmodified, through the proxy: multi-turn tool loops far beyond the provider's window.

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

STEPS = 36
ACTIVATIONS = ("truncated", "pruned", "summarized", "folded", "recovered")
REPLAYED = ("checkpoint", "evicted, checkpoint")  # what is said where a checkpoint only repeats what was done before
EXCEPTIONS = 3  # of about 190 requests
CHARS_PER_TOKEN = 4  # more than the real figure for this text: raw sizes come out too low, never too high


def without_the_proxy(provider):
    """The suite can fail: this is what happens to the same loop directly."""
    session = Session("direct", "planned-direct")
    try:
        play(session, provider.url, agent.ask)
        check("without the proxy the session dies", False, "it finished")
    except openai.BadRequestError as error:
        check("without the proxy the session dies of context_length_exceeded", error.code == "context_length_exceeded")
    return session


def bypassed(proxy):
    """A client that asks for it gets what it would get without the proxy."""
    session = Session("bypassed", "planned-bypassed", extra_headers={"x-compactproxy-bypass": "1"})
    try:
        play(session, proxy.url, agent.ask)
        check("with the bypass header the session dies", False, "it finished")
    except openai.BadRequestError as error:
        same = error.code == "context_length_exceeded" and not any(session.actions)
        check("with the bypass header the session dies as without the proxy", same, str(session.actions))


def finished(session, what):
    raw = sum(len(str(message)) for message in session.history) // CHARS_PER_TOKEN
    check(f"{what}: the final text arrived", session.finished)
    check(f"{what}: the raw history was over three windows", raw > 3 * WINDOW, f"{raw} tokens")


def in_one_thread(proxy):
    """Streamed and not; with the window known, and with only the provider's refusals to go by; and asking for
    more output than there is room for."""
    modes = [("whole", agent.ask), ("streamed", agent.ask_streamed)]
    sessions = []
    for mode, how in modes:
        session = Session(f"planned-{mode}", f"planned-{mode}")
        attempt(f"planned, {mode}: no error", lambda: play(session, proxy.url, how))
        finished(session, f"planned, {mode}")
        check(f"planned, {mode}: oversized results were evicted", session.did("evicted"))
        check(f"planned, {mode}: a checkpoint was reused", session.did("checkpoint"), str(session.actions))
        counted = [tokens for tokens in session.tokens if tokens]
        check(f"planned, {mode}: tokens were saved", counted and all(after < before for before, after in counted))
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


def is_answer_to(session, request):
    mine = request["authorization"] == f"Bearer {session.key}"
    return mine and request["origin"] == "agent" and request["verdict"] == "accepted"


def what_the_provider_saw(sessions, requests, total):
    check("0 violations", total["violations"] == [], str(total["violations"])[:400])
    for session in sessions:
        accepted = [request for request in requests if is_answer_to(session, request)]
        check(
            f"{session.model}: the user's first rule stood in all {len(accepted)} requests",
            accepted and all(session.rule in request["body"] for request in accepted),
        )
        check(f"{session.model}: every answer was the provider's", len(accepted) == len(session.actions))
    refused = [request["authorization"] for request in requests if request["verdict"] == "overflow"]
    unforeseen = [f"Bearer {session.key}" for session in sessions if session.model.startswith("unforeseen")]
    unseen = set(unforeseen) <= set(refused) and all(session.finished for session in sessions)
    check("the provider refused overflows that no client saw", unseen)
    # A commit that takes too long on a busy machine lets a request go as it is, and recovery steps in.
    known = {f"Bearer {session.key}" for session in sessions} - set(unforeseen)
    foreseen = [key for key in refused if key in known]
    check("where the window was known overflows were an exception", len(foreseen) <= EXCEPTIONS, str(foreseen))
    check("the provider was asked for a summary", total["side_calls"] >= 1)
    actions = [action for session in sessions for said in session.actions for action in said.split(", ")]
    check("at least one eviction", "evicted" in actions)
    check("at least one checkpoint", any(action in ACTIVATIONS for action in actions))
    check("at least one recovery", "recovered" in actions)
    counted = {action: actions.count(action) for action in sorted(set(actions)) if action}
    print(f"       what was done, in {len(actions)} entries: {counted}; the provider's account: {total | {'violations': len(total['violations'])}}")


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
