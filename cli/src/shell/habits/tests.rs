//! Lines that people bring, and what they are answered with. Each answer is a line of ours.

use terrane_types::{FamilySchema, KeyDeclaration, TableName, TableSchema};

use super::super::{hbase, words};
use super::lines;
use crate::args::Cli;

/// Table `actions` with a key and declared columns, or table `web` without.
fn schema(key: Option<&str>) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").expect("a name"));
    schema.key = key.map(|key| KeyDeclaration::parse(key).expect("a key"));
    let mut family = FamilySchema::new("d".parse().expect("a name"));
    for (name, kind) in [("type.count", "i64"), ("type.kind", "text")] {
        family.set_attribute(name, kind).expect(name);
    }
    schema.add_family(family).expect("a family");
    schema
}

/// The answer is read by our grammar or by that of HBase's shell.
fn is_read(line: &str) {
    let read = words::split(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    if ["exit", "help", "timing", "format"].contains(&read[0].as_str()) {
        return;
    }
    match hbase::translate(line) {
        Some(translated) => drop(translated.unwrap_or_else(|error| panic!("{line}: {error}"))),
        None => {
            let read = std::iter::once("terrane".to_owned()).chain(read);
            drop(<Cli as clap::Parser>::try_parse_from(read).unwrap_or_else(|error| panic!("{line}: {error}")));
        }
    }
}

fn answered(cases: &[(&str, &[&str])], schema: Option<&TableSchema>) {
    for (line, expected) in cases {
        let found = lines(line, schema).unwrap_or_else(|| panic!("{line} has no answer"));
        assert_eq!(found, *expected, "{line}");
        found.iter().for_each(|line| is_read(line));
    }
}

#[test]
fn statements_about_tables_are_commands() {
    answered(
        &[
            ("show tables;", &["table list"]),
            ("SHOW DATABASES", &["namespace list"]),
            ("show columns from t", &["table describe t"]),
            ("show create table t", &["table describe t"]),
            ("show regions from t", &["admin regions t"]),
            (r"\dt", &["table list"]),
            (r"\d t", &["table describe t"]),
            (r"\q", &["exit"]),
            ("use n", &["table list --namespace n"]),
            ("describe table t", &["table describe t"]),
            ("create database n", &["namespace create n"]),
            ("drop table if exists t", &["table drop t"]),
            ("truncate table t", &["table truncate t"]),
            ("alter table t add column n bigint", &["table alter t --column d:n=i64"]),
            (
                "create table t (id bigint primary key, name varchar(20), n int not null)",
                &["table create t --family d --key 'id:i64' --column d:name=text --column d:n=i32"],
            ),
            (
                "CREATE TABLE t (a int, b text, c double, PRIMARY KEY (a, b))",
                &["table create t --family d --key 'a:i32, b:text' --column d:c=f64"],
            ),
        ],
        Some(&schema(None)),
    );
}

#[test]
fn statements_about_rows_use_what_the_table_declares() {
    answered(
        &[
            ("select * from t", &["scan t"]),
            ("select count(*) from t where kind like 'a%'", &["count t --filter \"d:kind like 'a%'\""]),
            ("select sum(count) from t", &["aggregate t sum d:count"]),
            ("select max(other) from t", &["aggregate t max 'i64(d:other)'"]),
            ("select * from t where user = 7 and time = 5", &["get t user=7,time=5"]),
            (
                "select user, count from t where user = 7 and count > 5 order by time desc limit 10 offset 2",
                &["scan t --column d:count --filter \"key(user) = 7 and d:count > 5\" --reverse --limit 10 --offset 2"],
            ),
            (
                "select * from t where (user in (7, 8) or kind is not null) and other > 5 and x = 5",
                &["scan t --filter \"(key(user) in (7, 8) or d:kind is not null) and i64(d:other) > 5 and d:x = '5'\""],
            ),
            (
                "insert into t (user, time, kind, count) values (7, 5, 'it''s', 3)",
                &["put t user=7,time=5 d:kind \"it's\"", "put t user=7,time=5 d:count 3"],
            ),
            ("update t set kind = 'a b' where user = 7 and time = 5", &["put t user=7,time=5 d:kind 'a b'"]),
            ("delete from t where user = 7 and time = 5", &["delete t user=7,time=5"]),
            ("delete from t where count < 5", &["scan t --filter \"d:count < 5\""]),
        ],
        Some(&schema(Some("user:u64, time:i64"))),
    );
    answered(
        &[
            ("select * from t where row = 'r'", &["get t r"]),
            (
                "select kind from t where rowkey between 'a' and 'b'",
                &["scan t --column d:kind --filter \"row between 'a' and 'b'\""],
            ),
            ("insert into t (id, kind) values ('r', 'x'), ('s', 'y')", &["put t r d:kind x", "put t s d:kind y"]),
            ("insert into t values ('r', 'd:kind', 'x')", &["put t r d:kind x"]),
        ],
        Some(&schema(None)),
    );
    answered(
        &[("select d:kind from t where d:kind = 'a'", &["scan t --column d:kind --filter \"d:kind = 'a'\""])],
        None,
    );
    for line in [
        "select a from t join u",
        "select a, count(*) from t group by a",
        "select upper(a) from t",
        "update t set a = 1",
    ] {
        assert_eq!(lines(line, None), None, "{line}");
    }
}

#[test]
fn lines_of_hbase_without_an_equal_are_answered_with_their_words() {
    answered(
        &[
            ("get_splits 't'", &["admin regions t"]),
            ("locate_region 't', 'row'", &["admin regions t"]),
            ("merge_region 7, 8", &["admin merge 7 8"]),
            ("move '7', 'host,16020,1700'", &["admin move 7 --to host:16020"]),
            ("snapshot 't', 's'", &["export t --out s.jsonl"]),
            ("clone_snapshot 's', 'u'", &["import u --format jsonl s.jsonl"]),
            ("truncate_preserve 't'", &["table truncate t"]),
            ("alter_async 't', 'f'", &["alter 't', 'f'"]),
            ("alter_status 't'", &["admin procedures"]),
            ("describe_namespace 'n'", &["table list --namespace n"]),
            ("decommission_regionservers ['a,1,2', 'b']", &["admin drain a:1", "admin drain b"]),
        ],
        None,
    );
}

#[test]
fn lines_of_ours_are_no_habits() {
    for line in
        ["delete from t", "drop 't'", "create 'table', 'f'", "truncate 't'", "scan t", "list", "describe 't'", "help"]
    {
        assert!(!super::is_sql(line), "{line}");
    }
}
