//! Which fence is enough, what commands never see, and what they may write besides the working directory.

use std::path::PathBuf;
use std::sync::Arc;

use llm_do::project::Program;
use llm_do::tools::fence::{Accept, FenceConfig, Fencing};

use crate::args::FenceArg;
use crate::check;
use crate::config::Config;
use crate::environment::Environment;
use crate::failure::Failure;

/// What the flag says, else the variable, else the configuration.
pub fn config(flag: Option<FenceArg>, environment: &Environment, config: &Config) -> Result<FenceConfig, Failure> {
    let variable = match environment.get("LLM_DO_FENCE") {
        None => None,
        Some("full") => Some(FenceArg::Full),
        Some("thin") => Some(FenceArg::Thin),
        Some(_) => return Err(Failure::usage("LLM_DO_FENCE is neither `full` nor `thin`")),
    };
    let accept = match flag.or(variable).or(config.fence.accept).unwrap_or(FenceArg::Full) {
        FenceArg::Full => Accept::Full,
        FenceArg::Thin => Accept::Thin,
    };
    let own = [environment.home(), environment.state_directory(), Some(environment.cache_directory())];
    let hidden = own.into_iter().flatten().collect();
    // Whatever becomes of the file, this program is what is started.
    let keeper = Some(PathBuf::from("/proc/self/exe"));
    Ok(FenceConfig { fencing: Fencing::WhereOffered, accept, keeper, hidden, written: Arc::default() })
}

/// Opens what shells declare that they write, so that it is the same for all of them until the run ends.
pub fn open_written(program: &Program, fence: &FenceConfig) -> Result<(), Failure> {
    for (_, shell) in program.agents.values().flat_map(|agent| check::shells(agent)) {
        for declared in &shell.write {
            fence.written.open(&program.root, declared).map_err(|why| Failure::usage(format!("`write`: {why}")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_counts_before_the_variable_and_that_before_the_configuration() {
        let accepts = |flag, variable: &str, configured| {
            let mut file = Config::default();
            file.fence.accept = configured;
            config(flag, &Environment::of([("LLM_DO_FENCE", variable)]), &file).map(|fence| fence.accept).ok()
        };
        assert_eq!(accepts(None, "", None), Some(Accept::Full));
        assert_eq!(accepts(None, "", Some(FenceArg::Thin)), Some(Accept::Thin));
        assert_eq!(accepts(None, "full", Some(FenceArg::Thin)), Some(Accept::Full));
        assert_eq!(accepts(Some(FenceArg::Thin), "full", None), Some(Accept::Thin));
        assert_eq!(accepts(None, "none", None), None);
    }

    #[test]
    fn what_is_our_own_is_hidden() {
        let fence = config(None, &Environment::of([("HOME", "/h")]), &Config::default()).unwrap();
        let own = ["/h/.config/llm-do", "/h/.local/state/llm-do", "/h/.cache/llm-do"].map(PathBuf::from);
        assert_eq!(fence.hidden, own);
    }
}
