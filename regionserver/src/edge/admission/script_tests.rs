//! Which writes are admitted, as scripts. The memtable budget is 1000 bytes.
//!
//! ```text
//! admit BYTES [times=N]      admits writes, which stay in flight
//! answer N                   the oldest N of them are answered
//! memtables BYTES            the size of the memtables
//! compaction THOUSANDTHS     how far compaction lags behind
//! disk full REASON           writes are rejected with this reason
//! disk ok
//! wait MS                    time passes
//! show                       what is in flight, the pressure, and the delay of the next write
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

fn outcome(admitted: &Result<Admitted, Error>) -> String {
    match admitted {
        Ok(_) => "admitted".to_owned(),
        Err(Error::Busy { retry_after }) => format!("busy for {retry_after:?}"),
        Err(Error::Unavailable { message, retry_after }) => format!("unavailable for {retry_after:?}: {message}"),
        Err(other) => format!("{other:?}"),
    }
}

fn command(admission: &Arc<Admission>, in_flight: &mut Vec<Admitted>, line: &str, out: &mut String) {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number"));
    match command {
        "admit" => {
            let (bytes, times) = rest.split_once(" times=").unwrap_or((rest, "1"));
            let mut last = String::new();
            for _ in 0..number(times) {
                let admitted = admission.admit(usize::try_from(number(bytes)).expect("bytes"));
                last = outcome(&admitted);
                in_flight.extend(admitted);
            }
            writeln!(out, "{last}").expect("writing to a string");
        }
        "answer" => drop(in_flight.drain(..usize::try_from(number(rest)).expect("a count"))),
        "memtables" => admission.set_memtable_bytes(number(rest)),
        "compaction" => admission.set_compaction_pressure(u32::try_from(number(rest)).expect("thousandths")),
        "disk" => admission.set_disk_full(rest.strip_prefix("full ").map(str::to_owned)),
        "wait" => admission.refusals.lock().since -= Duration::from_millis(number(rest)),
        "show" => writeln!(
            out,
            "{} writes of {} bytes, pressure {}, delay {:?}{}",
            admission.operations(),
            admission.bytes(),
            admission.pressure(),
            admission.delay().unwrap_or_default(),
            if admission.is_full() { ", full" } else { "" }
        )
        .expect("writing to a string"),
        _ => panic!("no such command: {line}"),
    }
}

#[tokio::test(start_paused = true)]
async fn writes_are_admitted_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/edge/admission/testdata"), || {
        let (admission, mut in_flight) = (Admission::new(1000), Vec::new());
        move |line: &str, out: &mut String| command(&admission, &mut in_flight, line, out)
    });
}
