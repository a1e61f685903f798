//! Accepts connections, bounded in number, and ends those that say nothing.

use crate::core::Core;
use crate::metrics;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidepool_locks::seats::{Seat, Seats, Voice};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Sleep;
use tonic::transport::server::Connected;

/// How long accepting rests after an error such as "too many open files".
const REST: Duration = Duration::from_millis(50);

/// How long a connection may take to say that it speaks HTTP/2. Whoever has said so is asked now and then whether it is there.
const PREFACE_WITHIN: Duration = Duration::from_secs(5);
/// Bytes with which a connection says so.
const PREFACE_LEN: usize = 24;

/// Dropped to have a connection end.
pub(crate) type Stay = oneshot::Sender<()>;

/// Admits connections. Those past the bound are closed at once and counted.
pub(crate) struct Incoming {
    seats: Arc<Seats<Stay>>,
    core: Arc<Core>,
}

/// A connection that has been admitted and that nobody serves yet.
pub(crate) struct Accepted {
    stream: std::net::TcpStream,
    seat: Seat<Stay>,
    end: oneshot::Receiver<()>,
}

impl Accepted {
    /// The connection as the runtime knows it that this is called from.
    pub(crate) fn connect(self) -> io::Result<Connection> {
        Ok(Connection::new(TcpStream::from_std(self.stream)?, self.seat, self.end))
    }
}

impl Incoming {
    pub(crate) const fn new(seats: Arc<Seats<Stay>>, core: Arc<Core>) -> Self {
        Self { seats, core }
    }

    /// The next connection.
    pub(crate) async fn accept(&self, listener: &TcpListener) -> Accepted {
        loop {
            let stream = match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            let (stay, end) = oneshot::channel();
            let admitted = self.seats.admit(stay);
            if !matches!(admitted, Some((_, None))) {
                metrics::add(&self.core.counters.refused_connections, 1);
            }
            let Some((seat, _)) = admitted else { continue };
            // Answers are small and awaited: never hold them back.
            let _ = stream.set_nodelay(true);
            return Accepted { stream, seat, end };
        }
    }
}

/// A connection that counts until it is dropped.
pub(crate) struct Connection {
    stream: TcpStream,
    seat: Seat<Stay>,
    /// Resolves when the connection must make way.
    end: oneshot::Receiver<()>,
    preface: Option<Preface>,
}

/// What is still to come before a connection has begun.
struct Preface {
    missing: usize,
    patience: Pin<Box<Sleep>>,
}

impl Connection {
    fn new(stream: TcpStream, seat: Seat<Stay>, end: oneshot::Receiver<()>) -> Self {
        let patience = Box::pin(tokio::time::sleep(PREFACE_WITHIN));
        Self { stream, seat, end, preface: Some(Preface { missing: PREFACE_LEN, patience }) }
    }

    /// Whether the connection is to end: another one needs its place, or it has taken too long to begin.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let late = self.preface.as_mut().is_some_and(|preface| preface.patience.as_mut().poll(context).is_ready());
        late || Pin::new(&mut self.end).poll(context).is_ready()
    }

    fn note_read(&mut self, bytes: usize) {
        if let Some(preface) = &mut self.preface {
            preface.missing = preface.missing.saturating_sub(bytes);
        }
        self.preface.take_if(|preface| preface.missing == 0);
    }
}

impl Connected for Connection {
    type ConnectInfo = Voice;

    fn connect_info(&self) -> Voice {
        self.seat.voice().clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buf);
        self.note_read(buf.filled().len() - before);
        read
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
