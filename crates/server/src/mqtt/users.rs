//! Who connects: users with passwords, or tokens.

use argon2::password_hash::PasswordHasher;
use argon2::{Argon2, PasswordHash, PasswordVerifier};

use super::reason::{Reason, Refusal, refuse};
use crate::access::{Caller, Grant, Tokens};
use crate::config::UserSettings;

/// The argon2 hash of a password, as the settings have it. The salt should be random.
///
/// # Errors
/// A sentence, for a password that is too long.
pub fn password_hash(password: &str, salt: [u8; 16]) -> Result<String, String> {
    let hashed = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
    Ok(hashed.map_err(|error| error.to_string())?.to_string())
}

/// The users of the settings.
pub(super) struct Users {
    users: Vec<(UserSettings, Caller)>,
    is_protected: bool,
}

impl Users {
    /// Reads the users.
    ///
    /// # Errors
    /// A sentence, for a hash that is none, or two users with the same name.
    pub(super) fn new(users: &[UserSettings], is_protected: bool) -> Result<Users, String> {
        let mut all: Vec<(UserSettings, Caller)> = Vec::new();
        for user in users {
            let name = &user.name;
            if PasswordHash::new(&user.password).is_err() {
                return Err(format!(
                    "user `{name}`: password is no argon2 hash (`esker token --user` makes one)"
                ));
            }
            if all.iter().any(|(other, _)| other.name == *name) {
                return Err(format!("user `{name}` is there twice"));
            }
            let grant = Grant::new(name, user.role, &user.datasets, &user.topics);
            let caller = Caller::with(grant);
            all.push((user.clone(), caller));
        }
        Ok(Users {
            users: all,
            is_protected,
        })
    }

    /// False if everyone may do everything.
    pub(super) fn is_needed(&self) -> bool {
        self.is_protected
    }

    /// The caller with this user and password. Takes as long as argon2 is meant to take. A token
    /// of the settings is a password, too, of any user.
    ///
    /// # Errors
    /// [`Reason::BadUserOrPassword`], or [`Reason::NotAuthorized`] without either.
    pub(super) fn caller(
        &self,
        tokens: &Tokens,
        user: Option<&str>,
        password: Option<&[u8]>,
    ) -> Result<Caller, Refusal> {
        if !self.is_protected {
            return Ok(Caller::anyone());
        }
        if user.is_none() && password.is_none() {
            return refuse(
                Reason::NotAuthorized,
                "this server wants a user and a password",
            );
        }
        let password = password.unwrap_or_default();
        let of_token = std::str::from_utf8(password).ok();
        if let Some(caller) = of_token.and_then(|token| tokens.caller(token)) {
            return Ok(caller);
        }
        let known = self
            .users
            .iter()
            .find(|(known, _)| Some(known.name.as_str()) == user);
        // An unknown user takes as long as a known one.
        let hash = known
            .or(self.users.first())
            .map(|(user, _)| user.password.as_str());
        let is_right = hash.is_some_and(|hash| {
            PasswordHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
        });
        match known.filter(|_| is_right) {
            Some((_, caller)) => Ok(caller.clone()),
            None => refuse(
                Reason::BadUserOrPassword,
                "the user or the password is wrong",
            ),
        }
    }
}
