//! Scripts over the decisions of procedures.
