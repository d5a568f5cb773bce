//! Model providers that Python files register.

use fake_llm::{FakeLlm, FakeReply, FakeScript};

use crate::session::{KEY, Run};
use crate::{project, python, run};

const KIT: &str = "\
import os
from llm_do.models import OpenAICompatibleProvider, register_model_factory
asked = []
def endpoint(model):
    asked.append(model)
    return OpenAICompatibleProvider(base_url=os.environ['MINE'], api_key='acme-key-17')
register_model_factory('acme', endpoint)
";

fn asking<'a>(sandbox: &'a crate::support::Sandbox, fake: &FakeLlm, flags: &[&'a str]) -> Run<'a> {
    let arguments = [&[".", "hi", "-q", "--trust"], flags].concat();
    let cache = python::cache().to_str().unwrap().to_owned();
    Run::new(sandbox, &arguments)
        .with("XDG_CACHE_HOME", cache)
        .with("MINE", fake.openai_url())
        .with("OPENAI_API_KEY", KEY)
}

#[test]
fn an_endpoint_that_a_file_registers_is_asked_by_llm_do_with_its_own_key() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("An answer.")));
    let sandbox = project(&[("main", "entry: true\nmodel: acme:rocket-1")], &[("kit.py", KIT)], "");
    assert_eq!(asking(&sandbox, &fake, &[]).answer(), "An answer.\n");
    let requests = fake.requests();
    assert_eq!(requests.len(), 1);
    let sent = format!("{requests:?}");
    assert!(sent.contains("rocket-1") && sent.contains("acme-key-17") && !sent.contains(KEY), "{sent}");
    // Also where the user chooses it.
    let sandbox = project(&[("main", "entry: true")], &[("kit.py", KIT)], "");
    assert_eq!(asking(&sandbox, &fake, &["-m", "acme:rocket-2"]).answer(), "An answer.\n");
}

#[test]
fn what_is_registered_wrongly_is_named() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("no")));
    let of = |model: &str, kit: &str| {
        let sandbox = project(&[("main", &format!("entry: true\nmodel: {model}"))], &[("kit.py", kit)], "");
        asking(&sandbox, &fake, &[]).failure(2)
    };
    let start = "from llm_do.models import OpenAICompatibleProvider as P, register_model_factory as register\n";
    for (model, kit, words) in [
        ("acme:x", "register('openai', P('http://x'))", "registers the provider `openai`, which there is already"),
        ("acme:x", "register('other', P('http://x'))", "unknown provider `acme` in the model `acme:x`"),
        ("acme:x", "register('a:b', P('http://x'))", "ValueError: 'a:b' is not a prefix"),
        ("acme:x", "register('acme', 7)", "TypeError: 7 is neither an endpoint nor a function"),
        ("acme:x", "register('acme', lambda name: 7)", "the factory of the provider `acme` failed: TypeError"),
        (
            "acme:x",
            "register('acme', lambda name: 1 / 0)",
            "ZeroDivisionError: division by zero (kit.py:2 in <lambda>)",
        ),
        ("acme:x", "register('acme', P('a'))\nregister('acme', P('b'))", "`acme` is registered already"),
    ] {
        let said = of(model, &format!("{start}{kit}\n"));
        assert!(said.contains(words), "{kit}: {said}");
    }
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn code_resolves_models_for_agents_of_its_own() {
    let kit = format!(
        "{KIT}
import llm_do
def tool() -> str:
    try:
        return str(llm_do.models.pydantic_ai_model('acme:rocket-1'))
    except ImportError as error:
        return str(error)
def other() -> str:
    return ' '.join([llm_do.resolve_model('openai:gpt-5'), llm_do.resolve_model('acme:rocket-1'), repr(endpoint('x'))])
TOOLS = [tool, other]
"
    );
    let main = "entry: true\ntools: [tool, other]\napproval: { tool: allow, other: allow }";
    for (tool, words) in [
        (
            "tool",
            "`acme:rocket-1` in Python needs PydanticAI with OpenAI's client: pip install 'pydantic-ai-slim[openai]'",
        ),
        ("other", "openai:gpt-5 acme:rocket-1 OpenAICompatibleProvider('http://mine')"),
    ] {
        let sandbox = project(&[("main", main)], &[("kit.py", &kit)], &crate::calls(&[&format!("{{ {tool}: {{}} }}")]));
        assert_eq!(run(&sandbox, &["-q"]).with("MINE", "http://mine").answer(), format!("{words}\n"));
    }
}
