//! Which agent sends a request: whose memory it has.

use std::sync::Arc;

use http::HeaderMap;
use http::header::USER_AGENT;

/// Names the agent, where its client or its operator wants to.
const HEADER: &str = "x-compactproxy-agent";
/// Most characters of a name.
const NAME_CHARS: usize = 64;
const UNKNOWN: &str = "unknown";

/// The agent's name: the header's, else the product of `user-agent`. It can stand in a path on any file system.
pub fn agent(headers: &HeaderMap) -> Arc<str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let product = |agent: &str| agent.split(['/', ' ', '(']).next().map(str::to_owned);
    let named = text(HEADER).and_then(sanitised);
    let named = named.or_else(|| text(USER_AGENT.as_str()).and_then(|agent| sanitised(&product(agent)?)));
    named.map_or_else(|| UNKNOWN.into(), Arc::from)
}

/// Lower-case letters, digits, `-`, `_`, and `.` within; `None` where nothing is left.
fn sanitised(name: &str) -> Option<String> {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.trim().chars().map(plain).take(NAME_CHARS).collect();
    let name = name.trim_matches(['.', '-', '_']);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&'static str, &'static str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        agent(&headers).to_string()
    }

    #[test]
    fn the_header_counts_before_the_product() {
        assert_eq!(of(&[("user-agent", "Codex_CLI/1.2 (linux)")]), "codex_cli");
        assert_eq!(of(&[("user-agent", "a/1"), ("x-compactproxy-agent", "My Agent")]), "my-agent");
        assert_eq!(of(&[("user-agent", "a/1"), ("x-compactproxy-agent", " ")]), "a");
        assert_eq!(of(&[]), "unknown");
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        for name in ["..", "../../etc", "/etc/passwd", ".hidden", "a\\b", "%2e%2e", "c:"] {
            let name = of(&[("x-compactproxy-agent", name)]);
            assert!(!name.starts_with('.') && !name.contains(['/', '\\', ':', '%']), "{name}");
        }
        assert_eq!(of(&[("x-compactproxy-agent", "..")]), "unknown");
        let long: &'static str = "x".repeat(500).leak();
        assert_eq!(of(&[("x-compactproxy-agent", long)]).len(), NAME_CHARS);
    }
}
