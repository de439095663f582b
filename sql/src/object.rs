//! The fields of a JSON object that are wanted, each as the text of its value.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The values of fields of an object, each at the place of its name in `names`; of a field that it
/// has several times, the last.
pub(crate) fn fields_of<'j>(
    json: &'j str,
    names: &[String],
) -> serde_json::Result<Vec<Option<&'j str>>> {
    let mut input = serde_json::Deserializer::from_str(json);
    let found = Deserializer::deserialize_map(&mut input, Object { names })?;
    input.end()?;
    Ok(found)
}

struct Object<'n> {
    names: &'n [String],
}

impl<'j> Visitor<'j> for Object<'_> {
    type Value = Vec<Option<&'j str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'j>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = vec![None; self.names.len()];
        // Records of a dataset mostly have their fields in the same order.
        let mut expected = 0;
        while let Some(place) = map.next_key_seed(Place {
            names: self.names,
            expected,
        })? {
            match place.and_then(|at| Some((at, found.get_mut(at)?))) {
                Some((at, slot)) => {
                    *slot = Some(map.next_value::<&'j RawValue>()?.get());
                    expected = at + 1;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// The place of a name among those that are wanted.
struct Place<'n> {
    names: &'n [String],
    expected: usize,
}

impl<'j> DeserializeSeed<'j> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'j>>(self, input: D) -> Result<Option<usize>, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        if self
            .names
            .get(self.expected)
            .is_some_and(|next| next == name)
        {
            return Ok(Some(self.expected));
        }
        Ok(self.names.iter().position(|wanted| wanted == name))
    }
}
