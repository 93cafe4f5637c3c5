//! Says to the library's sources that they are compiled for the model, and with the store on Redis.

fn main() {
    println!("cargo::rustc-cfg=model");
    println!("cargo::rustc-cfg=feature=\"redis\"");
    println!(
        "cargo::rustc-check-cfg=cfg(feature, values(\"redis\", \"config\", \"cluster-async\", \"serde\", \"tls\"))"
    );
    println!("cargo::rerun-if-changed=build.rs");
}
