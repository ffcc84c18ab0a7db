//! Trees drawn as text, and what is picked for them: `testdata/*.txt`.
//!
//! The commands of these scripts (`terrane_testscript` has the format):
//! - `policy KEY=N ..`: base, file, flush, region, files, multiplier, ttl (ms), now (ms), snapshot, rules, drop (0 or 1)
//! - `file LEVEL FIRST-LAST BYTES [deletes=N] [straddles] [time=MIN..MAX] [collected=SEQUENCE]`: a file with the next
//!   id, with a cell of each row, and newer than those before; so draw deep levels first
//! - `start`: picks, and marks the files busy; `end`: carries out the oldest started plan
//! - `pick`, `major`: prints the plan; `run`, `run major`: prints and carries out plan after plan to the end
//! - `show`: draws the tree; `targets`; `debt`

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::levelled::targets;
use super::tree_model::Model;
use super::{LEVEL_MAX, Plan, Policy, debt, pick, pick_major, pressure};

const RUN_MAX: usize = 100;

struct Script {
    model: Model,
    policy: Policy,
    started: VecDeque<Plan>,
}

impl Script {
    fn new() -> Self {
        let mut policy = Policy::new(1000, 25);
        (policy.file_bytes, policy.base_bytes) = (20, 100);
        policy.oldest_snapshot = u64::MAX;
        Self { model: Model::default(), policy, started: VecDeque::new() }
    }

    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["policy", ref settings @ ..] => settings.iter().for_each(|setting| self.set(setting)),
            ["file", level, rows, bytes, ref rest @ ..] => self.file(level, rows, bytes, rest),
            ["pick"] => {
                let (plan, score) = pick(&self.model.tree, &self.policy);
                writeln!(out, "{} score={score}", self.text(&plan)).expect("to a string");
            }
            ["major"] => {
                writeln!(out, "{}", self.text(&pick_major(&self.model.tree, &self.policy))).expect("to a string")
            }
            ["start"] => {
                let (plan, score) = pick(&self.model.tree, &self.policy);
                writeln!(out, "{} score={score}", self.text(&plan)).expect("to a string");
                if self.model.start(&plan).is_some() {
                    self.started.push_back(plan);
                }
            }
            ["end"] => {
                let plan = self
                    .started
                    .pop_front()
                    .unwrap_or_else(|| panic!("nothing was started: {out}{}", self.model.draw()));
                self.model.finish(&plan, &self.policy);
                self.model.check();
            }
            ["run"] => self.run(out, |model, policy| pick(&model.tree, policy).0),
            ["run", "major"] => self.run(out, |model, policy| pick_major(&model.tree, policy)),
            ["show"] => out.push_str(&self.model.draw()),
            ["targets"] => {
                let targets = targets(&self.model.tree, &self.policy);
                let levels = (targets.base..LEVEL_MAX).map(|level| format!(" L{level}={}", targets.bytes[level]));
                writeln!(out, "base=L{}{}", targets.base, levels.collect::<String>()).expect("to a string");
            }
            ["debt"] => {
                let debt = debt(&self.model.tree, &self.policy);
                let pressure = pressure([&debt], 0, 1);
                writeln!(out, "files={} pending={} pressure={pressure}", debt.level0_files, debt.pending_bytes)
                    .expect("to a string");
            }
            _ => panic!("no such command: {line}"),
        }
    }

    fn set(&mut self, setting: &str) {
        let (key, value) = setting.split_once('=').expect("KEY=N");
        let number: u64 = value.parse().expect("a number");
        match key {
            "base" => self.policy.base_bytes = number,
            "file" => self.policy.file_bytes = number,
            "flush" => self.policy.flush_bytes = number,
            "region" => self.policy.region_bytes = number,
            "files" => self.policy.level0_files = number as usize,
            "multiplier" => self.policy.multiplier = number,
            "ttl" => self.policy.ttl = Some(Duration::from_millis(number)),
            "now" => self.policy.log_time_ms = number as i64,
            "snapshot" => self.policy.oldest_snapshot = number,
            "rules" => self.policy.rules_sequence = number,
            "drop" => self.policy.rules_drop_expired = number > 0,
            _ => panic!("no such setting: {setting}"),
        }
    }

    fn file(&mut self, level: &str, rows: &str, bytes: &str, rest: &[&str]) {
        let level: usize = level.strip_prefix('L').and_then(|level| level.parse().ok()).expect("a level, as L1");
        let (first, last) = rows.split_once('-').expect("FIRST-LAST");
        let rows: Vec<u8> = (first.as_bytes()[0]..=last.as_bytes()[0]).collect();
        let option = |name: &str| rest.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let mut file = self.model.file(&rows, number(bytes), option("deletes").map_or(0, number));
        file.straddles = rest.contains(&"straddles");
        file.collected_sequence = option("collected").map_or(0, number);
        if let Some((min, max)) = option("time").and_then(|times| times.split_once("..")) {
            (file.min_timestamp, file.max_timestamp) = (number(min) as i64, number(max) as i64);
        }
        self.model.place(level, file);
        self.model.check();
    }

    fn run(&mut self, out: &mut String, pick: impl Fn(&Model, &Policy) -> Plan) {
        for _ in 0..RUN_MAX {
            let plan = pick(&self.model, &self.policy);
            writeln!(out, "{}", self.text(&plan)).expect("to a string");
            if self.model.start(&plan).is_none() {
                return;
            }
            self.model.finish(&plan, &self.policy);
            self.model.check();
        }
        panic!("no end:\n{out}");
    }

    fn text(&self, plan: &Plan) -> String {
        match plan {
            Plan::Idle => "idle".into(),
            Plan::Wait => "wait".into(),
            Plan::Move { file, from_level, to_level } => format!("move {file} L{from_level} -> L{to_level}"),
            Plan::Drop { files } => format!("drop {files:?}"),
            Plan::Rewrite(rewrite) => {
                let inputs: String = rewrite.inputs.iter().map(|(level, file)| format!(" L{level}:{file}")).collect();
                format!("rewrite{inputs} -> L{} ({:?})", rewrite.to_level, rewrite.reason)
            }
        }
    }
}

#[test]
fn scripts_print_what_is_recorded() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/compaction/testdata");
    terrane_testscript::check_scripts(scripts, || {
        let mut script = Script::new();
        move |line, out| script.command(line, out)
    });
}
