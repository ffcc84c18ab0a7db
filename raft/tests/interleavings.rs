//! The structures that the log's callers share with its writer, under many interleavings. docs/testing.md says how
//! these tests work. What the structures are is private to the crate, and so are the steps: `terrane_raft::interleavings`.

use terrane_env::interleave::{explore, finds};
use terrane_raft::interleavings::{
    a_log_is_truncated_while_its_writer_reports_places, a_segment_is_removed_while_it_is_read,
    callers_and_writer_share_a_queue,
};

#[test]
fn the_writer_gets_every_item_in_order_and_no_caller_misses_its_turn() {
    explore(|| callers_and_writer_share_a_queue(false));
}

#[test]
fn a_writer_that_gives_up_leaves_no_caller_waiting() {
    explore(|| callers_and_writer_share_a_queue(true));
}

#[test]
fn a_wait_that_begins_too_late_is_found() {
    finds("a caller begins to wait after it has looked", || callers_and_writer_share_a_queue(false));
}

#[test]
fn a_reader_finds_each_entry_at_its_own_place() {
    explore(a_log_is_truncated_while_its_writer_reports_places);
}

#[test]
fn a_place_that_is_taken_for_another_entry_is_found() {
    finds("a place is taken for another entry", a_log_is_truncated_while_its_writer_reports_places);
}

#[test]
fn a_segment_removed_while_it_is_opened_is_not_kept_open() {
    explore(a_segment_is_removed_while_it_is_read);
}

#[test]
fn a_removed_segment_that_stays_open_is_found() {
    finds("a removed segment stays open", a_segment_is_removed_while_it_is_read);
}
