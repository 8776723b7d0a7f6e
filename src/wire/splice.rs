//! Placing edits in a body: everything outside the edited spans keeps its original bytes.

use std::ops::Range;

use bytes::Bytes;

/// One replacement of a byte range of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub span: Range<usize>,
    pub with: Bytes,
}
