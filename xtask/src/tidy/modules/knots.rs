//! Cycles among the files of a crate.
//!
//! An arrow is *free* when it joins a module to its direct child, either way. A cycle of free arrows alone, or one that
//! stays in a single family (a parent and its direct children) and passes through the parent, is allowed. So an arrow is
//! at fault when it leaves the family and its target leads back to its source, or when it joins siblings and its target
//! leads back over siblings alone.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;

use super::tree::Crate;
use crate::tidy::finding::Finding;

/// Items printed for one arrow of a finding; the rest are counted.
const ITEMS_PRINTED: usize = 4;

/// Files that reach each other by arrows that are at fault.
#[derive(Debug, PartialEq, Eq)]
pub struct Knot {
    /// The files on those arrows.
    pub files: BTreeSet<usize>,
    /// Each arrow at fault with the shortest way back, beginning and ending at its source; shortest first.
    pub cycles: Vec<Vec<usize>>,
}

impl Crate {
    /// All knots, largest first.
    pub fn knots(&self) -> Vec<Knot> {
        let mut cycles: Vec<Vec<usize>> = self.arrows.keys().filter_map(|&arrow| self.cycle_through(arrow)).collect();
        cycles.sort_by_key(|cycle| (cycle.len(), cycle.clone()));
        let mut knots: Vec<Knot> = Vec::new();
        for cycle in cycles {
            let mut joined = Knot { files: cycle.iter().copied().collect(), cycles: vec![cycle] };
            let (touched, apart) = knots.into_iter().partition(|knot| !knot.files.is_disjoint(&joined.files));
            knots = apart;
            for knot in Vec::into_iter(touched) {
                joined.files.extend(knot.files);
                joined.cycles.extend(knot.cycles);
            }
            joined.cycles.sort_by_key(|cycle| (cycle.len(), cycle.clone()));
            knots.push(joined);
        }
        knots.sort_by_key(|knot| std::cmp::Reverse(knot.files.len()));
        knots
    }

    /// The shortest forbidden cycle that an arrow lies on.
    fn cycle_through(&self, (from, to): (usize, usize)) -> Option<Vec<usize>> {
        let (above_from, above_to) = (self.parents[from], self.parents[to]);
        if above_from == Some(to) || above_to == Some(from) {
            return None;
        }
        let siblings = above_from == above_to;
        let way_back = self.way(to, from, |file| !siblings || self.parents[file] == above_from)?;
        Some(std::iter::once(from).chain(way_back).collect())
    }

    /// The shortest way along arrows over files that may be passed.
    fn way(&self, from: usize, to: usize, may_pass: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut came_from = vec![None; self.files.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(here) = queue.pop_front() {
            if here == to {
                let mut way = vec![to];
                while let Some(before) = way.last().filter(|&&at| at != from).and_then(|&at| came_from[at]) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            for &(_, next) in self.arrows.range((here, 0)..(here + 1, 0)).map(|(arrow, _)| arrow) {
                if next != from && came_from[next].is_none() && may_pass(next) {
                    came_from[next] = Some(here);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    fn path_text(&self, cycle: &[usize]) -> String {
        cycle.iter().map(|&file| self.short(file)).collect::<Vec<_>>().join(" → ")
    }

    /// A file's name inside `src/`.
    fn short(&self, file: usize) -> &str {
        let name = &self.files[file];
        name.split_once("src/").map_or(name, |(_, inside)| inside)
    }

    fn items_text(&self, from: usize, to: usize) -> String {
        let Some(items) = self.arrows.get(&(from, to)) else { return String::new() };
        let mut text = items.keys().take(ITEMS_PRINTED).map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ");
        if items.len() > ITEMS_PRINTED {
            let _ = write!(text, " and {} more", items.len() - ITEMS_PRINTED);
        }
        text
    }
}

impl Knot {
    /// The finding for this knot: its shortest cycle.
    pub fn finding(&self, unit: &Crate) -> Finding {
        let cycle = &self.cycles[0];
        let because = |pair: &[usize]| {
            format!("{} uses {} of {}", unit.short(pair[0]), unit.items_text(pair[0], pair[1]), unit.short(pair[1]))
        };
        let arrows: Vec<String> = cycle.windows(2).map(because).collect();
        let line = unit.arrows[&(cycle[0], cycle[1])].values().copied().min().unwrap_or(0);
        let message = format!(
            "import cycle {} ({}); {} files are in this knot, `cargo xtask tidy --arrows CRATE` prints all of it",
            unit.path_text(cycle),
            arrows.join("; "),
            self.files.len()
        );
        Finding::new(&unit.files[cycle[0]], line, message)
    }
}

/// Every knot of a crate with its arrows and, for each, the shortest way back.
pub fn describe(unit: &Crate) -> String {
    let knots = unit.knots();
    let mut text = format!("{}: {} files, {} knots\n", unit.files[0], unit.files.len(), knots.len());
    for knot in &knots {
        let names: Vec<&str> = knot.files.iter().map(|&file| unit.short(file)).collect();
        let _ = writeln!(text, "\nknot of {} files: {}", names.len(), names.join(", "));
        for cycle in &knot.cycles {
            let (from, to) = (cycle[0], cycle[1]);
            let items = &unit.arrows[&(from, to)];
            let line = items.values().copied().min().unwrap_or(0);
            let all: Vec<&str> = items.keys().map(String::as_str).collect();
            let _ = writeln!(
                text,
                "  {}:{line} → {}: {}\n      back: {}",
                unit.short(from),
                unit.short(to),
                all.join(", "),
                unit.path_text(&cycle[1..])
            );
        }
    }
    text
}
