//! What a node needs to sign people in: the secret of its tokens, and the code for the first account.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use bus::mint::Mint;
use gateway::sign_in::setup;
use schemas::node::NodeRole;
use schemas::secret::Secret;
use tracing::warn;

use super::Adapters;
use crate::config::Config;
use crate::secrets;

/// Shortest secret of which nothing is said, in bytes.
const SECRET_BYTES_MIN: usize = 32;

/// The secret that tokens are signed with; `None` where nobody signs in. A node alone makes one for itself; in a
/// cluster it is given, since a token of one gateway is good on all.
pub(super) fn secret(
    config: &Config,
    data_dir: &Path,
    mint: &Mint,
) -> std::io::Result<Option<Secret<Vec<u8>>>> {
    if !config.roles.has(NodeRole::Gateway) {
        return Ok(None);
    }
    let given = config.jwt_secret.as_ref();
    if given.is_some_and(|secret| secret.reveal().len() < SECRET_BYTES_MIN) {
        warn!(
            "JWT_SECRET_KEY is short: whoever guesses it signs in as anybody; take the output of openssl rand -hex 32"
        );
    }
    if !config.bus.is_shared() {
        return secrets::jwt_secret(data_dir, given, mint).map(Some);
    }
    Ok(given.map(|secret| Secret::new(secret.reveal().clone().into_bytes())))
}

/// Shows the code for the first account, once, while there is none. A node that cannot make one serves all the same.
pub(super) async fn tell_setup_code(config: &Config, adapters: &Adapters, address: SocketAddr) {
    if adapters.jwt_secret.is_none() || !config.sign_in.required {
        return;
    }
    let kv = adapters.carrier.kv();
    match setup::offer(&*kv, adapters.api_key_secret.reveal(), &adapters.mint).await {
        Ok(Some(code)) => tell(&code, address),
        Ok(None) => {}
        Err(problem) => warn!(
            error = &problem as &dyn std::error::Error,
            "no code for the first account can be made now; an operator's key makes accounts as well"
        ),
    }
}

fn tell(code: &str, address: SocketAddr) {
    let text = format!(
        "\nNobody has an account yet. The first one, of an operator, is made with this code, once and within a day. It is \
         shown only now:\n\n  {code}\n\n  POST http://{address}/auth/setup \
         {{\"code\": .., \"email\": .., \"password\": ..}}\n\n"
    );
    // A closed stderr must not stop the node: operators' keys make accounts as well.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
