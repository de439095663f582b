//! Runs that failed once, shrunk.
