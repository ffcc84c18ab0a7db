//! Storage attributes: their numbers and names never change.

use super::*;

#[test]
fn numbers_and_names_are_fixed() {
    let compressions = [(0, Compression::None, "none"), (1, Compression::Lz4, "lz4"), (2, Compression::Zstd, "zstd")];
    for (number, compression, name) in compressions {
        assert_eq!((compression as u8, Compression::from_u8(number)), (number, Some(compression)));
        assert_eq!((compression.to_string().as_str(), name.parse()), (name, Ok(compression)));
    }
    for (number, bloom, name) in [(0, Bloom::None, "none"), (1, Bloom::Row, "row"), (2, Bloom::RowCol, "rowcol")] {
        assert_eq!((bloom as u8, Bloom::from_u8(number)), (number, Some(bloom)));
        assert_eq!((bloom.to_string().as_str(), name.parse()), (name, Ok(bloom)));
    }
    assert_eq!((Compression::from_u8(3), Bloom::from_u8(3)), (None, None));
}

#[test]
fn what_is_unknown_is_refused_with_what_there_is() {
    let error = "gzip".parse::<Compression>().expect_err("not one of ours").what;
    assert!(error.contains("compression=gzip") && error.contains("none, lz4 nor zstd"), "{error}");
    let error = "ROW".parse::<Bloom>().expect_err("names are in lower case").what;
    assert!(error.contains("bloom=ROW") && error.contains("none, row nor rowcol"), "{error}");
}

#[test]
fn block_sizes_have_limits() {
    let with = |block_size| FamilyStorage { block_size, ..FamilyStorage::default() };
    assert_eq!(FamilyStorage::default().check(), Ok(()));
    for good in [1 << 10, 1025, 1 << 20] {
        assert_eq!(with(good).check(), Ok(()), "{good}");
    }
    for bad in [0, (1 << 10) - 1, (1 << 20) + 1, u32::MAX] {
        let error = with(bad).check().expect_err("out of range").what;
        assert!(error.contains(&format!("block_size={bad}B")) && error.contains("1KiB to 1MiB"), "{error}");
    }
    assert!(check_block_size(1 << 32 | 1 << 14).is_err(), "what does not fit is not cut");
}
