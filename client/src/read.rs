//! Reads: what a read returns, the requests, and the rows.

pub(crate) mod base64url;
pub(crate) mod count;
pub(crate) mod get;
pub(crate) mod get_many;
pub(crate) mod get_requests;
pub(crate) mod key_after;
pub(crate) mod page;
pub(crate) mod page_token;
pub(crate) mod request;
pub(crate) mod row_data;
pub(crate) mod row_stream;
pub(crate) mod scan;
pub(crate) mod scan_cursor;
pub(crate) mod scan_requests;
pub(crate) mod scanner;
pub(crate) mod selection;
