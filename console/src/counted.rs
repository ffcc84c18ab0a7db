//! Counts answers until they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use terrane_env::budget::Share;
use terrane_env::net::Intake;

/// Counts an answer, or refuses it if too many are not read.
pub(crate) async fn count(State(intake): State<Arc<Intake>>, answer: Response) -> Response {
    let bytes = answer.body().size_hint().lower();
    match intake.answer(bytes) {
        Some(share) => answer.map(|body| Body::new(Counted { body, share: Some(share) })),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the console holds too many answers; try again\n").into_response(),
    }
}

/// The body of an answer, which is one piece.
struct Counted {
    body: Body,
    share: Option<Share>,
}

/// A piece of an answer that the connection holds.
struct Unsent {
    data: Bytes,
    _share: Option<Share>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let share = &mut self.share;
        let counted = |data| Bytes::from_owner(Unsent { data, _share: share.take() });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
