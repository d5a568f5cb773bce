//! Ten recorded agents whose right answers are known: figures that are true, callers that notice nothing, and the way back.

use serde_json::{Value, json};

use crate::{Recorded, SORTER, Shop, figures, is_wrong};

const TEXT: &str = "{type: object, properties: {text: {type: string}}, required: [text]}";
const NUMBER: &str = "{type: object, properties: {n: {type: integer}}, required: [n]}";

fn text(number: u64) -> Value {
    const WORDS: [&str; 6] =
        ["refund please", "where is it", "great work", "broken again", "how much is it", "thank you"];
    let word = WORDS[usize::try_from(number % 6).unwrap()];
    json!({"text": format!("{word} {number}")})
}

fn number(number: u64) -> Value {
    json!({"n": number * 7})
}

fn said(input: &Value) -> &str {
    input["text"].as_str().unwrap()
}

fn of(input: &Value) -> u64 {
    input["n"].as_u64().unwrap()
}

/// What they answer is found out from what they are given, each in another way.
static AGENTS: [Recorded; 10] = [
    SORTER,
    Recorded {
        name: "parity",
        schema_in: NUMBER,
        schema_out: "{type: object, properties: {even: {type: boolean}}, required: [even]}",
        right: |input| json!({"even": of(input).is_multiple_of(2)}),
        input: number,
        code: "def parity(n: int) -> dict:\n    return {\"even\": n % 2 == 0}\n",
    },
    Recorded {
        name: "bucket",
        schema_in: NUMBER,
        schema_out: "{type: string, enum: [small, middle, large]}",
        right: |input| {
            json!(match of(input) {
                ..50 => "small",
                50..100 => "middle",
                _ => "large",
            })
        },
        input: number,
        code: "def bucket(n):\n    return \"small\" if n < 50 else \"middle\" if n < 100 else \"large\"\n",
    },
    Recorded {
        name: "mood",
        schema_in: TEXT,
        schema_out: "{type: object, properties: {glad: {type: boolean}}, required: [glad]}",
        right: |input| json!({"glad": said(input).contains("great") || said(input).contains("thank")}),
        input: text,
        code: "GLAD = (\"great\", \"thank\")\n\n\ndef mood(text: str) -> dict:\n    return {\"glad\": any(word in text for word in GLAD)}\n",
    },
    Recorded {
        name: "length",
        schema_in: TEXT,
        schema_out: "{type: integer}",
        right: |input| json!(said(input).len()),
        input: text,
        code: "def length(text: str) -> int:\n    return len(text)\n",
    },
    Recorded {
        name: "first-word",
        schema_in: TEXT,
        schema_out: "{type: object, properties: {word: {type: string}}, required: [word]}",
        right: |input| json!({"word": said(input).split(' ').next()}),
        input: text,
        code: "def first_word(text: str) -> dict:\n    return {\"word\": text.split(\" \")[0]}\n",
    },
    Recorded {
        name: "digits",
        schema_in: NUMBER,
        schema_out: "{type: array, items: {type: integer}}",
        right: |input| json!(of(input).to_string().bytes().map(|digit| digit - b'0').collect::<Vec<u8>>()),
        input: number,
        code: "def digits(n: int) -> list:\n    return [int(digit) for digit in str(n)]\n",
    },
    Recorded {
        name: "question",
        schema_in: TEXT,
        schema_out: "{type: object, properties: {asks: {type: boolean}}, required: [asks]}",
        right: |input| json!({"asks": said(input).starts_with("where") || said(input).starts_with("how")}),
        input: text,
        code: "async def question(text: str) -> dict:\n    return {\"asks\": text.startswith((\"where\", \"how\"))}\n",
    },
    Recorded {
        name: "half",
        schema_in: NUMBER,
        schema_out: "{type: object, properties: {half: {type: number}}, required: [half]}",
        right: |input| json!({"half": of(input) / 2}),
        input: |count| json!({"n": count * 14}),
        code: "def half(n: int) -> dict:\n    return {\"half\": n // 2}\n",
    },
    Recorded {
        name: "route",
        schema_in: TEXT,
        schema_out: "{type: object, properties: {to: {enum: [money, repair, desk]}}, required: [to]}",
        right: |input| {
            let said = said(input);
            let to = if said.contains("refund") || said.contains("much") {
                "money"
            } else if said.contains("broken") {
                "repair"
            } else {
                "desk"
            };
            json!({"to": to})
        },
        input: text,
        code: "import re\n\n\ndef route(text: str) -> dict:\n    if re.search(\"refund|much\", text):\n        return {\"to\": \"money\"}\n    \
               return {\"to\": \"repair\" if \"broken\" in text else \"desk\"}\n",
    },
];

/// So many records of each agent, of which one in five is wrong.
const RECORDS: u64 = 30;

#[test]
fn figures_are_true_callers_notice_nothing_and_everything_can_be_taken_back() {
    let (mut covered, mut same, mut unasked) = (0, 0, 0);
    for agent in &AGENTS {
        let shop = Shop::new(agent, agent.code, is_wrong);
        shop.record(agent, RECORDS);
        let before = shop.files();
        let input = (agent.input)(101);
        let as_before = shop.call(&input);
        assert_eq!(as_before.stdout, format!("it says {}\n", (agent.right)(&input)), "{as_before:?}");
        let left = shop.at_terminal(&["harden", agent.name, "shop"], &["y", "y", "y"]);
        assert_eq!(left.code, Some(0), "{}: {}", agent.name, left.written);
        // The truth is known: the code is right, and one record of five is not.
        let [equal, seen, equal_held_out, held_out, low, high] = figures(&left.written);
        // The caller's call is one record more.
        let (records, right) = (RECORDS + 1, (0..RECORDS).filter(|number| !is_wrong(*number)).count() as u64 + 1);
        assert_eq!(
            (equal + equal_held_out, seen, held_out),
            (right, records - records / 3, records / 3),
            "{}",
            agent.name
        );
        covered += u64::from(low <= 80 && 80 <= high);
        let hardened = shop.files();
        let own = ["project.json".to_owned(), format!("{}.worker", agent.name)];
        let others: Vec<_> = before.iter().filter(|(path, _)| !own.iter().any(|own| path.ends_with(own))).collect();
        same += u64::from(others.iter().all(|(path, text)| hardened.get(*path) == Some(*text)));
        // Whoever calls it asks nobody, whether a person is there or not.
        let asked = shop.asked();
        let ended = shop.call(&input);
        assert_eq!(ended, as_before, "{}", agent.name);
        // The caller is asked twice, its agent not at all.
        unasked += u64::from(shop.asked() == asked + 2);
        let tests = shop.run(&["test", "shop"]);
        let wrong = records - right;
        let expected = (Some(i32::from(wrong > 0)), true);
        assert_eq!((tests.code, tests.stdout.contains(&format!("{right} passed"))), expected, "{tests:?}");
        let softened = shop.run(&["soften", agent.name, "shop"]);
        assert_eq!(softened.code, Some(0), "{softened:?}");
        assert_eq!(shop.files(), before, "{}", agent.name);
    }
    println!(
        "{covered} of 10 intervals cover the truth; callers the same {same} of 10; without a question {unasked} of 10"
    );
    assert!(covered >= 9, "{covered} of 10 intervals cover the truth");
    assert_eq!((same, unasked), (10, 10));
}
