//! From a decision to a running session: the one hall that every front end comes through. It knows no command line, no
//! terminal, no socket and no environment variable: a front end says what was decided, and is told what happens.

pub mod budgets;
pub mod cached;
pub mod children;
pub mod config;
pub mod config_edit;
pub mod error;
pub mod fencing;
pub mod growing;
pub mod inbox;
pub mod items;
pub mod keep;
pub mod kept_runs;
mod key_command;
pub mod launch;
pub mod logins;
pub mod notify;
pub mod open_run;
pub mod partial;
pub mod policy;
pub mod program_terms;
pub mod providers;
pub mod python;
pub mod question;
pub mod record;
pub mod rehearsal;
pub mod rules;
pub mod saved_files;
pub mod session;
pub mod settings;
pub mod state;
pub mod stored_runs;
pub mod telemetry;
pub mod text;
pub mod tools;
pub mod trust;
pub mod usable;
