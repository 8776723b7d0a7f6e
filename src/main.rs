use std::process::ExitCode;

/// glibc's keeps for each thread what others have freed: after a day of long bodies, a quarter more memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    compactproxy::cli::run(std::env::args_os())
}
