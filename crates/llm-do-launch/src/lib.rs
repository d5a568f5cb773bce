//! From a decision to a running session: the one hall that every front end comes through. It knows no command line, no
//! terminal, no socket and no environment variable: whoever enters says what was decided, and is told what happens.

pub mod session;
