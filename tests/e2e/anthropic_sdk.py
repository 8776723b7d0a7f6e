"""The anthropic SDK, unmodified, through the proxy: tool loops far beyond the provider's window, with and without
signed thinking that is bound to what stands before it.

Usage: anthropic_sdk.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import sys
from pathlib import Path

import anthropic
import messages_session as agent
from checks import attempt, check, conclude
from messages_session import Session, play
from stand import WINDOW, Provider, Proxy, write_config
from verdict import account, compacted, dies, finished, recalled, rule_stood, unseen

STEPS = 24
THINKING = 1_024  # tokens
EARLY = ("st002c000", "st008c000")  # steps before the first cut of a session with thinking

# How a conversation is held: the call, and what it may think.
WAYS = {
    "whole": (agent.ask_counted, None),
    "streamed": (agent.ask_streamed, None),
    "thinking": (agent.ask, THINKING),
    "thinking-streamed": (agent.ask_streamed, THINKING),
}


def without_the_proxy(provider):
    for thinking in (None, THINKING):
        session = Session(f"direct-{thinking}", "planned-direct", thinking)
        what = "without the proxy, thinking," if thinking else "without the proxy"
        said = "exceed context limit"  # of prompt and `max_tokens`
        dies(what, lambda: play(session, provider.root, agent.ask), anthropic.BadRequestError, said)


def through(proxy, knowledge):
    sessions = []
    for way, (how, thinking) in WAYS.items():
        what = f"{knowledge}, {way}"
        session = Session(f"{knowledge}-{way}", f"{knowledge}-{way}", thinking)
        attempt(f"{what}: no error", lambda: play(session, proxy.root, how))
        finished(session, what)
        if thinking:
            check(f"{what}: the model thought", session.thoughts > STEPS // 2, str(session.thoughts))
        sessions.append(session)
    return sessions


def main(folder):
    provider = Provider(folder, STEPS)
    write_config(folder, provider)
    without_the_proxy(provider)
    proxy = Proxy(folder)
    planned, unforeseen = through(proxy, "planned"), through(proxy, "unforeseen")
    for session in planned:
        compacted(session, session.model)
    for session in unforeseen:
        check(f"{session.model}: recovered", session.did("recovered"), str(session.actions))
    # What is counted is what would be sent: the history alone is three windows long.
    counted, uncounted = planned[0].counted, planned[0].uncounted
    check("the counted tokens stayed within the window", counted and max(counted) < WINDOW, str(max(counted, default=0)))
    check("few requests were too long to be counted", uncounted * 4 < len(counted), f"{uncounted} of {len(counted)}")
    check("the proxy ends with status 0", proxy.stop() == 0)
    requests, total = provider.record()
    for session in planned + unforeseen:
        rule_stood(session, requests)
    for session in planned:
        # Signed thinking is bound to the tools before it: none is offered before a first cut leaves none.
        recalled(session, session.model, STEPS, requests, excused=EARLY if session.thinking else ())
    unseen(planned, unforeseen, requests, total)
    check("the provider was asked for a summary", total["side_calls"] >= 1)
    account(planned + unforeseen, total)


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
