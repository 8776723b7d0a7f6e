//! `${NAME}` in the strings of a configuration: the environment variable's value. `$$` is a dollar sign.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problems::Problems;

/// Where variables come from: the process's environment, or a test's.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Expands every string below `table`. A variable that is not set is a problem.
pub fn expand_table(table: &mut DeTable<'_>, path: &str, env: Environment<'_>, problems: &mut Problems) {
    for (key, value) in table.iter_mut() {
        let key = super::raw::joined(path, key.get_ref());
        expand_value(value, &key, env, problems);
    }
}

fn expand_value(value: &mut Spanned<DeValue<'_>>, key: &str, env: Environment<'_>, problems: &mut Problems) {
    let at = value.span().start;
    match value.get_mut() {
        DeValue::String(text) if text.contains('$') => match expand(text, env) {
            Ok(expanded) => *text = expanded.into(),
            Err(message) => problems.add(Some(at), key, message),
        },
        DeValue::Array(values) => values.iter_mut().for_each(|value| expand_value(value, key, env, problems)),
        DeValue::Table(table) => expand_table(table, key, env, problems),
        _ => {}
    }
}

/// `text` with its variables replaced. What a variable holds is not expanded again.
pub fn expand(text: &str, env: Environment<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let (name, after) = after.split_once('}').ok_or("`${` has no `}`; a dollar sign is written `$$`")?;
            let valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !valid {
                return Err(format!("`${{{name}}}` names no environment variable"));
            }
            let value = env(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
            expanded.push_str(&value);
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// `text` so that [`expand`] gives it back.
pub fn escape(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn env(name: &str) -> Option<String> {
        (name == "KEY").then(|| "v${KEY}".to_owned())
    }

    #[test]
    fn variables_expand_once() {
        assert_eq!(expand("a ${KEY} b", &env), Ok("a v${KEY} b".into()));
        assert_eq!(expand("$${KEY} $5 $", &env), Ok("${KEY} $5 $".into()));
        assert!(expand("${OTHER}", &env).is_err_and(|message| message.contains("OTHER is not set")));
        assert!(expand("${KEY", &env).is_err());
        assert!(expand("${}", &env).is_err());
        assert!(expand("${A B}", &env).is_err());
    }

    proptest! {
        #[test]
        fn escaped_text_expands_to_itself(text in "[a${}K]{0,20}") {
            prop_assert_eq!(expand(&escape(&text), &env), Ok(text));
        }
    }
}
