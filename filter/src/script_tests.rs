//! Golden scripts of what a scan does with a filter before it reads cells. The commands:
//!
//! - `filter TEXT` sets the filter and prints what the plan is: the rows that can pass, whether the key alone decides, whether
//!   the filter is only a range, and whether the scan seeks.
//! - `forward ROW`, `reverse ROW`: where the scan continues after it read this row.
//! - `read FAMILY:QUALIFIER,...` sets the requested columns; `reads` prints the columns that are read.

use std::fmt::Write as _;

use terrane_types::{KeyRange, Projection, escape};

use crate::{Filter, RowFilter, Seek};

struct Planned {
    projection: Projection,
    filter: Filter,
}

impl Planned {
    fn row_filter(&self) -> RowFilter {
        RowFilter::new(&self.projection, &self.filter)
    }

    fn command(&mut self, line: &str, out: &mut String) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "filter" => {
                self.filter = Filter::from_text(rest).expect(rest);
                self.print(out);
            }
            "forward" => print_seek(&self.row_filter().seek(rest.as_bytes(), false), out),
            "reverse" => print_seek(&self.row_filter().seek(rest.as_bytes(), true), out),
            "read" => {
                let columns = rest.split(',').filter_map(|column| column.split_once(':'));
                self.projection = columns.fold(Projection::all(), |projection, (family, qualifier)| {
                    projection.with_column(family.parse().unwrap(), qualifier.to_owned())
                });
            }
            "reads" => print_reads(self.row_filter().reads(), out),
            _ => panic!("no such command: {line}"),
        }
    }

    fn print(&self, out: &mut String) {
        let filter = self.row_filter();
        let rows = filter.clip(&KeyRange::all()).map_or_else(|| "none".to_owned(), |range| range.to_string());
        write!(out, "rows {rows}").unwrap();
        for (holds, what) in
            [(filter.is_about_key(), "key decides"), (filter.is_range(), "only a range"), (filter.may_seek(), "seeks")]
        {
            if holds {
                write!(out, ", {what}").unwrap();
            }
        }
        out.push('\n');
    }
}

fn print_seek(seek: &Seek, out: &mut String) {
    match seek {
        Seek::Next => writeln!(out, "next row"),
        Seek::To(row) => writeln!(out, "seek {}", escape(row)),
        Seek::Nothing => writeln!(out, "no more rows"),
    }
    .unwrap();
}

fn print_reads(reads: &Projection, out: &mut String) {
    let columns = reads.families.iter().flat_map(|(family, columns)| {
        columns.qualifiers.iter().map(move |qualifier| format!("{family}:{}", escape(qualifier)))
    });
    let columns: Vec<String> = columns.collect();
    let columns = if columns.is_empty() { "everything".to_owned() } else { columns.join(",") };
    let keys = if reads.keys_only { ", without values" } else { "" };
    let first = if reads.first_cell_only { ", first cell only" } else { "" };
    writeln!(out, "{columns}{keys}{first}").unwrap();
}

#[test]
fn scripts_play_as_recorded() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata/plans"), || {
        let mut planned = Planned { projection: Projection::all(), filter: Filter::FirstKeyOnly };
        move |line: &str, out: &mut String| planned.command(line, out)
    });
}
