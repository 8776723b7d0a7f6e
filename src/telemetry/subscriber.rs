//! Logs: one line an event, to stderr, for people or as JSON.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

/// Level or filter of the proxy's own choosing, before `RUST_LOG`.
pub const LEVEL_VARIABLE: &str = "COMPACTPROXY_LOG";
/// `human` or `json`, where no flag says it.
pub const FORMAT_VARIABLE: &str = "COMPACTPROXY_LOG_FORMAT";

/// Below these levels the libraries log headers, messages and statements, and those hold credentials and texts.
const CAPS: [&str; 7] =
    ["h2=info", "hyper=info", "hyper_util=info", "rustls=info", "tower=info", "sqlx=warn", "rmcp=error"];

impl FromStr for LogFormat {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

/// Starts logging for the whole process; a second call changes nothing. `format` is the flag's, if given.
pub fn start(format: Option<LogFormat>) {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let directives = variable(LEVEL_VARIABLE).or_else(|| variable("RUST_LOG"));
    let named = variable(FORMAT_VARIABLE);
    let format = format.or_else(|| named.as_deref()?.parse().ok()).unwrap_or_default();
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter(directives.as_deref()));
    // Its own complaint about a closed stderr would be a panic, and the end of the thread that wanted to log.
    let lines = lines.log_internal_errors(false);
    // An error means that logging was started before, by a test or an embedding program: theirs stands.
    let _ = match format {
        LogFormat::Human => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// The filter for these directives, `info` where they are none or invalid.
fn filter(directives: Option<&str>) -> EnvFilter {
    let given = EnvFilter::try_new(directives.unwrap_or("info")).unwrap_or_else(|_| EnvFilter::new("info"));
    CAPS.iter().filter_map(|cap| cap.parse().ok()).fold(given, EnvFilter::add_directive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is logged under these directives.
    fn logged(directives: Option<&str>) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_env_filter(filter(directives)).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "compactproxy::proxy", "ours at info");
            tracing::debug!(target: "compactproxy::proxy", "ours at debug");
            tracing::info!(target: "h2::server", "theirs at info");
            tracing::debug!(target: "h2::codec", "authorization: Bearer");
            tracing::trace!(target: "hyper::proto", "authorization: Bearer");
            tracing::info!(target: "rmcp::service", "authorization: Bearer");
            tracing::info!(target: "sqlx::query", "insert");
        });
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn info_is_the_default_also_of_a_bad_filter() {
        for directives in [None, Some("=,=,nonsense=loud")] {
            let lines = logged(directives);
            assert!(lines.contains("ours at info") && !lines.contains("ours at debug"), "{lines}");
        }
    }

    #[test]
    fn libraries_never_log_headers_whatever_the_level() {
        for directives in ["trace", "debug", "compactproxy=trace"] {
            let lines = logged(Some(directives));
            assert!(lines.contains("ours at debug"), "{lines}");
            assert!(!lines.contains("Bearer") && !lines.contains("insert"), "{lines}");
        }
    }
}
