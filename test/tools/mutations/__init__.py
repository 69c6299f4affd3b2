"""The mutations that test/tools/mutate makes: one mistake each, in the logic that a
promise hangs on.  Each area has a file with a tuple MUTATIONS of

	(name, file, old, new, promise, tests)

old is a piece of text that is in the file exactly once; new replaces it.  It need not
be a whole line: prefer the shortest piece that will stay.  promise says what the
mistake breaks, in the words of doc/delivery.md.  tests are the tests that notice it,
the cheapest first, as test/tools/mutate names them.
"""

import collections
import importlib

AREAS = ("relay", "broker", "launcher", "producers", "formats", "operators",
         "external", "monitoring", "copies")

Mutation = collections.namedtuple("Mutation", "name file old new promise tests area")

MUTATIONS = [Mutation(*m, area) for area in AREAS
             for m in importlib.import_module("mutations." + area).MUTATIONS]
