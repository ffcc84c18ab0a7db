//! Messages with secrets are shown without them: what a message contains may end up in a log.

use std::fmt;

use crate::v1;

impl fmt::Debug for v1::PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageKey").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_with_keys_is_shown_without_their_secrets() {
        let secret = bytes::Bytes::from_static(b"a secret of thirty-two bytes 123");
        let page_keys = vec![v1::PageKey { id: 7, secret }];
        let shown = format!("{:?}", v1::ReportReply { page_keys, ..v1::ReportReply::default() });
        assert!(shown.contains("PageKey { id: 7, .. }") && !shown.contains("secret of"), "{shown}");
    }
}
