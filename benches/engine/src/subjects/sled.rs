//! sled itself, without our code around it.

use std::path::Path;

use crate::{Contender, Settings, Subject, SubjectError};

pub(super) const CONTENDER: Contender = Contender {
    name: "sled",
    about: "0.34, nothing synced before the drain, no compression, compacts in place only",
    open: |dir, settings| Ok(Box::new(Sled::open(dir, settings)?)),
};

struct Sled {
    db: sled::Db,
}

impl Sled {
    fn open(dir: &Path, settings: &Settings) -> Result<Self, SubjectError> {
        let config = sled::Config::new().path(dir.join("sled")).cache_capacity(settings.cache_bytes);
        let db = config.flush_every_ms(None).open().map_err(SubjectError::new)?;
        Ok(Self { db })
    }
}

impl Subject for Sled {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SubjectError> {
        self.db.insert(key, value).map(drop).map_err(SubjectError::new)
    }

    fn put_batch(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), SubjectError> {
        let mut batch = sled::Batch::default();
        for (key, value) in rows {
            batch.insert(key.as_slice(), value.as_slice());
        }
        self.db.apply_batch(batch).map_err(SubjectError::new)
    }

    fn get(&self, key: &[u8]) -> Result<bool, SubjectError> {
        let value = self.db.get(key).map_err(SubjectError::new)?;
        Ok(value.is_some_and(|value| !std::hint::black_box(&value).is_empty()))
    }

    fn scan(&self, start: &[u8], limit: usize, reverse: bool) -> Result<usize, SubjectError> {
        let count = |rows: &mut dyn Iterator<Item = sled::Result<(sled::IVec, sled::IVec)>>| {
            let mut seen = 0;
            for row in rows.take(limit) {
                std::hint::black_box(row.map_err(SubjectError::new)?);
                seen += 1;
            }
            Ok(seen)
        };
        if reverse { count(&mut self.db.range(..=start).rev()) } else { count(&mut self.db.range(start..)) }
    }

    fn drain(&mut self) -> Result<(), SubjectError> {
        self.db.flush().map(drop).map_err(SubjectError::new)
    }

    /// sled has no levels and rewrites on its own schedule.
    fn compact(&mut self) -> Result<(), SubjectError> {
        self.drain()
    }

    fn start_compaction(&mut self) -> Result<bool, SubjectError> {
        Ok(false)
    }

    fn compacting(&self) -> bool {
        false
    }

    fn close(self: Box<Self>) -> Result<(), SubjectError> {
        // A drop would flush too, but would lose an error.
        self.db.flush().map(drop).map_err(SubjectError::new)
    }
}
