//! The next step of a region's move, as a function without I/O.
//!
//! The leader of the region's group carries the move out; the master orders it again and again, which keeps a new leader
//! informed and shows the progress. The step follows from the journaled move, the map and the last answer, and from nothing
//! else, so any later master continues. Orders are idempotent by the id of the move.
//!
//! ```text
//! ordered → copying → frozen → moved → [the new group's leadership is handed over] → end
//!              └─ undone (cancelled, refused, split or merged meanwhile) → end
//! ```
//!
//! Invariants: a move ends as undone only when the leader of the region's group has said so, refuses the order for good, or
//! no longer has the region as it was; it ends as moved when that leader says so, or when the new group's leader reports
//! the region with a higher epoch. To cancel is a request to that leader, which refuses it from the adoption on.

use terrane_types::{Error, GroupId, RegionDescriptor};

use crate::catalog::Catalog;
use crate::catalog::moves::{MoveEnd, RegionMove};
use crate::orders::is_final;

/// How far a move is, as the leader of the region's group said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveProgress {
    /// Whether the region answers no requests.
    pub frozen: bool,
    /// What the leader does or waits for.
    pub detail: String,
    /// The bytes that are copied.
    pub copied_bytes: u64,
    /// The bytes of the region's files.
    pub bytes: u64,
}

/// What the leader of the region's group answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveAnswer {
    /// The move is under way.
    UnderWay(MoveProgress),
    /// The region is in its new group.
    Moved(RegionDescriptor),
    /// The region stays, and why.
    Undone(String),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Order the leader of the region's group to move it, or to undo the move. `as_before`: the map has the region where it was.
    Order { cancel: bool, as_before: bool },
    /// Order it again later.
    Wait { what: String },
    /// Record the end.
    End(MoveEnd),
}

/// Where a region is, as the map has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landing {
    /// As it was when the move began.
    AsBefore,
    /// In the new group.
    There(RegionDescriptor),
    /// It was split or merged in its group, or moved elsewhere.
    Changed,
}

/// Where the region of a move is now. It may have been split after it was moved.
pub fn landing(catalog: &Catalog, known: &RegionMove) -> Landing {
    let region = &known.region;
    let now = catalog.regions().up_from(region.table, &region.range.start, 1);
    match now.first().map(|entry| &entry.descriptor) {
        None => Landing::Changed,
        Some(now) if now.epoch <= region.epoch => Landing::AsBefore,
        Some(now) if now.group == known.to => Landing::There(now.clone()),
        Some(_) => Landing::Changed,
    }
}

/// The next step of a move after an answer; `None`: nothing was answered yet.
pub fn next(known: &RegionMove, landing: Landing, answer: Option<Result<MoveAnswer, Error>>) -> Next {
    let order = Next::Order { cancel: known.cancelled.is_some(), as_before: landing == Landing::AsBefore };
    if let Landing::There(now) = landing {
        // A part of it, if it was split since: the end of a move names the region itself.
        return Next::End(MoveEnd::Moved(RegionDescriptor { region: known.region.region, ..now }));
    }
    match answer {
        None => order,
        Some(Ok(MoveAnswer::UnderWay(progress))) => Next::Wait { what: described(&progress, known.to) },
        Some(Ok(MoveAnswer::Moved(region))) => Next::End(MoveEnd::Moved(region)),
        Some(Ok(MoveAnswer::Undone(why))) => Next::End(MoveEnd::Undone(known.cancelled.clone().unwrap_or(why))),
        Some(Err(Error::StaleEpoch { .. })) if landing == Landing::Changed => {
            Next::End(MoveEnd::Undone("the region was split or merged meanwhile".to_owned()))
        }
        Some(Err(Error::StaleEpoch { .. })) => {
            Next::Wait { what: format!("a report of where region {} is", known.region.region) }
        }
        Some(Err(error)) if is_final(&error) => Next::End(MoveEnd::Undone(error.to_string())),
        Some(Err(error)) => Next::Wait { what: format!("the leader of group {}: {error}", known.region.group) },
    }
}

fn described(progress: &MoveProgress, to: GroupId) -> String {
    let MoveProgress { frozen, detail, copied_bytes, bytes } = progress;
    let copied = match bytes {
        0 => String::new(),
        bytes => format!(" ({} % of {bytes} bytes)", copied_bytes.saturating_mul(100) / bytes),
    };
    match (detail.is_empty(), frozen) {
        (false, _) => format!("{detail}{copied}"),
        (true, false) => format!("the copy to group {to}{copied}"),
        (true, true) => format!("group {to}, to adopt the region"),
    }
}

#[cfg(test)]
mod tests;
