//! Connections of simulated hosts. They are turmoil's, except that a process which has ended itself sends nothing more,
//! although its other tasks still run until the harness crashes the host.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net;

use crate::sim;

/// A bound port.
pub(super) struct TcpListener(net::TcpListener);

impl TcpListener {
    pub(super) async fn bind(address: &str) -> io::Result<TcpListener> {
        net::TcpListener::bind(address).await.map(TcpListener)
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await.map(|(stream, peer)| (TcpStream(stream), peer))
    }
}

/// A connection.
pub(super) struct TcpStream(net::TcpStream);

impl TcpStream {
    pub(super) async fn connect(address: &str) -> io::Result<TcpStream> {
        net::TcpStream::connect(address).await.map(TcpStream)
    }

    pub(super) fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set_nodelay(on)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if sim::has_exited() { Poll::Pending } else { Pin::new(&mut self.0).poll_write(cx, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
