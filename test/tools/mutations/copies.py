"""Mutations of copies: copies of a server publish nothing."""

MUTATIONS = (
    ("any-environment", "src/common/identity.c",
     "if (strcmp(recorded->environment, outbox_environment) != 0)", "if (false)",
     "a copy under another name of the environment is silent",
     ["worker/state"]),
    ("set-back-once", "src/common/identity.c",
     "if (outbox_environment_restored(&how) >=", "if (outbox_environment_restored(&how) >",
     "a server that was restored to a point in time is silent",
     ["copies_environment"]),
    ("any-promotion", "src/common/environment.c",
     "at == 0 || !is_target(line.data + at) || left < restored)", "at == 0 || left < restored)",
     "a standby that is promoted goes on by itself",
     ["copies_environment"]),
    ("name-copied", "src/common/identity.c",
     "if (unusable != NULL)", "if (false)",
     "a name that is copied with the data proves nothing",
     ["copies_environment"]),
)
