"""Mutations of launcher: the launcher and its workers."""

MUTATIONS = (
    ("absent-while-asked", "src/launcher/launcher_workers.c",
     "	if (unread && reason == OUTBOX_EXIT_ABSENT)",
     "	if (false && unread && reason == OUTBOX_EXIT_ABSENT)",
     "CREATE EXTENSION while the worker leaves: it comes back",
     ["sim/launcher"]),
    ("group-counts-each", "src/launcher/launcher_workers.c",
     "	if (db->failures > 0 && !outbox_mono_reached(db->retry_at, now))\n		return;\n",
     "",
     "a group of eight workers that crash together does not wait for a minute",
     ["sim/launcher"]),
)
