//! Stubs of calls, for fake services in tests.

/// Within an implementation of a generated service: the calls that it does not serve, answered with this status. A
/// service has a method for every call, and a fake serves few of them.
///
/// ```ignore
/// #[tonic::async_trait]
/// impl Data for Fake {
///     terrane_proto::unserved! { Status::unimplemented("a fake") =>
///         get(GetCall) -> GetReply;
///     }
/// }
/// ```
#[macro_export]
macro_rules! unserved {
    ($status:expr => $($call:ident($request:ident) -> $reply:ty;)+) => {$(
        // What `async_trait` makes of an `async fn`: it does not look into macros.
        fn $call<'life0, 'async_trait>(
            &'life0 self,
            _: tonic::Request<$crate::v1::$request>,
        ) -> std::pin::Pin<
            Box<dyn Future<Output = Result<tonic::Response<$reply>, tonic::Status>> + Send + 'async_trait>,
        >
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            let refused: Result<tonic::Response<$reply>, tonic::Status> = Err($status);
            Box::pin(std::future::ready(refused))
        }
    )+};
}
