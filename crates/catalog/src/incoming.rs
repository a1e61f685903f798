//! Accepts connections, bounded in number.

use crate::core::Core;
use crate::metrics;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// How long accepting rests after an error such as "too many open files".
const REST: Duration = Duration::from_millis(50);

/// The connections of a listener. Those past the bound are closed at once and counted.
pub(crate) struct Incoming {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    core: Arc<Core>,
    resting: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    pub(crate) fn new(listener: TcpListener, limit: usize, core: Arc<Core>) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(limit)), core, resting: None }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(resting) = &mut self.resting {
                ready!(resting.as_mut().poll(context));
                self.resting = None;
            }
            let stream = match ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.resting = Some(Box::pin(tokio::time::sleep(REST)));
                    continue;
                }
            };
            let Ok(permit) = self.permits.clone().try_acquire_owned() else {
                metrics::add(&self.core.counters.refused_connections, 1);
                continue;
            };
            // Answers are small and awaited: never hold them back.
            let _ = stream.set_nodelay(true);
            return Poll::Ready(Some(Ok(Connection { stream, _permit: permit })));
        }
    }
}

/// A connection that counts until it is dropped.
pub(crate) struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.peer_addr().ok()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
