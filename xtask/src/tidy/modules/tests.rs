//! The rules on small invented crates.

use std::fs;

use super::tree::Crate;
use super::*;

/// A crate of these files, below `room/src/`.
fn unit(files: &[(&str, &str)]) -> Crate {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = folder.path().join("room/src").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let units = read_units(folder.path(), "room").unwrap();
    assert_eq!(units.len(), 1);
    units.into_iter().next().unwrap()
}

/// The arrows as text, without those of the root.
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let unit = unit(files);
    let short = |file: usize| unit.files[file].trim_start_matches("room/src/");
    let apart = unit.arrows.iter().filter(|((from, _), _)| *from != 0);
    apart
        .map(|((from, to), items)| {
            let items: Vec<_> = items.keys().map(String::as_str).collect();
            format!("{} → {}: {}", short(*from), short(*to), items.join(" "))
        })
        .collect()
}

/// The cycles that tidy reports, each as its path.
fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    let unit = unit(files);
    let messages = unit.knots().into_iter().map(|knot| knot.finding(&unit).message);
    messages.map(|text| text["import cycle ".len()..].split(" (").next().unwrap().to_owned()).collect()
}

#[test]
fn a_use_makes_an_arrow_however_it_is_written() {
    for text in [
        "use crate::b::B;",
        "use super::b::B;",
        "use crate::{b::{B as Other}, c};",
        "pub(crate) use crate::b::B;",
        "use crate::b;\nfn f(x: b::B) {}",
        "use crate::b as other;\nfn f() { other::B::new() }",
        "fn f() -> Vec<crate::b::B> {}",
        "fn f() { select! { biased; _ = super::b::B => {} } }",
        "fn f() { use crate::b::B; }",
        "mod inside { use super::super::b::B; }",
    ] {
        let files = [("lib.rs", "mod a; mod b; mod c;"), ("a.rs", text), ("b.rs", "pub struct B;"), ("c.rs", "")];
        assert_eq!(arrows(&files), ["a.rs → b.rs: B"], "{text}");
    }
}

#[test]
fn other_crates_prose_and_modules_alone_make_no_arrow() {
    for text in [
        "use std::b::B;",
        "/// See [`crate::b::B`].\nfn f() { g(\"crate::b::B\") }",
        "use crate::b;",
        "use ::b::B;\nfn f() { ::b::B::new() }",
        "use crate::a::A;\nstruct A;",
    ] {
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "pub struct B;")];
        assert_eq!(arrows(&files), [""; 0], "{text}");
    }
}

#[test]
fn tests_make_no_arrow() {
    for text in [
        "#[cfg(test)]\nuse crate::b::B;",
        "#[cfg(test)]\nmod tests { use crate::b::B; }",
        "#[cfg(test)]\nmod tests;",
        "#[cfg(all(test, unix))]\n#[allow(x)]\nfn f(x: [u8; 4]) { crate::b::B::new() }",
        "#![cfg(test)]\nuse crate::b::B;",
        "struct S { #[cfg(test)]\n x: crate::b::B, y: u8 }",
    ] {
        let tests = ("a/tests.rs", "use crate::b::B;");
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "pub struct B;"), tests];
        assert_eq!(arrows(&files), [""; 0], "{text}");
    }
    let after = "#[cfg(test)]\nmod tests { fn f() {} }\nuse crate::b::B;";
    let files = [("lib.rs", "mod a; mod b;"), ("a.rs", after), ("b.rs", "pub struct B;")];
    assert_eq!(arrows(&files), ["a.rs → b.rs: B"]);
}

#[test]
fn a_reexport_counts_for_the_file_that_defines_the_item() {
    let lib = "mod a; mod b; mod error; pub use error::Error;";
    let files = [
        ("lib.rs", lib),
        ("error.rs", "pub enum Error {}"),
        ("a.rs", "use crate::{Error, b::Deep};"),
        ("b.rs", "mod deep; pub use deep::*;"),
        ("b/deep.rs", "pub struct Deep;"),
    ];
    assert_eq!(arrows(&files), ["a.rs → b/deep.rs: Deep", "a.rs → error.rs: Error", "b.rs → b/deep.rs: *"]);
}

#[test]
fn an_item_named_like_its_module_is_the_item() {
    let lib = "mod a; mod scan;";
    let scan = ("scan.rs", "mod scan; pub use scan::scan; pub fn other() {}");
    let inner = ("scan/scan.rs", "pub fn scan() {}");
    let files = [("lib.rs", lib), scan, inner, ("a.rs", "use crate::scan::scan;")];
    assert!(arrows(&files).contains(&"a.rs → scan/scan.rs: scan".to_owned()));
    let files = [("lib.rs", lib), scan, inner, ("a.rs", "fn f() { crate::scan::other() }")];
    assert!(arrows(&files).contains(&"a.rs → scan.rs: other".to_owned()));
}

