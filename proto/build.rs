//! Compiles the `.proto` files with protox, so that a checkout builds without protoc.

use prost::Message as _;

const FILES: [&str; 6] = [
    "terrane/v1/common.proto",
    "terrane/v1/data.proto",
    "terrane/v1/diagnostics.proto",
    "terrane/v1/master.proto",
    "terrane/v1/masters.proto",
    "terrane/v1/regionserver.proto",
];

#[allow(clippy::disallowed_methods, reason = "a build script runs outside of the product, without an `env`")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("terrane.descriptors"), descriptors.encode_to_vec())?;
    let services = descriptors.clone();
    tonic_prost_build::configure()
        .build_server(false)
        // Byte fields are slices of the receive buffer: cells are not copied between wire and log.
        .bytes(".")
        // Unboxed, these variants would make every request and reply of a session as large as the largest one.
        // Its bytes are secret: see `secrets.rs`.
        .skip_debug([".terrane.v1.PageKey"])
        .boxed(".terrane.v1.Request.body.scan")
        .boxed(".terrane.v1.Request.body.seal_page")
        .boxed(".terrane.v1.Request.body.open_page")
        .boxed(".terrane.v1.Request.body.bulk_part")
        .boxed(".terrane.v1.Request.body.bulk_commit")
        .boxed(".terrane.v1.Reply.body.scan")
        .boxed(".terrane.v1.Reply.body.error")
        .compile_fds(descriptors)?;
    // Servers decode the same messages with their own codec.
    let servers = out.join("servers");
    std::fs::create_dir_all(&servers)?;
    tonic_prost_build::configure()
        .build_client(false)
        .codec_path("crate::codec::ServerCodec")
        .extern_path(".terrane.v1", "crate::v1")
        .out_dir(servers)
        .compile_fds(services)?;
    Ok(())
}
