//! Scalar values in the bodies of publications, at the paths of conditions.

use esker_model::schema::{Path, Scalar, Values};

/// A scalar value of a publication's body.
#[derive(Debug, Clone)]
enum BodyValue {
    Bool(bool),
    Number(f64),
    Text(String),
}

/// A value of a body at one of the paths of a [`Values`].
pub(crate) struct ValueAt {
    /// The number of the path among those of the [`Values`].
    pub(crate) path_number: usize,
    value: BodyValue,
}

impl ValueAt {
    /// The value.
    pub(crate) fn scalar(&self) -> Scalar<'_> {
        match &self.value {
            BodyValue::Bool(v) => Scalar::Bool(*v),
            BodyValue::Number(v) => Scalar::Float(*v),
            BodyValue::Text(v) => Scalar::Str(v),
        }
    }
}

/// The values that `finder` finds in a body.
pub(crate) fn values_of(finder: &Values, body: &[u8]) -> Vec<ValueAt> {
    let mut values = Vec::new();
    // A body that is not JSON has no values.
    finder.visit(body, &mut |path_number, scalar| {
        let value = match scalar {
            Scalar::Bool(v) => BodyValue::Bool(v),
            Scalar::Str(v) => BodyValue::Text(v.to_owned()),
            Scalar::Int(v) => BodyValue::Number(v as f64),
            Scalar::Float(v) => BodyValue::Number(v),
        };
        values.push(ValueAt { path_number, value });
    });
    values
}

/// Finds a number in bodies.
pub(crate) struct NumberAt(Values);

impl NumberAt {
    /// Prepares a path.
    pub(crate) fn new(path: &Path) -> NumberAt {
        NumberAt(Values::new(std::slice::from_ref(path)))
    }

    /// The first number at the path.
    pub(crate) fn find(&self, body: &[u8]) -> Option<f64> {
        let mut first = None;
        // A body that is not JSON has no number.
        self.0
            .visit(body, &mut |_, scalar| first = first.or(scalar.as_f64()));
        first
    }
}
