//! The way back from code to an agent, and a first prompt for a function that never was one.

use std::fmt::Write as _;
use std::sync::Arc;

use llm_do::escape::visible;
use llm_do::program::Code;
use llm_do::tests::{TestCase, TestFile};
use llm_do::{ModelChoices, RawJson};
use llm_do_launch::launch::TrustedLaunch;
use serde_json::{Value, json};

use super::files::HardenedFiles;
use super::load;
use crate::args::{HardenArgs, SoftenArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::terminal::trust;
use crate::{console, test};

pub fn run(args: &SoftenArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings()?);
    let as_hardening = HardenArgs {
        name: Some(args.name.clone()),
        project: args.project.clone(),
        since: std::time::Duration::ZERO,
        model: None,
        status: false,
        mode: None,
        author: false,
        trust: args.trust.clone(),
        python: args.python.clone(),
        fence: None,
    };
    let plan = super::test_plan(&as_hardening, &environment, &settings)?;
    let project = load(&plan)?;
    let models = ModelChoices { may_be_open: true, ..plan.launch.models.clone() };
    let linked = project.survey(&models, None).map_err(test::wrong)?;
    if let Some(agent) = linked.program.agents.get(&args.name) {
        if agent.stand_in.is_none() {
            return Err(Failure::usage(format!("`{}` is an agent already", args.name)).hint("nothing was changed"));
        }
        let files = HardenedFiles::of(&linked.program.root, agent);
        let over = test::before_writing(&plan, &settings)?;
        let kept = files.soften()?;
        test::keep_trust(&plan, &settings, &over)?;
        let kept = kept.iter().map(|path| format!("{} stays: it was changed since it was written\n", path.display()));
        let back = format!("{} answers again; no code does\n", visible(&files.worker.display().to_string()));
        return console::print(&format!("{back}{}", kept.collect::<String>()));
    }
    let function = executor()?.block_on(async {
        let surveyed = plan.launch.clone().survey(&settings)?;
        let trusted = trust::settle(surveyed, &plan.trust).await?.start_python().await?;
        OfferedFunction::of(&args.name, &trusted, load(&plan)?.with_tests().tests())
    })?;
    let path = linked.program.root.join(format!("{}.worker", function.name));
    if path.exists() {
        return Err(Failure::usage(format!("{} is there already", path.display())));
    }
    let written = llm_do::files::replace_path(&path, function.worker().as_bytes(), llm_do::files::FileAccess::Usual);
    written.map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))?;
    console::print(&format!(
        "+ {}.worker: a first prompt, made of the name, the docstring, the types and the cases of `{}`\n\
         list it in `worker_files` and take the function out of the tools of its callers\n",
        function.name, function.name
    ))
}

/// What is known of a function.
struct OfferedFunction {
    name: String,
    description: String,
    parameters: RawJson,
    /// What it returns, as its annotation says.
    returns: Option<Value>,
    /// Lines of a session in its docstring, and recorded cases.
    cases: Vec<(Value, Value)>,
}

impl OfferedFunction {
    fn of(name: &str, trusted: &TrustedLaunch, tests: &[TestFile]) -> Result<Self, Failure> {
        let program = trusted.program();
        let host = program.registry.python.as_ref();
        let tool = host.and_then(|host| host.tools.get(name)).ok_or_else(|| {
            let known = host.iter().flat_map(|host| host.tools.keys()).map(String::as_str);
            let hint = llm_do::names::instead(name, "functions", known);
            Failure::usage(format!("the project has neither a hardened name nor a function `{}`", visible(name)))
                .hint(hint)
        })?;
        let file = match &trusted.project().code {
            Code::Read(offer) => offer.tools.iter().find(|offered| offered.tool.name == name).map(|it| it.file.clone()),
            Code::Absent | Code::Unread => None,
        };
        let source = file.and_then(|file| std::fs::read_to_string(program.root.join(file)).ok()).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            returns: returned(&source, name).and_then(|annotation| schema_of(&annotation)),
            cases: cases_of(tests, name),
        })
    }

    fn worker(&self) -> String {
        let first = self.description.lines().next().unwrap_or_default().trim();
        let mut text = format!("---\nname: {}\n", self.name);
        if !first.is_empty() {
            let _ = writeln!(text, "description: {}", Value::from(first));
        }
        let _ = writeln!(text, "schema_in: {}", self.parameters.get());
        if let Some(returns) = &self.returns {
            let _ = writeln!(text, "schema_out: {returns}");
        }
        text.push_str("---\n");
        let _ = writeln!(text, "You answer as the function `{}` did.", self.name);
        if !self.description.trim().is_empty() {
            let _ = write!(text, "\n{}\n", self.description.trim());
        }
        if !self.cases.is_empty() {
            text.push_str("\nExamples:\n\n");
            for (input, output) in &self.cases {
                let _ = writeln!(text, "- {input} → {output}");
            }
        }
        text
    }
}

/// What stands behind the arrow of a function, in its file.
fn returned(source: &str, name: &str) -> Option<String> {
    let start = source.find(&format!("def {name}("))?;
    let rest = &source[start..];
    let mut depth = 0_i32;
    let end = rest.char_indices().find_map(|(at, character)| {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        (depth == 0 && character == ')').then_some(at + 1)
    })?;
    let (annotation, _) = rest[end..].trim_start().strip_prefix("->")?.split_once(":\n")?;
    Some(annotation.trim().trim_matches(['"', '\'']).to_owned())
}

/// The JSON Schema of a plain annotation; text needs none.
fn schema_of(annotation: &str) -> Option<Value> {
    let of = |start: &str| annotation == start || annotation.starts_with(&format!("{start}["));
    let kind = match annotation {
        "int" => "integer",
        "float" => "number",
        "bool" => "boolean",
        _ if of("dict") => "object",
        _ if of("list") || of("tuple") || of("set") => "array",
        _ => return None,
    };
    Some(json!({ "type": kind }))
}

/// Inputs and outputs of the cases that there are for it.
fn cases_of(files: &[TestFile], name: &str) -> Vec<(Value, Value)> {
    let cases = files.iter().filter(|file| file.agent == name).flat_map(|file| &file.cases);
    let output = |case: &TestCase| {
        let output = case.expect.output.as_ref()?;
        output.equals.clone().or_else(|| output.json.clone().map(Value::Object))
    };
    cases.filter_map(|case| Some((case.input.clone()?, output(case)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_returns_is_read_from_its_file() {
        let source = "def other() -> int:\n    pass\n\ndef area(sides: list[int], unit: str = \"(m)\") -> dict[str, float]:\n    return {}\n";
        assert_eq!(returned(source, "area").as_deref(), Some("dict[str, float]"));
        assert_eq!(schema_of("dict[str, float]"), Some(json!({"type": "object"})));
        for (source, name) in [("def area(x):\n    pass\n", "area"), (source, "volume")] {
            assert_eq!(returned(source, name), None);
        }
        assert_eq!(schema_of("str"), None);
    }
}
