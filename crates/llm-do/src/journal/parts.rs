//! What a model request is made of besides the conversation: named by digests, so that it is written once a run. Pure.

use serde::{Deserialize, Serialize};

use super::digest::digest;
use crate::message::RawJson;

/// The names of what requests of one call are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartNames {
    pub instructions: String,
    pub tools: String,
    /// The schema of the answer, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    pub settings: String,
}

/// What the requests of one call are made of, each part under its name. A list of the names has a name too, which is all
/// that a request says.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestParts {
    name: String,
    names: RawJson,
    parts: Vec<(String, RawJson)>,
}

impl RequestParts {
    /// Names each of the parts by what it is.
    pub fn of(
        instructions: &impl Serialize,
        tools: &impl Serialize,
        output: Option<&RawJson>,
        settings: &impl Serialize,
    ) -> Self {
        let named = |part: RawJson| (short(&part, 32), part.in_one_line());
        let [instructions, tools, settings] =
            [RawJson::of(instructions), RawJson::of(tools), RawJson::of(settings)].map(named);
        let output = output.cloned().map(named);
        let names = RawJson::of(&PartNames {
            instructions: instructions.0.clone(),
            tools: tools.0.clone(),
            output: output.as_ref().map(|(name, _)| name.clone()),
            settings: settings.0.clone(),
        });
        let parts = [Some(instructions), Some(tools), output, Some(settings)].into_iter().flatten().collect();
        Self { name: short(&names, 16), names, parts }
    }

    /// The name of all of them together.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the parts.
    pub fn names(&self) -> PartNames {
        self.names.to().expect("they were written as this")
    }

    /// Every line that says what they are, by its name: each part, then the list of their names.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        let parts = self.parts.iter().map(|(name, part)| (name.as_str(), part));
        parts.chain([(self.name.as_str(), &self.names)])
    }
}

fn short(part: &RawJson, digits: usize) -> String {
    let mut name = digest([part.get()]);
    name.truncate(digits);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_have_equal_names_and_others_do_not() {
        let parts = |instructions: &str, output: Option<&RawJson>| {
            RequestParts::of(&instructions, &["tool"], output, &serde_json::json!({"temperature": 0.5}))
        };
        let (schema, plain) = (RawJson::of(&true), parts("a", None));
        assert_eq!((plain.name(), plain.lines().count()), (parts("a", None).name(), 4));
        assert_ne!(plain.name(), parts("b", None).name());
        assert_ne!(plain.name(), parts("a", Some(&schema)).name());
        let lines: Vec<(String, RawJson)> = plain.lines().map(|(name, part)| (name.into(), part.clone())).collect();
        let names: PartNames = lines[3].1.to().unwrap();
        assert_eq!((names.instructions, names.output), (lines[0].0.clone(), None));
    }
}
