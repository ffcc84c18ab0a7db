//! Single hot rows of a table, from what the leaders of its regions sampled: their shares of the whole table.
//!
//! A leader knows shares of its region. The share of the table follows from the regions' present load, so that a row is never
//! called hot because the only region it is in is quiet.

use bytes::Bytes;
use terrane_client::{HotRegion, HotRow, RegionId, RegionLoad};

/// A row that is read or written much.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    pub row: Bytes,
    pub region: RegionId,
    /// The address of the server that leads the region.
    pub server: String,
    pub is_write: bool,
    /// Its share of the region's rows read, or written, from 0 to 1.
    pub region_share: f64,
    /// Its share of the table's.
    pub table_share: f64,
    /// Rows per second.
    pub per_second: f64,
}

/// The hot rows of a table whose regions have these loads, the greatest share first.
#[allow(clippy::cast_precision_loss, reason = "shares and rates for people")]
pub fn of_table(regions: &[HotRegion], loads: &[RegionLoad]) -> Vec<HotKey> {
    let all = |rate: fn(&RegionLoad) -> u64| {
        let known: u64 = loads.iter().map(rate).sum();
        let sampled: u64 = regions.iter().map(|region| rate(&region.load)).sum();
        // The master's figures are older. No share exceeds the whole.
        known.max(sampled).max(1) as f64
    };
    let (reads, writes) = (all(|load| load.rows_read), all(|load| load.rows_written));
    let mut keys = Vec::new();
    for region in regions {
        let mut add = |rows: &[HotRow], is_write: bool, rate: u64, all: f64| {
            keys.extend(rows.iter().map(|hot| {
                let per_second = hot.share * rate as f64;
                HotKey {
                    row: hot.row.clone(),
                    region: region.region,
                    server: region.server.clone(),
                    is_write,
                    region_share: hot.share,
                    table_share: per_second / all,
                    per_second,
                }
            }));
        };
        add(&region.reads, false, region.load.rows_read, reads);
        add(&region.writes, true, region.load.rows_written, writes);
    }
    keys.sort_by(|one, other| other.table_share.total_cmp(&one.table_share).then_with(|| one.row.cmp(&other.row)));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(id: u64, rows_read: u64, reads: &[(&'static str, f64)]) -> HotRegion {
        let mut region = HotRegion::default();
        region.region = RegionId(id);
        region.load.rows_read = rows_read;
        region.reads = reads
            .iter()
            .map(|(row, share)| {
                let mut hot = HotRow::default();
                (hot.row, hot.share) = (Bytes::from_static(row.as_bytes()), *share);
                hot
            })
            .collect();
        region
    }

    #[test]
    fn a_row_of_a_quiet_region_is_not_hot_in_the_table() {
        let regions = [region(1, 10, &[("quiet", 1.0)]), region(2, 990, &[("busy", 0.5), ("other", 0.1)])];
        let loads: Vec<RegionLoad> = regions.iter().map(|region| region.load).collect();
        let keys = of_table(&regions, &loads);
        let shown: Vec<(&[u8], u64)> = keys.iter().map(|key| (&key.row[..], (key.table_share * 1e3) as u64)).collect();
        assert_eq!(shown, [(&b"busy"[..], 495), (b"other", 99), (b"quiet", 10)]);
        assert!(keys.iter().all(|key| !key.is_write));
    }

    #[test]
    fn shares_do_not_exceed_the_whole_while_the_master_is_behind() {
        let keys = of_table(&[region(1, 500, &[("row", 1.0)])], &[RegionLoad::default()]);
        assert!((keys[0].table_share - 1.0).abs() < 1e-9 && (keys[0].per_second - 500.0).abs() < 1e-9, "{keys:?}");
    }
}
