//! What is written and asked: seeded, so that every subject gets the same bytes in the same order.

pub mod plan;
pub mod profile;
pub mod sample;
pub mod tweets;
pub mod upserts;

/// A record on its way to a subject.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The primary key, `id` in the JSON. Fits in 63 bits.
    pub key: u64,
    /// The attribute `user_id`.
    pub user: u64,
    /// The attribute `created_at`, in seconds since 1970.
    pub second: u64,
    /// The JSON object.
    pub body: &'a [u8],
}

/// An indexed attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// `user_id`: not correlated with time.
    User,
    /// `created_at`: grows with time.
    Time,
}

/// A question: the records whose attribute lies in a range, newest written first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Find {
    /// The attribute.
    pub attribute: Attribute,
    /// The least value.
    pub lo: u64,
    /// The greatest value, included.
    pub hi: u64,
    /// At most so many records.
    pub limit: Option<usize>,
}
