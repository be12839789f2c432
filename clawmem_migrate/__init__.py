"""clawmem-migrate: SQLite databases and stores of the Rust tools in, proven by reading them back."""
