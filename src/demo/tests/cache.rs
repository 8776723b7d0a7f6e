use super::*;

fn prompt(runs: &[&[u32]]) -> Prompt {
    Prompt { runs: runs.iter().map(|run| Arc::from(*run)).collect(), ..Prompt::default() }
}

fn run(first: u32, length: usize) -> Vec<u32> {
    (first..).take(length).collect()
}

#[test]
fn the_first_request_reads_nothing_the_second_all_in_whole_steps() {
    let mut cache = PromptCache::default();
    let (tools, one, two) = (run(0, 900), run(5_000, 300), run(9_000, 50));
    assert_eq!(cache.read("m", &prompt(&[&tools, &one])), 0);
    assert_eq!(cache.read("m", &prompt(&[&tools, &one, &two])), 1_152);
}

#[test]
fn nothing_below_the_least_prefix() {
    let mut cache = PromptCache::default();
    let mut read = |length: usize| {
        cache.read("m", &prompt(&[&run(0, length)]));
        cache.read("m", &prompt(&[&run(0, length)]))
    };
    assert_eq!(read(1_023), 0);
    assert_eq!(read(1_024), 1_024);
    assert_eq!(read(1_151), 1_024);
    assert_eq!(read(1_152), 1_152);
}

#[test]
fn a_change_ends_the_prefix_where_it_is() {
    let mut cache = PromptCache::default();
    let (one, mut changed, tail) = (run(0, 2_000), run(0, 2_000), run(90_000, 2_000));
    cache.read("m", &prompt(&[&one, &tail]));
    changed[1_500] = 7;
    assert_eq!(cache.read("m", &prompt(&[&changed, &tail])), 1_408);
}

#[test]
fn models_have_caches_of_their_own_and_old_prompts_stay_readable() {
    let mut cache = PromptCache::default();
    let (a, b) = (run(0, 2_000), run(50_000, 2_000));
    cache.read("m", &prompt(&[&a]));
    assert_eq!(cache.read("n", &prompt(&[&a])), 0);
    assert_eq!(cache.read("m", &prompt(&[&b])), 0);
    assert_eq!(cache.read("m", &prompt(&[&a])), 1_920);
}

#[test]
fn the_oldest_prompt_is_forgotten() {
    let mut cache = PromptCache::default();
    for first in 0..=REMEMBERED as u32 {
        cache.read("m", &prompt(&[&run(first * 10_000, 1_100)]));
    }
    assert_eq!(cache.read("m", &prompt(&[&run(10_000, 1_100)])), 1_024);
    assert_eq!(cache.read("m", &prompt(&[&run(0, 1_100)])), 0);
}
