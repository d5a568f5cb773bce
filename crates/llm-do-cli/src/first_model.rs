//! A model for a user who has chosen none: at a terminal it is chosen from what can be asked now, and written down.

use std::fmt::Write as _;
use std::path::Path;

use llm_do::ModelName;
use llm_do::escape::visible;
use llm_do_launch::config_edit;
use llm_do_launch::settings::Settings;
use llm_do_launch::usable::{UsableModel, WITHOUT_KEY, on_this_machine, with_keys};

use crate::executor::executor;
use crate::failure::Failure;
use crate::remedy::{DEMO, shell_word};
use crate::terminal::Terminal;

/// What the person at the terminal chooses for agents without a model. Without a person, or if they choose nothing, the
/// failure says by which commands one is chosen.
pub fn chosen(agents: &[String], project: &Path, attended: bool, settings: &Settings) -> Result<ModelName, Failure> {
    let mut usable = with_keys(&settings.variables, &settings.config);
    if !attended {
        return Err(unchosen(agents, project, &usable));
    }
    let asked = executor()?.block_on(async {
        usable.extend(on_this_machine(&settings.variables, &settings.config).await);
        if usable.is_empty() { Ok(None) } else { ask(agents, &usable, settings).await }
    });
    let asked = asked.map_err(|error| Failure::failed(format!("the terminal cannot be asked: {error}")))?;
    let Some(model) = asked else { return Err(unchosen(agents, project, &usable)) };
    let name = ModelName::parse(&model.name).map_err(|error| Failure::usage(error.to_string()))?;
    (settings.notes)(&format!("note: {}\n", write(std::slice::from_ref(&name), settings)?));
    Ok(name)
}

/// Writes the choice into the user's configuration, and says so.
pub fn write(models: &[ModelName], settings: &Settings) -> Result<String, Failure> {
    let file = settings.variables.config_file();
    let file = file.ok_or_else(|| Failure::usage("there is no place for a configuration").hint("set `LLM_DO_HOME`"))?;
    config_edit::set_models(&file, models)?;
    let models: Vec<String> = models.iter().map(ToString::to_string).collect();
    let verb = if models.len() == 1 { "is the model" } else { "are the models, asked in turn," };
    let (models, file) = (models.join(", "), file.display().to_string());
    Ok(format!("{models} {verb} of agents that name none, in {}", visible(&file)))
}

async fn ask(agents: &[String], usable: &[UsableModel], settings: &Settings) -> std::io::Result<Option<UsableModel>> {
    let terminal = Terminal::open()?;
    let mut question = list(agents, usable);
    let file = settings.variables.config_file().map(|file| file.display().to_string()).unwrap_or_default();
    writeln!(question, "The choice is written to {}.", visible(&file)).expect("a text takes all");
    let numbers = if usable.len() == 1 { "1".to_owned() } else { format!("1–{}", usable.len()) };
    let prompt = format!("Which one? {numbers}, Enter for none: ");
    question.push_str(&prompt);
    loop {
        let Some(line) = terminal.line(&question).await? else { return Ok(None) };
        if line.is_empty() {
            return Ok(None);
        }
        match line.parse::<usize>().ok().and_then(|number| usable.get(number.checked_sub(1)?)) {
            Some(model) => return Ok(Some(model.clone())),
            None => question = prompt.clone(),
        }
    }
}

/// What can be chosen from, with numbers.
fn list(agents: &[String], usable: &[UsableModel]) -> String {
    let mut text = format!("{}. These can be asked now:\n", fact(agents));
    let width = usable.iter().map(|model| visible(&model.name).chars().count()).max().unwrap_or(0);
    for (index, UsableModel { name, why }) in usable.iter().enumerate() {
        writeln!(text, "{:>4}  {:<width$}  {}", index + 1, visible(name), visible(why)).expect("a text takes all");
    }
    text
}

fn fact(agents: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = agents.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let verb = if agents.len() == 1 { "has" } else { "have" };
    format!("{}{more} {verb} no model yet", agents[..agents.len().min(SHOWN)].join(", "))
}

/// Nobody chose one.
fn unchosen(agents: &[String], project: &Path, usable: &[UsableModel]) -> Failure {
    let hint = match usable.first() {
        Some(UsableModel { name, .. }) => {
            format!(
                "`llm-do models --use {name}` for all runs, `llm-do {} -m {name}` for this one",
                shell_word(project)
            )
        }
        None => format!(
            "set a key such as ANTHROPIC_API_KEY, or run Ollama and `llm-do models --use {WITHOUT_KEY}`; without any: {DEMO}"
        ),
    };
    Failure::usage(fact(agents)).hint(hint)
}
