//! Tenants never meet (L7).

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Evict(usize, u8),
    Activate(usize, u8),
    Hold(usize, u8),
    Forward(usize),
    Quarantine(usize),
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let len = 1..6_usize;
    let step = prop_oneof![
        (len.clone(), any::<u8>()).prop_map(|(len, text)| Step::Evict(len, text)),
        (len.clone(), any::<u8>()).prop_map(|(len, text)| Step::Activate(len, text)),
        (len.clone(), any::<u8>()).prop_map(|(len, text)| Step::Hold(len, text)),
        len.clone().prop_map(Step::Forward),
        len.prop_map(Step::Quarantine),
    ];
    prop::collection::vec((any::<bool>(), step), 1..14)
}

/// What one tenant alone would have, by the rules in words.
#[derive(Default)]
struct Model {
    evictions: HashMap<Digest, Arc<Eviction>>,
    checkpoints: HashMap<usize, (Arc<Checkpoint>, bool)>,
    forwarded: Vec<usize>,
}

impl Model {
    fn take(&mut self, turns: &[Digest], step: &Step) {
        match step {
            Step::Evict(len, text) | Step::Hold(len, text) => {
                if !self.forwarded.contains(len) {
                    self.evictions.entry(turns[len - 1]).or_insert_with(|| eviction(&text.to_string()));
                }
            }
            Step::Activate(len, text) => {
                let row = || (checkpoint(Level::Trim, *len, &text.to_string()), true);
                self.checkpoints.entry(*len).or_insert_with(row);
            }
            Step::Forward(len) => self.forwarded.push(*len),
            Step::Quarantine(len) => self.checkpoints.get_mut(len).into_iter().for_each(|row| row.1 = false),
        }
    }

    fn known(&self) -> Known {
        let active = self.checkpoints.iter().filter(|(_, row)| row.1).max_by_key(|(len, _)| **len);
        let refused = self.checkpoints.iter().filter(|(_, row)| !row.1).map(|(len, _)| (*len, Level::Trim));
        let mut refused: Vec<(usize, Level)> = refused.collect();
        refused.sort_unstable();
        Known {
            evictions: self.evictions.clone().into_iter().collect(),
            active: active.map(|(_, row)| Arc::clone(&row.0)),
            prepared: None,
            seen: self.forwarded.iter().copied().max().unwrap_or(0),
            refused,
            remembered: None,
            incomplete: false,
        }
    }
}

async fn run(store: &Store, tenant: &Tenant, turns: &[Digest], step: &Step) {
    match step {
        Step::Evict(len, text) => store.commit(tenant, evicting(&turns[..*len], &text.to_string())).await.unwrap(),
        Step::Activate(len, text) => {
            let batch = folding(&turns[..*len], Level::Trim, &text.to_string(), Stage::Activated);
            store.commit(tenant, batch).await.unwrap();
        }
        Step::Hold(len, text) => store.hold_in_memory(tenant, &evicting(&turns[..*len], &text.to_string())),
        Step::Forward(len) => store.remember_forwarded(tenant, &turns[..*len], Lasting::Yes),
        Step::Quarantine(len) => store.quarantine(tenant, &turns[len - 1]),
    }
}

#[test]
fn two_tenants_with_the_same_digests_have_what_each_wrote() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let f = runtime.block_on(Fixture::new());
    let case = std::cell::Cell::new(0_u32);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(40));
    let result = runner.run(&steps(), |steps| {
        case.set(case.get() + 1);
        let name = case.get().to_le_bytes();
        let tenants = [f.store.tenant(&[b"a", &name]), f.store.tenant(&[b"b", &name])];
        let (turns, mut models) = (chain("shared", 6), [Model::default(), Model::default()]);
        runtime.block_on(async {
            for (second, step) in &steps {
                let which = usize::from(*second);
                run(&f.store, &tenants[which], &turns, step).await;
                models[which].take(&turns, step);
                for (tenant, model) in tenants.iter().zip(&models) {
                    prop_assert_eq!(f.store.known(tenant, &turns).await, model.known(), "after {:?}", step);
                }
            }
            Ok(())
        })
    });
    result.unwrap();
}

#[tokio::test]
async fn learned_numbers_and_text_ids_belong_to_their_tenant() {
    let f = Fixture::new().await;
    let other = f.store.tenant(&[b"openai", b"other key"]);
    f.store.learn_calibration(&f.tenant, "openai", "gpt", 2.0);
    assert_eq!(f.store.calibration(&other, "openai", "gpt"), None);
    assert_ne!(f.store.text_key(&f.tenant).id("same"), f.store.text_key(&other).id("same"));
}
