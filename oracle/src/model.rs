//! A plain model of the data path, what several histories may have made of it, and random changes and selections for it.

pub mod draw;
pub mod plain;
pub mod possible;
