use std::process::ExitCode;

fn main() -> ExitCode {
    compactproxy::cli::run(std::env::args_os())
}
