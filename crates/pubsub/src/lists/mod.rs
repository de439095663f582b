//! Value lists (the paper's section 4): the trees that hold them, how compactions merge them, which
//! of them a publication or a subscription must read, and the walk that reads them.

pub(crate) mod directory;
pub(crate) mod merging;
pub(crate) mod select;
pub(crate) mod shape;
pub(crate) mod times;
pub(crate) mod trees;
pub(crate) mod walk;
