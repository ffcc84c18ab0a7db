//! Values at the limits that the edge enforces are written and read again.

use terrane_fuzz::{checks, formats};

#[test]
fn values_at_the_limits_of_the_edge_are_read_again() {
    for format in formats::all() {
        for bytes in (format.limits)() {
            checks::valid(format, &bytes);
        }
    }
}
