//! One agent: its description, its schemas and its prompt.

use super::*;
use crate::project::Typing;

#[test]
fn a_description_is_what_was_written_or_the_start_of_the_instructions() {
    let program = directory().agent("main", "description: Does it").agent("b", "description: ' '").program();
    assert_eq!(program.agents["main"].description, "Does it");
    assert_eq!(program.agents["b"].description, "Do b.");
    let long = format!("---\nname: main\nmodel: ollama:q\n---\n{}", "ä".repeat(500));
    let program = directory().file("main.worker", &long).program();
    assert_eq!(program.agents["main"].description, "ä".repeat(200));
}

#[test]
fn a_schema_is_inline_or_in_a_file_relative_to_the_worker() {
    let worker =
        "---\nname: main\nmodel: ollama:q\nschema_in_ref: ../schemas/./in.json\nschema_out: {type: array}\n---\n";
    let files =
        directory().file("agents/main.worker", worker).schema("schemas/in.json", "\u{feff}{\"type\": \"object\"}");
    let agent = files.program().agents["main"].clone();
    let Typing::Schema(input) = &agent.input else { panic!("{:?}", agent.input) };
    assert_eq!(input.get(), r#"{"type":"object"}"#);
    let Typing::Schema(output) = &agent.output else { panic!("{:?}", agent.output) };
    assert_eq!(output.get(), r#"{"type":"array"}"#);
}

#[test]
fn a_schema_that_would_fail_later_is_a_mistake_now() {
    let inline = |schema: &str| directory().agent("main", &format!("schema_in: {schema}")).mistakes();
    assert_eq!(
        inline("{type: array}"),
        ["main.worker:4:19 an input schema must describe an object (write `type: object`)"]
    );
    assert_eq!(
        inline("{properties: {a: {$ref: 'http://example.com/x'}}}"),
        ["main.worker:4:12 the reference `http://example.com/x` leaves the schema"]
    );
    let invalid = inline("{properties: {a: {type: strng}}}");
    assert!(invalid[0].starts_with("main.worker:4:36 `strng` is no type: "), "{invalid:?}");
    let dangling = inline("{properties: {a: {$ref: '#/$defs/none'}}}");
    assert_eq!(dangling, ["main.worker:4:12 the reference `#/$defs/none` leads nowhere"]);
    let large = "{$ref: '#/$defs/c', $defs: {a: {enum: [x, y]}, b: {allOf: [{$ref: '#/$defs/a'}]}, c: {not: {$ref: '#/$defs/c'}}}}";
    assert_eq!(inline(large), ["main.worker:4:12 a JSON Schema that refers to itself without going into the value"]);

    let in_file =
        |text: &'static str| directory().agent("main", "schema_in_ref: in.json").schema("in.json", text).mistakes();
    assert_eq!(in_file("{\n \"type\": }"), ["in.json:2:10 not valid JSON: expected value"]);
    assert_eq!(
        in_file("[]"),
        ["in.json:1:1 a JSON Schema file holds an object (write `{ \"type\": \"object\", \"properties\": {} }`)"]
    );
    assert_eq!(in_file("{\"a\": 1, \"a\": 2}"), ["in.json:1:10 the key `a` appears twice (remove one of the two)"]);
    assert_eq!(
        in_file("{\"type\": \"string\"}"),
        ["in.json:1:10 an input schema must describe an object (write `\"type\": \"object\"`)"]
    );
    assert_eq!(in_file(""), ["in.json:1:1 not valid JSON: EOF while parsing a value"]);
}

#[test]
fn patterns_that_take_forever_to_compile_are_refused() {
    let bomb = "schema_out: {pattern: '((a{1,100}){1,100}){1,100}'}";
    let mistakes = directory().agent("main", bomb).mistakes();
    assert!(mistakes[0].starts_with("main.worker:4:23 not a JSON Schema: "), "{mistakes:?}");
}

#[test]
fn a_prompt_is_a_template_over_the_fields_of_the_input() {
    let with = |schema: &str, prompt: &str| directory().agent("main", &format!("{schema}\nprompt: \"{prompt}\""));
    let typed = "schema_in: {properties: {topic: {}, items: {}}}";
    let good = [
        ("", "{{ input }} {{ attachments }}"),
        (typed, "{{ topic }}: {% for item in items %}{{ item.name }} {{ loop.index }}{% endfor %}"),
        (typed, "{% if topic %}{{ topic|upper }}{% endif %} {{ range(3) }}"),
        (typed, "{% set x = topic %}{{ x }}"),
        // Other fields may be there.
        ("schema_in: {properties: {a: {}}, additionalProperties: true}", "{{ b }}"),
        ("schema_in: {properties: {a: {}}, allOf: [{}]}", "{{ b }}"),
        ("schema_in: {type: object}", "{{ b }}"),
    ];
    for (schema, prompt) in good {
        assert!(with(schema, prompt).survey().is_ok(), "{schema} {prompt} {:?}", with(schema, prompt).mistakes());
    }
    with(typed, "{{ topc }} {{ zzz }}").check_mistakes(&[
        "main.worker:5:9 the template uses an unknown field `topc` (did you mean `topic`? fields: items, topic)",
        "main.worker:5:9 the template uses an unknown field `zzz` (fields: items, topic)",
    ]);
    let closed = "schema_in: {properties: {topic: {}}, additionalProperties: false}";
    assert_eq!(with(closed, "{{ topc }}").mistakes().len(), 1);
    let broken = with("", "{{ input").mistakes();
    assert!(broken[0].starts_with("main.worker:5:9 the template does not parse: "), "{broken:?}");
    assert!(broken[0].ends_with("(line 1 of the template)"), "{broken:?}");
    with("schema_in_ref: args.py:Args", "{{ input }}").code(Code::Unread).check_mistakes(&[
        "main.worker:5:9 `prompt` and an input class in Python exclude each other (the class renders itself in \
         `prompt_messages()`)",
    ]);
}

#[test]
fn hostile_templates_are_refused_without_overflowing_anything() {
    let chains = [
        ("{{ ", "(", ""),
        ("{{ ", "[", ""),
        ("{{ ", "-", "1 }}"),
        ("{{ ", "not ", "input }}"),
        ("{{ input", ".b", " }}"),
        ("{{ input", "|upper", " }}"),
        ("{{ input", "[0]", " }}"),
        ("{{ input", " + input", " }}"),
        ("{{ input", " if input else input", " }}"),
        ("{{ '}}' ~ input", ".b", " }}"),
        ("{% raw %}{{ '{% endraw %}{{ '}}' ~ input", ".b", " }}"),
        ("", "{% if input %}", ""),
        ("{% if input %}", "{% elif input %}", "{% endif %}"),
    ];
    for (start, link, end) in chains {
        // The first would overflow the stack, the second is nearly as long as is allowed.
        for length in [50_000, 970] {
            let prompt = format!("{start}{}{end}", link.repeat(length / link.len()));
            let files = directory().agent("main", &format!("prompt: \"{prompt}\""));
            let refused = files.survey().is_err();
            assert!(refused || length < 1_000, "{start}{link}{link}…{end}");
        }
    }
}

/// What is reported of one agent whose file has mistakes of its own.
fn mistakes_of(keys: &str) -> Vec<String> {
    let project = Project::new("root").agent("main.worker", &format!("---\nname: main\n{keys}\n---\nDo it.\n"));
    shown(&project.survey(&ModelChoices::default(), None).unwrap_err())
}

#[test]
fn what_follows_from_a_misspelled_key_is_no_further_mistake() {
    let cases = [
        ("modle: ollama:qwen3", "unknown key `modle` in a worker file (did you mean `model`? keys: "),
        ("model: 5", "expected a text or a list (a text each), found the number `5` (write `model: \"…\"`)"),
        (
            "model: ollama:qwen3\ntoolset: [filesystem_cwd]\napproval: {write_file: allow}",
            "unknown key `toolset` in a worker file (did you mean `toolsets`? keys: ",
        ),
        (
            "model: ollama:qwen3\ntoolsets: [filesystem_cwdd]\napproval: {write_file: allow}",
            "agent `main` asks for an unknown toolset `filesystem_cwdd` (did you mean `filesystem_cwd`? toolsets: ",
        ),
        (
            "model: ollama:qwen3\nschema_inn: {type: object, properties: {topic: {}}}\nprompt: \"{{ topic }}\"",
            "unknown key `schema_inn` in a worker file (did you mean `schema_in`? keys: ",
        ),
    ];
    for (keys, mistake) in cases {
        let found = mistakes_of(keys);
        assert!(matches!(found.as_slice(), [only] if only.contains(mistake)), "{keys}\n{found:#?}");
    }
}

#[test]
fn what_does_not_follow_from_a_misspelled_key_is_reported_beside_it() {
    let found = mistakes_of("lockd: true\ntoolsets: [nothing]");
    let facts =
        ["no model for agent `main`", "unknown key `lockd`", "agent `main` asks for an unknown toolset `nothing`"];
    assert_eq!(found.len(), facts.len(), "{found:#?}");
    for (found, fact) in found.iter().zip(facts) {
        assert!(found.contains(fact), "{found}");
    }
}

#[test]
fn a_misspelled_mark_of_the_entry_does_not_make_the_project_one_without() {
    let text = |name: &str, keys: &str| format!("---\nname: {name}\nmodel: ollama:qwen3\n{keys}---\nDo it.\n");
    let project = Project::new("root").agent("a.worker", &text("a", "entyr: true\n")).agent("b.worker", &text("b", ""));
    let found = shown(&project.survey(&ModelChoices::default(), None).unwrap_err());
    let mistake = "a.worker:4:1 unknown key `entyr` in a worker file (did you mean `entry`? keys: ";
    assert!(matches!(found.as_slice(), [only] if only.starts_with(mistake)), "{found:#?}");
}

#[test]
fn skills_are_listed_and_read_by_a_tool() {
    let release = "---\nname: release\ndescription: >\n  How to release,\n  step by step\nlicense: MIT\n---\nDo it.\n";
    let files = directory()
        .agent("main", "skills: [skills, more]\napproval: {load_skill: ask}")
        .schema("skills/release/SKILL.md", release)
        .schema("skills/release/deep/SKILL.md", "no skill")
        .schema("more/typing/SKILL.md", "---\ndescription: How to type\n---\n");
    let program = files.program();
    assert_eq!(
        program.agents["main"].instructions,
        "Do main.\n\n# Skills\n\nBefore you do what one of these is about, read it with `load_skill`.\n\n\
         - release: How to release, step by step\n- typing: How to type"
    );
    let tools = program.tools_of(&program.agents["main"]);
    assert_eq!(
        (tools[0].name.as_ref(), &tools[0].verdict),
        ("load_skill", &crate::tools::approval::DeclaredVerdict::Ask)
    );
}

#[test]
fn a_skill_that_cannot_be_used_is_a_mistake() {
    let mistakes = |text: &'static str| {
        directory().agent("main", "skills: [skills]").schema("skills/release/SKILL.md", text).mistakes()
    };
    for (text, expected) in [
        (
            "Do it.",
            "skills/release/SKILL.md:1:1 the file does not start with a line `---` (put the keys between two lines \
             `---` at the very start, the instructions below)",
        ),
        (
            "---\nname: x\ndescription: d\n---\n",
            "skills/release/SKILL.md:2:7 the skill in `release` calls itself `x` (write `name: release`, or rename the \
             directory)",
        ),
    ] {
        assert_eq!(mistakes(text)[0], expected);
    }
    let missing = mistakes("---\nname: release\n---\n");
    assert!(
        missing[0].ends_with(
            "the skill `release` has no `description` (say in one sentence what it is about, and when to read it)"
        ),
        "{missing:?}"
    );
    let twice = directory()
        .agent("main", "skills: [a, b]")
        .schema("a/x/SKILL.md", "---\ndescription: d\n---\n")
        .schema("b/x/SKILL.md", "---\ndescription: d\n---\n");
    twice.check_mistakes(&["main.worker:4:13 two skills of agent `main` are called `x` (rename the directory of one)"]);
    let long: &'static str = Box::leak(format!("---\ndescription: {}\n---\n", "d".repeat(1_000)).into_boxed_str());
    let names: [&'static str; 17] =
        std::array::from_fn(|number| &*Box::leak(format!("s/n{number}/SKILL.md").into_boxed_str()));
    let many = names.iter().fold(directory().agent("main", "skills: [s]"), |files, name| files.schema(name, long));
    assert!(many.mistakes()[0].contains("bytes about themselves, and 16384 are the most"));
}

#[test]
fn an_agents_md_of_the_project_is_added() {
    let files = directory().agent("main", "agents_md: project").agent("b", "").schema("AGENTS.md", "Be kind.\n");
    let program = files.program();
    assert_eq!(program.agents["main"].instructions, "Do main.\n\n# AGENTS.md\n\nBe kind.");
    assert_eq!(program.agents["b"].instructions, "Do b.");
    let long: &'static str = Box::leak("x".repeat(32 * 1024 + 1).into_boxed_str());
    directory()
        .agent("main", "agents_md: project")
        .schema("AGENTS.md", long)
        .check_mistakes(&["main.worker:4:12 `AGENTS.md` has 32769 bytes, and 32768 are the most"]);
}

#[test]
fn a_file_may_name_the_model_that_summarises() {
    let summariser = |files: Files| files.program().agents["main"].summariser.as_ref().map(ToString::to_string);
    let files = || directory().agent("main", "context: {model: \"ollama:qwen3\"}");
    assert_eq!(summariser(files()), Some("ollama:qwen3".to_owned()));
    assert!(files().program().asked_models().any(|model| model.to_string() == "ollama:qwen3"), "it is connected to");
    assert_eq!(summariser(files().choosing(|choices| choices.all = Some(model("ollama:q")))), None);
    for (written, expected) in [
        ("qwen3", "main.worker:4:18 the model `qwen3` names no provider (write `provider:model`)"),
        ("scripted:s.yaml", "main.worker:4:18 a script cannot summarise: name a model"),
    ] {
        let files = directory().agent("main", &format!("context: {{model: \"{written}\"}}"));
        files.check_mistakes(&[expected]);
    }
    let unknown = directory().agent("main", "context: {model: \"olama:qwen3\"}").mistakes();
    assert!(
        unknown[0].starts_with(
            "main.worker:4:18 unknown provider `olama` in the model `olama:qwen3` (did you mean `ollama`?"
        ),
        "{unknown:?}"
    );
}
