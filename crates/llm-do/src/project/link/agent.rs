//! One worker file → one [`AgentSpec`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::Linker;
use super::namespace::{NameResolution, Namespace};
use super::schema_mistakes;
use crate::escape::visible;
use crate::json_schema::{self, Direction, SchemaError};
use crate::message::RawJson;
use crate::model::ServerTool;
use crate::model::name::{AgentPlace, ChoiceError, ChosenBy, ChosenModel, ModelName, ModelNameError, ModelPattern};
use crate::model::provider::{OfferedTool, PROVIDERS, ProtocolKind, Restriction, provider};
use crate::model::scripted::{Script, script_of};
use crate::project::worker::{self, PythonClass, SchemaSource, WorkerFile};
use crate::project::{
    AgentSpec, AllowWorkers, Code, DoubtfulRule, Fallback, LoadedWorker, PythonType, ToolsetUse, Typing, lexical_join,
};
use crate::remedy::Remedy;
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Diagnostics, Located, Span};
use crate::syntax::names;
use crate::syntax::tree::{self, Language, Node, NodeKind};
use crate::tools::DeclaredTool;
use crate::tools::approval::{DeclaredVerdict, Rule, Rules};
use crate::tools::source::{
    AgentToolNames, BUILT_INS, Grammar, SEARCH_FILES, ShellConfig, ToolsetSource, Variant, rule_of_reading,
};

/// Longer than any model's name; what is compiled has to be bounded.
const LONGEST_PATTERN: usize = 256;
/// A rule is kept for each toolset that may have its tool, so one file could ask for billions of them.
const MOST_OPEN_RULES: usize = 100_000;

/// Where a schema was written, for the places of its mistakes.
enum WrittenSchema {
    /// In the worker file.
    Inline(Span),
    /// In a file of its own.
    File(Node),
}

/// What of an agent follows from its model.
pub(super) struct AgentModel {
    pub first: Fallback,
    /// Asked in turn where the provider of the one before has trouble.
    pub others: Vec<Fallback>,
    pub server_tools: Vec<ServerTool>,
}

