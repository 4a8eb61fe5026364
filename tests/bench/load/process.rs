//! CPU time and memory of watched processes, from `/proc`.
//!
//! A thread's time on the CPU is the first number of its `schedstat`, in nanoseconds. Threads are sampled during the window
//! too, so that one which ends in it loses only what it used since its last sample.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::measure::Process;

/// The watched processes since the first sample.
#[derive(Debug)]
pub(crate) struct Watch {
    processes: Vec<(u32, BTreeMap<u32, Thread>)>,
    sampled: bool,
}

#[derive(Debug)]
struct Thread {
    name: String,
    first: Duration,
    last: Duration,
}

impl Watch {
    /// Watches these processes from the next sample on.
    pub(crate) fn new(pids: &[u32]) -> Self {
        Self {
            processes: pids.iter().map(|pid| (*pid, BTreeMap::new())).collect(),
            sampled: false,
        }
    }

    /// Reads all threads; one first seen after the first sample began in the window.
    pub(crate) fn sample(&mut self) {
        for (pid, threads) in &mut self.processes {
            for (tid, name, time) in threads_of(*pid) {
                let first = if self.sampled { Duration::ZERO } else { time };
                let thread = threads.entry(tid).or_insert(Thread {
                    name: String::new(),
                    first,
                    last: time,
                });
                thread.name = name;
                thread.last = time;
            }
        }
        self.sampled = true;
    }

    /// CPU between first and last sample by `requests`, and memory now.
    pub(crate) fn report(&self, requests: u32) -> Vec<Process> {
        let divisor = f64::from(requests.max(1));
        self.processes
            .iter()
            .map(|(pid, threads)| {
                let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
                for thread in threads.values() {
                    let used = thread.last.saturating_sub(thread.first).as_secs_f64() * 1e6 / divisor;
                    *by_name.entry(group(&thread.name).to_owned()).or_default() += used;
                }
                Process {
                    pid: *pid,
                    rss_kib: rss_kib(*pid),
                    cpu_us: by_name.values().fold(0.0, |sum, used| sum + used),
                    threads: by_name,
                }
            })
            .collect()
    }
}

/// Resident memory of a process in KiB; 0 if it is gone.
pub(crate) fn rss_kib(pid: u32) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/status")).map_or(0.0, |status| rss_of_status(&status))
}

fn rss_of_status(status: &str) -> f64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}

fn threads_of(pid: u32) -> Vec<(u32, String, Duration)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let tid = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let time = on_cpu(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?;
            Some((tid, name.trim().to_owned(), time))
        })
        .collect()
}

fn on_cpu(schedstat: &str) -> Option<Duration> {
    schedstat
        .split_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

/// The name without a trailing number.
fn group(name: &str) -> &str {
    let stem = name
        .trim_end_matches(|last: char| last.is_ascii_digit())
        .trim_end_matches('-');
    if stem.is_empty() { name } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_with_numbers_fall_into_one_group() {
        assert_eq!(group("ledger-3"), "ledger");
        assert_eq!(group("wb-log"), "wb-log");
        assert_eq!(group("42"), "42");
    }

    #[test]
    fn the_first_number_of_schedstat_is_the_time_on_the_cpu() {
        assert_eq!(on_cpu("1500 20 3\n"), Some(Duration::from_nanos(1_500)));
        assert_eq!(on_cpu(""), None);
    }

    #[test]
    fn resident_memory_is_read_from_status() {
        let rss = rss_of_status("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t  1234 kB\n");

        assert!((rss - 1_234.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_watched_process_reports_its_own_memory() {
        let mut watch = Watch::new(&[std::process::id()]);

        watch.sample();

        assert!(watch.report(1).iter().all(|process| process.rss_kib > 0.0));
    }
}
