//! A value that a walk through JSON meets.

/// The value at a path. Elements of arrays are visited one by one, so there is no array variant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<'a> {
    Null,
    Bool(bool),
    Int(i128),
    /// A decimal with few digits, whose float (exact to the last bit) has the same order.
    Float(f64),
    /// Any other exact number: its text, and the nearest float.
    Long(&'a str, f64),
    Str(&'a str),
    Object,
}
