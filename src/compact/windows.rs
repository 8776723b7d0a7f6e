//! The built-in table of context windows, after the limits that vendors publish; a starting point, which
//! configuration and learned numbers override. Conservative: where a family's members or its hosts differ, the
//! smallest common number, or no entry, which means "unknown" and costs one recovered overflow.

use super::budget::Window;

/// Name prefix, most input tokens, most tokens in all. The longest prefix applies.
const TABLE: &[(&str, u64, u64)] = &[
    // OpenAI
    ("gpt-3.5-turbo", 16_385, 16_385),
    ("gpt-3.5-turbo-instruct", 4_096, 4_096),
    ("gpt-35-turbo", 16_385, 16_385),
    ("gpt-4", 8_192, 8_192),
    ("gpt-4-32k", 32_768, 32_768),
    ("gpt-4-turbo", 128_000, 128_000),
    ("gpt-4-0125", 128_000, 128_000),
    ("gpt-4-1106", 128_000, 128_000),
    ("gpt-4-vision", 128_000, 128_000),
    ("gpt-4o", 128_000, 128_000),
    ("chatgpt-4o", 128_000, 128_000),
    ("gpt-4.1", 1_047_576, 1_047_576),
    ("gpt-4.5", 128_000, 128_000),
    ("gpt-5", 272_000, 400_000),
    ("gpt-5-chat", 128_000, 128_000),
    ("gpt-5.1-chat", 128_000, 128_000),
    ("gpt-5.2-chat", 128_000, 128_000),
    ("gpt-5.3-codex-spark", 128_000, 128_000),
    ("gpt-oss", 131_072, 131_072),
    ("o1", 200_000, 200_000),
    ("o1-mini", 128_000, 128_000),
    ("o1-preview", 128_000, 128_000),
    ("o3", 200_000, 200_000),
    ("o4-mini", 200_000, 200_000),
    ("codex-mini", 200_000, 200_000),
    // Anthropic; longer windows depend on betas
    ("claude-", 200_000, 200_000),
    ("claude-2", 100_000, 100_000),
    ("claude-2.1", 200_000, 200_000),
    ("claude-instant", 100_000, 100_000),
    // Google
    ("gemini-", 1_048_576, 1_048_576),
    ("gemini-pro", 32_760, 32_760),
    ("gemini-1.0-pro", 32_760, 32_760),
    ("gemini-1.5-pro", 2_097_152, 2_097_152),
    ("gemini-2.5-flash-image", 32_768, 32_768),
    // DeepSeek
    ("deepseek-chat", 128_000, 128_000),
    ("deepseek-reasoner", 128_000, 128_000),
    ("deepseek-r1", 128_000, 128_000),
    ("deepseek-v3", 128_000, 128_000),
    // Alibaba
    ("qwen-max", 32_768, 32_768),
    ("qwen-plus", 131_072, 131_072),
    ("qwen3-max", 262_144, 262_144),
    ("qwen3-coder", 262_144, 262_144),
    ("qwen2.5-72b-instruct", 32_768, 32_768),
    // Mistral
    ("mistral-large", 128_000, 128_000),
    ("mistral-large-2402", 32_768, 32_768),
    ("mistral-medium", 128_000, 128_000),
    ("mistral-medium-2312", 32_768, 32_768),
    ("ministral-", 128_000, 128_000),
    ("open-mistral-nemo", 128_000, 128_000),
    ("open-mistral-7b", 32_768, 32_768),
    ("open-mixtral-8x7b", 32_768, 32_768),
    ("open-mixtral-8x22b", 65_536, 65_536),
    ("pixtral-", 128_000, 128_000),
    ("devstral-", 128_000, 128_000),
    // Meta, as hosts serve them; a local server says its own number
    ("llama-3.1-", 131_072, 131_072),
    ("llama-3.2-", 131_072, 131_072),
    ("llama-3.3-", 131_072, 131_072),
    // Moonshot
    ("kimi-k2", 131_072, 131_072),
    ("kimi-k2-0905", 262_144, 262_144),
    ("kimi-k2-thinking", 262_144, 262_144),
    ("kimi-k2.5", 262_144, 262_144),
    ("moonshot-v1-8k", 8_192, 8_192),
    ("moonshot-v1-32k", 32_768, 32_768),
    ("moonshot-v1-128k", 131_072, 131_072),
    // Z.ai
    ("glm-4.5", 128_000, 128_000),
    ("glm-4.5v", 64_000, 64_000),
    ("glm-4.6", 200_000, 200_000),
    ("glm-4.6v", 128_000, 128_000),
    ("glm-4.7", 200_000, 200_000),
    // xAI
    ("grok-2", 131_072, 131_072),
    ("grok-3", 131_072, 131_072),
    ("grok-4", 256_000, 256_000),
    ("grok-4-fast", 2_000_000, 2_000_000),
    ("grok-code-fast", 256_000, 256_000),
    // Others
    ("command-r", 128_000, 128_000),
    ("command-a", 256_000, 256_000),
    ("minimax-m2", 196_608, 196_608),
    ("nova-micro", 128_000, 128_000),
    ("nova-lite", 300_000, 300_000),
    ("nova-pro", 300_000, 300_000),
];

/// Beta feature, name prefix, most tokens in and in all: windows that a request has to ask for.
const WIDE: &[(&str, &str, u64)] =
    &[("context-1m-", "claude-sonnet-", 1_000_000), ("context-1m-", "claude-opus-", 1_000_000)];

