//! The processes under measurement.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::Error;

const START: Duration = Duration::from_secs(10);

/// A child process that said where it listens; it is killed when this is dropped.
pub struct Running {
    child: Child,
    pub address: SocketAddr,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program once more in another role.
pub fn role(arguments: &[&str]) -> Result<Running, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    start(command)
}

/// The proxy under test, with every strategy and `sections` on and its state in `folder`, which is emptied first.
pub fn compactproxy(binary: &Path, upstream: SocketAddr, folder: &Path, sections: &str) -> Result<Running, Error> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    let file = folder.join("proxy.toml");
    std::fs::write(&file, configuration(upstream, folder) + sections)?;
    let mut command = Command::new(binary);
    command.arg("--config").arg(&file).current_dir(folder).env_remove("HTTP_PROXY").env_remove("HTTPS_PROXY");
    start(command)
}

/// The models' names say their windows.
fn configuration(upstream: SocketAddr, folder: &Path) -> String {
    let state = folder.join("state.db");
    let state = state.display();
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
[[upstream]]
name = "openai"
base_url = "http://{upstream}/v1"
api = "openai"
[[upstream]]
name = "anthropic"
base_url = "http://{upstream}"
api = "anthropic"
[state]
url = "sqlite://{state}"
[tool_result_eviction]
[truncate_args]
[prune]
[compaction]
[overflow_recovery]
[[window]]
model = "bench-48k"
input = 48_000
[[window]]
model = "bench-128k"
input = 128_000
[[window]]
model = "bench-1m"
input = 1_000_000
"#
    )
}

fn start(mut command: Command) -> Result<Running, Error> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().ok_or("no stderr")?;
    let (found, address) = mpsc::channel();
    // Reads to the end, or the child would block on a full pipe once it logs.
    std::thread::spawn(move || {
        let mut before = Vec::new();
        let mut sent = false;
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sent {
                continue;
            }
            match listening(&line) {
                Some(address) => sent = found.send(Ok(address)).is_ok(),
                None => before.push(line),
            }
        }
        if !sent {
            let _ = found.send(Err(format!("it ended before it listened: {}", before.join(" | "))));
        }
    });
    let address = address.recv_timeout(START).unwrap_or_else(|_| Err("no `listening` line in time".into()));
    match address {
        Ok(address) => Ok(Running { child, address }),
        Err(problem) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(problem.into())
        }
    }
}

/// The address in `listening proxy=ADDR …`, wherever in the line it stands.
fn listening(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening proxy=")?;
    rest.split_whitespace().next()?.parse().ok()
}
