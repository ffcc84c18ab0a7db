//! Standing for election, the choice of a successor, and attempts to hand over, as scripts.

use std::fmt::Write as _;
use std::time::Duration;

use terrane_types::ReplicaId;
use tokio::time::Instant;

use super::HandoverAttempts;
use crate::leadership::abstention::Weight;
use crate::leadership::may_campaign;
use crate::leadership::successor::{Candidate, choose, unfit};
use crate::script::{Line, check, or_dash};

fn weight(line: &Line<'_>) -> Option<Weight> {
    match (line.has("soft"), line.has("firm")) {
        (_, true) => Some(Weight::Firm),
        (true, _) => Some(Weight::Soft),
        _ => None,
    }
}

/// `3@900` is replica 3 with the log up to 900; `:N`: of which it has applied so much, `!`: it is silent, `?`: unwilling,
/// `*`: it lacks what the next entry needs, `~`: it has had an entry for 501 ms that it has not applied.
fn candidate(word: &str) -> Candidate {
    let (replica, rest) = word.split_once('@').expect("REPLICA@INDEX");
    let index = rest.trim_end_matches(['!', '?', '*', '~']);
    let (matched, applied) = index.split_once(':').unwrap_or((index, index));
    Candidate {
        replica: ReplicaId(replica.parse().unwrap()),
        matched: matched.parse().unwrap(),
        applied: applied.parse().unwrap(),
        lacks: rest.contains('*'),
        lag: Duration::from_millis(if rest.contains('~') { 501 } else { 500 }),
        alive: !rest.contains('!'),
        willing: !rest.contains('?'),
    }
}

/// - `choose soft|firm [turn=N] CANDIDATE...`: the successor of a leader with such a reason.
/// - `order to=REPLICA newest=I [declined] CANDIDATE...`: whether it may be ordered to take over.
/// - `stand [soft|firm] silent=MS`: whether a server stands that has heard no leader for so long.
/// - `look at=MS term=T`: a look at a group that this server leads in spite of a reason.
fn start() -> impl FnMut(&str, &mut String) {
    let begun = Instant::now();
    let mut attempts: Option<HandoverAttempts> = None;
    move |line, out| {
        let line = Line::new(line);
        match line.command() {
            "choose" => {
                let candidates: Vec<_> = line.words().filter(|word| word.contains('@')).map(candidate).collect();
                let weight = weight(&line).expect("soft or firm");
                let chosen = choose(&candidates, weight, line.get("turn").unwrap_or(0));
                writeln!(out, "to {}", or_dash(chosen.map(|replica| replica.0))).unwrap();
            }
            "order" => {
                let candidates: Vec<_> = line.words().filter(|word| word.contains('@')).map(candidate).collect();
                let to = ReplicaId(line.need("to"));
                let chosen = candidates.iter().find(|candidate| candidate.replica == to).expect("a candidate");
                let why = unfit(*chosen, &candidates, line.need("newest"), line.has("declined"));
                writeln!(out, "{}", why.unwrap_or_else(|| "ordered".to_owned())).unwrap();
            }
            "stand" => {
                let stands = may_campaign(weight(&line), line.ms("silent").unwrap_or(Duration::ZERO));
                writeln!(out, "{}", if stands { "stands" } else { "does not stand" }).unwrap();
            }
            "look" => {
                let (term, now) = (line.need("term"), begun + line.ms("at").expect("at="));
                let next = attempts.get_or_insert_with(|| HandoverAttempts::new(term, now)).next(term, now);
                writeln!(out, "attempt {}", or_dash(next)).unwrap();
            }
            other => panic!("unknown command {other}"),
        }
    }
}

#[test]
fn scripts() {
    check("leadership/abstain", start);
}
