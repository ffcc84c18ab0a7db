//! `terrane` as people, scripts and supervisors run it: real processes, real files, real signals.
//!
//! One binary for all of them, because each binary links the whole product once more.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes live in real time, with real files and ports"
)]

mod console;
mod console_pages;
mod damage;
mod deployment;
mod faults;
mod golden;
mod grammar;
mod harness;
mod keys;
mod logs;
mod lost_answers;
mod masters;
mod model;
mod ncdc;
mod quick_start;
mod refusals;
mod session;
mod shell;
mod traces;
mod transfer;
mod versions;
mod without_master;
