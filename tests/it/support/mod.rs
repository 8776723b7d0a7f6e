//! Servers and clients for the tests.
