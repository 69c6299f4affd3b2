"""Mutations of formats: the formats of messages."""

MUTATIONS = (
    ("cap-msg-group", "src/common/format_dotnet.c",
     "\"cap-delaytime\", \"cap-msg-group\", NULL",
     "\"cap-delaytime\", NULL",
     "cap: cap-msg-group is refused in headers",
     ["regress/formats"]),
)
