"""Merkle tree, manifests, signatures, checkpoint notes, verification."""
