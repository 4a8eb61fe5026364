//! One connection of the client. It keeps a second handle of its socket, so that a test can make the
//! close a reset.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{SockRef, Socket};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::Error;

/// Smallest read buffer that hyper takes.
const READ_BUFFER_BYTES: usize = 8192;

/// A connection and the task that drives it; closed when dropped.
pub(super) struct Connection {
    sender: Sender,
    socket: Socket,
    driver: JoinSet<()>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(super) async fn open(
        addr: SocketAddr,
        two: bool,
        receive_bytes: Option<usize>,
    ) -> Result<Self, Error> {
        let socket = TcpSocket::new_v4().map_err(Error::Connect)?;
        if let Some(bytes) = receive_bytes {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            socket.set_recv_buffer_size(bytes).map_err(Error::Connect)?;
        }
        let stream = socket.connect(addr).await.map_err(Error::Connect)?;
        stream.set_nodelay(true).map_err(Error::Connect)?;
        let socket = SockRef::from(&stream).try_clone().map_err(Error::Connect)?;
        let mut driver = JoinSet::new();
        let sender = if two {
            let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(Error::Http)?;
            // The calls on the connection report what ends it.
            driver.spawn(async move { drop(connection.await) });
            Sender::Two(sender)
        } else {
            let mut builder = http1::Builder::new();
            if receive_bytes.is_some() {
                builder.max_buf_size(READ_BUFFER_BYTES);
            }
            let (sender, connection) = builder
                .handshake(TokioIo::new(stream))
                .await
                .map_err(Error::Http)?;
            // As above.
            driver.spawn(async move { drop(connection.await) });
            Sender::One(sender)
        };
        Ok(Self {
            sender,
            socket,
            driver,
        })
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        match &mut self.sender {
            Sender::One(sender) => sender.send_request(request).await,
            Sender::Two(sender) => sender.send_request(request).await,
        }
    }

    /// Ends the connection at once.
    pub(super) fn close(&mut self) {
        self.driver.abort_all();
    }

    /// Ends the connection with a reset.
    pub(super) fn reset(&mut self) {
        // A socket that the peer reset first has nothing left to set.
        let _ = self.socket.set_linger(Some(Duration::ZERO));
        self.driver.abort_all();
    }
}
