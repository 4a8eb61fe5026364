//! What is done for people behind the answer to their call: letters are written and sent, and what must not show in the
//! time or the bytes of an answer is looked up. A queue with a bound lies in between; what does not fit is counted and
//! left out, and whoever waits for a letter asks again. A node that ends takes with it what it had not sent.

use std::time::Duration;

use parking_lot::Mutex;
use schemas::account::Hash;
use schemas::account::email::Email;
use schemas::failure::{Failure, FailureCode};
use schemas::id::RequestId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::mail::letter::{self, Letter, Occasion};
use super::mail::{Post, Unsent};
use super::settings::Settings;
use super::{Asked, reset, sign_up};
use crate::state::Shared;

/// Errands that may wait.
const WAITING_MAX: usize = 256;
/// How many are carried out at once.
const AT_ONCE_MAX: usize = 8;
/// The pauses before each try.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(25),
    Duration::from_secs(125),
];

/// Something that is done later.
pub(super) enum Errand {
    /// Whoever has this address wants to choose a password, if it is somebody's.
    Forgotten(Email, Asked),
    /// Somebody signed up, and is written to.
    SignUp(Box<sign_up::Application>),
    /// Somebody signed up with this password where nobody is written to, and waits for approval.
    Make(Box<sign_up::Application>, Hash),
    /// A letter whose occasion is known.
    Letter(Email, Occasion, RequestId),
}

impl Errand {
    /// The request that asked for it.
    fn request(&self) -> RequestId {
        match self {
            Self::Forgotten(_, asked) => asked.id,
            Self::SignUp(application) | Self::Make(application, _) => application.asked.id,
            Self::Letter(.., id) => *id,
        }
    }
}

/// The errands of a gateway.
pub(crate) struct Errands {
    post: Option<Post>,
    sender: mpsc::Sender<Errand>,
    receiver: Mutex<Option<mpsc::Receiver<Errand>>>,
}

impl Errands {
    pub(super) fn new(settings: &Settings) -> Self {
        let post = settings.mail.as_ref().and_then(Post::new);
        if settings.mail.is_some() && post.is_none() {
            error!("mail cannot be sent: the sender or the name of the server is wrong");
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self {
            post,
            sender,
            receiver: Mutex::new(Some(receiver)),
        }
    }

    /// True where letters are sent.
    pub(super) fn sends_mail(&self) -> bool {
        self.post.is_some()
    }
}

/// Has something done later; refused when too much waits already.
pub(super) fn leave(state: &Shared, errand: Errand) -> Result<(), Failure> {
    state.sign_in.errands.sender.try_send(errand).map_err(|left| {
        let (mpsc::error::TrySendError::Full(errand) | mpsc::error::TrySendError::Closed(errand)) = left;
        if !matches!(errand, Errand::Make(..)) {
            state.metrics.mailed("dropped");
        }
        warn!(request.id = %errand.request(), "too much waits to be done for people who sign in: something is left out");
        let text = "too many letters or sign-ups wait for their turn";
        Failure::new(FailureCode::Overloaded, text).retry_after(30)
    })
}

/// Carries out errands until `stop`.
pub(crate) async fn run(state: Shared, stop: CancellationToken) {
    let Some(mut waiting) = state.sign_in.errands.receiver.lock().take() else {
        return;
    };
    let mut running = JoinSet::new();
    let carry_out = async {
        loop {
            tokio::select! {
                Some(errand) = waiting.recv(), if running.len() < AT_ONCE_MAX => {
                    running.spawn(carry_out(state.clone(), errand));
                }
                Some(_) = running.join_next() => {}
            }
        }
    };
    let _: Option<()> = stop.run_until_cancelled(carry_out).await;
    let lost = running.len() + waiting.len();
    if lost > 0 {
        warn!(
            errands = lost,
            "the node ends before letters were sent and accounts made: whoever waits for one asks again"
        );
    }
}

/// Carries out one errand, which may take several tries.
async fn carry_out(state: Shared, errand: Errand) {
    match &errand {
        Errand::Make(application, password) => make(&state, application, password).await,
        Errand::Forgotten(..) | Errand::SignUp(_) | Errand::Letter(..) => write(&state, &errand).await,
    }
}

/// Makes the account of somebody who waits for approval.
async fn make(state: &Shared, application: &sign_up::Application, password: &Hash) {
    for pause in PAUSES {
        sleep(pause).await;
        // The store may come back.
        if sign_up::wait(state, application, password.clone()).await.is_ok() {
            return;
        }
    }
    warn!(
        request.id = %application.asked.id,
        tries = PAUSES.len(),
        "an account cannot be made: whoever signed up does so again"
    );
}

/// Writes a letter and has it sent.
async fn write(state: &Shared, errand: &Errand) {
    let Some(post) = &state.sign_in.errands.post else {
        return;
    };
    let (mut ready, mut code) = (None, None);
    for pause in PAUSES {
        sleep(pause).await;
        if ready.is_none() {
            match written(state, errand).await {
                Ok(Some(letter)) => ready = Some(letter),
                Ok(None) => return,
                // The store may come back; whoever was too late finds what the other one did.
                Err(_) => continue,
            }
        }
        let Some((to, letter)) = &ready else {
            continue;
        };
        match post.send(to, letter, &state.ports.mint).await {
            Ok(()) => {
                state.metrics.mailed("sent");
                info!(request.id = %errand.request(), "a letter is sent");
                return;
            }
            Err(Unsent::Refused(code)) => {
                state.metrics.mailed("refused");
                warn!(request.id = %errand.request(), smtp.code = code, "the mail server does not take a letter");
                return;
            }
            Err(Unsent::Later(said)) => code = said,
        }
    }
    state.metrics.mailed("failed");
    warn!(
        request.id = %errand.request(),
        smtp.code = code,
        tries = PAUSES.len(),
        "a letter cannot be sent: whoever waits for it asks again"
    );
}

/// The letter of an errand, and to whom; `None` where nobody is written to.
async fn written(state: &Shared, errand: &Errand) -> Result<Option<(Email, Letter)>, Failure> {
    let (to, occasion) = match errand {
        Errand::Letter(to, occasion, _) => (to, Some(occasion.clone())),
        Errand::Forgotten(to, asked) => (to, reset::forgotten(state, to, *asked).await?),
        Errand::SignUp(application) => (
            &application.email,
            Some(sign_up::applied(state, application).await?),
        ),
        Errand::Make(..) => return Ok(None),
    };
    let site = &state.site();
    Ok(occasion.map(|occasion| (to.clone(), letter::letter(site, to, &occasion))))
}
