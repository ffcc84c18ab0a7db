//! Damage found in a region's files, recorded so that `status` shows it.
//!
//! Damage does not go away by itself, and reads of other blocks continue, so it stays recorded while the region is open
//! here. After a restart or a split it is recorded again when a read meets it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::Mutex;
use terrane_engine::Error;

/// Damaged places recorded per region. A failing disk would fill the report otherwise.
const NAMED_MAX: usize = 8;

/// The damage of a region: what is wrong, by file and offset.
#[derive(Default)]
pub struct Damage(Mutex<BTreeMap<(PathBuf, u64), String>>);

impl Damage {
    /// Records the damage that an error reports, if any. Returns true if it is new.
    pub fn note(&self, error: &Error) -> bool {
        let Error::Corruption { file, offset, what } = error else { return false };
        let mut known = self.0.lock();
        let at = (file.clone(), *offset);
        if known.contains_key(&at) || known.len() >= NAMED_MAX {
            return false;
        }
        known.insert(at, what.clone());
        true
    }

    /// Whether any is recorded.
    pub fn is_any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// A sentence for each damaged place. `whose` names the region.
    pub fn sentences(&self, whose: &str) -> Vec<String> {
        let known = self.0.lock();
        let sentence = |((file, offset), what): (&(PathBuf, u64), &String)| {
            format!("{whose} is damaged: {} at {offset}: {what}", file.display())
        };
        known.iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corruption(offset: u64) -> Error {
        Error::Corruption { file: "f7.tbl".into(), offset, what: "the block's checksum is wrong".to_owned() }
    }

    #[test]
    fn damage_is_recorded_once_and_reported_with_file_and_offset() {
        let damage = Damage::default();
        assert!(damage.note(&corruption(4096)));
        assert!(!damage.note(&corruption(4096)));
        assert!(!damage.note(&Error::NeedsDisk));
        assert_eq!(
            damage.sentences("region 3 of table t"),
            ["region 3 of table t is damaged: f7.tbl at 4096: the block's checksum is wrong"]
        );
    }

    #[test]
    fn a_failing_disk_does_not_fill_the_report() {
        let damage = Damage::default();
        (0..100).for_each(|offset| {
            damage.note(&corruption(offset));
        });
        assert_eq!(damage.sentences("region 3 of table t").len(), NAMED_MAX);
    }
}
