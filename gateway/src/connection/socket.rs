//! The socket of a caller, watched: notes when a write waits for him, and lingers before it closes on one who is
//! still sending a body that was refused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bus::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::Connection;

/// How long a closing socket reads on.
const LINGER: Duration = Duration::from_secs(1);
/// Most bytes it reads on.
const LINGER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes read and dropped at a time.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// A caller's socket.
pub(crate) struct Socket {
    stream: TcpStream,
    connection: Arc<Connection>,
    clock: Arc<dyn Clock>,
    farewell: Option<Farewell>,
}

/// A socket that only waits for its caller to stop sending.
struct Farewell {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl Socket {
    /// Watches `stream` on behalf of `connection`.
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>, clock: Arc<dyn Clock>) -> Self {
        Self {
            stream,
            connection,
            clock,
            farewell: None,
        }
    }

    fn note<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &written {
            Poll::Pending => self.connection.blocked(self.clock.monotonic_ms()),
            Poll::Ready(_) => self.connection.moved(),
        }
        written
    }

    /// Drops what the caller still sends, until he stops or the moment is over.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let farewell = self.farewell.get_or_insert_with(|| Farewell {
            until: Box::pin(sleep(LINGER)),
            bytes_left: LINGER_BYTES_MAX,
        });
        let mut scratch = [0; LINGER_READ_BYTES];
        while farewell.bytes_left > 0 {
            if farewell.until.as_mut().poll(context).is_ready() {
                break;
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            let bytes = buffer.filled().len();
            if read.is_err() || bytes == 0 {
                break;
            }
            farewell.bytes_left = farewell.bytes_left.saturating_sub(bytes);
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.farewell.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if self.connection.lingering.load(Ordering::Relaxed) {
            ready!(self.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}
