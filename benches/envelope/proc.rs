//! CPU time and memory of a process, from /proc.

use std::collections::HashMap;
use std::fs;

use crate::Error;

/// /proc counts `utime` and `stime` in hundredths of a second (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;

/// CPU time so far: of each living thread to the nanosecond, and of all that ever lived in ticks.
pub struct Cpu {
    threads: HashMap<String, u64>,
    ticks_ns: u64,
}

impl Cpu {
    pub fn of(pid: u32) -> Result<Self, Error> {
        let mut threads = HashMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            // A thread may end between the two reads; the ticks still hold its time.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            let on_cpu = text.split_whitespace().next().ok_or("empty schedstat")?.parse()?;
            threads.insert(task.file_name().to_string_lossy().into_owned(), on_cpu);
        }
        Ok(Self { threads, ticks_ns: ticks(pid)? * TICK_NS })
    }

    /// Nanoseconds since `earlier`. Threads that ended in between are missing from the exact sum, so it gives way
    /// to the ticks where these say clearly more.
    pub fn since(&self, earlier: &Self) -> u64 {
        let exact: u64 = self
            .threads
            .iter()
            .map(|(id, now)| now.saturating_sub(earlier.threads.get(id).copied().unwrap_or(0)))
            .sum();
        let coarse = self.ticks_ns.saturating_sub(earlier.ticks_ns);
        if coarse > exact + 2 * TICK_NS { coarse } else { exact }
    }
}

fn ticks(pid: u32) -> Result<u64, Error> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name may hold spaces and brackets: count fields from the last bracket on.
    let (_, fields) = stat.rsplit_once(')').ok_or("odd /proc/PID/stat")?;
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next().ok_or("no utime")?.parse()?;
    let system: u64 = times.next().ok_or("no stime")?.parse()?;
    Ok(user + system)
}

/// Resident memory in KiB.
pub fn rss_kib(pid: u32) -> Result<f64, Error> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}
