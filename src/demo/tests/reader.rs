use super::super::request::Api;
use super::*;

const LOG: &str = "Running all tests";
const MEMORY: Memory<'static> = Memory { begins: "panicked (at) order ", below: LOG };

fn id(digit: char) -> String {
    digit.to_string().repeat(ID_DIGITS)
}

/// A request with the reader, whose history is a call with this result for each text.
fn request(api: Api, tool: &str, results: &[(&str, &str, &str)]) -> ModelRequest {
    let client = client::of(api);
    let mut items = vec![client.user("Go on.")];
    for (nth, (name, arguments, text)) in results.iter().enumerate() {
        let call = ToolCall { id: format!("c{nth}"), name: (*name).to_owned(), arguments: (*arguments).to_owned() };
        let input: Value = serde_json::from_str(arguments).unwrap();
        items.push(match api {
            Api::Chat => json!({"role": "assistant", "content": null, "tool_calls": [call.json()]}),
            Api::Responses => {
                json!({"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments})
            }
            Api::Messages => json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": call.id, "name": name, "input": input}]}),
        });
        items.extend(client.results(&[(&call, (*text).to_owned())]));
    }
    let offered = if api == Api::Chat { json!({"function": {"name": tool}}) } else { json!({"name": tool}) };
    ModelRequest::new(api, json!({ "tools": [offered], client.list(): items }))
}

const APIS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

#[test]
fn what_is_in_sight_is_not_read_back() {
    for api in APIS {
        let text = format!("{LOG}\npanicked (at) order 17, twice\nmore");
        let seen = MEMORY.look(&request(api, "read_evicted", &[("execute", "{}", &text)]));
        assert_eq!(seen, Sight::Seen("panicked (at) order 17, twice".to_owned()), "{api:?}");
    }
}

#[test]
fn what_is_not_is_read_by_the_likeliest_id_of_the_request() {
    for api in APIS {
        let (own, other, all) = (id('a'), id('b'), id('c'));
        let evicted = format!("{LOG}\n[… id {own}, GET …]");
        let (later, head) = (format!("[… id {other} …]"), format!("{NOTICE}x> kept: - id {all}, …"));
        let history = [("execute", "{}", &*evicted), ("execute", "{}", &*head), ("execute", "{}", &*later)];
        for (results, expected) in [(&history[..], &own), (&history[1..], &all), (&history[2..], &other)] {
            let request = request(api, "compactproxy_read_evicted", results);
            let Sight::Away(call) = MEMORY.look(&request) else { panic!("{api:?}") };
            assert_eq!(call.name, "compactproxy_read_evicted");
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert_eq!(arguments, json!({"id": expected, "pattern": r"panicked \(at\) order "}), "{api:?}");
        }
    }
}

#[test]
fn an_id_is_tried_once_and_without_a_tool_nothing_can_be_read() {
    for api in APIS {
        let evicted = format!("{LOG}\n[… id {}, GET …]", id('a'));
        let asked = format!(r#"{{"id":"{}","pattern":"x"}}"#, id('a'));
        let error = "Error: nothing matches panicked (at) order .";
        let history = [("execute", "{}", &*evicted), ("read_evicted", &*asked, error)];
        assert_eq!(MEMORY.look(&request(api, "read_evicted", &history)), Sight::Gone, "{api:?}");
        assert_eq!(MEMORY.look(&request(api, "execute", &history[..1])), Sight::Gone, "{api:?}");
        assert_eq!(MEMORY.look(&request(api, "read_evicted", &[("execute", "{}", "id 123")])), Sight::Gone);
    }
}

#[test]
fn a_round_is_known_by_what_it_ends_with() {
    for api in APIS {
        let both = [("execute", "{}", "a"), ("read_evicted", "{}", "b")];
        let round = goes_on(&request(api, "read_evicted", &both));
        assert_eq!(round, Some(("{}".to_owned(), "b".to_owned())), "{api:?}");
        assert_eq!(goes_on(&request(api, "read_evicted", &[both[1], both[0]])), None, "{api:?}");
        let mut said = request(api, "read_evicted", &both);
        let user = client::of(api).user("And now?");
        said.body[client::of(api).list()].as_array_mut().unwrap().push(user.clone());
        said.input.push(user);
        assert_eq!(goes_on(&said), None, "{api:?}");
    }
}
