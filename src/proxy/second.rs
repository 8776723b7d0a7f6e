//! The rule of the two attempts (L6): what follows from a refusal, over HTTP and on sockets alike.

use super::hold::Sent;
use crate::wire::overflow::Verdict;

/// Which attempt was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    First,
    /// A shorter body, after the first one was too long.
    Shorter,
    /// The client's own body, after a rewritten one was refused.
    Original,
}

/// A refusal of which the client has seen nothing.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    pub verdict: Verdict,
    /// The HTTP status; on a socket the one that the event names, if it names one.
    pub status: Option<u16>,
    /// What was refused.
    pub sent: Sent,
    pub blames: Blames,
    pub overflow: Overflow,
}

/// What the text of a refusal blames, whatever its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blames {
    /// Nothing that the proxy may have brought into the body.
    Nothing,
    /// The form of the messages.
    Form,
    /// That there are tools.
    Tools,
}

/// What becomes of an overflow of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// It is mended.
    Mended,
    /// Recovery is off: the client gets the error of its own body.
    Left,
    /// Only a count was asked for: what is longer cannot be counted either.
    Final,
}

/// What the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This refusal.
    Relay,
    /// The answer to a shorter body.
    Shorten(Verdict),
    /// The answer to its own body.
    Original,
    /// The answer to the same body without the proxy's tools.
    WithoutTools,
    /// The first refusal; `condemned`: what the second body was made with is to blame and no longer in force.
    FirstRefusal { condemned: bool },
}

/// What follows from a refusal.
pub fn next(attempt: Attempt, refusal: Refusal) -> Next {
    let Refusal { verdict, status, sent, blames, overflow } = refusal;
    let of_tools = sent == Sent::Offering && blames == Blames::Tools;
    let at_fault = sent.is_rewritten() && (blames == Blames::Form || matches!(status, Some(400 | 422)));
    match attempt {
        Attempt::First if verdict != Verdict::Other && overflow == Overflow::Mended => Next::Shorten(verdict),
        Attempt::First if verdict != Verdict::Other && overflow == Overflow::Final => Next::Relay,
        Attempt::First if of_tools => Next::WithoutTools,
        Attempt::First if at_fault => Next::Original,
        Attempt::First | Attempt::Original => Next::Relay,
        // A rate limit or a failure says nothing of the request: the client is to see it and wait.
        Attempt::Shorter if matches!(status, Some(429 | 500..)) && !of_tools && blames != Blames::Form => Next::Relay,
        // The tools are to blame, not what the body was made shorter with.
        Attempt::Shorter => Next::FirstRefusal { condemned: !of_tools && (at_fault || verdict != Verdict::Other) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::overflow::Sizes;

    #[test]
    fn every_refusal_has_one_consequence() {
        let long = Verdict::Overflow(Sizes::default());
        let budget = Verdict::OutputBudget(Sizes::default());
        let (own, ours) = (Sent::Original, Sent::Rewritten);
        let (stands, condemned) = (Next::FirstRefusal { condemned: false }, Next::FirstRefusal { condemned: true });
        let table = [
            (Attempt::First, long, Some(400), own, Next::Shorten(long)),
            (Attempt::First, budget, Some(400), ours, Next::Shorten(budget)),
            // An error inside a success, and an event without a status.
            (Attempt::First, long, Some(200), own, Next::Shorten(long)),
            (Attempt::First, long, None, ours, Next::Shorten(long)),
            (Attempt::First, Verdict::Other, Some(400), ours, Next::Original),
            (Attempt::First, Verdict::Other, Some(422), ours, Next::Original),
            (Attempt::First, Verdict::Other, Some(400), own, Next::Relay),
            (Attempt::First, Verdict::Other, Some(429), ours, Next::Relay),
            (Attempt::First, Verdict::Other, None, ours, Next::Relay),
            (Attempt::Shorter, long, Some(400), ours, condemned),
            (Attempt::Shorter, long, Some(200), ours, condemned),
            (Attempt::Shorter, Verdict::Other, Some(422), ours, condemned),
            (Attempt::Shorter, Verdict::Other, Some(401), ours, stands),
            (Attempt::Shorter, Verdict::Other, None, ours, stands),
            (Attempt::Shorter, Verdict::Other, Some(429), ours, Next::Relay),
            (Attempt::Shorter, long, Some(503), ours, Next::Relay),
            (Attempt::Original, long, Some(400), own, Next::Relay),
            (Attempt::Original, Verdict::Other, Some(500), own, Next::Relay),
        ];
        for (attempt, verdict, status, sent, due) in table {
            let refusal = Refusal { verdict, status, sent, blames: Blames::Nothing, overflow: Overflow::Mended };
            assert_eq!(next(attempt, refusal), due, "{attempt:?} {refusal:?}");
        }
    }

    /// Whatever its status: what was added is to blame, and its error is not the client's to see.
    #[test]
    fn a_refusal_of_the_proxys_tools_is_followed_by_the_same_body_without_them() {
        let stands = Next::FirstRefusal { condemned: false };
        for status in [400, 401, 403, 404, 405, 422, 429, 500, 501, 502, 503, 504] {
            let (verdict, overflow) = (Verdict::Other, Overflow::Mended);
            let refusal = |sent| Refusal { verdict, status: Some(status), sent, blames: Blames::Tools, overflow };
            assert_eq!(next(Attempt::First, refusal(Sent::Offering)), Next::WithoutTools, "{status}");
            assert_eq!(next(Attempt::Shorter, refusal(Sent::Offering)), stands, "{status}");
            // It is about the client's own.
            let rewritten = if matches!(status, 400 | 422) { Next::Original } else { Next::Relay };
            assert_eq!(next(Attempt::First, refusal(Sent::Rewritten)), rewritten, "{status}");
            assert_eq!(next(Attempt::First, refusal(Sent::Original)), Next::Relay, "{status}");
        }
    }

    /// A template that fails on what was rewritten is no failure of the server's.
    #[test]
    fn a_refusal_of_the_form_is_the_rewritings_whatever_its_status() {
        for (attempt, sent, due) in [
            (Attempt::First, Sent::Rewritten, Next::Original),
            (Attempt::First, Sent::Original, Next::Relay),
            (Attempt::Shorter, Sent::Rewritten, Next::FirstRefusal { condemned: true }),
            (Attempt::Original, Sent::Original, Next::Relay),
        ] {
            let (verdict, overflow) = (Verdict::Other, Overflow::Mended);
            let refusal = Refusal { verdict, status: Some(500), sent, blames: Blames::Form, overflow };
            assert_eq!(next(attempt, refusal), due, "{attempt:?} {sent:?}");
        }
    }

    #[test]
    fn where_nothing_is_mended_a_rewritten_body_may_still_be_at_fault() {
        let verdict = Verdict::Overflow(Sizes::default());
        for (status, sent, due) in [
            (400, Sent::Rewritten, Next::Original),
            (400, Sent::Original, Next::Relay),
            (413, Sent::Rewritten, Next::Relay),
        ] {
            let (blames, overflow) = (Blames::Nothing, Overflow::Left);
            let refusal = Refusal { verdict, status: Some(status), sent, blames, overflow };
            assert_eq!(next(Attempt::First, refusal), due, "{status} {sent:?}");
            let counted = Refusal { overflow: Overflow::Final, ..refusal };
            assert_eq!(next(Attempt::First, counted), Next::Relay);
            let other = Refusal { verdict: Verdict::Other, ..counted };
            assert_eq!(next(Attempt::First, other), due, "what else is refused may be the rewriting's fault");
        }
    }
}