#[test]
fn what_a_macro_makes_counts_for_the_file_of_its_module() {
    let files = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::Id;"), ("b.rs", "make_ids!(Id);")];
    assert_eq!(arrows(&files), ["a.rs → b.rs: Id"]);
}

#[test]
fn a_cycle_of_two_and_one_of_three_are_found_as_paths() {
    let two =
        [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;\nstruct A;"), ("b.rs", "use super::a::A;\nstruct B;")];
    assert_eq!(cycles(&two), ["a.rs → b.rs → a.rs"]);
    let three = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; struct A;"),
        ("b.rs", "use crate::c::C; struct B;"),
        ("c.rs", "use crate::a::A; struct C;"),
    ];
    assert_eq!(cycles(&three), ["a.rs → b.rs → c.rs → a.rs"]);
}

#[test]
fn the_finding_names_the_items_and_the_line() {
    let unit = unit(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "//! A.\nuse crate::b::{B, C};\nstruct A;"),
        ("b.rs", "use crate::a::A;\nstruct B; struct C;"),
    ]);
    let finding = unit.knots()[0].finding(&unit);
    assert_eq!((finding.file.as_str(), finding.line), ("room/src/a.rs", 2));
    assert!(finding.message.contains("a.rs uses `B`, `C` of b.rs; b.rs uses `A` of a.rs"), "{}", finding.message);
}

#[test]
fn a_parent_and_its_children_may_know_each_other() {
    let files = [
        ("lib.rs", "mod x; pub struct Shared;"),
        ("x.rs", "mod a; mod b; use a::A; use crate::Shared; pub struct X;"),
        ("x/a.rs", "use super::X; use super::b::B; pub struct A;"),
        ("x/b.rs", "use super::X; pub struct B;"),
    ];
    assert_eq!(cycles(&files), [""; 0]);
}

#[test]
fn siblings_may_not_know_each_other_both_ways() {
    let files = [
        ("lib.rs", "mod x;"),
        ("x.rs", "mod a; mod b; pub struct X;"),
        ("x/a.rs", "use super::X; use super::b::B; pub struct A;"),
        ("x/b.rs", "use super::X; use super::a::A; pub struct B;"),
    ];
    assert_eq!(cycles(&files), ["x/a.rs → x/b.rs → x/a.rs"]);
}

#[test]
fn a_cycle_that_leaves_the_family_is_found() {
    for (x, a, y) in [
        ("mod a; use a::A; pub struct X;", "use crate::y::Y; pub struct A;", "use crate::x::X; pub struct Y;"),
        (
            "pub mod a; use crate::y::Y; pub struct X;",
            "use super::X; pub struct A;",
            "use crate::x::a::A; pub struct Y;",
        ),
    ] {
        let files = [("lib.rs", "mod x; mod y;"), ("x.rs", x), ("x/a.rs", a), ("y.rs", y)];
        assert_eq!(cycles(&files).len(), 1, "{x}");
    }
    let both_ways = [
        ("lib.rs", "mod x; mod y;"),
        ("x.rs", "mod a; pub mod b; use a::A; pub struct X;"),
        ("x/a.rs", "use crate::y::Y; pub struct A;"),
        ("x/b.rs", "use super::X; pub struct B;"),
        ("y.rs", "use crate::x::b::B; pub struct Y;"),
    ];
    assert_eq!(cycles(&both_ways).len(), 1, "down through one child and up through another");
}

#[test]
fn a_grandchild_is_not_of_the_family() {
    let files = [
        ("lib.rs", "mod x; pub use x::X; pub struct Shared;"),
        ("x.rs", "mod a; use a::A; pub struct X;"),
        ("x/a.rs", "use crate::Shared; pub struct A;"),
    ];
    assert_eq!(cycles(&files), ["x/a.rs → lib.rs → x.rs → x/a.rs"]);
}

#[test]
fn a_crate_is_described_by_its_folder_or_its_package() {
    let root = crate::root();
    assert!(describe(&root, "terrane-types").unwrap().starts_with("types/src/lib.rs"));
    assert!(describe(&root, "benches/client").unwrap().starts_with("benches/client/src/main.rs"));
    assert!(describe(&root, "nothing").unwrap_err().to_string().contains("no crate `nothing`"));
}
