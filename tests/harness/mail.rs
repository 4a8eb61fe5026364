//! A server of mail on a loopback port, strict: it takes commands in their order and lines that end as they have to, notes
//! what is not so, and keeps the letters that it is handed. Its certificate is of an authority for tests alone
//! ([`authority`]).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How long the waiting methods wait before they panic.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How often they look.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longest line of a letter, its end included.
const LINE_BYTES_MAX: u64 = 1_000;
/// With what one signs in to the server.
pub const MAIL_PASSWORD: &str = "harness-canary-mail-password-31c7";
const USER: &str = "waybill";

/// How a server keeps what it is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Not at all; whoever wants STARTTLS is refused.
    Clear,
    /// It offers STARTTLS, and takes no letter before.
    Starttls,
    /// It says that it offers STARTTLS, and then does not.
    Broken,
    /// TLS from the first byte.
    Tls,
}

/// A letter as it was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The sender of its envelope.
    pub from: String,
    /// The recipients of its envelope.
    pub to: Vec<String>,
    /// Head and body as they were sent, without the dots that lines were given on their way.
    pub text: String,
    /// It came under TLS.
    pub under_tls: bool,
    /// Whoever handed it in had signed in.
    pub signed_in: bool,
}

impl Letter {
    /// The values of a header.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let (head, _) = self.text.split_once("\r\n\r\n").expect("a head and a body");
        let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
        lines
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }

    /// The body, decoded.
    pub fn body(&self) -> String {
        let (_, body) = self.text.split_once("\r\n\r\n").expect("a head and a body");
        match self.headers("content-transfer-encoding")[..] {
            ["quoted-printable"] => unquoted(body),
            ["base64"] => {
                let bytes = STANDARD.decode(body.replace("\r\n", "")).expect("base64");
                String::from_utf8(bytes).expect("text")
            }
            ["7bit" | "8bit"] => body.to_owned(),
            ref other => panic!("coded in {other:?}"),
        }
    }
}

fn unquoted(body: &str) -> String {
    let joined = body.replace("=\r\n", "");
    let mut pieces = joined.split('=');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).expect("two digits"));
        bytes.extend(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).expect("text")
}