/// Models as people read them.
fn listed<'m>(models: impl IntoIterator<Item = &'m ModelName>) -> String {
    models.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl<'a> Linker<'a> {
    pub(super) fn agent(&mut self, loaded: &'a LoadedWorker, namespace: &Namespace) -> Option<AgentSpec> {
        let model = self.agent_model(loaded);
        self.agent_with(loaded, namespace, model)
    }

    fn agent_model(&mut self, loaded: &'a LoadedWorker) -> Option<AgentModel> {
        if !self.asks_agent(&loaded.worker.name.value) {
            self.count_choice(loaded);
            let first = Fallback { model: ModelName::none(), script: Some(Arc::default()) };
            return Some(AgentModel { first, others: Vec::new(), server_tools: Vec::new() });
        }
        let choice = self.model(&loaded.worker)?;
        let server_tools = self.server_tools(&loaded.worker, &choice);
        let mut models = Vec::new();
        for model in choice.all() {
            let script = self.script(loaded.directory(), &loaded.worker, model, &choice.by);
            models.push(Fallback { model: model.clone(), script });
        }
        self.tell_models(loaded, &choice);
        let mut models = models.into_iter();
        Some(AgentModel { first: models.next()?, others: models.collect(), server_tools })
    }

    /// Whether a model may be asked for the agent: not where code alone answers in its place.
    fn asks_agent(&self, name: &str) -> bool {
        self.stand_in(name).is_none_or(|stand_in| stand_in.mode.asks_agent())
    }

    /// A choice that was meant for an agent whose work code does now is no mistake.
    fn count_choice(&mut self, loaded: &LoadedWorker) {
        let from_file: Vec<ModelName> =
            loaded.worker.models.iter().filter_map(|model| ModelName::parse(&model.value).ok()).collect();
        let name = &loaded.worker.name.value;
        let is_entry = self.entry_agent.as_deref() == Some(name.as_str());
        let place = if is_entry { AgentPlace::Entry } else { AgentPlace::Elsewhere };
        let chosen = self.models.choose(name, place, &from_file, None);
        self.choices_used.extend(chosen.ok().map(|choice| choice.by.clone()));
    }

    /// What was chosen instead of what the file says, and which of several models are not asked.
    fn tell_models(&mut self, loaded: &LoadedWorker, choice: &ChosenModel) {
        let worker = &loaded.worker;
        let agent = &worker.name.value;
        let chosen = listed(choice.all());
        let written: Vec<ModelName> =
            worker.models.iter().filter_map(|model| ModelName::parse(&model.value).ok()).collect();
        if !written.is_empty() && !choice.all().eq(&written) {
            let (written, file) = (listed(&written), loaded.path.display());
            self.replaced_models
                .push(visible(&format!("{agent} uses {chosen} instead of {written} ({file})")).into_owned());
        }
        for model in &choice.left_out {
            let fact = format!("{agent} leaves out {model}, which it is not compatible with");
            self.replaced_models.push(visible(&fact).into_owned());
        }
        // One that has a key stands in for those that have none.
        let keyless = |model: &&ModelName| self.lacks_key(&model.provider);
        if choice.all().all(|model| !self.lacks_key(&model.provider)) || choice.all().all(|model| keyless(&model)) {
            return;
        }
        let skipped: Vec<String> = choice
            .all()
            .filter(keyless)
            .map(|model| {
                let variables = self.key_variables(&model.provider).join(" or ");
                visible(&format!("{agent} skips {model}: {variables} is not set")).into_owned()
            })
            .collect();
        self.replaced_models.extend(skipped);
    }

    /// Everything else is looked at even if there is no model: all mistakes are reported together.
    pub(super) fn agent_with(
        &mut self,
        loaded: &LoadedWorker,
        namespace: &Namespace,
        model: Option<AgentModel>,
    ) -> Option<AgentSpec> {
        let worker = &loaded.worker;
        let input = self.typing(loaded.directory(), worker.schema_in.as_ref(), Direction::Input);
        self.check_prompt(worker, &input);
        let mut tools: Vec<ToolsetUse> = worker.tools.iter().filter_map(|name| self.tool(name, namespace)).collect();
        let mut toolsets: Vec<ToolsetUse> =
            worker.toolsets.iter().filter_map(|name| self.toolset(worker, name, namespace)).collect();
        toolsets.extend(self.project.skill_toolset(loaded, &mut self.problems));
        self.let_search_give_way(worker, &mut tools, &mut toolsets);
        let (rules, doubtful_rules) = self.rules(worker, &tools.iter().chain(&toolsets).collect::<Vec<_>>());
        for (used, rules) in tools.iter_mut().chain(&mut toolsets).zip(rules) {
            used.rules = rules;
        }
        let output = self.typing(loaded.directory(), worker.schema_out.as_ref(), Direction::Output);
        let allow_workers = self.allow_workers(worker);
        let summariser = self.summariser(worker);
        let AgentModel { first: Fallback { model, script }, others: fallbacks, server_tools } = model?;
        let stand_in = self.stand_in(&worker.name.value).cloned();
        if stand_in.as_ref().is_some_and(|stand_in| !stand_in.mode.asks_agent()) {
            // Code has none.
            (tools, toolsets) = (Vec::new(), Vec::new());
        }
        let patterns = |list: &Vec<Located<String>>| list.iter().map(|pattern| pattern.value.clone()).collect();
        Some(AgentSpec {
            compatible_models: worker.compatible_models.as_ref().map(patterns),
            name: worker.name.value.clone(),
            file: loaded.path.clone(),
            description: worker.described(),
            instructions: self.project.told(loaded),
            model,
            fallbacks,
            script,
            input,
            prompt: worker.prompt.as_ref().map(|prompt| prompt.value.clone()),
            output,
            tools,
            toolsets,
            doubtful_rules,
            allow_workers,
            server_tools,
            settings: worker.model_settings.clone(),
            limits: worker.limits.clone(),
            context: worker.context,
            cached: worker.cached,
            summariser,
            attachment_policy: worker.attachment_policy.clone(),
            locked: worker.locked,
            stand_in,
        })
    }

    fn model(&mut self, worker: &'a WorkerFile) -> Option<ChosenModel> {
        let name = &worker.name;
        let from_file = self.models_of_file(worker)?;
        let patterns = match &worker.compatible_models {
            Some(list) => Some(self.patterns(list)?),
            None => None,
        };
        let is_entry = self.entry_agent.as_deref() == Some(name.value.as_str());
        let place = if is_entry { AgentPlace::Entry } else { AgentPlace::Elsewhere };
        let choice = self.models.choose(&name.value, place, &from_file, patterns.as_deref());
        match choice {
            Ok(choice) => {
                self.choices_used.push(choice.by.clone());
                self.check_providers(worker, &choice).then_some(choice)
            }
            Err(ChoiceError::NoModel) if worker.is_mistaken(&["model"]) => None,
            Err(ChoiceError::NoModel) if self.models.may_be_open => {
                self.without_model.push(name.value.clone());
                Some(ChosenModel::only(ModelName::none(), ChosenBy::Unasked))
            }
            Err(ChoiceError::NoModel) => {
                let problem = Diagnostic::error(name.span, format!("no model for agent `{}`", name.value));
                self.problems.push(problem.hint(Remedy::ChooseModel { agent: name.value.clone() }));
                None
            }
            Err(ChoiceError::Incompatible(choice)) => {
                self.choices_used.push(choice.by.clone());
                let place = worker
                    .compatible_models
                    .as_ref()
                    .and_then(|list| list.first())
                    .map_or(name.span, |first| first.span);
                let allowed: Vec<String> = patterns.unwrap_or_default().iter().map(ToString::to_string).collect();
                let fact = format!(
                    "`{}` {} is not a model that agent `{}` is compatible with",
                    choice.model,
                    self.origin(&choice.by),
                    name.value
                );
                self.problems.push(Diagnostic::error(place, fact).hint(format!("compatible: {}", allowed.join(", "))));
                None
            }
        }
    }

    /// The models that the file names; `None` if one of them is no model, which is reported.
    fn models_of_file(&mut self, worker: &WorkerFile) -> Option<Vec<ModelName>> {
        let mut models = Vec::new();
        let mut is_mistaken = false;
        for written in &worker.models {
            match ModelName::parse(&written.value) {
                Ok(model) => models.push(model),
                Err(error) => {
                    let hint = match &error {
                        ModelNameError::NoProvider { text } => format!("write `{}`", with_provider(text)),
                        ModelNameError::Malformed { .. } => {
                            "write `anthropic:claude-haiku-4-5`, or another model".to_owned()
                        }
                    };
                    self.problems.push(Diagnostic::error(written.span, name_error(&error)).hint(hint));
                    is_mistaken = true;
                }
            }
        }
        (!is_mistaken).then_some(models)
    }

    /// The model that the file names for summaries. One model for all agents is one for these too.
    fn summariser(&mut self, worker: &WorkerFile) -> Option<ModelName> {
        let written = worker.summariser.as_ref()?;
        let model = match ModelName::parse(&written.value) {
            Ok(model) => model,
            Err(error) => {
                let hint = "write `provider:model`";
                self.problems.push(Diagnostic::error(written.span, name_error(&error)).hint(hint));
                return None;
            }
        };
        let name = &model.provider;
        if name == "scripted" {
            self.problems.push(Diagnostic::error(written.span, "a script cannot summarise: name a model"));
            return None;
        }
        if provider(name).is_none() && self.models.custom(name).is_none() && !self.is_python_provider(name) {
            let fact = format!("unknown provider `{}` in the model `{}`", visible(name), visible(&written.value));
            let names = PROVIDERS.iter().map(|row| row.name);
            let names = names.chain(self.models.providers.iter().map(|custom| custom.name.as_str()));
            let hint = self.problems.suggest(name, "providers", names);
            self.problems.push(Diagnostic::error(written.span, fact).maybe_hint(hint));
            return None;
        }
        self.models.all.is_none().then_some(model)
    }

    /// Where a choice comes from, in words.
    fn origin(&self, by: &ChosenBy) -> String {
        match (by, &self.models.option) {
            (ChosenBy::Override | ChosenBy::Required | ChosenBy::All, Some(option)) => format!("from `{option}`"),
            (ChosenBy::Override | ChosenBy::Required | ChosenBy::All, None) => {
                "from the choices for this run".to_owned()
            }
            (ChosenBy::File, _) => "from its file".to_owned(),
            (ChosenBy::Unasked, _) => "for an agent that is not asked".to_owned(),
            (ChosenBy::Fallback { label }, _) => format!("from {label}"),
        }
    }

    /// What a scripted model follows: a file beside the worker file, or one that the user named.
    fn script(&mut self, base: &Path, worker: &WorkerFile, model: &ModelName, by: &ChosenBy) -> Option<Arc<Script>> {
        if model.provider != "scripted" {
            return None;
        }
        if *by == ChosenBy::File {
            let listed = worker.models.iter().filter_map(script_of).find(|script| script.value == model.model)?;
            let path = super::normal(&lexical_join(base, Path::new(&listed.value))?);
            let file = *self.project.references.get(&path)?;
            let mut problems = Diagnostics::default();
            let script = Script::read(file, &self.project.sources.get(file).text, &mut problems);
            self.problems.extend(problems);
            return script.map(Arc::new);
        }
        self.chosen_script(&model.model)
    }

    /// A script that the user named: read once, however many agents follow it.
    pub(super) fn chosen_script(&mut self, name: &str) -> Option<Arc<Script>> {
        if let Some(script) = self.scripts.get(name) {
            return script.clone();
        }
        let script = self.read_script(name);
        self.scripts.insert(name.to_owned(), script.clone());
        script
    }

    fn read_script(&mut self, name: &str) -> Option<Arc<Script>> {
        let Some(text) = self.models.scripts.get(name) else {
            let fact = format!("the script `{}` was not read", visible(name));
            self.problems.push(Diagnostic::error(DiagnosticPlace::Outside, fact));
            return None;
        };
        match Script::parse(name, text) {
            Ok(script) => Some(Arc::new(script)),
            Err(report) => {
                for problem in report.diagnostics() {
                    // The script stands outside the project's files, so its place goes into the words.
                    let place = report.place(problem);
                    let fact = format!("{place}: {}", problem.fact);
                    self.problems.push(Diagnostic { place: DiagnosticPlace::Outside, fact, ..problem.clone() });
                }
                None
            }
        }
    }

    /// `None` if one of them is no pattern, which is reported.
    fn patterns(&mut self, list: &[Located<String>]) -> Option<Vec<ModelPattern>> {
        let mut patterns = Vec::new();
        for text in list {
            if text.value.len() > LONGEST_PATTERN {
                let fact = format!("the pattern is longer than {LONGEST_PATTERN} bytes");
                self.problems.push(Diagnostic::error(text.span, fact));
                return None;
            }
            match ModelPattern::parse(&text.value) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => {
                    let fact = format!("`{}` is not a pattern: {}", visible(&text.value), error);
                    self.problems.push(Diagnostic::error(text.span, fact));
                    return None;
                }
            }
        }
        Some(patterns)
    }

    fn check_providers(&mut self, worker: &'a WorkerFile, choice: &ChosenModel) -> bool {
        let mut are_known = true;
        for model in choice.all() {
            are_known &= self.check_provider(worker, model, &choice.by);
        }
        // It is enough that one of several can be asked.
        if are_known && choice.all().all(|model| self.lacks_key(&model.provider)) {
            self.keyless.entry(choice.model.provider.clone()).or_default().push(&worker.name.value);
        }
        are_known
    }

    fn lacks_key(&self, name: &str) -> bool {
        let needs_key = match provider(name) {
            Some(row) => row.needs_key(),
            None => self.models.custom(name).is_some_and(|custom| custom.key_variable.is_some()),
        };
        needs_key && !self.models.keys.contains(name)
    }

    fn check_provider(&mut self, worker: &'a WorkerFile, model: &ModelName, by: &ChosenBy) -> bool {
        let name = &model.provider;
        let known = provider(name);
        if known.is_none() && self.models.custom(name).is_none() && !self.is_python_provider(name) {
            let is_it = |written: &&Located<String>| ModelName::parse(&written.value).is_ok_and(|name| name == *model);
            let place = match (worker.models.iter().find(is_it), by) {
                (Some(written), ChosenBy::File) => DiagnosticPlace::At(written.span),
                _ if !self.refused_choices.insert(model.clone()) => return false,
                _ => DiagnosticPlace::Outside,
            };
            let fact = format!("unknown provider `{}` in the model `{}`", visible(name), visible(&model.to_string()));
            let names = PROVIDERS
                .iter()
                .map(|row| row.name)
                .chain(self.models.providers.iter().map(|custom| custom.name.as_str()));
            let hint = match (&place, names::nearest(name, names.clone())) {
                // What was typed can be typed again.
                (DiagnosticPlace::Outside, Some(near)) => {
                    Some(format!("did you mean `{near}:{}`?", visible(&model.model)))
                }
                (_, Some(near)) => self.problems.is_read().then(|| {
                    let all = names::there_are("providers", names);
                    format!("did you mean `{near}:{}`? {all}", model.model)
                }),
                (_, None) => self.problems.suggest(name, "providers", names),
            };
            self.problems.push(Diagnostic::error(place, fact).maybe_hint(hint));
            return false;
        }
        true
    }

    /// A script has no server: its agents do without, so that a project can be tried as it is.
    fn server_tools(&mut self, worker: &WorkerFile, choice: &ChosenModel) -> Vec<ServerTool> {
        let Some(first) = worker.server_side_tools.first() else { return Vec::new() };
        let is_scripted =
            |model: &ModelName| provider(&model.provider).is_some_and(|row| row.protocol == ProtocolKind::Scripted);
        if choice.all().any(is_scripted) {
            let fact = "a scripted model has no server-side tools: they are left out";
            self.problems.push(Diagnostic::note(first.span, fact));
            return Vec::new();
        }
        let mut checked = BTreeSet::new();
        for model in choice.all().filter(|model| !model.is_none()) {
            if checked.insert(&model.provider) {
                self.check_server_tools(worker, model);
            }
        }
        worker.server_side_tools.iter().map(|tool| tool.value.clone()).collect()
    }

    fn check_server_tools(&mut self, worker: &WorkerFile, model: &ModelName) {
        let offered: Vec<OfferedTool> = match provider(&model.provider) {
            Some(row) => row.server_tools.to_vec(),
            // An endpoint that speaks a protocol may offer what the protocol's own providers do.
            None => {
                let protocol = self.models.custom(&model.provider).map(|custom| custom.protocol);
                let rows = PROVIDERS.iter().filter(|row| Some(row.protocol) == protocol);
                rows.flat_map(|row| row.server_tools).copied().collect()
            }
        };
        for Located { value: tool, span } in &worker.server_side_tools {
            let Some(found) = offered.iter().find(|offered| offered.kind == tool.kind) else {
                let fact = format!("`{}` has no server-side tool `{}`", model.provider, tool.kind.name());
                let has_it =
                    |row: &&crate::model::provider::Provider| row.server_tools.iter().any(|it| it.kind == tool.kind);
                let what = format!("providers with {}", tool.kind.name());
                let hint = names::there_are(&what, PROVIDERS.iter().filter(has_it).map(|row| row.name));
                self.problems.push(Diagnostic::error(*span, fact).hint(hint));
                continue;
            };
            for restriction in found.unkept(tool, worker.server_side_tools.len()) {
                self.problems.push(unkept(*span, &model.provider, tool, restriction));
            }
        }
    }

    fn typing(&mut self, base: &Path, source: Option<&SchemaSource>, direction: Direction) -> Typing {
        let (schema, node) = match source {
            None => return Typing::Untyped,
            Some(SchemaSource::Inline(schema)) => (schema.value.clone(), WrittenSchema::Inline(schema.span)),
            Some(SchemaSource::File(listed)) => match self.schema_file(base, listed) {
                Some(node) => (RawJson::from_valid(node.to_json()), WrittenSchema::File(node)),
                None => return Typing::Untyped,
            },
            Some(SchemaSource::Python(class)) => return self.python_typing(base, class),
        };
        match json_schema::judge(&schema, direction) {
            Ok(_) => Typing::Schema(schema),
            Err(error) => {
                self.schema_mistakes(&schema, &node, &error);
                Typing::Untyped
            }
        }
    }

    /// What Python says of a class; not looked at, its name stays open.
    fn python_typing(&mut self, base: &Path, class: &Located<PythonClass>) -> Typing {
        let reference = class.value.reference(base);
        let schema = match &self.project.code {
            Code::Read(offer) => match offer.classes.get(&reference) {
                // Python judges values by the class itself; models are told of the schema.
                Some(Ok(schema)) => match json_schema::sized(schema, Direction::Output) {
                    Ok(_) => Some(schema.clone()),
                    Err(error) => {
                        self.problems.push(Diagnostic::error(class.span, error.to_string()));
                        return Typing::Untyped;
                    }
                },
                Some(Err(fact)) => {
                    self.problems.push(Diagnostic::error(class.span, fact.clone()));
                    return Typing::Untyped;
                }
                // What kept it from being looked at was reported.
                None => return Typing::Untyped,
            },
            Code::Absent | Code::Unread => {
                self.open.insert(reference.clone());
                None
            }
        };
        Typing::Python(PythonType { class: class.value.clone(), reference, schema })
    }

    /// Every mistake of a schema, each at its place.
    fn schema_mistakes(&mut self, schema: &RawJson, written: &WrittenSchema, error: &SchemaError) {
        let (node, language) = match written {
            WrittenSchema::File(node) => (Some(node.clone()), Language::Json),
            // What was read of the file is gone; only a mistake brings it back.
            WrittenSchema::Inline(span) => {
                (worker::node_at(*span, &self.project.sources.get(span.file).text), Language::Yaml)
            }
        };
        let whole = match (written, &node) {
            (WrittenSchema::Inline(span), _) => *span,
            (WrittenSchema::File(node), _) => node.span,
        };
        for mistake in schema_mistakes::mistakes(schema, error, language) {
            let span = node.as_ref().map_or(whole, |node| node.at(&mistake.pointer).span);
            self.problems.push(Diagnostic::error(span, mistake.fact).maybe_hint(mistake.hint));
        }
    }

    /// A schema that a worker file names, read before; `None` if that failed and was reported.
    fn schema_file(&mut self, base: &Path, listed: &Located<String>) -> Option<Node> {
        let path = super::normal(&lexical_join(base, Path::new(&listed.value))?);
        let file = *self.project.references.get(&path)?;
        let text = &self.project.sources.get(file).text;
        let mut problems = Diagnostics::default();
        let node = tree::parse_json(tree::Text::whole(file, text), &mut problems);
        self.problems.extend(problems);
        let node = node?;
        if !matches!(node.kind, NodeKind::Map(_)) {
            let problem = Diagnostic::error(node.span, "a JSON Schema file holds an object");
            self.problems.push(problem.hint("write `{ \"type\": \"object\", \"properties\": {} }`"));
            return None;
        }
        Some(node)
    }

    /// A name under `tools`: one exported function, or an agent, also one over a list. Work that moves from one to the other
    /// keeps its name, and its caller need not know: each is one tool, under either key.
    fn tool(&mut self, name: &Located<String>, namespace: &Namespace) -> Option<ToolsetUse> {
        let source = match (namespace.function(&name.value), namespace.resolve(&name.value)) {
            (Some(function), _) => Arc::clone(function),
            (None, NameResolution::Source(agent))
                if matches!(**agent, ToolsetSource::Agent(_) | ToolsetSource::Map(_)) =>
            {
                Arc::clone(agent)
            }
            (None, NameResolution::Source(_) | NameResolution::Broken | NameResolution::Unknown)
                if self.may_be_python() =>
            {
                self.open.insert(name.value.clone());
                Arc::new(ToolsetSource::Open)
            }
            (None, NameResolution::Source(_) | NameResolution::Broken | NameResolution::Unknown)
                if self.lacks_names() =>
            {
                return None;
            }
            (None, NameResolution::Source(_) | NameResolution::Broken | NameResolution::Unknown) => {
                let hint = toolset_with(&name.value)
                    .map(|toolset| format!("write `toolsets: [{toolset}]`"))
                    .or_else(|| self.problems.suggest(&name.value, "tools", namespace.function_names()));
                let fact = format!("unknown tool `{}`", visible(&name.value));
                self.problems.push(Diagnostic::error(name.span, fact).maybe_hint(hint));
                return None;
            }
        };
        Some(ToolsetUse { name: name.value.clone(), source, rules: Rules::new(), rule_places: BTreeMap::new() })
    }

    /// A name under `toolsets`: what the namespace has, or else one exported function.
    fn toolset(&mut self, worker: &WorkerFile, name: &Located<String>, namespace: &Namespace) -> Option<ToolsetUse> {
        let source = match namespace.resolve(&name.value) {
            NameResolution::Source(source) => Arc::clone(source),
            NameResolution::Broken => return None,
            NameResolution::Unknown => self.function_or_open(worker, name, namespace)?,
        };
        Some(ToolsetUse { name: name.value.clone(), source, rules: Rules::new(), rule_places: BTreeMap::new() })
    }

    fn function_or_open(
        &mut self,
        worker: &WorkerFile,
        name: &Located<String>,
        namespace: &Namespace,
    ) -> Option<Arc<ToolsetSource>> {
        if let Some(source) = namespace.function(&name.value) {
            return Some(Arc::clone(source));
        }
        if self.may_be_python() {
            self.open.insert(name.value.clone());
            return Some(Arc::new(ToolsetSource::Open));
        }
        if self.lacks_names() {
            return None;
        }
        let fact = format!("agent `{}` asks for an unknown toolset `{}`", worker.name.value, visible(&name.value));
        let meant = toolset_with(&name.value);
        let all = || names::there_are("toolsets", namespace.names());
        let hint = meant
            .map(|meant| format!("did you mean `{meant}`? {}", all()))
            .or_else(|| self.problems.suggest(&name.value, "toolsets", namespace.names()));
        self.problems.push(Diagnostic::error(name.span, fact).maybe_hint(hint));
        None
    }

    /// The rules of each toolset: they go to the one whose tool they name. What has unknown tools may have any.
    fn rules(&mut self, worker: &WorkerFile, uses: &[&ToolsetUse]) -> (Vec<Rules>, Vec<DoubtfulRule>) {
        let tools: Vec<DeclaredTools<'_>> = uses.iter().map(|used| used.source.declared_tools()).collect();
        self.check_clashes(worker, uses, &tools);
        self.check_maps(worker, uses, &tools);
        self.check_defaults(worker, uses, &tools);
        let owners = ToolOwners::of(uses, &tools);
        // What could not be used or resolved was reported, and may have had any tool.
        let lacks_tools =
            worker.is_mistaken(&["tools", "toolsets"]) || uses.len() < worker.tools.len() + worker.toolsets.len();
        let (mut rules, mut doubtful) = (vec![Rules::new(); uses.len()], Vec::new());
        if worker.approval.len().saturating_mul(owners.unknown.len()) > MOST_OPEN_RULES {
            let fact =
                format!("too many rules for the toolsets of agent `{}` whose tools are not known", worker.name.value);
            let hint = format!("rules × such toolsets may be {MOST_OPEN_RULES} at most");
            self.problems.push(Diagnostic::error(worker.name.span, fact).hint(hint));
            return (rules, doubtful);
        }
        for (key, rule) in &worker.approval {
            let (toolset, tool) = owners.split(&key.value);
            let other_name = AgentToolNames::other_name(tool).filter(|other| owners.knows(other));
            let tool = other_name.filter(|_| !owners.knows(tool)).unwrap_or(tool);
            let places = owners.having(toolset, tool);
            for place in &places {
                rules[*place].insert(tool.to_owned(), *rule);
                self.note_idle_rule(key, *rule, tool, tools[*place].as_deref());
            }
            if !places.is_empty() && places.iter().all(|place| tools[*place].is_none()) {
                let toolsets = places.iter().map(|place| uses[*place].name.clone()).collect();
                let place = self.project.sources.place(key.span);
                doubtful.push(DoubtfulRule { place, tool: tool.to_owned(), toolsets });
            }
            if places.is_empty() && !lacks_tools {
                let fact = format!("agent `{}` has no tool `{}`", worker.name.value, visible(&key.value));
                let hint = self.problems.suggest(tool, "tools", owners.names());
                self.problems.push(Diagnostic::error(key.span, fact).maybe_hint(hint));
            }
        }
        for ((rules, used), tools) in rules.iter_mut().zip(uses).zip(&tools) {
            let is_filesystem = matches!(used.source.origin(), ToolsetSource::Filesystem(_));
            for tool in tools.iter().flat_map(|tools| tools.iter()).filter(|_| is_filesystem) {
                if let Some(rule) = rule_of_reading(&tool.name, rules) {
                    rules.entry(tool.name.to_string()).or_insert(rule);
                }
            }
        }
        (rules, doubtful)
    }

    /// A `search_files` of the project's own is used instead of ours.
    fn let_search_give_way(&mut self, worker: &WorkerFile, tools: &mut [ToolsetUse], toolsets: &mut [ToolsetUse]) {
        let is_filesystem = |used: &ToolsetUse| matches!(used.source.origin(), ToolsetSource::Filesystem(_));
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for used in tools.iter().chain(toolsets.iter()).filter(|used| !is_filesystem(used)) {
            let names = used.source.declared_tools();
            let searching =
                names.iter().flat_map(|tools| tools.iter()).filter(|tool| tool.name.ends_with(SEARCH_FILES));
            owners.extend(searching.map(|tool| (tool.name.to_string(), used.name.clone())));
        }
        for used in tools.iter_mut().chain(toolsets).filter(|used| is_filesystem(used)) {
            let names: Vec<String> = used
                .source
                .declared_tools()
                .iter()
                .flat_map(|tools| tools.iter())
                .map(|t| t.name.to_string())
                .collect();
            let taken = names.iter().find(|name| name.ends_with(SEARCH_FILES) && owners.contains_key(*name));
            let Some((name, owner)) = taken.and_then(|name| owners.get_key_value(name)) else { continue };
            let mut listed = worker.tools.iter().chain(&worker.toolsets);
            let span = listed.find(|name| name.value == used.name).map_or(worker.name.span, |name| name.span);
            let fact = format!("`{name}` is that of `{owner}`, not that of `{}`", used.name);
            self.problems.push(Diagnostic::note(span, fact));
            used.source = Arc::new(ToolsetSource::Variant(Arc::new(Variant {
                name: used.name.clone(),
                of: ToolsetSource::clone(&used.source),
                prefix: String::new(),
                tools: Some(names.iter().filter(|other| *other != name).cloned().collect()),
                approval: BTreeMap::new(),
                timeout: None,
            })));
        }
    }

    /// The tool that gives the list of an agent over it is one of the caller's own: what it may do is said there.
    fn check_maps(&mut self, worker: &WorkerFile, uses: &[&ToolsetUse], tools: &[DeclaredTools<'_>]) {
        if tools.iter().any(Option::is_none) || uses.len() < worker.tools.len() + worker.toolsets.len() {
            return;
        }
        let has = |name: &str| tools.iter().flatten().flat_map(|tools| tools.iter()).any(|tool| tool.name == name);
        for used in uses {
            let ToolsetSource::Map(config) = used.source.origin() else { continue };
            let Some(over) = config.over.as_deref().filter(|over| !has(over)) else { continue };
            let mut listed = worker.tools.iter().chain(&worker.toolsets);
            let span = listed.find(|name| name.value == used.name).map_or(worker.name.span, |name| name.span);
            let (caller, over) = (&worker.name.value, visible(over));
            let fact = format!("`{}` is over `{over}`, which agent `{caller}` does not have", used.name);
            self.problems.push(Diagnostic::error(span, fact).hint("list it among its tools too"));
        }
    }

    /// Two tools of one name inside one agent, where their names are known. Several shells are one tool.
    fn check_clashes(&mut self, worker: &WorkerFile, uses: &[&ToolsetUse], tools: &[DeclaredTools<'_>]) {
        let is_shell = |used: &ToolsetUse| matches!(used.source.origin(), ToolsetSource::Shell(_));
        let mut spans: Option<HashMap<&str, Span>> = None;
        let mut owners: BTreeMap<&str, &ToolsetUse> = BTreeMap::new();
        for (used, tools) in uses.iter().zip(tools) {
            for tool in tools.iter().flat_map(|tools| tools.iter()) {
                let Some(other) = owners.get(tool.name.as_ref()) else {
                    owners.insert(&tool.name, used);
                    continue;
                };
                if is_shell(used) && is_shell(other) {
                    continue;
                }
                let spans = spans.get_or_insert_with(|| {
                    let listed = worker.tools.iter().chain(&worker.toolsets);
                    listed.map(|name| (name.value.as_str(), name.span)).collect()
                });
                let span = spans.get(used.name.as_str()).copied().unwrap_or(worker.name.span);
                let fact = format!("`{}` and `{}` both have a tool `{}`", other.name, used.name, tool.name);
                self.problems.push(
                    Diagnostic::error(span, fact)
                        .hint("rename the tools of one: a manifest toolset with `use` and `prefix`"),
                );
                break;
            }
        }
    }

    /// Shells that are one tool have one default.
    fn check_defaults(&mut self, worker: &WorkerFile, uses: &[&ToolsetUse], tools: &[DeclaredTools<'_>]) {
        let mut defaults: BTreeMap<&str, (&str, Rule)> = BTreeMap::new();
        for (used, tools) in uses.iter().zip(tools) {
            let ToolsetSource::Shell(ShellConfig { grammar: Grammar::Rules { default: Some(default), .. }, .. }) =
                used.source.origin()
            else {
                continue;
            };
            for tool in tools.iter().flat_map(|tools| tools.iter()) {
                let (first, other) = *defaults.entry(&tool.name).or_insert((&used.name, *default));
                if other != *default {
                    let listed = worker.toolsets.iter().find(|name| name.value == used.name);
                    let span = listed.map_or(worker.name.span, |name| name.span);
                    let (one, another) = (other.word(), default.word());
                    let name = &used.name;
                    let fact =
                        format!("`{first}` and `{name}` are one tool, with two defaults: `{one}` and `{another}`");
                    let hint = "write the same `default` in both, or in one of them only";
                    self.problems.push(Diagnostic::error(span, fact).hint(hint));
                }
            }
        }
    }

    fn note_idle_rule(&mut self, key: &Located<String>, rule: Rule, tool: &str, tools: Option<&[DeclaredTool]>) {
        if rule != Rule::Allow {
            return;
        }
        let declared = tools.and_then(|tools| tools.iter().find(|declared| declared.name == tool));
        if declared.is_some_and(|declared| declared.verdict == DeclaredVerdict::AlwaysAsk) {
            self.problems.push(Diagnostic::note(key.span, format!("`{tool}` always asks: the rule changes nothing")));
        }
    }

    fn allow_workers(&mut self, worker: &WorkerFile) -> Option<AllowWorkers> {
        let names = worker.allow_workers.as_ref()?;
        if names.iter().any(|name| name.value == "*") {
            return Some(AllowWorkers::Any);
        }
        for name in names {
            let known =
                self.agents.contains_key(name.value.as_str()) || self.project.generated.contains_key(&name.value);
            if !known && !self.creates_agents {
                let fact = format!("`allow_workers` names an unknown agent `{}`", name.value);
                self.unknown_agent(name.span, fact, &name.value);
            }
        }
        Some(AllowWorkers::Only(names.iter().map(|name| name.value.clone()).collect()))
    }

    /// An agent that is created later cannot be known now.
    pub(super) fn creates_agents(&self, namespace: &Namespace) -> bool {
        let mut names = self.project.workers.iter().flat_map(|loaded| &loaded.worker.toolsets);
        names.any(|name| match namespace.resolve(&name.value) {
            NameResolution::Source(source) => matches!(source.origin(), ToolsetSource::DynamicAgents(_)),
            NameResolution::Broken | NameResolution::Unknown => false,
        })
    }
}

fn unkept(span: Span, provider: &str, tool: &ServerTool, restriction: Restriction) -> Diagnostic {
    let (key, name) = (restriction.key(), tool.kind.name());
    let fact = format!("`{provider}` does not keep `{key}` of `{name}`");
    Diagnostic::error(span, fact).hint(match restriction {
        Restriction::MaxUsesAlone => "it counts the uses of all its tools together: leave the others out, or the limit",
        Restriction::MaxUses | Restriction::AllowedDomains | Restriction::BlockedDomains => {
            "leave it out, or choose a provider that has it"
        }
    })
}

fn name_error(error: &ModelNameError) -> String {
    match error {
        ModelNameError::NoProvider { text } => format!("the model `{}` names no provider", visible(text)),
        ModelNameError::Malformed { text } => format!("`{}` is not of the form `provider:model`", visible(text)),
    }
}

/// Other names for what a built-in toolset does.
const CALLED_OTHERWISE: &[(&[&str], &str)] = &[
    (&["filesystem", "file_system", "files", "file", "fs"], "filesystem_cwd"),
    (&["bash", "sh", "zsh", "shell", "terminal", "command", "commands"], "shell_readonly"),
];

/// People name a tool where its toolset is meant, or what a toolset does.
fn toolset_with(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let called = CALLED_OTHERWISE.iter().find(|(names, _)| names.contains(&lower.as_str()));
    let has_tool = |source: &ToolsetSource| source.declared_tools().unwrap_or_default().iter().any(|t| t.name == name);
    let with_tool = || BUILT_INS.iter().find(|built_in| has_tool(&(built_in.source)()));
    called.map(|(_, toolset)| *toolset).or_else(|| with_tool().map(|built_in| built_in.name))
}

/// The name with the provider that has such models, as far as one can tell.
fn with_provider(model: &str) -> String {
    const FAMILIES: &[(&str, &str)] = &[
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("o1", "openai"),
        ("o3", "openai"),
        ("o4", "openai"),
        ("gemini", "google"),
        ("mistral", "mistral"),
        ("deepseek", "deepseek"),
        ("grok", "xai"),
    ];
    let family =
        FAMILIES.iter().find(|(family, provider)| model.starts_with(family) && self::provider(provider).is_some());
    format!("{}:{model}", family.map_or("ollama", |(_, provider)| provider))
}

/// What a toolset of an agent declares; `None` if that is not known.
type DeclaredTools<'a> = Option<Cow<'a, [DeclaredTool]>>;

/// Which toolsets of one agent have a tool, by their places in its list. The lists of pairs are sorted.
struct ToolOwners<'a> {
    known: Vec<(&'a str, usize)>,
    /// Toolsets whose tools are not known: they may have any.
    unknown: Vec<usize>,
    toolsets: Vec<(&'a str, usize)>,
}

impl<'a> ToolOwners<'a> {
    fn of(uses: &[&'a ToolsetUse], tools: &'a [DeclaredTools<'a>]) -> Self {
        let named = |(place, used): (usize, &&'a ToolsetUse)| (used.name.as_str(), place);
        let toolsets = uses.iter().enumerate().map(named).collect();
        let mut owners = Self { known: Vec::new(), unknown: Vec::new(), toolsets };
        for (place, tools) in tools.iter().enumerate() {
            match tools {
                None => owners.unknown.push(place),
                Some(tools) => owners.known.extend(tools.iter().map(|tool| (tool.name.as_ref(), place))),
            }
        }
        owners.known.sort_unstable();
        owners.toolsets.sort_unstable();
        owners
    }

    fn knows(&self, tool: &str) -> bool {
        places(&self.known, tool).next().is_some()
    }

    fn having(&self, toolset: Option<&str>, tool: &str) -> Vec<usize> {
        let known = places(&self.known, tool);
        match toolset {
            None => known.chain(self.unknown.iter().copied()).collect(),
            Some(name) => {
                let has = |place: &usize| {
                    self.known.binary_search(&(tool, *place)).is_ok() || self.unknown.binary_search(place).is_ok()
                };
                places(&self.toolsets, name).filter(has).collect()
            }
        }
    }

    /// `toolset.tool`, if the agent has that toolset; else the whole is a tool's name.
    fn split<'k>(&self, key: &'k str) -> (Option<&'k str>, &'k str) {
        match key.split_once('.') {
            Some((toolset, tool)) if places(&self.toolsets, toolset).next().is_some() => (Some(toolset), tool),
            _ => (None, key),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'a str> + Clone {
        self.known.chunk_by(|(one, _), (other, _)| one == other).map(|owners| owners[0].0)
    }
}

/// Where a name stands in a sorted list of pairs.
fn places<'a>(pairs: &'a [(&str, usize)], name: &str) -> impl Iterator<Item = usize> + use<'a> {
    let start = pairs.partition_point(|(other, _)| *other < name);
    let end = start + pairs[start..].partition_point(|(other, _)| *other == name);
    pairs[start..end].iter().map(|(_, place)| *place)
}
