//! Of which kind an error is whatever it was sent with: the HTTP status that it names, by number or by name.

use serde_json::Value;

use super::decode::{Known, sayings};
use super::examined;

/// Errors by the names that their `code`, `type` or `status` have for them. Parts of names are enough, the first counts.
const NAMES: &[(u16, &[&str])] = &[
    (
        429,
        &["rate_limit", "ratelimit", "too_many_requests", "toomanyrequests", "throttl", "resource_exhausted", "quota"],
    ),
    (529, &["overloaded", "at_capacity", "slow_down"]),
    (503, &["unavailable"]),
    (504, &["timeout", "deadline_exceeded"]),
    (500, &["server_error", "servererror", "internal_error"]),
    (400, &["invalid_request", "bad_request", "badrequest", "invalid_argument"]),
];

/// The status that an error names: one of who is busy wherever it stands in it, else the first.
pub fn status_told(body: &[u8]) -> Option<u16> {
    let told: Vec<u16> = sayings(examined(body), Known::Error).iter().filter_map(|saying| saying.status).collect();
    told.iter().find(|status| is_busy(**status)).or(told.first()).copied()
}

/// Whether an error is of the moment, and says nothing of the request.
pub fn is_of_the_moment(status: u16) -> bool {
    matches!(status, 408 | 503 | 504) || is_busy(status)
}

/// Whether fewer requests are wanted.
pub fn is_busy(status: u16) -> bool {
    matches!(status, 429 | 529)
}

/// What one object of an error says: who is busy by any of its members, else a number before a name.
pub(super) fn status<'v>(numbers: impl Iterator<Item = &'v Value>, codes: &[String]) -> Option<u16> {
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let numbers = numbers.filter_map(number).filter_map(|number| u16::try_from(number).ok());
    let told: Vec<u16> = numbers
        .filter(|status| (400..600).contains(status))
        .chain(codes.iter().filter_map(|code| named(code)))
        .collect();
    told.iter().find(|status| is_busy(**status)).or(told.first()).copied()
}

fn named(code: &str) -> Option<u16> {
    let is = |names: &[&str]| names.iter().any(|name| code.contains(name));
    NAMES.iter().find(|(_, names)| is(names)).map(|(status, _)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_status_wherever_it_stands() {
        for (told, body) in [
            (Some(429), r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#),
            (Some(429), r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#),
            (Some(429), r#"{"error":{"message":"Provider returned error","code":429}}"#),
            (Some(429), r#"{"error":{"message":"litellm.RateLimitError","type":null,"code":"429"}}"#),
            (
                Some(429),
                r#"{"error":{"code":502,"message":"no","metadata":{"raw":"{\"error\":{\"code\":429,\"message\":\"wait\"}}"}}}"#,
            ),
            (Some(429), r#"{"error":{"code":8,"message":"no","status":"RESOURCE_EXHAUSTED"}}"#),
            (
                Some(429),
                r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"no"}}}"#,
            ),
            (Some(429), r#"{"choices":[{"error":{"code":429,"message":"no"}}]}"#),
            (Some(429), r#"{"status":429,"message":"no"}"#),
            (Some(429), r#"[{"error":{"code":429,"message":"no"}}]"#),
            (Some(529), r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            (Some(529), r#"{"error":{"message":"no","code":529}}"#),
            (Some(529), r#"{"type":"error","error":{"type":"server_error","code":"server_is_overloaded"}}"#),
            (Some(503), r#"{"error":{"message":"no","type":"service_unavailable_error","code":"503"}}"#),
            (Some(503), r#"{"error":{"code":14,"message":"no","status":"UNAVAILABLE"}}"#),
            (Some(400), r#"{"object":"error","message":"no","type":"BadRequestError","code":400}"#),
            (Some(400), r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#),
            (Some(500), r#"{"error":{"message":"boom","type":"server_error","code":null}}"#),
            (None, r#"{"error":{"message":"Rate limit reached"}}"#),
            (None, r#"{"error":{"message":"no","code":"unknown_parameter","type":"x"}}"#),
            (None, "<html>429</html>"),
            (None, ""),
        ] {
            assert_eq!(status_told(body.as_bytes()), told, "{body}");
        }
    }
}
