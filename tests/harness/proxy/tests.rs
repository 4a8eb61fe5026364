//! The proxy itself: each fault is seen by a client and a server that expect it, and is gone when healed.

use tokio::time::timeout;

use super::*;

/// Longer than anything takes that is not held up.
const SOON: Duration = Duration::from_secs(5);
/// Long enough to see that nothing comes.
const A_WHILE: Duration = Duration::from_millis(150);

/// A client and a server with a proxy between them.
struct Pair {
    proxy: Proxy,
    listener: TcpListener,
}

impl Pair {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Proxy::start(listener.local_addr().expect("an address")).await;
        Self { proxy, listener }
    }

    async fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.addr()).await.expect("connected");
        let (server, _) = timeout(SOON, self.listener.accept())
            .await
            .expect("soon")
            .expect("accepted");
        (client, server)
    }
}

async fn read(from: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    timeout(SOON, from.read_exact(&mut buffer))
        .await
        .expect("soon")
        .expect("bytes");
    buffer
}

async fn assert_silent(stream: &mut TcpStream) {
    let mut byte = [0];
    let read = timeout(A_WHILE, stream.read(&mut byte)).await;
    assert!(read.is_err(), "{read:?} came through");
}

#[tokio::test]
async fn bytes_pass_both_ways_and_ends_are_told() {
    let pair = Pair::start().await;
    let (mut client, mut server) = pair.connect().await;

    client.write_all(b"ping").await.expect("written");
    assert_eq!(read(&mut server, 4).await, b"ping");
    server.write_all(b"pong").await.expect("written");
    assert_eq!(read(&mut client, 4).await, b"pong");
    drop(client);

    assert_eq!(server.read(&mut [0]).await.expect("an orderly end"), 0);
    drop(server);
    while pair.proxy.open() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(pair.proxy.accepted(), 1);
}

#[tokio::test]
async fn a_cut_resets_what_is_open_and_what_comes_until_it_is_healed() {
    let pair = Pair::start().await;
    let (mut client, mut server) = pair.connect().await;

    pair.proxy.cut();

    for stream in [&mut client, &mut server] {
        let ended = timeout(SOON, stream.read(&mut [0])).await.expect("soon");
        assert!(ended.is_err(), "{ended:?} is no reset");
    }
    let mut refused = TcpStream::connect(pair.proxy.addr()).await.expect("accepted");
    let ended = timeout(SOON, refused.read(&mut [0])).await.expect("soon");
    assert!(!matches!(ended, Ok(1)), "{ended:?}");
    pair.proxy.heal();
    let (mut client, mut server) = pair.connect().await;
    client.write_all(b"x").await.expect("written");
    assert_eq!(read(&mut server, 1).await, b"x");
}

#[tokio::test]
async fn a_stalled_direction_holds_its_bytes_and_loses_none() {
    let pair = Pair::start().await;
    let (mut client, mut server) = pair.connect().await;

    pair.proxy.stall(Way::Up);
    client.write_all(b"later").await.expect("written");
    assert_silent(&mut server).await;
    server.write_all(b"now").await.expect("written");
    assert_eq!(read(&mut client, 3).await, b"now");

    pair.proxy.heal();
    assert_eq!(read(&mut server, 5).await, b"later");
}

#[tokio::test]
async fn a_delayed_direction_is_late_once_and_not_for_each_piece() {
    let pair = Pair::start().await;
    let (mut client, mut server) = pair.connect().await;
    let by = Duration::from_millis(200);
    pair.proxy.delay(Way::Down, by);
    let start = Instant::now();

    for _ in 0..5 {
        server.write_all(b"ab").await.expect("written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    assert_eq!(read(&mut client, 10).await, b"ababababab");
    let took = start.elapsed();
    assert!(took >= by && took < by * 4, "{took:?}");
}

#[tokio::test]
async fn a_dribbling_direction_lets_few_bytes_through_at_a_time() {
    let pair = Pair::start().await;
    let (mut client, mut server) = pair.connect().await;
    pair.proxy.dribble(Way::Up, 2, Duration::from_millis(30));
    let start = Instant::now();

    client.write_all(b"12345678").await.expect("written");

    assert_eq!(read(&mut server, 8).await, b"12345678");
    assert!(
        start.elapsed() >= Duration::from_millis(90),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_half_closed_direction_ends_while_the_other_goes_on() {
    let pair = Pair::start().await;
    let (mut client, mut server) = pair.connect().await;

    pair.proxy.half_close(Way::Up);

    let ended = timeout(SOON, server.read(&mut [0])).await.expect("soon");
    assert_eq!(ended.expect("an orderly end"), 0);
    server.write_all(b"still here").await.expect("written");
    assert_eq!(read(&mut client, 10).await, b"still here");
    client.write_all(b"dropped").await.expect("written");
}

#[tokio::test]
async fn a_retargeted_proxy_takes_new_connections_elsewhere() {
    let pair = Pair::start().await;
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");

    pair.proxy.retarget(other.local_addr().expect("an address"));

    let _client = TcpStream::connect(pair.proxy.addr()).await.expect("connected");
    let accepted = timeout(SOON, other.accept()).await.expect("soon");
    assert!(accepted.is_ok());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_reset() {
    let pair = Pair::start().await;
    pair.proxy.retarget(crate::upstream::refusing_addr());

    let mut client = TcpStream::connect(pair.proxy.addr()).await.expect("accepted");

    let ended = timeout(SOON, client.read(&mut [0])).await.expect("soon");
    assert!(!matches!(ended, Ok(1)), "{ended:?}");
}
