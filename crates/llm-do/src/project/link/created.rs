//! One more worker file against a linked program: an agent that is created at run time passes the same checks as any other.

use std::path::Path;
use std::sync::Arc;

use super::Linker;
use super::agent::AgentModel;
use super::namespace::Namespace;
use crate::model::name::{ModelChoices, ModelName};
use crate::project::worker::{SchemaSource, WorkerFile};
use crate::project::{AgentSpec, Fallback, Program, Project};
use crate::remedy::Remedy;
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, Located, Report};
use crate::syntax::names;

impl Program {
    /// Links a created agent, or reports every mistake in its file. The project's other files are linked already, so what
    /// this one refers to must be in the program.
    pub(in crate::project) fn link_created(&self, path: &Path, text: &str) -> Result<AgentSpec, Report> {
        let project = Project::new(&self.root).add_file(path, text);
        let models = ModelChoices::default();
        let mut linker = Linker::new(&project, &models);
        // It may name agents that are created after it.
        linker.creates_agents = true;
        let linked = project.workers.first().and_then(|loaded| {
            check_created(&loaded.worker, &mut linker.problems);
            let model = self.created_model(&loaded.worker, &mut linker.problems);
            linker.agent_with(loaded, &Namespace::of_program(self), model)
        });
        match linked {
            Some(agent) if !linker.problems.has_errors() => Ok(agent),
            Some(_) | None => Err(Report::new(Arc::clone(&project.sources), linker.problems)),
        }
    }

    /// A model that the project already uses, else the user's own choice.
    fn created_model(&self, worker: &WorkerFile, problems: &mut Diagnostics) -> Option<AgentModel> {
        let server_tools = Vec::new();
        if worker.models.is_empty() {
            if let Some((first, others)) = self.fallbacks.split_first() {
                return Some(AgentModel { first: first.clone(), others: others.to_vec(), server_tools });
            }
            let fact = format!("the agent `{}` needs a `model`", worker.name.value);
            problems.push(Diagnostic::error(worker.name.span, fact).hint(self.models_in_use()));
            return None;
        }
        let named = worker.models.iter().map(|named| self.model_in_use(worker, named, problems));
        let mut models = named.collect::<Option<Vec<Fallback>>>()?.into_iter();
        Some(AgentModel { first: models.next()?, others: models.collect(), server_tools })
    }

    fn model_in_use(
        &self,
        worker: &WorkerFile,
        named: &Located<String>,
        problems: &mut Diagnostics,
    ) -> Option<Fallback> {
        let model = match ModelName::parse(&named.value) {
            Ok(model) => model,
            Err(error) => {
                problems.push(Diagnostic::error(named.span, error.to_string()));
                return None;
            }
        };
        if !self.asked_models().any(|asked| *asked == model) {
            let fact = format!("the agent `{}` may not use `{model}`", worker.name.value);
            let remedy = Remedy::StartWithModel { model: model.to_string(), usable: self.models_in_use() };
            problems.push(Diagnostic::error(named.span, fact).hint(remedy));
            return None;
        }
        Some(Fallback { model, script: None })
    }

    fn models_in_use(&self) -> String {
        let models: Vec<String> = self.asked_models().map(ToString::to_string).collect();
        match names::listed(models.iter().map(String::as_str)) {
            None => "no agent of the project uses a model that a created one may use".to_owned(),
            Some(models) => format!("the project uses: {models}"),
        }
    }
}

/// What created agents do not get, whatever their files say.
fn check_created(worker: &WorkerFile, problems: &mut Diagnostics) {
    if let Some(tool) = worker.server_side_tools.first() {
        problems.push(Diagnostic::error(tool.span, "created agents do not get server-side tools"));
    }
    if let Some(model) = &worker.summariser {
        problems.push(Diagnostic::error(model.span, "created agents summarise with their own model"));
    }
    if let Some(directory) = worker.skills.first() {
        problems.push(Diagnostic::error(directory.span, "created agents do not get skills"));
    }
    if let Some(which) = &worker.agents_md {
        problems.push(Diagnostic::error(which.span, "created agents do not get an `AGENTS.md`"));
    }
    for schema in worker.schema_in.iter().chain(&worker.schema_out) {
        let span = match schema {
            SchemaSource::Inline(_) => continue,
            SchemaSource::File(file) => file.span,
            SchemaSource::Python(class) => class.span,
        };
        let problem = Diagnostic::error(span, "a created agent may not refer to a schema in another file");
        problems.push(problem.hint("write the schema into the agent's own file"));
    }
}
