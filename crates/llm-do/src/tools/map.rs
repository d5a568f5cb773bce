//! An agent over the items of a list, as a tool: so many calls at once, and what came of each in the order of the list.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::agent::AgentTool;
use super::approval::{Judgement, PermittedCall, Verdict};
use super::plane::all_waiting;
use super::source::MapConfig;
use super::{CallContext, Ending, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::message::{Content, RawJson};
use crate::underway::Underway;

/// The tool of one caller.
pub(crate) struct MapTool {
    pub config: Arc<MapConfig>,
    /// Who is called for each item.
    pub agent: AgentTool,
}

#[derive(Deserialize)]
struct MapArguments {
    /// As they are written: agents see the order of keys.
    items: Option<Vec<RawJson>>,
}

/// What came of one item: its answer, or why there is none.
type ItemResult = Result<RawJson, String>;

impl MapTool {
    fn arguments(&self, arguments: &RawJson) -> Result<MapArguments, String> {
        let given: Value = arguments.to().map_err(|error| error.to_string())?;
        let fields = given.as_object().ok_or_else(|| format!("`{}` takes an object", self.config.name))?;
        if let Some(other) = fields.keys().find(|key| *key != "items") {
            return Err(format!("`{}` takes `items` and nothing else: `{other}`", self.config.name));
        }
        let parsed: MapArguments = arguments.to().map_err(|_| "`items` is no list".to_owned())?;
        match (&parsed.items, &self.config.over) {
            (None, None) => Err("`items` is missing: the list, one by one what the agent is given".to_owned()),
            (Some(items), _) => self.within_bounds(items).map(|()| parsed),
            (None, Some(_)) => Ok(parsed),
        }
    }

    /// A list that is too long is refused before anything is asked.
    fn within_bounds(&self, items: &[RawJson]) -> Result<(), String> {
        let (count, MapConfig { name, max_items, .. }) = (items.len() as u64, &*self.config);
        if count > *max_items {
            return Err(format!(
                "the list has {count} items, and `max_items` of `{name}` is {max_items}; nothing was asked"
            ));
        }
        Ok(())
    }

    /// The list: what the caller gives, or what the tool gives that makes it.
    async fn items(&self, call: &PermittedCall, cx: &CallContext<'_>) -> Result<Vec<RawJson>, ToolError> {
        let MapArguments { items } = self.arguments(call.arguments()).map_err(ToolError::Failed)?;
        let (None, Some(over)) = (&items, &self.config.over) else { return Ok(items.unwrap_or_default()) };
        if !cx.plane.has(over) {
            let MapConfig { name, .. } = &*self.config;
            return Err(ToolError::Failed(format!("`{name}` is over `{over}`, which `{}` does not have", cx.agent)));
        }
        let given = cx.call(over, &RawJson::of(&json!({}))).await?;
        let text = match given.as_slice() {
            [Content::Value { json }] => json.clone(),
            content => Content::shown(content),
        };
        let listed = serde_json::from_str::<Vec<RawJson>>(&text);
        let items = listed.map_err(|_| ToolError::Failed(format!("`{over}` gave no list")))?;
        self.within_bounds(&items).map_err(ToolError::Failed)?;
        Ok(items)
    }

    /// An agent without a schema is told a text; what is none is told as JSON, and names no files.
    fn input(&self, item: RawJson) -> RawJson {
        let is_text = item.get().starts_with('"');
        if is_text || self.agent.parameters.is_some() { item } else { RawJson::of(&item.get()) }
    }

    /// One item, through the gate like every call. Where it stands in the record follows from what it is.
    async fn one(&self, item: RawJson, cx: &CallContext<'_>) -> Result<ItemResult, Ending> {
        match cx.plane.call_agent(self.agent.clone(), &self.input(item), cx).await {
            Ok(content) => Ok(Ok(json_of(&content))),
            Err(ToolError::Ends(ending)) => Err(ending),
            Err(error @ (ToolError::Failed(_) | ToolError::Changed)) => Ok(Err(error.to_string())),
        }
    }

    /// An item that asks waits, and the others go on. What ends the run lets nothing more begin.
    async fn all(&self, items: Vec<RawJson>, cx: &CallContext<'_>) -> Result<Vec<ItemResult>, Ending> {
        let mut results: Vec<Option<ItemResult>> = items.iter().map(|_| None).collect();
        let (mut coming, mut asked, mut begun) = (items.into_iter().enumerate(), Underway::default(), 0_u64);
        let (mut waiting, mut ended) = (Vec::new(), None);
        loop {
            while ended.is_none()
                && begun < self.config.parallel
                && let Some((place, item)) = coming.next()
            {
                let one: BoxFuture<'_, _> = Box::pin(async move { (place, self.one(item, cx).await) });
                asked.push(one);
                begun += 1;
            }
            if begun == 0 {
                break;
            }
            let (place, result) = asked.next().await;
            begun -= 1;
            match result {
                Ok(result) => results[place] = Some(result),
                Err(Ending::NeedsApproval(questions)) => waiting.extend(questions),
                Err(ending) => drop(ended.get_or_insert(ending)),
            }
        }
        if let Some(ending) = ended {
            return Err(ending);
        }
        all_waiting(waiting)?;
        Ok(results.into_iter().flatten().collect())
    }

    fn description(&self) -> String {
        let MapConfig { agent, over, max_items, .. } = &*self.config;
        let mut text = format!("Calls the agent `{agent}` once for each item of a list");
        if !self.agent.description.trim().is_empty() {
            text.push_str(&format!(" ({})", self.agent.description.trim()));
        }
        text.push_str(&format!(
            ", and gives a list of {{\"item\": 1, \"output\": …}} in the same order, with `error` in place of `output` \
             where one failed. At most {max_items} items"
        ));
        if let Some(over) = over {
            text.push_str(&format!("; without `items` the list is what `{over}` gives"));
        }
        text
    }

    fn parameters(&self) -> RawJson {
        let (item, shared) = match &self.agent.parameters {
            Some(schema) => as_items(schema),
            None => (r#"{"type":"string"}"#.to_owned(), String::new()),
        };
        let required = if self.config.over.is_some() { "" } else { r#""required":["items"],"# };
        RawJson::from_valid(format!(
            r#"{{"type":"object","properties":{{"items":{{"type":"array","description":"what the agent is given, one by one","items":{item}}}}},{required}{shared}"additionalProperties":false}}"#
        ))
    }
}

/// A schema within another one, and what stands beside it at the top: what the schema refers to. One that refers to other
/// places of itself says only what it is about.
fn as_items(schema: &RawJson) -> (String, String) {
    const SHARED: [&str; 2] = ["$defs", "definitions"];
    let text = schema.get();
    let Ok(Value::Object(mut fields)) = schema.to::<Value>() else { return (text.to_owned(), String::new()) };
    if !text.contains("\"$ref\"") && !text.contains("\"$dynamicRef\"") {
        return (text.to_owned(), String::new());
    }
    let plain = Value::Object(fields.clone()).to_string();
    let mut targets = plain.split("\"$ref\":\"").skip(1);
    let is_shared = |target: &str| SHARED.iter().any(|key| target.starts_with(&format!("#/{key}/")));
    if targets.any(|target| !is_shared(target)) || plain.contains("\"$dynamicRef\"") {
        return (
            json!({"type": fields.get("type").cloned().unwrap_or_else(|| json!("object"))}).to_string(),
            String::new(),
        );
    }
    fields.remove("$schema");
    let shared = SHARED.iter().filter_map(|key| Some(format!("\"{key}\":{},", fields.remove(*key)?))).collect();
    (Value::Object(fields).to_string(), shared)
}

/// What an agent said: a value, or a text.
fn json_of(content: &[Content]) -> RawJson {
    match content {
        [Content::Value { json }] => RawJson::parse(json).unwrap_or_else(|_| RawJson::of(json)),
        content => RawJson::of(&Content::shown(content)),
    }
}

/// The list that the caller gets, in the words of `llm-do map`.
fn listed(results: &[ItemResult]) -> Content {
    let mut json = String::from("[");
    for (index, result) in results.iter().enumerate() {
        let (comma, number) = (if index == 0 { "" } else { ", " }, index + 1);
        let (key, value) = match result {
            Ok(output) => ("output", output.get().to_owned()),
            Err(reason) => ("error", Value::from(reason.as_str()).to_string()),
        };
        json.push_str(&format!("{comma}{{\"item\": {number}, \"{key}\": {value}}}"));
    }
    json.push(']');
    Content::Value { json }
}

impl Toolset for MapTool {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: self.config.name.clone(),
            description: self.description(),
            parameters: self.parameters(),
            kind: ToolKind::Code,
            order: Order::Concurrent,
            // It does nothing but call: what was answered is answered from the record.
            repeat: Repeat::Repeatable,
        }]
    }

    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        // Whatever has to be asked about an item is asked when the item is called.
        Box::pin(async move { self.arguments(arguments).map(|_| Verdict::Allow.into()) })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let items = self.items(&call, cx).await?;
            let results = self.all(items, cx).await.map_err(ToolError::Ends)?;
            Ok(vec![listed(&results)])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_within_another_keeps_what_it_refers_to() {
        let within = |schema: &str| as_items(&RawJson::parse(schema).unwrap());
        let plain = r#"{"type": "object", "properties": {"b": {}, "a": {}}}"#;
        assert_eq!(within(plain), (plain.to_owned(), String::new()), "in its own order");
        let (item, shared) =
            within(r##"{"$schema": "x", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}"##);
        assert_eq!(item, r##"{"properties":{"a":{"$ref":"#/$defs/a"}}}"##);
        assert_eq!(shared, r#""$defs":{"a":{}},"#);
        let recursive = r##"{"type": "object", "properties": {"next": {"$ref": "#"}}}"##;
        assert_eq!(within(recursive), (r#"{"type":"object"}"#.to_owned(), String::new()));
    }

    #[test]
    fn what_came_of_items_is_a_list_in_their_order() {
        let results = [Ok(RawJson::parse(r#"{"b":1,"a":"x"}"#).unwrap()), Err("no \"way\"".to_owned())];
        let Content::Value { json } = listed(&results) else { panic!("no value") };
        assert_eq!(json, r#"[{"item": 1, "output": {"b":1,"a":"x"}}, {"item": 2, "error": "no \"way\""}]"#);
        assert_eq!(listed(&[]), Content::Value { json: "[]".to_owned() });
    }
}
