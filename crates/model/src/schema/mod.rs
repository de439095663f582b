//! The schema of a dataset's records: attributes by path, their types, the order-preserving
//! encodings of their values, and their extraction from JSON.
//!
//! [`Extraction`] runs once per write, in one pass over the record; all later code compares encoded
//! values as bytes.

mod at_path;
mod compound;
mod compound_values;
pub(crate) mod decimal;
mod depth;
mod error;
pub(crate) mod exact;
mod extract;
mod extracted;
mod found;
mod infer;
mod key_fields;
pub(crate) mod ordered;
mod path;
mod point;
mod point_at;
mod point_time;
mod projection;
mod readable;
mod scalars;
pub(crate) mod time;
mod types;
mod value;
mod values;
mod walk;
mod wanted;

pub(crate) use at_path::Found;
pub(crate) use compound::{compound_begin, compound_head, compound_tag, several};
pub use compound::{compound_field, compound_paths};
pub use compound_values::{compound_is_whole, compound_text};
pub(crate) use depth::MAX_DEPTH;
pub(crate) use depth::is_too_deep;
pub use error::{KeyError, RecordError, RecordErrorKind};
pub use extract::Extraction;
pub use extracted::Extracted;
pub(crate) use found::{fits, time_of};
pub use infer::{infer, infer_counted, infer_key, infer_time};
pub use key_fields::{field_of_key, key_paths};
pub use path::{IntoPath, Path};
pub(crate) use point::{CELL_BITS, cell_bounds, cell_of, cell_side, interleave};
pub use point::{POINT_LEN, coordinate, coordinate_bytes, coordinate_paths, decode_point};
pub use point_at::PointAt;
pub(crate) use point_time::{PERIOD_BITS, TIMED_BITS, interleave3};
pub use point_time::{
    POINT_TIME_LEN, decode_point_time, point_time_paths, time_at, time_coordinate,
};
pub use projection::Projection;
pub use readable::without_negative_zeros;
pub(crate) use readable::without_repeated_names;
pub use types::{KeyType, MAX_PRIMARY_KEY, Type};
pub use value::Value;
pub(crate) use value::decode_int_key;
pub use value::{ValueRange, decode_key, encode_key, stand_in, string_prefix_range};
pub use values::{Scalar, Values};
pub(crate) use walk::{Bits, Numbers, Rest, Sink, Trie};
pub use wanted::{Remark, Wanted, WantedField};

#[cfg(test)]
mod extract_tests;
#[cfg(test)]
mod point_at_tests;
#[cfg(test)]
mod tests;
