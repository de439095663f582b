//! Types that are serialised as text, in the form that people write.

/// Serialises types by `Display`, and deserialises them by `FromStr`.
macro_rules! serde_as_text {
    ($($ty:ty),* $(,)?) => {$(
        impl serde::Serialize for $ty {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $ty {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(
    crate::condition::Expr,
    crate::definition::IndexKind,
    crate::definition::Maintenance,
    crate::definition::Merging,
    crate::definition::Repair,
    crate::query::Aggregate,
    crate::query::FieldOrder,
    crate::query::GroupBy,
    crate::query::Order,
    crate::query::PageToken,
    crate::query::Validation,
    crate::query::ValueToken,
    crate::schema::KeyType,
    crate::schema::Path,
    crate::schema::Type,
    crate::tokens::Tokenizer,
);
