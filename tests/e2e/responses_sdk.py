"""The openai SDK on Responses, unmodified, through the proxy: with its whole history in every call, and with
chains that the provider keeps.

Usage: responses_sdk.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import sys
from pathlib import Path

import openai
import responses_session as agent
from checks import attempt, check, conclude
from responses_session import Session, play
from stand import Provider, Proxy, write_config
from verdict import account, compacted, dies, finished, recalled, refusals, rule_stood, unseen

STEPS = 24
MODES = [("whole", agent.ask), ("streamed", agent.ask_streamed)]


def without_the_proxy(provider):
    for chained in (False, True):
        session = Session(f"direct-{chained}", "planned-direct", chained)
        what = "without the proxy, chained," if chained else "without the proxy"
        said = "context_length_exceeded"
        dies(what, lambda: play(session, provider.url, agent.ask), openai.BadRequestError, said)


def with_whole_histories(proxy):
    """With the window known, and with only the provider's refusals to go by."""
    sessions = []
    for knowledge in ("planned", "unforeseen"):
        for mode, how in MODES:
            what = f"{knowledge}, {mode}"
            session = Session(f"{knowledge}-{mode}", f"{knowledge}-{mode}")
            attempt(f"{what}: no error", lambda: play(session, proxy.url, how))
            finished(session, what)
            if knowledge == "planned":
                compacted(session, what)
            else:
                check(f"{what}: recovered", session.did("recovered"), str(session.actions))
            sessions.append(session)
    return sessions


def with_chains(proxy):
    """What the provider keeps can only be recovered: the proxy has seen all of it pass."""
    sessions = []
    for mode, how in MODES:
        what = f"chained, {mode}"
        session = Session(f"chained-{mode}", f"planned-chained-{mode}", chained=True)
        attempt(f"{what}: no error", lambda: play(session, proxy.url, how))
        finished(session, what)
        check(f"{what}: recovered", session.did("recovered"), str(session.actions))
        sessions.append(session)
    return sessions


def main(folder):
    provider = Provider(folder, STEPS)
    write_config(folder, provider)
    without_the_proxy(provider)
    proxy = Proxy(folder)
    sessions = with_whole_histories(proxy)
    chained = with_chains(proxy)
    check("the proxy ends with status 0", proxy.stop() == 0)
    requests, total = provider.record()
    for session in sessions:
        rule_stood(session, requests)
    planned, unforeseen = sessions[:2], sessions[2:]
    for session in planned:
        recalled(session, session.model, STEPS, requests)
    unseen(planned, unforeseen + chained, requests, total)
    check("the provider was asked for a summary", total["side_calls"] >= 1)
    for session in chained:
        rebuilt = [request for request in requests if request["authorization"] == f"Bearer {session.key}"]
        rebuilt = [request for request in rebuilt if session.rule in request["body"]]
        whole = refusals(session, requests) + 1
        check(f"{session.key}: the rule stood in every chain's first request", len(rebuilt) >= whole, str(len(rebuilt)))
    account(sessions + chained, total)


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
