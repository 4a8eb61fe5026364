//! A provider of identities on a loopback port, strict as `OpenID` Connect asks: it takes each code once, from the client
//! that it gave it to, for the address that it was asked for, and with the verifier of its challenge. What it signs can
//! be forged on purpose.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents as RsaPublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What the provider knows the deployment by.
pub const CLIENT_ID: &str = "waybill test";
/// With what the deployment shows that it is that.
pub const CLIENT_SECRET: &str = "harness-canary-client:secret+4f";

/// What becomes of a token before it is signed, and after.
#[derive(Clone)]
pub enum Forged {
    /// Signed as it should be, with RS256.
    Not,
    /// Signed with ES256.
    Elliptic,
    /// Says that nothing signs it, and nothing does.
    Unsigned,
    /// Signed with HS256, by the public key as if it were a secret.
    ByPublicKey,
    /// Signed by a key of somebody else that has the same name.
    ByOther,
    /// Another value of a claim; null takes it away.
    Claim(&'static str, Value),
}

/// A code that was given out.
struct Given {
    challenge: String,
    redirect_uri: String,
    nonce: String,
    person: Value,
}

struct State {
    issuer: String,
    rsa: RsaKeyPair,
    elliptic: EcdsaKeyPair,
    /// Its keys have so many generations.
    generation: usize,
    codes: HashMap<String, Given>,
    used: Vec<String>,
    forged: Forged,
    down: bool,
    faults: Vec<String>,
    keys_read: usize,
    tells_issuer: bool,
}

/// A provider of identities; it stops when dropped.
pub struct Provider {
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

/// What a browser brings back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The code.
    pub code: String,
    /// The state that the browser was sent with.
    pub state: String,
    /// The provider's name of itself.
    pub issuer: String,
}

impl Brought {
    /// As the query of the address that the browser is sent back to.
    pub fn query(&self) -> String {
        let encoded = |text: &str| text.replace(':', "%3A").replace('/', "%2F");
        format!(
            "code={}&state={}&iss={}",
            self.code,
            self.state,
            encoded(&self.issuer)
        )
    }
}

fn elliptic() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).expect("a key")
}

impl Provider {
    /// Starts a provider on a free loopback port; inside a runtime.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State {
            issuer: format!("http://{addr}"),
            rsa: RsaKeyPair::from_der(include_bytes!("provider/rsa.der")).expect("a key"),
            elliptic: elliptic(),
            generation: 1,
            codes: HashMap::new(),
            used: Vec::new(),
            forged: Forged::Not,
            down: false,
            faults: Vec::new(),
            keys_read: 0,
            tells_issuer: true,
        }));
        let shared = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&state), request));
                // A peer that leaves is no fault.
                connections.spawn(async move {
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        Self { state, _tasks: tasks }
    }

    /// Its address, which is its name.
    pub fn issuer(&self) -> String {
        self.state.lock().issuer.clone()
    }

    /// What becomes of tokens from now on.
    pub fn forge(&self, forged: Forged) {
        self.state.lock().forged = forged;
    }

    /// Answers nothing that helps, or does again.
    pub fn set_down(&self, down: bool) {
        self.state.lock().down = down;
    }

    /// Signs with new keys under new names from now on; only those are told. RSA's key stays the same under another name.
    pub fn rotate(&self) {
        let mut state = self.state.lock();
        state.elliptic = elliptic();
        state.generation += 1;
    }

    /// How often its keys were read.
    pub fn keys_read(&self) -> usize {
        self.state.lock().keys_read
    }

    /// What was not as it has to be.
    pub fn faults(&self) -> Vec<String> {
        self.state.lock().faults.clone()
    }

    /// Signs somebody in at the address that a browser was sent to; gives what the browser brings back. `person` has the
    /// claims that say who he is.
    pub fn sign_in(&self, location: &str, person: Value) -> Brought {
        let mut state = self.state.lock();
        let (place, query) = location.split_once('?').expect("a query");
        assert_eq!(place, format!("{}/authorize", state.issuer));
        let pairs = pairs(query);
        let of = |name: &str| {
            let mut all = pairs.iter().filter(|(own, _)| own == name);
            let value = all.next().map(|(_, value)| value.clone());
            assert!(all.next().is_none(), "{name} stands there twice");
            value.unwrap_or_else(|| panic!("no {name}: {query}"))
        };
        assert_eq!(of("response_type"), "code");
        assert_eq!(of("client_id"), CLIENT_ID);
        assert_eq!(of("code_challenge_method"), "S256");
        assert!(of("scope").split(' ').any(|scope| scope == "openid"));
        for name in ["state", "nonce", "code_challenge"] {
            assert!(of(name).len() >= 43, "{name} can be guessed");
        }
        let code = format!("code-{}-{}", state.codes.len(), state.used.len());
        let given = Given {
            challenge: of("code_challenge"),
            redirect_uri: of("redirect_uri"),
            nonce: of("nonce"),
            person,
        };
        state.codes.insert(code.clone(), given);
        Brought {
            code,
            state: of("state"),
            issuer: state.issuer.clone(),
        }
    }
}

