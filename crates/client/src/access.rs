//! How a server is reached: the token, and the certificate that is trusted.

use std::path::Path;
use std::time::Duration;

use esker::{Error, Result};

/// What a client needs beside the address of a server.
#[derive(Clone, Default)]
pub struct Access {
    /// The token (`esker token`).
    pub token: Option<String>,
    /// Certificates in PEM that are trusted in place of those of the public authorities.
    pub trusted: Option<Vec<u8>>,
    /// How long a server may be silent while an answer is due, before it counts as gone. Without
    /// it, as long as a query may take on the server, twice, and 30 s.
    pub silence: Option<Duration>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_token = self.token.is_some();
        f.debug_struct("Access")
            .field("has_token", &has_token)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// The token in the variable `ESKER_TOKEN`, and the certificates in the file of `ESKER_CA`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the file cannot be read.
    pub fn from_env() -> Result<Access> {
        let token = std::env::var("ESKER_TOKEN").ok();
        let token = token.filter(|token| !token.is_empty());
        let trusted = std::env::var_os("ESKER_CA").filter(|file| !file.is_empty());
        let read = |file: std::ffi::OsString| {
            std::fs::read(&file).map_err(|error| cannot_read(file.as_ref(), &error))
        };
        let trusted = trusted.map(read).transpose()?;
        Ok(Access {
            token,
            trusted,
            silence: None,
        })
    }

    /// With the token in a file, without the blanks and line breaks around it.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the file cannot be read, or has no token.
    pub fn with_token_file(self, file: &Path) -> Result<Access> {
        let text = std::fs::read_to_string(file).map_err(|error| cannot_read(file, &error))?;
        let token = Some(text.trim().to_string()).filter(|token| !token.is_empty());
        if token.is_none() {
            return Err(Error::BadInput(format!(
                "{}: there is no token in it",
                file.display()
            )));
        }
        Ok(Access { token, ..self })
    }
}

fn cannot_read(file: &Path, error: &std::io::Error) -> Error {
    Error::BadInput(format!("{}: cannot be read: {error}", file.display()))
}
