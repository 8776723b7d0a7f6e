"""What is to be said of a conversation, and of what the provider saw of it, whatever API it spoke."""

from checks import check
from stand import WINDOW

CHARS_PER_TOKEN = 4  # more than the real figure for this text: raw sizes come out too low, never too high
EXCEPTIONS = 3  # of all requests of a suite
ACTIVATIONS = ("truncated", "pruned", "summarized", "folded", "recovered")


def dies(what, play, refusal, said):
    """The suite can fail: without the proxy's help the provider's refusal ends the conversation."""
    try:
        play()
        check(f"{what} the session dies", False, "it finished")
    except refusal as error:
        check(f"{what} the session dies of its length", said in f"{error} {error.body}", str(error))


def finished(session, what):
    raw = session.raw // CHARS_PER_TOKEN
    check(f"{what}: the final text arrived", session.finished)
    check(f"{what}: the raw history was over three windows", raw > 3 * WINDOW, f"{raw} tokens")


def compacted(session, what):
    """With the window known: before the provider had to refuse."""
    check(f"{what}: oversized results were evicted", session.did("evicted"), str(session.actions))
    check(f"{what}: a checkpoint was reused", session.did("checkpoint"), str(session.actions))
    counted = [tokens for tokens in session.tokens if tokens]
    check(f"{what}: tokens were saved", counted and all(after < before for before, after in counted), str(counted))


def recalled(session, what, steps, requests, excused=()):
    """What was evicted was out of the model's sight, and it read it back by itself: the words that it said are those
    that only the removed texts held."""
    missed = session.missed(steps).keys() - set(excused)
    check(f"{what}: every code word was read back", not missed, f"missed {missed}, had {session.code_words}")
    rounds = sum(request["round"] for request in requests if request["authorization"] == f"Bearer {session.key}")
    check(f"{what}: in rounds that the client did not see", rounds > 0, f"{rounds} rounds")


def is_answer_to(session, request):
    """Not the rounds in between."""
    mine = request["authorization"] == f"Bearer {session.key}"
    return mine and request["origin"] == "agent" and request["verdict"] == "accepted" and not request["round"]


def refusals(session, requests):
    """How many calls under the session's key the provider refused for their length, the answer's included."""
    mine = (request for request in requests if request["authorization"] == f"Bearer {session.key}")
    calls = (request for request in mine if request["origin"] == "agent" and not counts(request))
    return sum(request["verdict"] in ("overflow", "budget") for request in calls)


def counts(request):
    """Whether it asks for nothing but its tokens."""
    return request["target"].endswith("/count_tokens")


def rule_stood(session, requests):
    """In every request: nothing of what the user typed was lost."""
    accepted = [request for request in requests if is_answer_to(session, request)]
    stands = accepted and all(session.rule in request["body"] for request in accepted)
    check(f"{session.key}: the user's first rule stood in all {len(accepted)} requests", stands)


def unseen(foreseen, unforeseen, requests, total):
    """Of these conversations the proxy knew the window, of those it did not."""
    check("0 violations", total["violations"] == [], str(total["violations"])[:400])
    silent = [session.key for session in unforeseen if not refusals(session, requests) or not session.finished]
    check("the provider refused overflows that no client saw", not silent, str(silent))
    # A commit that takes too long on a busy machine lets a request go as it is, and recovery steps in.
    refused = {session.key: refusals(session, requests) for session in foreseen}
    check("where the window was known overflows were an exception", sum(refused.values()) <= EXCEPTIONS, str(refused))


def account(sessions, total):
    actions = [action for session in sessions for said in session.actions for action in said.split(", ")]
    counted = {action: actions.count(action) for action in sorted(set(actions)) if action}
    print(f"       what was done: {counted}; the provider's account: {total | {'violations': len(total['violations'])}}")