/// A query or a form, decoded.
pub fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).expect("two digits"));
        bytes.extend(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).expect("text")
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
    let body = String::from_utf8(body.unwrap_or_default().to_vec()).unwrap_or_default();
    let mut state = state.lock();
    let (status, value) = match (&parts.method, parts.uri.path()) {
        _ if state.down => (StatusCode::SERVICE_UNAVAILABLE, json!({"error": "down"})),
        (&Method::GET, "/.well-known/openid-configuration") => (StatusCode::OK, state.about()),
        (&Method::GET, "/keys") => {
            state.keys_read += 1;
            (StatusCode::OK, state.keys())
        }
        (&Method::POST, "/token") => match state.exchanged(&parts.headers, &body) {
            Ok(token) => (StatusCode::OK, token),
            Err(fault) => {
                state.faults.push(fault);
                (StatusCode::BAD_REQUEST, json!({"error": "invalid_grant"}))
            }
        },
        (method, path) => {
            let fault = format!("{method} {path}");
            state.faults.push(fault);
            (StatusCode::NOT_FOUND, json!({}))
        }
    };
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(value.to_string()));
    Ok(response.expect("a response"))
}

impl State {
    fn about(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({"issuer": self.issuer, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"), "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": self.tells_issuer})
    }

    fn keys(&self) -> Value {
        let public = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let point = self.elliptic.public_key().as_ref();
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [
            {"kty": "oct", "kid": "another", "k": "AAAA"},
            {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.name("rsa"), "n": encoded(&public.n),
                "e": encoded(&public.e)},
            {"kty": "EC", "use": "sig", "crv": "P-256", "kid": self.name("ec"), "x": encoded(&point[1..33]),
                "y": encoded(&point[33..])},
        ]})
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.generation)
    }

    /// What a code is good for, or what is wrong with how it comes.
    fn exchanged(&mut self, headers: &http::HeaderMap, body: &str) -> Result<Value, String> {
        let encoded = |text: &str| text.replace(' ', "%20").replace(':', "%3A").replace('+', "%2B");
        let login = STANDARD.encode(format!("{}:{}", encoded(CLIENT_ID), encoded(CLIENT_SECRET)));
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if header(AUTHORIZATION) != Some(format!("Basic {login}").as_str()) {
            return Err("another client".to_owned());
        }
        if header(CONTENT_TYPE) != Some("application/x-www-form-urlencoded") {
            return Err("no form".to_owned());
        }
        let pairs = pairs(body);
        let of = |name: &str| {
            let found = pairs.iter().find(|(own, _)| own == name);
            found.map_or(String::new(), |(_, value)| value.clone())
        };
        let code = of("code");
        let given = self.codes.remove(&code).ok_or_else(|| {
            let is_used = self.used.contains(&code);
            format!("a code {}", if is_used { "a second time" } else { "of nobody" })
        })?;
        self.used.push(code);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier")));
        if of("grant_type") != "authorization_code" || of("client_id") != CLIENT_ID {
            return Err(format!("an odd form: {body}"));
        }
        if of("redirect_uri") != given.redirect_uri || challenge != given.challenge {
            return Err("a code for somebody else".to_owned());
        }
        Ok(
            json!({"access_token": "unused", "token_type": "Bearer", "expires_in": 300,
            "id_token": self.token(&given)}),
        )
    }

    fn token(&self, given: &Given) -> String {
        let now = UNIX_EPOCH.elapsed().expect("a time").as_secs();
        let mut claims = json!({"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300,
            "nonce": given.nonce, "email_verified": true});
        let members = claims.as_object_mut().expect("claims");
        members.extend(given.person.as_object().expect("claims").clone());
        if let Forged::Claim(name, value) = &self.forged {
            members.insert((*name).to_owned(), value.clone());
            members.retain(|_, value| !value.is_null());
        }
        let (alg, kid) = match self.forged {
            Forged::Unsigned => ("none", self.name("rsa")),
            Forged::ByPublicKey => ("HS256", self.name("rsa")),
            Forged::Elliptic | Forged::ByOther => ("ES256", self.name("ec")),
            Forged::Not | Forged::Claim(..) => ("RS256", self.name("rsa")),
        };
        let header = json!({"alg": alg, "typ": "JWT", "kid": kid});
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encoded(&header), encoded(&claims));
        format!(
            "{text}.{}",
            URL_SAFE_NO_PAD.encode(self.signature(text.as_bytes()))
        )
    }

    fn signature(&self, text: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let by = |pair: &EcdsaKeyPair| pair.sign(&random, text).expect("a signature").as_ref().to_vec();
        match self.forged {
            Forged::Unsigned => Vec::new(),
            Forged::ByPublicKey => {
                let modulus = self.keys()["keys"][1]["n"].to_string();
                let mut mac =
                    Hmac::<Sha256>::new_from_slice(modulus.as_bytes()).expect("any length is a key");
                mac.update(text);
                mac.finalize().into_bytes().to_vec()
            }
            Forged::Elliptic => by(&self.elliptic),
            Forged::ByOther => by(&elliptic()),
            Forged::Not | Forged::Claim(..) => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa
                    .sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .expect("a signature");
                signature
            }
        }
    }
}
