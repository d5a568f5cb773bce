//! A toolset seen through a definition that chooses some of its tools, renames them and rules over them.

use std::sync::Arc;

use super::approval::{Judgement, PermittedCall};
use super::source::Variant;
use super::{CallContext, ToolError, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::message::{Content, RawJson};

/// A live variant of a live toolset.
pub(crate) struct VariantToolset {
    pub variant: Arc<Variant>,
    pub of: Box<dyn Toolset>,
}

impl VariantToolset {
    /// The name that the toolset below has for a tool of this one.
    fn original<'a>(&self, tool: &'a str) -> &'a str {
        tool.strip_prefix(self.variant.prefix.as_str()).unwrap_or(tool)
    }
}

impl Toolset for VariantToolset {
    fn specs(&self) -> Vec<ToolSpec> {
        let is_chosen = |spec: &ToolSpec| self.variant.tools.as_ref().is_none_or(|chosen| chosen.contains(&spec.name));
        let renamed = |spec: ToolSpec| ToolSpec { name: format!("{}{}", self.variant.prefix, spec.name), ..spec };
        self.of.specs().into_iter().filter(is_chosen).map(renamed).collect()
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            let original = self.original(tool);
            let judgement = self.of.judge(original, arguments, cx).await?;
            Ok(judgement.under(self.variant.rule(original)))
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        let original = self.original(call.tool()).to_owned();
        let call = call.renamed(original);
        match cx.timeout.or(self.variant.timeout) {
            None => self.of.call(call, cx),
            timeout => Box::pin(async move {
                let inner = CallContext { timeout, steps: cx.steps.clone(), ..*cx };
                self.of.call(call, &inner).await
            }),
        }
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        self.of.close()
    }
}