#[derive(Default)]
struct Met {
    letters: Vec<Letter>,
    faults: Vec<String>,
    connections: usize,
    /// What is answered to a recipient in the place of 250, so many times.
    refusing: Option<(usize, &'static str)>,
}

/// A server of mail; it stops when dropped.
pub struct MailServer {
    addr: SocketAddr,
    met: Arc<Mutex<Met>>,
    _tasks: JoinSet<()>,
}

/// The authority that signed the server's certificate, a PEM file.
pub fn authority() -> PathBuf {
    folder().join("ca.pem")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/mail")
}

fn acceptor() -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(folder().join("server.pem")).expect("a certificate");
    let chain = chain.collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder().join("server.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}

impl MailServer {
    /// Starts a server on a free loopback port; inside a runtime.
    pub async fn start(wire: Wire) -> Self {
        Self::start_at(wire, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// The same at an address.
    pub async fn start_at(wire: Wire, addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).await.expect("a free address");
        let addr = listener.local_addr().expect("an address");
        let met = Arc::new(Mutex::new(Met::default()));
        let (tls, kept) = (acceptor(), Arc::clone(&met));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut conversations = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                kept.lock().connections += 1;
                let (tls, met) = (tls.clone(), Arc::clone(&kept));
                conversations.spawn(async move {
                    let talk = Talk::new(met, wire);
                    match wire {
                        Wire::Tls => {
                            // Whoever speaks no TLS is told nothing.
                            if let Ok(stream) = tls.accept(socket).await {
                                talk.run(Box::new(stream), None).await;
                            }
                        }
                        _ => talk.run(Box::new(socket), Some(tls)).await,
                    }
                });
            }
        });
        Self {
            addr,
            met,
            _tasks: tasks,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Refuses so many recipients from now on, with this answer.
    pub fn refuse(&self, times: usize, answer: &'static str) {
        self.met.lock().refusing = Some((times, answer));
    }

    /// The letters that were handed in so far.
    pub fn letters(&self) -> Vec<Letter> {
        self.met.lock().letters.clone()
    }

    /// The letters, once there are so many; panics when they do not come.
    pub async fn wait_letters(&self, count: usize) -> Vec<Letter> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let letters = self.letters();
            if letters.len() >= count {
                return letters;
            }
            assert!(
                Instant::now() < deadline,
                "{count} letters did not come: {letters:?}"
            );
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until somebody has connected so often.
    pub async fn wait_connections(&self, count: usize) {
        let deadline = Instant::now() + WAIT_MAX;
        while self.met.lock().connections < count {
            assert!(Instant::now() < deadline, "{count} connections did not come");
            sleep(LOOK_EVERY).await;
        }
    }

    /// What was not as it has to be.
    pub fn faults(&self) -> Vec<String> {
        self.met.lock().faults.clone()
    }
}

/// A stream in the clear or under TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// One connection.
struct Talk {
    met: Arc<Mutex<Met>>,
    wire: Wire,
    under_tls: bool,
    greeted: bool,
    signed_in: bool,
    from: Option<String>,
    to: Vec<String>,
}

/// What comes after a command.
enum Next {
    Say(&'static str),
    Letter,
    Tls,
    Quit,
}

impl Talk {
    fn new(met: Arc<Mutex<Met>>, wire: Wire) -> Self {
        Self {
            met,
            wire,
            under_tls: wire == Wire::Tls,
            greeted: false,
            signed_in: false,
            from: None,
            to: Vec::new(),
        }
    }

    fn fault(&self, text: String) {
        self.met.lock().faults.push(text);
    }

    async fn run(mut self, stream: Box<dyn Stream>, tls: Option<TlsAcceptor>) {
        let mut stream = BufReader::new(stream);
        say(&mut stream, "220 mail.test ESMTP").await;
        while let Some(line) = self.line(&mut stream).await {
            match self.told(&line) {
                Next::Say(answer) => say(&mut stream, answer).await,
                Next::Quit => {
                    say(&mut stream, "221 bye").await;
                    return;
                }
                Next::Letter => {
                    say(&mut stream, "354 go on").await;
                    if !self.letter(&mut stream).await {
                        return;
                    }
                    say(&mut stream, "250 taken").await;
                }
                Next::Tls => {
                    say(&mut stream, "220 go on").await;
                    if !stream.buffer().is_empty() {
                        self.fault("something came before TLS".to_owned());
                    }
                    let Some(tls) = &tls else { return };
                    let Ok(under) = tls.accept(stream.into_inner()).await else {
                        return;
                    };
                    stream = BufReader::new(Box::new(under));
                    (self.under_tls, self.greeted) = (true, false);
                }
            }
        }
    }

    /// The next line; none when the peer has left.
    async fn line(&self, stream: &mut BufReader<Box<dyn Stream>>) -> Option<String> {
        let mut bytes = Vec::new();
        let mut bounded = stream.take(LINE_BYTES_MAX + 1);
        let read = bounded.read_until(b'\n', &mut bytes).await.ok()?;
        if read == 0 {
            return None;
        }
        let text = String::from_utf8(bytes).ok()?;
        let Some(line) = text.strip_suffix("\r\n") else {
            self.fault(format!("a line ends oddly: {text:?}"));
            return None;
        };
        if line.contains(['\r', '\0']) {
            self.fault(format!("a line has an odd character: {line:?}"));
        }
        Some(line.to_owned())
    }

    fn told(&mut self, line: &str) -> Next {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        match command.to_ascii_uppercase().as_str() {
            "EHLO" => {
                self.greeted = true;
                (self.from, self.to) = (None, Vec::new());
                Next::Say(match (self.wire, self.under_tls) {
                    (Wire::Starttls | Wire::Broken, false) => "250-mail.test\r\n250-STARTTLS\r\n250 8BITMIME",
                    (Wire::Clear, _) => "250-mail.test\r\n250 8BITMIME",
                    _ => "250-mail.test\r\n250-AUTH PLAIN\r\n250 8BITMIME",
                })
            }
            "STARTTLS" if self.wire == Wire::Starttls && !self.under_tls => Next::Tls,
            "STARTTLS" => Next::Say("454 not now"),
            "QUIT" => Next::Quit,
            "RSET" | "NOOP" => Next::Say("250 fine"),
            _ if !self.greeted => {
                self.fault(format!("before EHLO: {command}"));
                Next::Say("503 who are you")
            }
            _ if self.wire == Wire::Starttls && !self.under_tls => {
                self.fault(format!("in the clear: {command}"));
                Next::Say("530 STARTTLS first")
            }
            "AUTH" => self.sign_in(rest),
            "MAIL" => self.sender(rest),
            "RCPT" => self.recipient(rest),
            "DATA" if self.to.len() == 1 => Next::Letter,
            _ => {
                self.fault(format!("not understood: {line:?}"));
                Next::Say("503 not now")
            }
        }
    }

    fn sign_in(&mut self, rest: &str) -> Next {
        let expected = STANDARD.encode(format!("\0{USER}\0{MAIL_PASSWORD}"));
        if !self.under_tls {
            self.fault("a password in the clear".to_owned());
        }
        self.signed_in = rest == format!("PLAIN {expected}");
        Next::Say(if self.signed_in { "235 welcome" } else { "535 no" })
    }

    fn sender(&mut self, rest: &str) -> Next {
        let address = rest.strip_prefix("FROM:<").and_then(|rest| rest.split_once('>'));
        match address {
            Some((address, options)) if ["", " BODY=8BITMIME"].contains(&options) && self.from.is_none() => {
                self.from = Some(address.to_owned());
                Next::Say("250 fine")
            }
            _ => {
                self.fault(format!("MAIL {rest:?}"));
                Next::Say("501 no")
            }
        }
    }

    fn recipient(&mut self, rest: &str) -> Next {
        let address = rest.strip_prefix("TO:<").and_then(|rest| rest.strip_suffix('>'));
        let plain = |address: &&str| !address.contains(['<', '>', ' ', ',']);
        let Some(address) = address.filter(plain).filter(|_| self.from.is_some()) else {
            self.fault(format!("RCPT {rest:?}"));
            return Next::Say("501 no");
        };
        let mut met = self.met.lock();
        if let Some((times @ 1.., answer)) = &mut met.refusing {
            *times -= 1;
            return Next::Say(answer);
        }
        self.to.push(address.to_owned());
        Next::Say("250 fine")
    }

    /// Takes a letter up to its last line; false when it does not come whole.
    async fn letter(&mut self, stream: &mut BufReader<Box<dyn Stream>>) -> bool {
        let mut text = String::new();
        loop {
            let Some(line) = self.line(stream).await else {
                return false;
            };
            if line == "." {
                break;
            }
            text.push_str(line.strip_prefix('.').unwrap_or(&line));
            text.push_str("\r\n");
        }
        let letter = Letter {
            from: self.from.take().unwrap_or_default(),
            to: std::mem::take(&mut self.to),
            text,
            under_tls: self.under_tls,
            signed_in: self.signed_in,
        };
        self.met.lock().letters.push(letter);
        true
    }
}

async fn say(stream: &mut BufReader<Box<dyn Stream>>, text: &str) {
    // A peer that has left is seen by what it says next: nothing.
    let _ = stream.write_all(format!("{text}\r\n").as_bytes()).await;
    let _ = stream.flush().await;
}
