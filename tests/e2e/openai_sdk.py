"""The openai SDK, unmodified, through the proxy: multi-turn tool loops far beyond the provider's window.

Usage: openai_sdk.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import asyncio
import sys
import traceback
import urllib.error
import urllib.request
from pathlib import Path

import openai
import session as agent
from session import Session, play, play_async
from stand import MAX_RESULT_CHARS, WINDOW, Provider, Proxy, command, messages, pointers, write_config

STEPS = 36
ACTIVATIONS = ("truncated", "pruned", "summarized", "folded", "recovered")
KNOWN = "evicted, checkpoint"  # what is said of a request that only repeats what was done before
CHARS_PER_TOKEN = 4  # more than the real figure for this text: raw sizes come out too low, never too high

passed, failed = 0, 0


def check(what, holds, detail=""):
    """One claim of the closing line."""
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok    ' if holds else 'FAILED'} {what}" + (f" ({detail})" if detail and not holds else ""), flush=True)


def attempt(what, run):
    """Runs a part; an exception is a failed check and the next part goes on."""
    try:
        value = run()
    except Exception as error:  # the client saw an error: that is what must not be
        traceback.print_exc()
        check(what, False, f"{type(error).__name__}: {error}")
        return None
    check(what, True)
    return value


def without_the_proxy(provider):
    """The suite can fail: this is what happens to the same loop directly."""
    session = Session("direct", "planned-direct")
    try:
        play(session, provider.url, agent.ask)
        check("without the proxy the session dies", False, "it finished")
    except openai.BadRequestError as error:
        check("without the proxy the session dies of context_length_exceeded", error.code == "context_length_exceeded")
    return session


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
            if session.actions[-1] == KNOWN and not calls:
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


def what_the_provider_saw(sessions, direct, requests, total):
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
    foreseen = set(refused) - set(unforeseen) - {f"Bearer {direct.key}"}
    check("where the window was known nothing overflowed", not foreseen, str(foreseen))
    check("the provider was asked for a summary", total["side_calls"] >= 1)
    actions = [action for session in sessions for said in session.actions for action in said.split(", ")]
    check("at least one eviction", "evicted" in actions)
    check("at least one checkpoint", any(action in ACTIVATIONS for action in actions))
    check("at least one recovery", "recovered" in actions)
    counted = {action: actions.count(action) for action in sorted(set(actions)) if action}
    print(f"       what was done, in {len(actions)} entries: {counted}; the provider's account: {total | {'violations': len(total['violations'])}}")


def read_back(proxy, sessions, requests):
    """One removed text by its id: over HTTP whole and in part, and by the command."""
    session = sessions[0]
    results = [message["content"] for message in session.history if message["role"] == "tool"]
    large = next(text for text in results if len(text) > MAX_RESULT_CHARS)
    opening = large.splitlines()[0]
    shortened = [
        message
        for request in requests
        if is_answer_to(session, request)
        for message in messages(request["body"])
        if opening in message and pointers(message)
    ]
    id = pointers(shortened[0])[0]
    check("an evicted text is read back over HTTP", fetch(proxy, id) == large.encode())
    page = fetch(proxy, f"{id}?offset=10&limit=3")
    check("in part, by lines", page.decode().split("\n")[:3] == large.split("\n")[10:13])
    page = fetch(proxy, f"{id}?unit=chars&offset=100&limit=50")
    check("in part, by characters", page.decode() == large[100:150])
    check("an unknown id is 404", fetch(proxy, "0" * 32) == 404)
    check("the command prints the same text", command("evicted", id, "--config", str(proxy.config)) == (0, large.encode()))
    check("the command fails for an unknown id", command("evicted", "0" * 32, "--config", str(proxy.config))[0] == 1)


def fetch(proxy, rest):
    """The body behind the reserved prefix, or the status that is no success."""
    try:
        with urllib.request.urlopen(f"{proxy.root}/_compactproxy/evicted/{rest}", timeout=20) as response:
            return response.read()
    except urllib.error.HTTPError as error:
        return error.code


def operated(proxy):
    """What operators see of the run."""
    check("the health command says ready", command("health", "--admin", proxy.admin)[0] == 0)
    with urllib.request.urlopen(f"http://{proxy.admin}/metrics", timeout=20) as response:
        metrics = response.read().decode()
    check("the metrics count requests", "compactproxy_requests_total" in metrics)
    check("a signal to stop ends it with status 0", proxy.stop() == 0)
    check("then the health command says no", command("health", "--admin", proxy.admin)[0] == 1)


def main(folder):
    provider = Provider(folder, STEPS)
    write_config(folder, provider)
    direct = without_the_proxy(provider)
    proxy = Proxy(folder)
    sessions = in_one_thread(proxy) + side_by_side(proxy)
    survivor = attempt("kill -9 midway is survived", lambda: killed_midway(proxy, folder))
    requests, total = provider.record()
    if survivor:
        proxy, killed, turn = survivor
        sessions.append(killed)
        attempt("the turns around kill -9 are found", lambda: replayed(killed, turn, requests))
    what_the_provider_saw(sessions, direct, requests, total)
    if survivor:
        attempt("the reader answers", lambda: read_back(proxy, sessions, requests))
        attempt("the admin port answers", lambda: operated(proxy))


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)
