//! The definition of the dataset at the target.

use esker::schema::IndexDef;
use esker::{DatasetDef, Error, Result};

/// Fails if a dataset of the target has another definition than a copy of the source would have.
pub(super) fn agree(name: &str, there: &DatasetDef, copy: &DatasetDef) -> Result<()> {
    let Some(what) = difference(there, copy) else {
        return Ok(());
    };
    Err(Error::Exists(format!(
        "dataset `{name}` exists at the target with another definition: {what}"
    )))
}

/// Fails if the keys of two datasets cannot be compared.
pub(super) fn agree_on_keys(name: &str, there: &DatasetDef, copy: &DatasetDef) -> Result<()> {
    match keys(there, copy) {
        None => Ok(()),
        Some(what) => Err(Error::BadInput(format!(
            "dataset `{name}` cannot be compared: {what}"
        ))),
    }
}

fn keys(there: &DatasetDef, copy: &DatasetDef) -> Option<String> {
    let text = |def: &DatasetDef| format!("{}:{}", def.key, def.key_type);
    ((&there.key, there.key_type) != (&copy.key, copy.key_type)).then(|| {
        let (there, copy) = (text(there), text(copy));
        format!("its key is {there} there, and {copy} at the source")
    })
}

/// The first difference, in words.
fn difference(there: &DatasetDef, copy: &DatasetDef) -> Option<String> {
    if let Some(what) = keys(there, copy) {
        return Some(what);
    }
    for index in &copy.indexes {
        let path = &index.path;
        match there.indexes.iter().find(|known| known.path == *path) {
            None => return Some(format!("there, `{path}` is not declared")),
            Some(known) if known != index => {
                let text = |of: &IndexDef| format!("{}:{}", of.kind, of.ty);
                let (is, wanted) = (text(known), text(index));
                return Some(if is == wanted {
                    format!("`{path}` is indexed in another way")
                } else {
                    format!("`{path}` is {is} there, and the copy has {wanted}")
                });
            }
            Some(_) => {}
        }
    }
    let is_other = |index: &&IndexDef| {
        let mut known = copy.indexes.iter();
        !known.any(|known| known.path == index.path)
    };
    if let Some(other) = there.indexes.iter().find(is_other) {
        let path = &other.path;
        return Some(format!("`{path}` is declared there, and not at the source"));
    }
    let (is, wanted) = (there.versions, copy.versions);
    if is != wanted {
        return Some(format!(
            "it keeps {is} versions there, and the copy {wanted}"
        ));
    }
    let (is, wanted) = (there.maintenance, copy.maintenance);
    if is != wanted {
        return Some(format!(
            "its maintenance is {is} there, and the copy has {wanted}"
        ));
    }
    if there.expiry != copy.expiry {
        return Some("records expire at another time there".to_string());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker::{Index, KeyType};

    #[test]
    fn the_first_difference_is_said() {
        let base = || DatasetDef::new("id", KeyType::Int).index("a", Index::lazy().string());
        assert_eq!(difference(&base(), &base()), None);
        let cases = [
            (
                DatasetDef::new("id", KeyType::String),
                "its key is id:string there",
            ),
            (DatasetDef::new("id", KeyType::Int), "`a` is not declared"),
            (
                base().index("b", Index::none().int()),
                "`b` is declared there",
            ),
            (
                base().versions(3),
                "it keeps 3 versions there, and the copy 1",
            ),
            (
                DatasetDef::new("id", KeyType::Int).index("a", Index::recent().string()),
                "`a` is recent:string there, and the copy has lazy:string",
            ),
        ];
        for (there, text) in cases {
            let what = difference(&there, &base()).unwrap();
            assert!(what.contains(text), "{what}");
        }
    }
}
