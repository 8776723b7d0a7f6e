//! Paths of hosts that name the model in them, in place of the body: Vertex, Bedrock, Azure's deployments.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::dialect::path_alone;

/// Where Vertex counts tokens; the body names the model.
const VERTEX_COUNT: &str = "/models/count-tokens:rawPredict";
/// How paths of Vertex and of Bedrock end, where an answer comes as a stream and where it comes whole.
const VERBS: [(&str, &str); 2] = [(":streamRawPredict", ":rawPredict"), ("/invoke-with-response-stream", "/invoke")];
/// What comes before the model.
const VERTEX: &str = "/publishers/anthropic/models/";
const BEDROCK: &str = "/model/";
const AZURE: &str = "/deployments/";
/// What does not stand in a segment of a path as it is.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// A path with a model in it.
struct Hosted<'p> {
    before: &'p str,
    model: &'p str,
    after: &'p str,
}

impl<'p> Hosted<'p> {
    /// `None`: the path names no model.
    fn of(path: &'p str) -> Option<Self> {
        let path = path_alone(path);
        if path.ends_with(VERTEX_COUNT) {
            return None;
        }
        let ends = |verb: &&str| path.ends_with(*verb);
        match VERBS.iter().flat_map(|(streamed, whole)| [*streamed, *whole]).find(|verb| ends(verb)) {
            Some(verb) if verb.starts_with(':') => {
                Self::between(path, VERTEX, verb).filter(|path| !path.model.contains('/'))
            }
            Some(verb) => Self::between(path, BEDROCK, verb),
            None => {
                let (_, behind) = path.split_once(AZURE)?;
                let (_, after) = behind.split_once('/')?;
                Self::between(path, AZURE, path.get(path.len() - after.len() - 1..)?)
            }
        }
    }

    fn between(path: &'p str, mark: &str, after: &'p str) -> Option<Self> {
        let rest = path.strip_suffix(after)?;
        let at = rest.rfind(mark)? + mark.len();
        let (before, model) = rest.split_at_checked(at)?;
        let after = path.get(rest.len()..)?;
        (!model.is_empty()).then_some(Self { before, model, after })
    }

    /// Whether it is Claude's: only its models take Messages bodies.
    fn takes_messages(&self) -> bool {
        let hosted = VERBS.iter().any(|(streamed, whole)| self.after == *streamed || self.after == *whole);
        hosted && (self.model.contains("claude") || self.model.contains("anthropic"))
    }
}

/// Whether a path is one at which Vertex counts tokens.
pub(super) fn counts(path: &str) -> bool {
    path.ends_with(VERTEX_COUNT)
}

/// Whether bodies for a path are of Messages because of what it names.
pub(super) fn takes_messages(path: &str) -> bool {
    counts(path) || Hosted::of(path).is_some_and(|hosted| hosted.takes_messages())
}

/// The model that a path names, where bodies need not: on Vertex (`…/models/NAME:rawPredict`), on Bedrock
/// (`…/model/NAME/invoke`), and of Azure's deployments (`…/deployments/NAME/chat/completions`), which mostly have their
/// model's name.
pub fn model_of_path(path: &str) -> Option<&str> {
    Hosted::of(path).map(|hosted| hosted.model)
}

/// Whether answers on a path come in [Amazon's frames](super::amazon).
pub fn is_framed(path: &str) -> bool {
    path_alone(path).ends_with("/invoke-with-response-stream")
}

/// What a call at a path asks its model for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// What the body says: the call stays where it was.
    AsBefore,
    /// A whole answer: the body asks for no stream.
    Whole,
}

/// The target (path and query) for another call of the same form, for `model` where it is another one's. `None`: it is
/// the same target.
pub fn other_call(target: &str, asked: Asked, model: Option<&str>) -> Option<String> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let Hosted { before, model: own, after } = Hosted::of(path)?;
    let streamed = VERBS.iter().find(|(streamed, _)| asked == Asked::Whole && after == *streamed);
    let model = model.map_or(Cow::Borrowed(own), |model| utf8_percent_encode(model, ESCAPED).into());
    // Vertex writes events for who says so here.
    let kept = |part: &&str| streamed.is_none() || *part != "alt=sse";
    let query: Vec<&str> = query.into_iter().flat_map(|query| query.split('&')).filter(kept).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let made = format!("{before}{model}{}{query}", streamed.map_or(after, |(_, whole)| whole));
    (made != target).then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERTEX_CALL: &str = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@2:streamRawPredict";

    #[test]
    fn another_call_keeps_the_paths_form() {
        let bedrock = "/model/eu.anthropic.claude-x-v1:0/invoke-with-response-stream";
        let azure = "/openai/deployments/mine/chat/completions?api-version=2024-10-21";
        let whole = |target: &str, model| other_call(target, Asked::Whole, model);
        assert_eq!(whole(VERTEX_CALL, None), Some(VERTEX_CALL.replace("streamRawPredict", "rawPredict")));
        assert_eq!(
            whole(&format!("{VERTEX_CALL}?alt=sse&x=1"), None),
            Some(VERTEX_CALL.replace("streamRawPredict", "rawPredict?x=1"))
        );
        assert_eq!(whole(bedrock, None).unwrap(), "/model/eu.anthropic.claude-x-v1:0/invoke");
        assert_eq!(whole(bedrock, Some("arn:aws/x")).unwrap(), "/model/arn:aws%2Fx/invoke");
        assert_eq!(whole(azure, None), None);
        assert_eq!(
            whole(azure, Some("small")).unwrap(),
            "/openai/deployments/small/chat/completions?api-version=2024-10-21"
        );
        for target in [bedrock, azure, VERTEX_CALL, "/v1/messages", "/openai/v1/responses?api-version=preview"] {
            assert_eq!(other_call(target, Asked::AsBefore, None), None);
        }
        assert_eq!(whole("/v1/messages", Some("m")), None, "the body names it");
    }

    #[test]
    fn a_deployment_names_its_model() {
        for (path, model) in [
            ("/openai/deployments/gpt-4o/chat/completions", Some("gpt-4o")),
            ("/gateway/openai/deployments/mine/responses", Some("mine")),
            ("/openai/deployments/mine", None),
            ("/openai/deployments//chat/completions", None),
            ("/openai/v1/chat/completions", None),
        ] {
            assert_eq!(model_of_path(path), model, "{path}");
        }
        assert!(!takes_messages("/openai/deployments/claude-x/chat/completions"));
    }
}
