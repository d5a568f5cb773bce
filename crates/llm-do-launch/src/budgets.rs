//! Budgets over runs: as `config.toml` writes them, and as the runs of this process keep them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::OnLimit;
use llm_do::remedy::Remedy;
use llm_do::runs::BudgetsInForce;
use llm_do::store::budget::{Budget, BudgetBook, BudgetError};
use llm_do::store::layout::StoreLayout;
use llm_do::store::period::{LocalZone, PeriodLength};
use serde::Deserialize;

use crate::error::LaunchError;
use crate::settings::{Settings, Variables};

/// What may be spent in each period, as the user writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    pub name: String,
    pub usd: f64,
    pub per: PeriodLength,
    /// The directory of the project whose runs count; all runs without it.
    pub project: Option<String>,
    /// From this share on a run says that it comes to its end.
    pub warn_at: Option<f64>,
    /// What happens where it is used up.
    pub on_limit: Option<OnLimit>,
}

/// No budget is larger.
const LARGEST: f64 = 1e6;
const LONGEST_NAME: usize = 64;

impl BudgetConfig {
    /// What is wrong with one of them.
    pub fn check(all: &[Self]) -> Result<(), String> {
        for (index, budget) in all.iter().enumerate() {
            let Self { name, usd, warn_at, project, .. } = budget;
            let is_named = (1..=LONGEST_NAME).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            if !is_named {
                return Err(format!(
                    "`[[budget]]`: `name` has letters, digits, `-` and `_`, at most {LONGEST_NAME}: not {name:?}"
                ));
            }
            // Directories are called like them, and not every disk tells letters of both sizes apart.
            if all[..index].iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
                return Err(format!("`[[budget]]`: two are called `{name}`"));
            }
            if !(*usd > 0.0 && *usd <= LARGEST) {
                return Err(format!("`[[budget]]` `{name}`: `usd` is more than 0 and at most {LARGEST}, not {usd}"));
            }
            if let Some(share) = warn_at.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
                return Err(format!("`[[budget]]` `{name}`: `warn_at` is more than 0 and at most 1, not {share}"));
            }
            let is_absolute = |path: &String| path.starts_with('/') || path == "~" || path.starts_with("~/");
            if let Some(path) = project.as_ref().filter(|path| !is_absolute(path)) {
                return Err(format!(
                    "`[[budget]]` `{name}`: `project` is an absolute path or begins with `~/`, not {path:?}"
                ));
            }
        }
        Ok(())
    }

    fn budget(&self, variables: &Variables) -> Budget {
        let project = self.project.as_ref().map(|path| {
            let path: PathBuf = variables.expand(path);
            path.canonicalize().unwrap_or(path)
        });
        let Self { name, usd, per, warn_at, on_limit, .. } = self;
        Budget { name: name.clone(), usd: *usd, per: *per, project, warn_at: *warn_at, on_limit: *on_limit }
    }
}

/// Where the budgets of the user are kept; `None` if there are none.
pub fn book(settings: &Settings) -> Result<Option<&BudgetBook>, LaunchError> {
    if settings.config.budgets.is_empty() {
        return Ok(None);
    }
    if let Some(book) = settings.budgets.get() {
        return Ok(Some(book));
    }
    let Some(state) = settings.state.directory() else {
        return Err(unkept("the budgets cannot be kept: there is no home directory".to_owned()));
    };
    let budgets = settings.config.budgets.iter().map(|budget| budget.budget(&settings.variables)).collect();
    let book = || Arc::new(BudgetBook::new(StoreLayout::new(state), budgets, LocalZone::of_process()));
    Ok(Some(settings.budgets.get_or_init(book)))
}

/// The budgets that a run of this project has to keep. One that cannot be kept forbids the run.
pub fn in_force(settings: &Settings, project: &Path) -> Result<Option<BudgetsInForce>, LaunchError> {
    let is_covered = |budget: &BudgetConfig| budget.budget(&settings.variables).covers(project);
    if !settings.config.budgets.iter().any(is_covered) {
        return Ok(None);
    }
    match book(settings)? {
        Some(book) => book.open_for(project).map_err(|error: BudgetError| unkept(error.to_string())),
        None => Ok(None),
    }
}

/// A budget cannot be kept, or be looked at.
pub fn unkept(fact: String) -> LaunchError {
    LaunchError::usage(fact).hint(Remedy::MendBudget)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Budgets {
            budget: Vec<BudgetConfig>,
        }
        let budgets: Budgets = toml::from_str(text).map_err(|error| error.to_string())?;
        BudgetConfig::check(&budgets.budget)
    }

    #[test]
    fn every_key_is_read_and_mistakes_are_named() {
        let whole =
            "[[budget]]\nname = \"every-day_1\"\nusd = 5\nper = \"week\"\nproject = \"~/release\"\nwarn_at = 0.8\n";
        assert_eq!(check(whole), Ok(()));
        let first = "[[budget]]\nname = 'a'\nusd = 1\nper = 'day'\n";
        for (text, message) in [
            ("[[budget]]\nusd = 1\nper = 'day'", "missing field `name`"),
            ("[[budget]]\nname = 'a'\nper = 'day'", "missing field `usd`"),
            ("[[budget]]\nname = 'a'\nusd = 1", "missing field `per`"),
            (
                "[[budget]]\nname = 'a'\nusd = 1\nper = 'year'",
                "unknown variant `year`, expected one of `day`, `week`, `month`",
            ),
            ("[[budget]]\nname = 'a'\nusd = 1\nper = 'day'\nlimit = 3", "unknown field `limit`"),
            ("[[budget]]\nname = '../a'\nusd = 1\nper = 'day'", "`name` has letters, digits, `-` and `_`"),
            ("[[budget]]\nname = ''\nusd = 1\nper = 'day'", "`name` has letters"),
            ("[[budget]]\nname = 'a'\nusd = 0\nper = 'day'", "`usd` is more than 0"),
            ("[[budget]]\nname = 'a'\nusd = nan\nper = 'day'", "not NaN"),
            ("[[budget]]\nname = 'a'\nusd = 2000000\nper = 'day'", "at most 1000000"),
            (
                "[[budget]]\nname = 'a'\nusd = 1\nper = 'day'\nwarn_at = 80",
                "`warn_at` is more than 0 and at most 1, not 80",
            ),
            ("[[budget]]\nname = 'a'\nusd = 1\nper = 'day'\nproject = 'here'", "`project` is an absolute path"),
            (
                &format!("{first}{}", first.replace('a', "A").replace("dAy", "day").replace("nAme", "name")),
                "two are called `A`",
            ),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
