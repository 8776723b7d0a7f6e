//! The performance envelope: compactproxy beside minimal proxies in one run, held against its limits.
//! `benches/run` builds and starts it; `benches/README.md` says how to read the table.
//!
//! The same program is also the upstream and the minimal proxies, each in a process of its own:
//! `envelope upstream`, `envelope floor UPSTREAM`, `envelope sharded UPSTREAM`.

mod api;
mod bodies;
mod cases;
mod children;
mod field;
mod joined;
mod load;
mod memory;
mod minimal;
mod proc;
mod table;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use api::Api;
use cases::Cases;
use field::{Field, Scale, Starter};
use table::{Figures, Limit, Row, Target, print};

type Error = Box<dyn std::error::Error + Send + Sync>;

const fn row(metric: &'static str, what: &'static str, unit: &'static str, limit: Limit) -> Row {
    Row { metric, what, unit, limit }
}

/// The limits of the design, the same in every API; the two that it only implies are said in README.md.
const ROWS: [Row; 16] = [
    row("small_cpu", "2 KB: CPU per request", "us", Limit::Times(1.4, Target::Floor)),
    row("small_p50", "2 KB: median latency", "us", Limit::Over(30.0, Target::Floor)),
    row("recorded_cpu", "2 KB, recorded: CPU per request", "us", Limit::Times(1.4, Target::Floor)),
    row("recorded_p50", "2 KB, recorded: median latency", "us", Limit::Over(30.0, Target::Floor)),
    row("stream_cpu", "SSE, 50 ready events: CPU per stream", "us", Limit::Times(1.3, Target::Sharded)),
    row("stream_first", "SSE: median time to first event", "us", Limit::Over(100.0, Target::Direct)),
    row("known_256k", "256 KB, known, whole: CPU per request", "us", Limit::Times(2.0, Target::Floor)),
    row("known_256k_checkpoint", "256 KB, known, checkpoint: CPU per request", "us", Limit::Times(2.0, Target::Floor)),
    row("known_1m", "1 MB, known, whole: CPU per request", "us", Limit::Times(2.0, Target::Floor)),
    row("known_1m_checkpoint", "1 MB, known, checkpoint: CPU per request", "us", Limit::Times(2.0, Target::Floor)),
    row("first_sight", "1 MB, first sight: median latency", "ms", Limit::Most(60.0)),
    row("first_sight_probe", "2 KB meanwhile: p99 latency", "ms", Limit::Most(20.0)),
    row("idle_rss", "RSS at start", "MiB", Limit::Most(12.0)),
    row("idle_stream", "RSS per idle SSE stream", "KiB", Limit::Over(8.0, Target::Floor)),
    row("marathon_rss", "RSS after many requests of 600 KB", "MiB", Limit::Most(96.0)),
    row("marathon_growth", "RSS then, to its second quarter", "x", Limit::Most(1.1)),
];

/// The cases, by the names that `--only` takes.
const CASES: [&str; 6] = ["small", "streams", "known", "first-sight", "idle", "marathon"];

struct Options {
    scale: Scale,
    apis: Vec<Api>,
    binary: PathBuf,
    only: Vec<String>,
    /// Sections of the configuration beside those of the strategies.
    sections: &'static str,
}

impl Options {
    fn wants(&self, case: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == case)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["upstream"] => upstream::serve().map(|()| true),
        ["floor", upstream] => minimal::serve_floor(upstream).map(|()| true),
        ["sharded", upstream] => minimal::serve_sharded(upstream).map(|()| true),
        options => parse(options).and_then(measure),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("envelope: {problem}");
            ExitCode::from(2)
        }
    }
}

/// `[--quick] [--api chat|responses|messages|all] [--only CASE[,CASE]] [--sessions] --binary PATH`
fn parse(words: &[&str]) -> Result<Options, Error> {
    let (apis_named, binary) = (vec![Api::Chat], PathBuf::new());
    let mut options = Options { scale: Scale::FULL, apis: apis_named, binary, only: Vec::new(), sections: "" };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match *word {
            "--sessions" => options.sections = "[sessions]\n",
            "--quick" => options.scale = Scale::QUICK,
            "--api" => options.apis = apis(value()?)?,
            "--binary" => options.binary = std::path::absolute(value()?)?,
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            other => return Err(format!("unknown argument {other}; see benches/run --help").into()),
        }
    }
    if let Some(unknown) = options.only.iter().find(|only| !CASES.contains(&only.as_str())) {
        return Err(format!("no case {unknown}; there are {}", CASES.join(", ")).into());
    }
    match options.binary.is_file() {
        true => Ok(options),
        false => Err("--binary must name the proxy's program; benches/run does".into()),
    }
}

fn apis(name: &str) -> Result<Vec<Api>, Error> {
    match Api::ALL.into_iter().filter(|api| name == "all" || name == api.name()).collect::<Vec<_>>() {
        none if none.is_empty() => {
            Err(format!("no API {name}; there are {}, all", Api::ALL.map(Api::name).join(", ")).into())
        }
        apis => Ok(apis),
    }
}

/// Runs the cases and prints the table. `true`: all limits are kept.
fn measure(options: Options) -> Result<bool, Error> {
    let temporary = tempfile::tempdir()?;
    let (binary, folder) = (options.binary.clone(), temporary.path().join("proxy"));
    let starter = Starter { binary, folder, sections: options.sections };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut measured = Vec::new();
    for api in &options.apis {
        eprintln!("{}:", api.name());
        measured.push((api.name(), runtime.block_on(cases(*api, &options, &starter))?));
    }
    Ok(print(&measured, &ROWS))
}

async fn cases(api: Api, options: &Options, starter: &Starter) -> Result<Figures, Error> {
    let scale = options.scale;
    let start = Instant::now();
    let mut figures = Figures::default();
    let cases = Cases::new(api, scale);
    if options.wants("idle") {
        memory::idle(&cases, starter, scale, &mut figures).await?;
    }
    eprintln!("{:4.0} s: memory of idle streams", start.elapsed().as_secs_f64());
    let mut field = Field::start(starter)?;
    if let Some(problem) = &field.missing {
        eprintln!("compactproxy does not serve and is left out: {problem}");
    }
    for round in 1..=scale.rounds {
        if start.elapsed() > scale.budget {
            eprintln!("out of time: the medians are of {} rounds", round - 1);
            break;
        }
        field.next_round();
        if options.wants("small") {
            cases.small(&field, &mut figures).await?;
        }
        if options.wants("streams") {
            cases.streams(&field, &mut figures).await?;
        }
        if options.wants("known") {
            cases.known(&field, &mut figures).await?;
        }
        if options.wants("first-sight") {
            cases.first_sight(&field, &mut figures).await?;
        }
        eprintln!("{:4.0} s: round {round} of {}", start.elapsed().as_secs_f64(), scale.rounds);
    }
    drop(field);
    if options.wants("marathon") {
        memory::marathon(&cases, starter, scale, &mut figures).await?;
        eprintln!("{:4.0} s: memory over many requests", start.elapsed().as_secs_f64());
    }
    Ok(figures)
}
