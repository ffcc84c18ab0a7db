//! The groups of a server: their host, typed handles to them, and their local replicas.

pub(crate) mod group;
pub(crate) mod group_host;
pub(crate) mod group_view;
pub(crate) mod host;
pub(crate) mod registry;
pub(crate) mod replica;
