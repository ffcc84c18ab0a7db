//! Golden scripts of the checks. The commands:
//!
//! - `table families=f,g [atomic=N] [KEY DECLARATION]` declares the table.
//! - `atomic ROW ROW ...` checks the rows of an atomic batch.
//! - `mutation ROW PART PART ...` checks one row's mutation. A part is `put=FAMILY:QUALIFIER`,
//!   `put=FAMILY:QUALIFIER*BYTES` (a value of so many bytes), `delete=FAMILY:QUALIFIER`, `delete_family=FAMILY`,
//!   `delete_row`, `increment=FAMILY:QUALIFIER`, `append=FAMILY:QUALIFIER*BYTES` or `if=FAMILY:QUALIFIER` (a condition:
//!   the column exists).
//! - `batch rows=N bytes=N` checks the size of a request.

use std::fmt::Write as _;

use super::*;
use crate::cell::{CellKind, CellRef, LATEST, pack};
use crate::condition::{ColumnTest, Test};
use crate::name::{FamilyName, TableName};
use crate::schema::FamilySchema;

fn verdict(checked: Result<(), Invalid>) -> String {
    checked.map_or_else(|invalid| format!("refused: {invalid}"), |()| "ok".to_owned())
}

fn declared(line: &str) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    let mut key = Vec::new();
    for word in line.split(' ') {
        match word.split_once('=') {
            Some(("families", names)) => names.split(',').for_each(|name| {
                schema.add_family(FamilySchema::new(FamilyName::new(name).unwrap())).unwrap();
            }),
            Some(("atomic", parts)) => schema.atomic = parts.parse().unwrap(),
            _ => key.push(word),
        }
    }
    schema.key = (!key.is_empty()).then(|| key.join(" ").parse().unwrap());
    schema
}

#[derive(Default)]
struct Built {
    delete_row: bool,
    cells: Vec<u8>,
    condition: Option<Condition>,
    read_modify_writes: Vec<ReadModifyWrite>,
}

impl Built {
    fn add(&mut self, part: &str) {
        if part == "delete_row" {
            self.delete_row = true;
            return;
        }
        let (kind, column) = part.split_once('=').expect("KIND=FAMILY:QUALIFIER");
        let (column, bytes) = column.split_once('*').unwrap_or((column, "0"));
        let (family, qualifier) = column.split_once(':').unwrap_or((column, ""));
        let value = vec![b'v'; bytes.parse().unwrap()];
        let (family, qualifier) = (family.as_bytes(), qualifier.as_bytes());
        let delete = |kind| CellRef::delete(kind, family, qualifier, LATEST);
        let family_name = || FamilyName::new(std::str::from_utf8(family).unwrap()).unwrap();
        match kind {
            "put" => pack(&mut self.cells, CellRef::put(family, qualifier, LATEST, &value)),
            "delete" => pack(&mut self.cells, delete(CellKind::DeleteColumn)),
            "delete_family" => pack(&mut self.cells, delete(CellKind::DeleteFamily)),
            "if" => {
                let test = ColumnTest::new(family_name(), qualifier.to_vec(), Test::Exists);
                self.condition = Some(Condition::Column(test));
            }
            "increment" | "append" => self.read_modify_writes.push(ReadModifyWrite {
                family: family_name(),
                qualifier: qualifier.to_vec().into(),
                what: match kind {
                    "increment" => ReadModifyWriteKind::Increment(1),
                    _ => ReadModifyWriteKind::Append(value.into()),
                },
            }),
            _ => panic!("no such part: {part}"),
        }
    }

    fn parts<'a>(&'a self, row: &'a str) -> MutationParts<'a> {
        MutationParts {
            row: row.as_bytes(),
            delete_row: self.delete_row,
            cells: &self.cells,
            condition: self.condition.as_ref(),
            read_modify_writes: &self.read_modify_writes,
        }
    }
}

fn mutation(line: &str, schema: &TableSchema) -> String {
    let mut words = line.split(' ');
    let row = words.next().expect("a row");
    let mut built = Built::default();
    words.for_each(|part| built.add(part));
    let parts = built.parts(row);
    let both = parts.check().and_then(|()| parts.check_families(schema));
    if !built.cells.is_empty() {
        // The edge takes the shorter way; the two agree.
        let cells = check_cells(built.cells.clone().into(), schema);
        let edge = parts.check().and_then(|()| cells.map(drop)).and_then(|()| parts.check_request_families(schema));
        assert_eq!(both, edge);
    }
    verdict(both)
}

#[test]
fn scripts_play_as_recorded() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/mutation/checks/testdata"), || {
        let mut schema = declared("families=f");
        move |line: &str, out: &mut String| {
            let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
            let answer = match command {
                "table" => {
                    schema = declared(rest);
                    return;
                }
                "atomic" => verdict(check_atomic(&rest.split(' ').map(str::as_bytes).collect::<Vec<_>>(), &schema)),
                "mutation" => mutation(rest, &schema),
                "batch" => {
                    let number = |name: &str| -> usize {
                        let mut words = rest.split(' ').filter_map(|word| word.split_once('='));
                        words.find(|(found, _)| *found == name).expect(name).1.parse().unwrap()
                    };
                    verdict(check_batch_rows(number("rows")).and_then(|()| check_batch_bytes(number("bytes"))))
                }
                _ => panic!("no such command: {line}"),
            };
            writeln!(out, "{answer}").unwrap();
        }
    });
}