/// The window of a model by the longest prefix of its name that the table has, for a request with the beta features
/// `betas` (names divided by commas).
pub fn built_in(model: &str, betas: &str) -> Option<Window> {
    let name = bare(model);
    let asked = |beta: &str| betas.split(',').any(|asked| asked.trim().starts_with(beta));
    if let Some(&(.., most)) = WIDE.iter().find(|(beta, prefix, _)| name.starts_with(prefix) && asked(beta)) {
        return Some(Window { input: most, total: most });
    }
    let known = TABLE.iter().filter(|(prefix, ..)| name.starts_with(prefix));
    known.max_by_key(|(prefix, ..)| prefix.len()).map(|&(_, input, total)| Window { input, total })
}

/// Hosts that serve a vendor's own models with the vendor's own windows, and how the table names those.
const OWN: &[(&str, &[&str])] =
    &[("api.openai.com", &["gpt-", "chatgpt-", "o1", "o3", "o4-", "codex-"]), ("api.anthropic.com", &["claude-"])];

/// Whether the table is about this very host. Elsewhere a model may run in a smaller window than its vendor's.
pub fn is_own(host: &str, model: &str) -> bool {
    let name = bare(model);
    let serves = |(own, prefixes): &(&str, &[&str])| {
        host.eq_ignore_ascii_case(own) && prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    OWN.iter().any(serves) && built_in(model, "").is_some()
}

/// The model's own name, in lower case: without the path of providers before it (`openrouter/openai/…`,
/// `models/…`), the mark of a fine-tune (`ft:`), or a cloud's region and vendor (`us.anthropic.…`).
fn bare(model: &str) -> String {
    const VENDORS: [&str; 9] = ["us", "eu", "apac", "global", "anthropic", "meta", "mistral", "amazon", "deepseek"];
    let lower = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let mut name = lower.strip_prefix("ft:").unwrap_or(&lower);
    while let Some((vendor, rest)) = name.split_once('.') {
        if !VENDORS.contains(&vendor) {
            break;
        }
        name = rest;
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_by_name() {
        let total = |model: &str| built_in(model, "other-1").map(|window| window.total);
        for (model, tokens) in [
            ("gpt-4o", 128_000),
            ("gpt-4o-mini-2024-07-18", 128_000),
            ("openai/gpt-4.1-mini", 1_047_576),
            ("gpt-4-0613", 8_192),
            ("gpt-4-turbo-2024-04-09", 128_000),
            ("ft:gpt-3.5-turbo-0125:acme::abc", 16_385),
            ("azure/gpt-35-turbo", 16_385),
            ("gpt-5.1-codex-max", 400_000),
            ("o3-mini", 200_000),
            ("o4-mini-2025-04-16", 200_000),
            ("openrouter/anthropic/claude-sonnet-4.5:beta", 200_000),
            ("us.anthropic.claude-opus-4-20250514-v1:0", 200_000),
            ("claude-sonnet-4@20250514", 200_000),
            ("models/gemini-2.5-pro", 1_048_576),
            ("deepseek/deepseek-chat", 128_000),
            ("moonshotai/kimi-k2-0905-preview", 262_144),
            ("meta-llama/Llama-3.3-70B-Instruct", 131_072),
            ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 262_144),
            ("x-ai/grok-4", 256_000),
        ] {
            assert_eq!(total(model), Some(tokens), "{model}");
        }
        assert_eq!(built_in("gpt-5-mini", ""), Some(Window { input: 272_000, total: 400_000 }));
        for model in ["", "my-model", "llama3.1:8b", "qwen2.5-coder:7b", "mistral", "o", "/", "anthropic."] {
            assert_eq!(built_in(model, ""), None, "{model}");
        }
    }

    #[test]
    fn the_table_is_sure_of_a_vendors_own_host_alone() {
        assert!(is_own("api.openai.com", "gpt-4o") && is_own("API.openai.com", "o3-mini"));
        assert!(is_own("api.anthropic.com", "claude-sonnet-4-5"));
        for (host, model) in [
            ("127.0.0.1", "gpt-oss-20b"),
            ("api.openai.com.example.org", "gpt-4o"),
            ("api.openai.com", "my-model"),
            ("api.anthropic.com", "gpt-4o"),
            ("openrouter.ai", "anthropic/claude-sonnet-4.5"),
        ] {
            assert!(!is_own(host, model), "{host} {model}");
        }
    }

    #[test]
    fn a_wider_window_has_to_be_asked_for() {
        let total = |model: &str, betas: &str| built_in(model, betas).map(|window| window.total);
        let wide = "a-1,context-1m-2025-08-07";
        assert_eq!(total("claude-sonnet-4-5", wide), Some(1_000_000));
        assert_eq!(total("us.anthropic.claude-opus-4-6-v1", wide), Some(1_000_000));
        assert_eq!(total("claude-sonnet-4-5", "a-1"), Some(200_000));
        assert_eq!(total("claude-3-5-haiku", wide), Some(200_000));
        assert_eq!(total("gpt-4o", wide), Some(128_000));
    }

    #[test]
    fn the_table_is_sound() {
        for (i, (prefix, input, total)) in TABLE.iter().enumerate() {
            assert!(input <= total && *input >= 1_024, "{prefix}");
            assert!(TABLE.iter().skip(i + 1).all(|(other, ..)| other != prefix), "{prefix} twice");
            assert_eq!(bare(prefix), *prefix);
        }
    }
}
