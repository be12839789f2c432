"""English stopwords: articles, pronouns, auxiliaries, prepositions, question words and the halves of contractions.

Invariant: part of the tokenizer `english-1`; changing the list changes every stored index, so a new list is a new
tokenizer version. Contractions need no entry of their own: the apostrophe separates, and both halves are listed
("don't" is `don` and `t`). Question words are in the list on purpose: on questions put to conversations the list with
them is the better one (docs/ranking.md).
"""

from __future__ import annotations

_WORDS = """
a about above after again against all am an and any are aren as at be because been before being below between both
but by can cannot could couldn d did didn do does doesn doing don down during each few for from further had hadn has
hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself let ll m me
more most mustn my myself no nor not of off on once only or other ought our ours ourselves out over own re s same
shan she should shouldn so some such t than that the their theirs them themselves then there these they this those
through to too under until up ve very was wasn we were weren what when where which while who whom why with won would
wouldn you your yours yourself yourselves
"""
ENGLISH = frozenset(_WORDS.split())
