# The folders of src/ and the walls between them, for each Makefile that compiles
# files of them.  SRC is the way to src/ from there, set before.

SRC_FOLDERS = base config message formats shared store broker enqueue capture debezium external admin \
	launcher preflight relay/queue relay/reading relay/settling relay/link relay/upkeep relay

# Whose headers each may include beside its own: the arrows of doc/dev/internals.md.
# test/tools/walls-check has them, too, so that no arrow comes by accident.
SRC_USES_config = base
SRC_USES_message = config base
SRC_USES_formats = message base
SRC_USES_shared = config base
SRC_USES_store = formats message config base
SRC_USES_broker = formats message config base
SRC_USES_enqueue = store formats shared message config base
SRC_USES_capture = enqueue message config base
SRC_USES_debezium = enqueue shared message config base
SRC_USES_external = enqueue store message config base
SRC_USES_admin = enqueue shared message config base
SRC_USES_launcher = shared config base
SRC_USES_preflight = broker formats shared message config base
SRC_USES_relay/queue = store formats shared message config base
SRC_USES_relay/reading = relay/queue $(SRC_USES_relay/queue)
SRC_USES_relay/settling = relay/reading broker $(SRC_USES_relay/reading)
SRC_USES_relay/link = relay/queue broker $(SRC_USES_relay/queue)
SRC_USES_relay/upkeep = relay/reading $(SRC_USES_relay/reading)
SRC_USES_relay = relay/reading relay/settling relay/link relay/upkeep $(SRC_USES_relay/settling)
# src/outbox.c
SRC_USES_outbox = enqueue admin capture debezium external launcher shared message config base

# What others may include of a folder: its include/, or all of it if it has none.
src_public = $(or $(wildcard $(SRC)/$(1)/include),$(SRC)/$(1))

# The include path of folders.  What lies beside a source is found without it.
src_includes = $(addprefix -I,$(sort $(foreach f,\
	$(filter $(SRC_FOLDERS),$(1)) $(foreach g,$(1),$(SRC_USES_$(g))),$(call src_public,$(f)))))

SRC_FILES = $(wildcard $(SRC)/*.c $(addsuffix /*.c,$(addprefix $(SRC)/,$(SRC_FOLDERS))))
SRC_HEADERS = $(wildcard $(foreach f,$(addprefix $(SRC)/,$(SRC_FOLDERS)),$(addprefix $(f)/,*.h *.def include/*.h include/*.def))) \
	$(SRC)/folders.mk
