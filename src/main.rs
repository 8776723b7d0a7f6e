use std::process::ExitCode;

/// glibc's keeps for each thread what others have freed. Without huge pages, which would have an idle proxy take twice
/// the memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    compactproxy::cli::run(std::env::args_os())
}
