//! Compiles the `.proto` files with protox, so that a checkout builds without protoc.

const FILES: [&str; 8] = [
    "hbase/admin.proto",
    "hbase/client.proto",
    "hbase/filters.proto",
    "hbase/master.proto",
    "hbase/names.proto",
    "hbase/registry.proto",
    "hbase/rpc.proto",
    "hbase/status.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    // Byte fields are slices of the receive buffer: rows and values are not copied.
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
