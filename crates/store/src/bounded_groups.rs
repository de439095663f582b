//! Groups of the answers of a store that computes no aggregates of its own: they are kept in
//! memory, up to a bound.

use std::sync::Arc;

use esker::request::{Group, Grouping, Groups};
use esker::{Error, Result};

/// The most memory that groups take.
const MOST: usize = 256 << 20;

/// Groups within a bound of memory.
pub(crate) struct BoundedGroups {
    groups: Groups,
    most: usize,
}

impl BoundedGroups {
    pub(crate) fn new(grouping: Arc<Grouping>) -> BoundedGroups {
        BoundedGroups {
            groups: Groups::new(grouping),
            most: MOST,
        }
    }

    /// Adds a record to its groups; an error if they take too much memory.
    pub(crate) fn add(&mut self, json: &[u8]) -> Result<()> {
        let most = self.most;
        // A single record may belong to more groups than fit.
        self.groups.add_each(json, &mut |groups| {
            if groups.bytes() <= most {
                return Ok(());
            }
            Err(Error::Unsupported(format!(
                "the groups take more than {} MiB of memory, and this store does not sort them on \
                 disk: ask for fewer at a time by a condition, or copy the dataset into a folder",
                most >> 20
            )))
        })
    }

    /// Sets the count of a question that asks for nothing else.
    pub(crate) fn add_counted(&mut self, count: u64) {
        self.groups.add_counted(count);
    }

    /// The groups, in their order.
    pub(crate) fn finish(self) -> Result<Vec<Group>> {
        Ok(self.groups.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use esker::request::Aggregation;
    use esker_model::definition::{DatasetDef, StoredDef};
    use esker_model::query::Shape;
    use esker_model::schema::KeyType;

    use super::*;

    #[test]
    fn too_many_groups_are_refused_with_what_to_do() -> Result<()> {
        let def = StoredDef::new(&DatasetDef::new("id", KeyType::Int));
        let mut aggregation = Aggregation::new(["count".parse()?]);
        aggregation.by.push("n".parse()?);
        let mut groups = BoundedGroups::new(Grouping::new(&Shape::new(&def), &aggregation)?);
        groups.most = 64 << 10;
        let add = |groups: &mut BoundedGroups, n: u32| {
            groups.add(format!("{{\"id\":{n},\"n\":{n}}}").as_bytes())
        };
        let refused = (0..100_000).find_map(|n| add(&mut groups, n).err());
        assert!(refused.is_some_and(|error| error.to_string().contains("more than 0 MiB")));
        assert!(groups.finish()?.len() > 100);
        Ok(())
    }

    #[test]
    fn the_groups_of_one_record_are_refused_before_they_are_all_made() -> Result<()> {
        let def = StoredDef::new(&DatasetDef::new("id", KeyType::Int));
        let mut aggregation = Aggregation::new(["count".parse()?]);
        aggregation.by = vec!["a".parse()?, "b".parse()?];
        let mut groups = BoundedGroups::new(Grouping::new(&Shape::new(&def), &aggregation)?);
        groups.most = 64 << 10;
        let numbers: Vec<u32> = (0..300).collect();
        let record = format!("{{\"id\":1,\"a\":{numbers:?},\"b\":{numbers:?}}}");
        assert!(groups.add(record.as_bytes()).is_err());
        assert!(groups.groups.bytes() < 2 * groups.most);
        Ok(())
    }
}
