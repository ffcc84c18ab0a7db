//! The request load of regions, averaged over half a minute: what a region is asked for in one second says little about the
//! next, and a plan that follows every peak moves regions back and forth.

use std::collections::BTreeMap;

use terrane_proto::v1;
use terrane_types::RegionId;

use crate::catalog::Catalog;
use crate::servers::observed::Observations;

/// The weight of one look in the average; there are two looks per second.
const WEIGHT: f64 = 0.05;
/// Looks before an average counts.
const LOOKS_MIN: u32 = 20;
/// Bytes that count as much as a row, as at region servers.
const UNIT_BYTES: u64 = 1 << 10;

#[derive(Clone, Copy, Debug)]
struct Average {
    units: f64,
    looks: u32,
}

/// The averages of all regions. In memory only: a new leader of the masters starts without any.
#[derive(Debug, Default)]
pub struct LoadAverages {
    by_region: BTreeMap<RegionId, Average>,
}

impl LoadAverages {
    /// Notes what the leaders report now. Called at every look.
    pub fn look(&mut self, catalog: &Catalog, observed: &Observations) {
        let mut by_region = BTreeMap::new();
        for known in catalog.regions().iter().map(|entry| &entry.descriptor) {
            let Some(seen) = observed.inventory.region(known.group, known.region) else {
                // Between two groups, for example: its average is still good.
                by_region.extend(self.by_region.get(&known.region).map(|average| (known.region, *average)));
                continue;
            };
            #[allow(clippy::cast_precision_loss, reason = "an average needs no more precision")]
            let now = units(&seen.load) as f64;
            let average = match self.by_region.get(&known.region) {
                None => Average { units: now, looks: 1 },
                Some(before) => Average {
                    units: before.units + (now - before.units) * WEIGHT,
                    looks: before.looks.saturating_add(1),
                },
            };
            by_region.insert(known.region, average);
        }
        self.by_region = by_region;
    }

    /// Rows and KiB per second that a region is asked for; `None` until it has been watched for a while.
    pub fn of(&self, region: RegionId) -> Option<f64> {
        self.by_region.get(&region).filter(|average| average.looks >= LOOKS_MIN).map(|average| average.units)
    }
}

fn units(load: &v1::RegionLoad) -> u64 {
    load.rows_read + load.rows_written + load.bytes / UNIT_BYTES
}
