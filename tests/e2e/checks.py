"""What is claimed, and whether it was so."""

import sys
import traceback

results = []


def check(what, holds, detail=""):
    """One claim of the closing line."""
    results.append(bool(holds))
    print(f"{'ok    ' if holds else 'FAILED'} {what}" + (f" ({detail})" if detail and not holds else ""), flush=True)


def attempt(what, run):
    """Runs a part; an exception is a failed check and the next part goes on."""
    try:
        value = run()
    except Exception as error:  # whatever it is, the client saw it, or the suite is wrong
        traceback.print_exc()
        check(what, False, f"{type(error).__name__}: {error}")
        return None
    check(what, True)
    return value


def conclude():
    """The closing line and the exit status."""
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    sys.exit(0 if results and all(results) else 1)
