"""Ranking and the derived index: tokenizer, BM25, vectors, fusion, context, filters, executors."""
