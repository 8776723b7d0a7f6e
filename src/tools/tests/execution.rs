use proptest::prelude::*;

use super::*;
use crate::compact::TextId;
use crate::proxy::budget::Budget;
use crate::store::{Batch, Limits, Store};

struct Desk {
    store: Arc<Store>,
    reading: Arc<Reading>,
}

impl Desk {
    async fn new() -> Self {
        let store = Store::in_memory_only(Limits::default()).await.unwrap();
        let reading = Arc::new(Reading::new(Arc::clone(&store), Budget::new(1 << 30)));
        Self { store, reading }
    }

    fn keep(&self, tenant: Tenant, text: &str) -> TextId {
        let removed = self.store.text_key(&tenant).removed(text.to_owned());
        let id = removed.id;
        self.store.hold_in_memory(&tenant, &Batch { texts: vec![removed], ..Batch::default() });
        id
    }

    fn tools(&self, tenants: &[Tenant]) -> Toolbox {
        let caller = Caller {
            tenants: tenants.to_vec(),
            home: tenants.first().copied(),
            who: Who::Anyone,
            agent: "a".into(),
            view: None,
        };
        Toolbox::new(Arc::clone(&self.reading), caller, Enabled::default(), 1_000)
    }
}

fn id(id: TextId) -> String {
    format!(r#"{{"id":"{id}"}}"#)
}

#[tokio::test]
async fn a_removed_text_is_read_back() {
    let desk = Desk::new().await;
    let tenant = desk.store.tenant(&[b"a"]);
    let text = "first\nsecond\nthird\n";
    let (kept, tools) = (desk.keep(tenant, text), desk.tools(&[tenant]));
    let read = tools.call("read_evicted", &id(kept)).await;
    assert!(!read.failed && read.text.ends_with(&format!("this is the end]\n{text}")), "{read:?}");
    let read = tools.call("read_evicted", &format!(r#"{{"id":"{kept}","pattern":"^sec"}}"#)).await;
    assert!(!read.failed && read.text.ends_with("1-first\n2:second\n3-third\n"), "{read:?}");
    for (arguments, says) in [
        (format!(r#"{{"id":"{kept}","pattern":"("}}"#), "without look-around"),
        (format!(r#"{{"id":"{kept}","pattern":"(?=x)"}}"#), "without look-around"),
        (format!(r#"{{"id":"{kept}","offset":3}}"#), "the last offset is 2"),
        ("{}".to_owned(), "Example: "),
    ] {
        let read = tools.call("read_evicted", &arguments).await;
        assert!(read.failed && read.text.starts_with("Error: ") && read.text.contains(says), "{read:?}");
    }
    let none = tools.call("memory_save", r#"{"content":"x"}"#).await;
    assert_eq!((none.failed, none.text.as_str()), (true, "Error: there is no such tool; the tools are read_evicted."));
}

#[tokio::test]
async fn another_tenants_id_is_as_unknown_as_one_that_does_not_exist() {
    let desk = Desk::new().await;
    let (a, b, c) = (desk.store.tenant(&[b"a"]), desk.store.tenant(&[b"b"]), desk.store.tenant(&[b"c"]));
    let kept = desk.keep(a, "a's own");
    let foreign = desk.tools(&[b, c]).call("read_evicted", &id(kept)).await;
    let guessed = desk.tools(&[b, c]).call("read_evicted", &id(TextId([7; 16]))).await;
    assert!(foreign.failed && guessed.failed);
    assert_eq!(foreign.text.replace(&kept.to_string(), "*"), guessed.text.replace(&TextId([7; 16]).to_string(), "*"));
    assert!(!desk.tools(&[b, a]).call("read_evicted", &id(kept)).await.failed, "one of the caller's tenants");
    assert!(desk.tools(&[]).call("read_evicted", &id(kept)).await.failed);
}

#[tokio::test]
async fn memory_is_read_only_where_there_is_room_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("state.db").display());
    let store = Store::open(&url, Limits::default()).await.unwrap();
    let tenant = store.tenant(&[b"a"]);
    let day = "memory/2026-11-30.md".parse().unwrap();
    store.append_memory(&tenant, "a", crate::memory::MemoryPath::Curated, "tea\n").await.unwrap();
    store.append_memory(&tenant, "a", day, &"tea\n".repeat(99)).await.unwrap();
    let tools = |bytes| {
        let reading = Arc::new(Reading::new(Arc::clone(&store), Budget::new(bytes)));
        let caller =
            Caller { tenants: vec![tenant], home: Some(tenant), who: Who::Seen(tenant), agent: "a".into(), view: None };
        Toolbox::new(reading, caller, Enabled { memory: true, sessions: false }, 1_000)
    };
    let search = r#"{"query":"tea"}"#;
    assert!(tools(399).call("memory_search", search).await.text.contains("buffers are full"));
    assert!(!tools(400).call("memory_search", search).await.failed);
    // One file needs room for itself alone.
    let get = |path: &str| format!(r#"{{"path":"{path}"}}"#);
    assert!(!tools(4).call("memory_get", &get("MEMORY.md")).await.failed);
    assert!(tools(395).call("memory_get", &get("memory/2026-11-30.md")).await.text.contains("buffers are full"));
    let none = tools(4).call("memory_get", &get("memory/2026-11-29.md")).await;
    assert!(none.text.contains("The latest files are MEMORY.md, memory/2026-11-30.md."), "{none:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_asked_for_the_answer_is_bounded_and_never_anothers(
        text in "(?s)(.{0,40}\n?){0,40}",
        offset in prop_oneof![Just(0_usize), 0..60_usize],
        char in prop_oneof![Just(0_usize), 0..60_usize],
        limit in proptest::option::of(1_usize..60),
        pattern in proptest::option::of("(?s).{0,12}"),
        garbage in "(?s).{0,40}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new().await;
            let (a, b) = (desk.store.tenant(&[b"a"]), desk.store.tenant(&[b"b"]));
            let secret = "the secret of b";
            let (kept, foreign) = (desk.keep(a, &text), desk.keep(b, secret));
            let tools = desk.tools(&[a]);
            for id in [kept.to_string(), foreign.to_string(), garbage.clone()] {
                let asked = serde_json::json!({
                    "id": id, "offset": offset, "char_offset": char, "limit": limit, "pattern": pattern
                });
                for arguments in [asked.to_string(), garbage.clone()] {
                    let answer = tools.call("read_evicted", &arguments).await;
                    prop_assert!(answer.text.chars().count() <= 1_000);
                    prop_assert!(!answer.text.contains(secret));
                    prop_assert!(!answer.text.is_empty());
                }
            }
            Ok(())
        })?;
    }
}
