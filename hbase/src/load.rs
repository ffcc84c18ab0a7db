//! The load of a region as HBase's clients read it.

use bytes::Bytes;
use terrane_types::RegionCounts;

use crate::proto;
use crate::region_name::specifier;

/// The load of the region with this name.
#[must_use]
pub fn region_load(name: Bytes, counts: &RegionCounts) -> proto::RegionLoad {
    let (files, memtables) = (mebibytes(counts.file_bytes), mebibytes(counts.memtable_bytes));
    proto::RegionLoad {
        region_specifier: specifier(name),
        stores: Some(counts.families),
        storefiles: Some(counts.files),
        store_uncompressed_size_mb: Some(files),
        storefile_size_mb: Some(files),
        mem_store_size_mb: Some(memtables),
        read_requests_count: Some(counts.rows_read),
        write_requests_count: Some(counts.rows_written),
        // The leader's files are on its own disk.
        data_locality: Some(1.0),
        region_size_mb: Some(files),
    }
}

/// Bytes as HBase counts them; what is there is never shown as nothing.
#[must_use]
pub fn mebibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_mebibytes_and_counts_are_those_of_the_leader() {
        let counts = RegionCounts {
            rows_read: 7,
            rows_written: 8,
            memtable_bytes: 1,
            file_bytes: 3 << 20,
            files: 2,
            families: 1,
        };
        let load = region_load(Bytes::from_static(b"t,,1.x."), &counts);
        assert_eq!((load.read_requests_count, load.write_requests_count), (Some(7), Some(8)));
        assert_eq!((load.mem_store_size_mb, load.storefile_size_mb, load.storefiles), (Some(1), Some(3), Some(2)));
        assert_eq!(mebibytes(u64::MAX), u32::MAX);
    }
}
