//! Every store implements the trait correctly, so that a figure is never of a wrong answer.

use super::*;
use crate::Settings;

const SETTINGS: Settings = Settings { cache_bytes: 8 << 20, write_buffer_bytes: 64 << 10 };

fn key(number: u32) -> Vec<u8> {
    format!("row{number:05}").into_bytes()
}

#[test]
fn a_store_gives_back_what_was_put_before_and_after_reopening() {
    for contender in contenders() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = (contender.open)(dir.path(), &SETTINGS).unwrap();
        for number in (0..2_000).step_by(2) {
            store.put(&key(number), b"a value").unwrap();
        }
        let batch: Vec<_> = (4_000..5_000).map(|number| (key(number), b"another".to_vec())).collect();
        store.put_batch(&batch).unwrap();
        for reopened in [false, true] {
            let said = format!("{} reopened={reopened}", contender.name);
            assert!(store.get(&key(0)).unwrap() && store.get(&key(1_998)).unwrap(), "{said}");
            assert!(store.get(&key(4_999)).unwrap(), "{said}");
            assert!(!store.get(&key(1)).unwrap() && !store.get(&key(5_000)).unwrap(), "{said}");
            assert_eq!(store.scan(&key(0), 100, false).unwrap(), 100, "{said}");
            assert_eq!(store.scan(&key(4_990), 100, false).unwrap(), 10, "{said}");
            assert_eq!(store.scan(&key(18), 100, true).unwrap(), 10, "{said}");
            assert_eq!(store.scan(&key(0), usize::MAX, false).unwrap(), 2_000, "{said}");
            if !reopened {
                store.drain().unwrap();
                store.compact().unwrap();
                store.close().unwrap();
                store = (contender.open)(dir.path(), &SETTINGS).unwrap();
            }
        }
        store.put(&key(1), b"odd").unwrap();
        assert!(store.get(&key(1)).unwrap(), "{} takes rows after reopening", contender.name);
        store.close().unwrap();
    }
}
