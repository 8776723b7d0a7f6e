use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// glibc's keeps for each thread what others have freed. Without huge pages, which would have an idle proxy take twice
/// the memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the allocator keeps freed memory before it gives it back, in milliseconds. In its own second the traffic of
/// long bodies leaves some 20 MiB; a third of this, and the pages of each body of 1 MB would be fetched anew.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "30");

fn main() -> ExitCode {
    set_purge_delay();
    compactproxy::cli::run(env::args_os())
}

/// The allocator reads its settings before `main`, and only from the environment: this process begins anew with them.
/// If it cannot, it goes on as it is. Whoever has set the delay keeps it.
fn set_purge_delay() {
    let (name, delay) = PURGE_DELAY;
    let Ok(program) = env::current_exe() else { return };
    if env::var_os(name).is_some() {
        return;
    }
    let mut arguments = env::args_os();
    let called = arguments.next().unwrap_or_default();
    let _failed = Command::new(program).arg0(called).args(arguments).env(name, delay).exec();
}
