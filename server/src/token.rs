//! The word that every request of the API has to say. A login node's other users reach its loopback too.
//!
//! It lies in the data folder, for its user alone to read, and stays the same from one start to the next, so
//! that an open page goes on after the service was started again. Removing the file makes a new one.

use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file's name in the data folder.
const FILE: &str = "token";

/// Random bytes in a token, each of which is two letters.
const BYTES: usize = 32;

/// A word that cannot be guessed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

/// The reason that there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The file cannot be read or made.
    #[error("cannot {doing} {path}, which holds the service's token: {cause}")]
    File {
        /// The attempted action.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Others may know it.
    #[error(
        "{0}, which holds the service's token, is another user's or can be read by others; remove it, and \
         `lockstep serve` makes a new one"
    )]
    Open(PathBuf),
    /// It holds something else.
    #[error("{0} holds no token; remove it, and `lockstep serve` makes a new one")]
    Damaged(PathBuf),
}

impl Token {
    /// The token of a data folder, which is made if there is none.
    ///
    /// # Errors
    /// When it cannot be read or made, or others can read it.
    pub(crate) fn of_folder(folder: &Path) -> Result<Token, TokenError> {
        let path = folder.join(FILE);
        match Token::read(&path) {
            Err(TokenError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                Token::make(&path)
            }
            read => read,
        }
    }

    /// The token of a data folder.
    ///
    /// # Errors
    /// The folder has no token, or others can read it.
    pub(crate) fn read_in(folder: &Path) -> Result<Token, TokenError> {
        Token::read(&folder.join(FILE))
    }

    fn read(path: &Path) -> Result<Token, TokenError> {
        let failed = |cause| TokenError::File { doing: "read", path: path.into(), cause };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let own = rustix::process::geteuid().as_raw() == metadata.uid();
        if !own || metadata.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Open(path.into()));
        }
        let mut text = String::new();
        file.take(1000).read_to_string(&mut text).map_err(failed)?;
        let text = text.trim();
        match text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Token(text.to_owned())),
            false => Err(TokenError::Damaged(path.into())),
        }
    }

    /// Written whole under another name first: a start that is killed leaves none.
    fn make(path: &Path) -> Result<Token, TokenError> {
        let failed = |cause| TokenError::File { doing: "make", path: path.into(), cause };
        let mut bytes = [0; BYTES];
        let drawn =
            getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|it| failed(it.into()))?;
        if drawn < BYTES {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let text = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let new = path.with_extension("new");
        // The remainder of a start that was killed.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let mut file = file.map_err(failed)?;
        file.write_all(format!("{text}\n").as_bytes()).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)?;
        Ok(Token(text))
    }

    /// True if a word is the token. The comparison takes the same time for a nearly right word as for any
    /// other.
    pub(crate) fn is(&self, word: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = own.iter().zip(word).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0 && own.len() == word.len()
    }

    /// Its letters.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// No log shows it.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_token_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let token = Token::of_folder(folder.path()).unwrap();
        assert_eq!(Token::of_folder(folder.path()).unwrap(), token);
        assert!(token.is(token.text().as_bytes()) && !token.is(b"") && !token.is(&[b'0'; 64]));
        assert!(!token.is(&token.text().as_bytes()[..63]));
        assert!(!format!("{token:?}").contains(token.text()));
        let path = folder.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Token::of_folder(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("remove it"), "{refused}");
        fs::remove_file(&path).unwrap();
        assert_ne!(Token::of_folder(folder.path()).unwrap(), token);
        fs::write(&path, "short").unwrap();
        assert!(matches!(Token::read_in(folder.path()), Err(TokenError::Damaged(_))));
    }
}
