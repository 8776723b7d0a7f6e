//! Plain examples beside the properties.
