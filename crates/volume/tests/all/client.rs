//! The Rust client, and a node in the same process.

use esker_volume::client::Client;
use esker_volume::net::Security;

use super::memory::{PATIENCE, create, node};

#[test]
fn a_connection_may_begin_with_the_longest_write_and_read() {
    let node = node(256 << 20);
    let address = node.address().to_string();
    drop(create(&address, 32 << 20));
    let data: Vec<u8> = (0..32u32 << 20).map(|at| (at >> 8) as u8).collect();
    let fresh = || Client::connect(&address, Security::Plain, PATIENCE).unwrap();
    fresh().write("disk", 0, data.clone()).unwrap();
    assert!(fresh().read("disk", 0, 32 << 20).unwrap() == data);
    let local = fresh().read_local("disk", 4 << 20, 4 << 20).unwrap();
    assert!(local.data == data[4 << 20..8 << 20]);
    node.stop();
}
