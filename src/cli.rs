//! The command line: what is asked for, and the exit status it gets. Each command is a file of `cli/`.

mod check;
mod compact;
mod demo;
mod evicted;
mod health;
mod memory;
mod serve;
mod sessions;
mod state;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use http::{HeaderName, HeaderValue};

use crate::compact::TextId;
use crate::config::{Config, Problems};
use crate::demo::request::Api;
use crate::telemetry::subscriber::LogFormat;
use crate::wire::Dialect;

/// Exit status of a failure at run time.
const RUNTIME: u8 = 1;
/// Exit status of a usage or configuration error.
const USAGE: u8 = 2;

/// A transparent LLM API proxy that lets unmodified agents work past their model's context window.
///
/// Without a command it serves: `compactproxy --config proxy.toml`.
#[derive(Debug, Parser)]
#[command(name = "compactproxy", version, max_term_width = 100)]
struct Cli {
    /// The configuration file. Without one, all commands but serving and `check` go by the shipped proxy.toml, with
    /// the state in compactproxy.db in the working directory.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How log lines on stderr look [default: human, or COMPACTPROXY_LOG_FORMAT].
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Validate a configuration and print it resolved, with every default (secrets masked).
    #[command(override_usage = "compactproxy check --config <FILE>")]
    Check,
    /// Read a request body on stdin and write what would be sent to the provider.
    Compact(CompactArgs),
    /// Print a text that was removed from a conversation.
    Evicted(EvictedArgs),
    /// Show, export or import the files of long-term memory.
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// Run a scripted agent through the proxy against an embedded provider: no key, no network.
    Demo(DemoArgs),
    /// List, show, search and export the session log.
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// Ask the local instance whether it is ready; for probes.
    Health(HealthArgs),
}

/// `demo`: which API the agent speaks.
#[derive(Debug, Clone, Copy, Args)]
pub struct DemoArgs {
    /// The wire API that the scripted agent speaks.
    #[arg(long, value_enum, default_value_t = ApiName::Chat)]
    api: ApiName,
}

/// `compact`: which dialect the body on stdin is in.
#[derive(Debug, Clone, Args)]
pub struct CompactArgs {
    /// The wire API that the body belongs to.
    #[arg(long, value_enum)]
    api: ApiName,
    /// A header of the request, as often as needed: a credential says whose state applies, anthropic-beta may say how
    /// large the window is.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = line.split_once(':').ok_or("write NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| "that is no name of a header")?;
    let value = value.trim().parse().map_err(|_| "that is no value of a header")?;
    Ok((name, value))
}

/// An agent's name as it is kept.
fn agent(name: &str) -> Result<String, Infallible> {
    Ok(name.trim().to_ascii_lowercase())
}

/// The wire APIs by the names that the command line has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ApiName {
    Chat,
    Responses,
    Messages,
}

/// `evicted`: which text, and which part of it.
#[derive(Debug, Clone, Args)]
pub struct EvictedArgs {
    /// The id that a pointer in the conversation names: 32 lower-case hex digits.
    pub id: TextId,
    /// Skip this many lines (or characters).
    #[arg(long, value_name = "N")]
    pub offset: Option<usize>,
    /// Print at most this many lines (or characters).
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print only lines that match this regular expression, with their numbers and two lines around.
    #[arg(long, value_name = "REGEX")]
    pub pattern: Option<String>,
    /// With a pattern: skip this many characters of the line at offset.
    #[arg(long, value_name = "N")]
    pub char_offset: Option<usize>,
    /// What offset and limit count.
    #[arg(long, value_enum, default_value_t = Unit::Lines)]
    pub unit: Unit,
}

/// What a page of a removed text is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    Lines,
    /// Unicode characters.
    Chars,
}

/// `health`: which instance.
#[derive(Debug, Clone, Copy, Args)]
pub struct HealthArgs {
    /// The instance's admin address, in place of a configuration.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub admin: Option<SocketAddr>,
}

impl CompactArgs {
    /// The dialect of the body.
    pub fn dialect(&self) -> Dialect {
        match self.api {
            ApiName::Chat => Dialect::Chat,
            ApiName::Responses => Dialect::Responses,
            ApiName::Messages => Dialect::Messages,
        }
    }
}

impl DemoArgs {
    /// The API as the demo has it.
    fn api(self) -> Api {
        match self.api {
            ApiName::Chat => Api::Chat,
            ApiName::Responses => Api::Responses,
            ApiName::Messages => Api::Messages,
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The operator's: the configuration.
    #[error("{0}")]
    Configuration(#[from] Problems),
    /// The operator's as well: what the configuration and the environment name cannot be used.
    #[error("compactproxy: {0}")]
    Setup(String),
    /// Anything that went wrong while running.
    #[error("compactproxy: {0}")]
    Runtime(String),
}

/// Runs the program with these arguments, its own name first.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args).and_then(with_needed_config) {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version are no errors and go to stdout; a closed pipe there is nobody's fault.
            let _ = usage.print();
            return if usage.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(match failure {
                Failure::Configuration(_) | Failure::Setup(_) => USAGE,
                Failure::Runtime(_) => RUNTIME,
            })
        }
    }
}

