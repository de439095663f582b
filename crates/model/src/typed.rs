//! Key types of programs: `u64`, `String` and the like, or [`Key`] for any key.

use std::fmt;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::schema::{KeyType, Value};

mod sealed {
    pub trait Sealed {}
}

/// The type of a dataset's keys in the program: an integer, [`String`], or [`Key`] for any.
pub trait PrimaryKey: sealed::Sealed + Clone + fmt::Debug + Send + Sync + 'static {
    /// The type that the dataset's keys must have; `None` if any will do.
    const KEY_TYPE: Option<KeyType>;

    /// The key as this type.
    ///
    /// # Errors
    /// [`Error::BadInput`] if this type cannot represent the key.
    fn from_key(key: Key) -> Result<Self>;
}

/// Values accepted as a key of a dataset whose keys are `K`: `7` for integers, `"ann"` for strings,
/// either for [`Key`].
pub trait AsKey<K>: sealed::Sealed {
    /// The key, of a dataset with keys of type `ty`.
    ///
    /// [`Error::BadInput`] if it is not a valid key.
    /// [`Error::BadInput`] where it cannot be one.
    fn as_key(&self, ty: KeyType) -> Result<Key>;
}

/// A range of keys of a dataset whose keys are `K`: any range of the standard library over
/// [`AsKey`] values.
pub trait KeyRange<K>: sealed::Sealed {
    /// Its bounds, of a dataset with keys of type `ty`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a bound is not a valid key.
    fn bounds(&self, ty: KeyType) -> Result<(Bound<Key>, Bound<Key>)>;
}

fn key_of(ty: KeyType, value: &Value) -> Result<Key> {
    Ok(Key::new(ty, value)?)
}

impl<T: sealed::Sealed + ?Sized> sealed::Sealed for &T {}

impl<K, T: AsKey<K> + ?Sized> AsKey<K> for &T {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        (**self).as_key(ty)
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl sealed::Sealed for $int {}

        impl PrimaryKey for $int {
            const KEY_TYPE: Option<KeyType> = Some(KeyType::Int);

            fn from_key(key: Key) -> Result<$int> {
                let value = key.int().and_then(|value| <$int>::try_from(value).ok());
                value.ok_or_else(|| {
                    Error::bad_input(format!("key {key} does not fit the type {}", stringify!($int)))
                })
            }
        }

        impl AsKey<$int> for $int {
            fn as_key(&self, ty: KeyType) -> Result<Key> {
                key_of(ty, &Value::Int(i128::from(*self)))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl sealed::Sealed for str {}
impl sealed::Sealed for String {}
impl sealed::Sealed for Key {}

impl PrimaryKey for String {
    const KEY_TYPE: Option<KeyType> = Some(KeyType::String);

    fn from_key(key: Key) -> Result<String> {
        match key.value() {
            Value::String(text) if key.key_type() == KeyType::String => Ok(text),
            _ => Err(Error::bad_input(format!("key {key} is not a string"))),
        }
    }
}

impl AsKey<String> for str {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        key_of(ty, &Value::String(self.to_string()))
    }
}

impl AsKey<String> for String {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        AsKey::<String>::as_key(self.as_str(), ty)
    }
}

impl PrimaryKey for Key {
    const KEY_TYPE: Option<KeyType> = None;

    fn from_key(key: Key) -> Result<Key> {
        Ok(key)
    }
}

impl AsKey<Key> for Key {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        if self.key_type() == ty {
            Ok(self.clone())
        } else {
            key_of(ty, &self.value())
        }
    }
}

impl AsKey<Key> for i64 {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        AsKey::<i64>::as_key(self, ty)
    }
}

impl AsKey<Key> for str {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        AsKey::<String>::as_key(self, ty)
    }
}

impl AsKey<Key> for String {
    fn as_key(&self, ty: KeyType) -> Result<Key> {
        AsKey::<String>::as_key(self, ty)
    }
}

impl sealed::Sealed for RangeFull {}

impl<K> KeyRange<K> for RangeFull {
    fn bounds(&self, _: KeyType) -> Result<(Bound<Key>, Bound<Key>)> {
        Ok((Bound::Unbounded, Bound::Unbounded))
    }
}

macro_rules! ranges {
    ($($range:ident: $self:ident => $lo:expr, $hi:expr;)*) => {$(
        impl<T> sealed::Sealed for $range<T> {}

        impl<K, T: AsKey<K>> KeyRange<K> for $range<T> {
            fn bounds(&$self, ty: KeyType) -> Result<(Bound<Key>, Bound<Key>)> {
                Ok((bound::<K, T>($lo, ty)?, bound::<K, T>($hi, ty)?))
            }
        }
    )*};
}

ranges! {
    Range: self => Bound::Included(&self.start), Bound::Excluded(&self.end);
    RangeInclusive: self => Bound::Included(self.start()), Bound::Included(self.end());
    RangeFrom: self => Bound::Included(&self.start), Bound::Unbounded;
    RangeTo: self => Bound::Unbounded, Bound::Excluded(&self.end);
    RangeToInclusive: self => Bound::Unbounded, Bound::Included(&self.end);
}

impl<T> sealed::Sealed for (Bound<T>, Bound<T>) {}

impl<K, T: AsKey<K>> KeyRange<K> for (Bound<T>, Bound<T>) {
    fn bounds(&self, ty: KeyType) -> Result<(Bound<Key>, Bound<Key>)> {
        Ok((bound(self.0.as_ref(), ty)?, bound(self.1.as_ref(), ty)?))
    }
}

fn bound<K, T: AsKey<K>>(bound: Bound<&T>, ty: KeyType) -> Result<Bound<Key>> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(key.as_key(ty)?),
        Bound::Excluded(key) => Bound::Excluded(key.as_key(ty)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

#[cfg(test)]
#[path = "typed_tests.rs"]
mod tests;
