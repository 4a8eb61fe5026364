//! Secrets of the deployment: taken from the environment, else generated once into `DATA_DIR/secrets`
//! with mode 0600.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::mint::Mint;
use schemas::secret::Secret;

/// The secret that keys the digests of virtual keys.
pub fn api_key_secret(
    data_dir: &Path,
    given: Option<&Secret<String>>,
    mint: &Mint,
) -> std::io::Result<Secret<Vec<u8>>> {
    named("api_key_secret", data_dir, given, mint)
}

/// The secret that signs the tokens of members who signed in.
pub fn jwt_secret(
    data_dir: &Path,
    given: Option<&Secret<String>>,
    mint: &Mint,
) -> std::io::Result<Secret<Vec<u8>>> {
    named("jwt_secret_key", data_dir, given, mint)
}

/// The master key that opens stored credentials, of a node that was given none: 32 bytes in base64.
pub fn master_key(data_dir: &Path, mint: &Mint) -> std::io::Result<Secret<Vec<u8>>> {
    named("master_key", data_dir, None, mint)
}

/// The secret that is given, or that of a file, which is made where there is none.
fn named(
    name: &str,
    data_dir: &Path,
    given: Option<&Secret<String>>,
    mint: &Mint,
) -> std::io::Result<Secret<Vec<u8>>> {
    if let Some(secret) = given {
        return Ok(Secret::new(secret.reveal().clone().into_bytes()));
    }
    let directory = data_dir.join("secrets");
    let path = directory.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(Secret::new(text.trim().as_bytes().to_vec())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)?;
    let text = URL_SAFE_NO_PAD.encode(mint.random::<32>());
    let temporary = directory.join(format!("{name}.new"));
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, &path)?;
    Ok(Secret::new(text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_generated_once_and_only_its_owner_may_read_it() {
        let directory = tempfile::tempdir().expect("directory");
        let mint = Mint::new().expect("randomness");

        let first = api_key_secret(directory.path(), None, &mint).expect("generate");
        let second = api_key_secret(directory.path(), None, &mint).expect("read");

        assert_eq!(first, second);
        let path = directory.path().join("secrets/api_key_secret");
        let mode = std::fs::metadata(path).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