/// Serving and checking are about a file: without one they are a usage error.
fn with_needed_config(cli: Cli) -> Result<Cli, clap::Error> {
    match (&cli.config, &cli.command) {
        (None, None) => {
            let message = "--config FILE is required to serve; `compactproxy demo` needs none";
            Err(Cli::command().error(ErrorKind::MissingRequiredArgument, message))
        }
        (None, Some(Command::Check)) => {
            Err(Cli::command().error(ErrorKind::MissingRequiredArgument, "check needs --config FILE"))
        }
        _ => Ok(cli),
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    let config = configuration(cli.config.as_deref(), &cli.command)?;
    match cli.command {
        None => serve::run(config, cli.log_format),
        Some(Command::Check) => check::run(config),
        Some(Command::Compact(args)) => compact::run(config, args),
        Some(Command::Evicted(args)) => evicted::run(config, &args),
        Some(Command::Memory(command)) => memory::run(config, &command),
        Some(Command::Demo(args)) => demo::run(config, args),
        Some(Command::Sessions(command)) => sessions::run(config, &command),
        Some(Command::Health(args)) => health::run(args.admin.unwrap_or(config.server.admin_listen)),
    }
}

/// The file's configuration, or the embedded copy of the shipped one. A probe that names an address reads no file.
fn configuration(file: Option<&Path>, command: &Option<Command>) -> Result<Config, Problems> {
    match (file, command) {
        (_, Some(Command::Health(HealthArgs { admin: Some(_) }))) | (None, _) => Config::shipped(),
        (Some(file), _) => Config::load(file),
    }
}

/// Writes to stdout. A reader that closed the pipe has what it wanted.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says on stderr what is no failure: that nothing was found, or not all.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("compactproxy").chain(line.split(' ').filter(|word| !word.is_empty())))
            .and_then(with_needed_config)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_configuration_stands_before_or_after_the_command() {
        for line in
            ["--config f.toml", "--config f.toml check", "check --config f.toml", "compact --config f.toml --api chat"]
        {
            assert_eq!(parse(line).expect(line).config, Some(PathBuf::from("f.toml")));
        }
    }

    #[test]
    fn what_is_usage_and_what_is_not() {
        let id = "00112233445566778899aabbccddeeff";
        for line in [
            "demo",
            "demo --api responses",
            "memory show",
            "memory show --agent a memory/2026-11-30.md",
            "memory export --to folder",
            "memory import folder --agent a",
            "health",
            "health --admin 127.0.0.1:1",
            "compact --api messages",
            "compact --api messages --header anthropic-beta:a,b --header x:",
            &format!("evicted {id}"),
            &format!("evicted {}", id.to_uppercase()),
            "sessions list --agent codex --limit 5",
            "sessions search two",
            &format!("sessions show {id} --last 3 --before 9"),
            &format!("sessions export {id}"),
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "",
            "check",
            "compact",
            "compact --api gemini",
            "compact --api chat --header anthropic-beta",
            "demo --api gemini",
            "evicted",
            "evicted 0011",
            "run",
            "sessions",
            "sessions show",
            "sessions show 0011",
            "sessions search ?!",
            "sessions export ../x",
            "memory",
            "memory show ../MEMORY.md",
            "memory show --tenant a",
            "memory import",
            "health --admin localhost",
            "health --admin 127.0.0.1:1 --config f.toml",
            "--log-format xml demo",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn agents_are_named_as_they_are_kept() {
        let Some(Command::Memory(memory::MemoryCommand::Show(args))) =
            parse("memory show --agent OpenAI").unwrap().command
        else {
            panic!("another command")
        };
        assert_eq!(args.owner.agent.as_deref(), Some("openai"));
        let Some(Command::Sessions(sessions::SessionsCommand::List { agent, .. })) =
            parse("sessions list --agent Codex_CLI").unwrap().command
        else {
            panic!("another command")
        };
        assert_eq!(agent.as_deref(), Some("codex_cli"));
    }

    #[test]
    fn help_shows_what_is_needed() {
        let help = |line: &str| parse(line).unwrap_err().to_string();
        assert!(help("check --help").contains("Usage: compactproxy check --config <FILE>"), "{}", help("check --help"));
        assert!(help("evicted --help").contains("shipped"));
        assert!(help("sessions search --help").contains("Words and identifiers"));
    }

    #[test]
    fn a_page_is_asked_for() {
        let line = "evicted 00112233445566778899aabbccddeeff --offset 5 --limit 7 --pattern ^a --unit chars";
        let Some(Command::Evicted(args)) = parse(line).expect(line).command else { panic!("another command") };
        assert_eq!(
            (args.offset, args.limit, args.pattern.as_deref(), args.unit),
            (Some(5), Some(7), Some("^a"), Unit::Chars)
        );
        assert_eq!(args.id.to_string(), "00112233445566778899aabbccddeeff");
    }
}
