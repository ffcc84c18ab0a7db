//! The codec of servers: prost's, except that a message that cannot be decoded is reported as the caller's error.
//!
//! Clients keep prost's own codec: an answer that cannot be decoded leaves the outcome unknown and must not look like a
//! refusal.

use std::marker::PhantomData;

use prost::Message;
use terrane_types::{Error, Invalid};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::error;

/// Encodes `T`, decodes `U`.
#[derive(Debug)]
pub struct ServerCodec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for ServerCodec<T, U> {
    fn default() -> Self {
        Self { messages: PhantomData }
    }
}

impl<T, U> Codec for ServerCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = RequestDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> RequestDecoder<U> {
        RequestDecoder { message: PhantomData }
    }
}

/// Decodes requests.
#[derive(Debug)]
pub struct RequestDecoder<U> {
    message: PhantomData<U>,
}

impl<U: Message + Default> Decoder for RequestDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(bytes).map(Some).map_err(|malformed| {
            let what = format!("the message is malformed: {malformed}");
            error::status(&Error::Invalid(Invalid { what }))
        })
    }
}
