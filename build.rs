//! Tells the linker to put what runs while the proxy starts side by side, see `link/README.md`.

use std::env;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = "link/start.ld";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SCRIPT}");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_release && links_by_rusts_own() {
        let script = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join(SCRIPT);
        println!("cargo:rustc-link-arg-bin=compactproxy=-Wl,-T,{}", script.display());
        println!("cargo:rustc-link-arg-bin=compactproxy=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the linker is the lld that comes with rustc, as it is by default on one platform: others may not know these
/// options, and link without.
fn links_by_rusts_own() -> bool {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    let chosen = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if chosen || !is("TARGET", TARGET) || !is("HOST", TARGET) {
        return false;
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let Ok(sysroot) = Command::new(rustc).args(["--print", "sysroot"]).output() else { return false };
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").exists()
}
