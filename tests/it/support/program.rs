//! The program as a process of its own, which tests may kill.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use super::chat;

/// A serving process; killed when dropped.
pub struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
    pub proxy: SocketAddr,
    pub admin: SocketAddr,
}

/// Writes `proxy.toml` into `dir`, with its state beside it.
pub fn configure(dir: &Path, base_url: &str, sections: &str) {
    let state = format!("[state]\nurl = \"sqlite://{}\"\n", dir.join("state.db").display());
    std::fs::write(dir.join("proxy.toml"), chat::file(base_url, &format!("{state}{sections}"))).unwrap();
}

impl Program {
    /// Serves the configuration in `dir`.
    pub fn serve(dir: &Path) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_compactproxy")).args(["--config", "proxy.toml"]).current_dir(dir))
    }

    /// The same, in an environment that says of logging and proxies what these variables say.
    pub fn within(dir: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compactproxy"));
        command.args(["--config", "proxy.toml"]).current_dir(dir);
        for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "RUST_LOG", "COMPACTPROXY_LOG"] {
            command.env_remove(name);
        }
        Self::of(command.envs(variables.iter().copied()))
    }

    /// The same, in a process that can make no file longer than `blocks` of 512 bytes.
    pub fn with_full_disk(dir: &Path, blocks: usize) -> Self {
        let script = format!("ulimit -f {blocks}; exec \"$0\" --config proxy.toml");
        Self::of(Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_compactproxy")]).current_dir(dir))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = patient(command).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("listening ")).unwrap();
        let address = |name: &str| {
            let value = line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap();
            value.parse().unwrap()
        };
        let (proxy, admin) = (address("proxy="), address("admin="));
        // A full pipe would stop it.
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *written.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, log, proxy, admin }
    }

    /// What it has logged since it serves.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Ends it without a chance to do anything (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a program keeps must not depend on how busy the machine is.
fn patient(command: &mut Command) -> &mut Command {
    command.env("COMPACTPROXY_TEST_STORE_SECONDS", "60")
}

/// Runs a command with the configuration in `dir` and this input.
pub fn run(dir: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compactproxy"));
    command.current_dir(dir).args(args).args(["--config", "proxy.toml"]);
    let mut child =
        patient(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    output
}
