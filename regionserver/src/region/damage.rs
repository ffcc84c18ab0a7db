//! What of a region's files was found damaged, remembered so that `status` shows it.
//!
//! Damage does not go away by itself, and reads of other blocks go on, so it is kept for as long as the region is open
//! here. After a restart, or a split, whoever meets it again notes it again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::Mutex;
use terrane_engine::Error;

/// Damages kept by name per region; a disk that goes bad would fill the report with them.
const NAMED_MAX: usize = 8;

/// The damages of one region, by file and offset: what does not hold there.
#[derive(Default)]
pub struct Damage(Mutex<BTreeMap<(PathBuf, u64), String>>);

impl Damage {
    /// Notes what an error says about damage, if it does; true when it is news.
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

    /// A sentence for each damage of the region that `whose` names.
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
        Error::Corruption { file: "f7.store".into(), offset, what: "the block's checksum is wrong".to_owned() }
    }

    #[test]
    fn a_damage_is_noted_once_and_said_with_file_and_offset() {
        let damage = Damage::default();
        assert!(damage.note(&corruption(4096)));
        assert!(!damage.note(&corruption(4096)));
        assert!(!damage.note(&Error::NeedsDisk));
        assert_eq!(
            damage.sentences("region 3 of table t"),
            ["region 3 of table t is damaged: f7.store at 4096: the block's checksum is wrong"]
        );
    }

    #[test]
    fn a_disk_that_goes_bad_does_not_fill_the_report() {
        let damage = Damage::default();
        (0..100).for_each(|offset| {
            damage.note(&corruption(offset));
        });
        assert_eq!(damage.sentences("region 3 of table t").len(), NAMED_MAX);
    }
}
