//! Many runs, several at a time.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use super::arguments::Request;
use super::program::{Ending, Program};
use super::totals::{Totals, children_cpu_seconds};

/// Runs the seeds, prints the verdict of each run as it ends, and at the end the totals.
pub fn run(program: &Program, seeds: Range<u64>, request: &Request) -> Totals {
    let cpu_before = children_cpu_seconds();
    let totals = Mutex::new(Totals::default());
    in_parallel(seeds, request, |seed| {
        let run = program.run(seed, &request.passed);
        if run.ending == Ending::Held {
            println!("{}", run.last_line());
        } else {
            // All of it: the lines of the trace that concern it, and the command that repeats it.
            println!("{}", run.output.trim_end());
        }
        totals.lock().expect("no thread panics while it holds the lock").add(&run);
        true
    });
    let mut totals = totals.into_inner().expect("all threads ended");
    totals.expect_faults(&program.listed("--fault"));
    totals.print(cpu_before.zip(children_cpu_seconds()).map(|(before, after)| after - before));
    totals
}

/// Calls a function for each seed, on several threads, until it returns false or the time is over.
pub fn in_parallel(seeds: Range<u64>, request: &Request, act: impl Fn(u64) -> bool + Sync) {
    let (began, todo) = (Instant::now(), Mutex::new(seeds));
    let in_time = || request.lasts.is_none_or(|lasts| began.elapsed() < lasts);
    let next = || todo.lock().expect("no thread panics while it holds the lock").next().filter(|_| in_time());
    let stop = || todo.lock().expect("no thread panics while it holds the lock").start = u64::MAX;
    let jobs = request.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    if !act(seed) {
                        stop();
                    }
                }
            });
        }
    });
}

/// Runs each seed twice with its whole trace; prints the first difference. Whether all are equal.
pub fn twice(program: &Program, seeds: Range<u64>, request: &Request) -> bool {
    let different = Mutex::new(Vec::new());
    let folder = std::env::temp_dir().join(format!("terrane-sim-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir_all(&folder) {
        eprintln!("cannot create {}: {error}", folder.display());
        return false;
    }
    in_parallel(seeds, request, |seed| {
        let verdict = compare(program, seed, request, &folder);
        println!("seed {seed} twice: {}", verdict.as_ref().map_or_else(String::as_str, |()| "equal traces"));
        if verdict.is_err() {
            different.lock().expect("no thread panics while it holds the lock").push(seed);
        }
        true
    });
    // The traces are large; what they showed is printed.
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        eprintln!("cannot remove {}: {error}", folder.display());
    }
    let different = different.into_inner().expect("all threads ended");
    println!("run twice: {} seeds differ {different:?}", different.len());
    different.is_empty()
}

fn compare(program: &Program, seed: u64, request: &Request, folder: &Path) -> Result<(), String> {
    let traces = [1, 2].map(|turn| folder.join(format!("{seed}-{turn}")));
    for trace in &traces {
        let words = ["--wire".to_owned(), "--trace".to_owned(), trace.display().to_string()];
        program.run(seed, &[&words[..], &request.passed].concat());
    }
    let outcome = first_difference(&traces[0], &traces[1]);
    for trace in &traces {
        std::fs::remove_file(trace).map_err(|error| format!("cannot remove {}: {error}", trace.display()))?;
    }
    outcome
}

/// The first difference of two files, line by line, which may each be gigabytes.
fn first_difference(one: &Path, other: &Path) -> Result<(), String> {
    use std::io::BufRead;
    let open = |path: &Path| -> Result<_, String> {
        let file = std::fs::File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(std::io::BufReader::new(file).split(b'\n'))
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    for number in 1_u64.. {
        let next = |line: Option<std::io::Result<Vec<u8>>>| line.transpose().map_err(|error| error.to_string());
        let (left, right) = (next(one.next())?, next(other.next())?);
        if left != right {
            let shown = |line: Option<Vec<u8>>| {
                line.map_or_else(
                    || "(end)".to_owned(),
                    |line| String::from_utf8_lossy(&line).chars().take(300).collect(),
                )
            };
            return Err(format!(
                "DIFFERENT from line {number} on\n  first:  {}\n  second: {}",
                shown(left),
                shown(right)
            ));
        }
        if left.is_none() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_two_traces_is_shown() {
        let folder = std::env::temp_dir().join(format!("terrane-traces-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.join(name));
        std::fs::write(&one, "a\nb\nc\n").unwrap();
        std::fs::write(&other, "a\nb\nc\n").unwrap();
        first_difference(&one, &other).unwrap();
        std::fs::write(&other, "a\nx\nc\n").unwrap();
        assert!(first_difference(&one, &other).unwrap_err().contains("line 2"));
        std::fs::write(&other, "a\nb\n").unwrap();
        assert!(first_difference(&one, &other).unwrap_err().contains("(end)"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
