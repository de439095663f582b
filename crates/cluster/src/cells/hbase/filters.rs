//! Filters, in HBase's binary form (Protocol Buffers): messages of `Filter.proto`.

const COLUMNS: &str = "org.apache.hadoop.hbase.filter.ColumnRangeFilter";
const NAMES_ONLY: &str = "org.apache.hadoop.hbase.filter.KeyOnlyFilter";
const BOTH: &str = "org.apache.hadoop.hbase.filter.FilterList";

/// Which columns of a row are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Columns<'c> {
    pub(super) from: &'c [u8],
    /// False if `from` itself is left out.
    pub(super) with_from: bool,
    pub(super) to: Option<&'c [u8]>,
    /// True if values are left out.
    pub(super) names_only: bool,
}

/// The filter; `None` if all is read.
pub(super) fn columns(columns: &Columns<'_>) -> Option<Vec<u8>> {
    let is_range = !columns.from.is_empty() || columns.to.is_some();
    let range = is_range.then(|| {
        let mut fields = Vec::new();
        bytes(&mut fields, 1, columns.from);
        flag(&mut fields, 2, columns.with_from);
        if let Some(to) = columns.to {
            bytes(&mut fields, 3, to);
            flag(&mut fields, 4, false);
        }
        filter(COLUMNS, &fields)
    });
    let names = columns.names_only.then(|| {
        let mut fields = Vec::new();
        flag(&mut fields, 1, false);
        filter(NAMES_ONLY, &fields)
    });
    match (range, names) {
        (Some(range), Some(names)) => {
            // The operator is MUST_PASS_ALL.
            let mut fields = vec![0x08, 1];
            bytes(&mut fields, 2, &range);
            bytes(&mut fields, 2, &names);
            Some(filter(BOTH, &fields))
        }
        (one, other) => one.or(other),
    }
}

fn filter(name: &str, fields: &[u8]) -> Vec<u8> {
    let mut filter = Vec::new();
    bytes(&mut filter, 1, name.as_bytes());
    bytes(&mut filter, 2, fields);
    filter
}

fn bytes(to: &mut Vec<u8>, field: u8, value: &[u8]) {
    to.push(field << 3 | 2);
    esker_coding::put_varint(to, value.len() as u64);
    to.extend_from_slice(value);
}

fn flag(to: &mut Vec<u8>, field: u8, value: bool) {
    to.extend_from_slice(&[field << 3, u8::from(value)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_reads_everything() {
        assert_eq!(columns(&Columns::default()), None);
    }

    #[test]
    fn a_range_is_written_as_hbase_reads_it() {
        let range = columns(&Columns {
            from: b"a",
            with_from: true,
            to: Some(b"b"),
            names_only: false,
        });
        let fields = [b"\x0a\x01a\x10\x01\x1a\x01b\x20\x00".as_slice()].concat();
        let expected = [b"\x0a\x30", COLUMNS.as_bytes(), b"\x12\x0a", &fields].concat();
        assert_eq!(range, Some(expected));
    }
}
