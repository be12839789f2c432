"""Everything that touches files: the shim, locks, the log, the HDF5 file, derived files."""
