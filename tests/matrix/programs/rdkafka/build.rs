// Tells the program which release of the crate it was built with: Cargo.lock says so.
fn main() {
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"rdkafka\"");
    let version = lines.nth(1).unwrap_or("").replace("version = ", "").replace('"', "");
    println!("cargo:rustc-env=CRATE={version}");
}
