//! Which sockets are connected, counted on the other side.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use super::*;

const WAIT: Duration = Duration::from_secs(20);

/// Names that answer another address each time, the last for ever.
struct Turning {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Turning {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let read = |text: &&str| text.parse().expect("an address");
        Arc::new(Self {
            answers: answers
                .iter()
                .map(|answer| answer.iter().map(read).collect())
                .collect(),
            asked: AtomicUsize::new(0),
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Names for Turning {
    fn find(&self, _: &str) -> Found {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers[turn.min(self.answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    }
}

fn guarded(names: Arc<dyn Names>, allow: &[&str]) -> Tcp {
    let allow = allow.iter().map(|text| text.parse().expect("a network"));
    let egress = Some(Arc::new(Egress::new(allow.collect())));
    Tcp::new(WAIT, Reach { names, egress })
}

async fn open(tcp: &Tcp, url: &str) -> Result<SocketAddr, BoxError> {
    let mut tcp = tcp.clone();
    std::future::poll_fn(|context| tcp.poll_ready(context)).await?;
    let stream = tcp.call(url.parse()?).await?;
    Ok(stream.inner().peer_addr()?)
}

fn is_forbidden(error: &BoxError) -> bool {
    let first: &(dyn std::error::Error + 'static) = error.as_ref();
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    causes.any(<dyn std::error::Error + 'static>::is::<Forbidden>)
}

/// True when nobody has connected. What is connected on loopback waits in the queue before its caller hears of it.
async fn nobody_came(listener: &TcpListener) -> bool {
    let came = std::future::poll_fn(|context| Poll::Ready(listener.poll_accept(context).is_ready()));
    !came.await
}

#[tokio::test]
async fn a_name_that_turns_to_a_closed_address_is_not_followed_there() {
    let first = TcpListener::bind("127.0.0.2:0").await.expect("bind");
    let port = first.local_addr().expect("address").port();
    let second = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .expect("bind");
    let names = Turning::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let tcp = guarded(Arc::clone(&names) as Arc<dyn Names>, &["127.0.0.2"]);
    let url = format!("http://turning.example:{port}/v1");

    let connected = open(&tcp, &url).await.expect("open at first");
    let turned = open(&tcp, &url).await.expect_err("closed then");

    // What was looked at was connected: one look for each connection.
    assert_eq!(connected, first.local_addr().expect("address"));
    assert!(is_forbidden(&turned), "{turned}");
    assert_eq!(names.asked(), 2);
    assert!(nobody_came(&second).await);
}

#[tokio::test]
async fn of_several_addresses_only_those_are_tried_that_may_be() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let port = closed.local_addr().expect("address").port();
    let open_one = TcpListener::bind(("127.0.0.2", port)).await.expect("bind");
    let names = Turning::new(&[&["127.0.0.1", "::1", "127.0.0.2"]]);
    let tcp = guarded(names, &["127.0.0.2"]);

    let connected = open(&tcp, &format!("http://several.example:{port}/")).await;

    assert_eq!(connected.expect("open"), open_one.local_addr().expect("address"));
    assert!(nobody_came(&closed).await);
}

/// Forms in which the machine's own addresses are written, and what is like them.
const FORMS: &[&str] = &[
    "http://127.0.0.1:PORT/",
    "https://127.0.0.1:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://127.000.000.001:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.1:PORT/",
    "http://0X7F.0X0.0X0.0X1:PORT/",
    "http://017700000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://user@127.0.0.1:PORT/",
    "http://public.example@127.0.0.1:PORT/",
    "http://user:pass@localhost:PORT/",
    "http://[::1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::127.0.0.1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[fe80::1]:PORT/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://10.0.0.1/",
    "http://192.168.0.1:PORT/",
    "http://172.16.0.1/",
    "http://100.64.0.1/",
    "http://127.0.0.1:0/",
    "http://0.0.0.0:0/",
];

#[tokio::test]
async fn no_form_of_a_closed_address_is_connected() {
    let own = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("bind");
    let port = own.local_addr().expect("address").port();
    // A machine without version 6 has nobody there to be connected.
    let own6 = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await.ok();
    let tcp = guarded(Arc::new(SystemNames), &[]);

    for form in FORMS {
        let url = form.replace("PORT", &port.to_string());
        let opened = open(&tcp, &url).await;
        // Some are no URL at all, and some are no name: what counts is that nothing was connected.
        assert!(opened.is_err(), "{form}");
    }
    assert!(nobody_came(&own).await);
    if let Some(own6) = own6 {
        assert!(nobody_came(&own6).await);
    }
}

#[tokio::test]
async fn forms_that_the_system_reads_as_addresses_are_told_as_closed() {
    let tcp = guarded(Arc::new(SystemNames), &[]);

    for host in [
        "127.0.0.1",
        "[::1]",
        "127.1",
        "2130706433",
        "localhost",
        "169.254.169.254",
    ] {
        let error = open(&tcp, &format!("http://{host}:9/"))
            .await
            .expect_err("closed");
        assert!(is_forbidden(&error), "{host}: {error}");
    }
}

#[tokio::test]
async fn files_may_name_any_address() {
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let address = own.local_addr().expect("address");
    let tcp = Tcp::new(WAIT, Reach::everybody());

    let connected = open(&tcp, &format!("http://localhost:{}/", address.port())).await;

    assert_eq!(connected.expect("open"), address);
}
